// SPDX-License-Identifier: MIT OR Apache-2.0
//! The entries of the multicast forwarding caches, by name.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::dirty::Dirty;
use super::maps::maps;
use crate::model::{Event, Mroute};

/// Name of an entry: table, source, group.
pub type MrouteKey = (u32, IpAddr, IpAddr);

/// The multicast forwarding caches of the kernel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mroutes {
    entries: BTreeMap<MrouteKey, Mroute>,
    /// Names of several entries, which differ by input interface (MRT_ADD_MFC_PROXY). They are kept as one that is not
    /// resolved.
    shared: BTreeSet<MrouteKey>,
}

fn key(mroute: &Mroute) -> MrouteKey {
    (mroute.table, mroute.src, mroute.group)
}

impl Mroutes {
    /// The entries.
    pub fn entries(&self) -> &BTreeMap<MrouteKey, Mroute> {
        &self.entries
    }

    /// Adds an entry of a dump.
    pub fn collect(&mut self, mroute: Mroute) {
        let key = key(&mroute);
        if let Some(old) = self.entries.get_mut(&key)
            && old.iif != mroute.iif
        {
            (old.iif, old.oifs) = (0, Vec::new());
            self.shared.insert(key);
        } else if !self.shared.contains(&key) {
            self.entries.insert(key, mroute);
        }
    }

    /// Applies an event and appends what changed. True if only a dump can tell: an entry has moved to another input
    /// interface, or another of the same name came or went.
    pub fn apply(&mut self, new: bool, mroute: Mroute, events: &mut Vec<Event>) -> bool {
        let key = key(&mroute);
        let other = |old: &Mroute| old.iif != 0 && mroute.iif != 0 && old.iif != mroute.iif;
        if self.shared.contains(&key) || self.entries.get(&key).is_some_and(other) {
            return true;
        }
        if !new {
            // As it was: when a routing daemon ends, its interfaces are gone before its entries.
            events.extend(self.entries.remove(&key).map(Event::MrouteGone));
        } else if self.entries.insert(key, mroute.clone()).as_ref() != Some(&mroute) {
            events.push(Event::MrouteChanged(mroute));
        }
        false
    }

    /// Appends the events that lead from `self` to `new`.
    pub fn difference(&self, new: &Mroutes, events: &mut Vec<Event>) {
        maps(
            &self.entries,
            &new.entries,
            Mroute::eq,
            Event::MrouteChanged,
            Event::MrouteGone,
            events,
        );
    }

    /// True if the entries must be read anew. What becomes of interfaces comes by another socket than what becomes of
    /// entries, so this is asked when both are read.
    pub fn doubtful(&self, dirty: &Dirty) -> bool {
        let gone = |ifindex| dirty.links_gone.contains(&ifindex);
        let lost =
            |mroute: &Mroute| gone(mroute.iif) || mroute.oifs.iter().any(|oif| gone(oif.ifindex));
        dirty.mroutes
            || (dirty.mroute_links && !self.entries.is_empty())
            || (!dirty.links_gone.is_empty()
                && (!self.shared.is_empty() || self.entries.values().any(lost)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(iif: u32) -> Mroute {
        Mroute {
            src: [0, 0, 0, 0].into(),
            group: [239, 1, 2, 3].into(),
            iif,
            oifs: Vec::new(),
            table: 253,
        }
    }

    #[test]
    fn entries_of_one_name_are_not_resolved() {
        let mut mroutes = Mroutes::default();
        let mut events = Vec::new();
        assert!(!mroutes.apply(true, entry(7), &mut events));
        assert_eq!(events, [Event::MrouteChanged(entry(7))]);
        assert!(!mroutes.apply(true, entry(7), &mut events));
        assert!(mroutes.apply(true, entry(8), &mut events));
        assert!(mroutes.apply(false, entry(8), &mut events));
        assert_eq!((events.len(), mroutes.entries().len()), (1, 1));
        let mut dumped = Mroutes::default();
        for iif in [7, 8, 7, 8] {
            dumped.collect(entry(iif));
        }
        assert_eq!(dumped.entries().values().collect::<Vec<_>>(), [&entry(0)]);
        for new in [true, false] {
            assert!(dumped.apply(new, entry(7), &mut events));
        }
        let gone = |ifindex| Dirty {
            links_gone: [ifindex].into(),
            ..Dirty::default()
        };
        assert!(dumped.doubtful(&gone(9)) && !dumped.doubtful(&Dirty::default()));
        assert!(mroutes.doubtful(&gone(7)) && !mroutes.doubtful(&gone(9)));
    }

    #[test]
    fn an_entry_goes_as_it_was() {
        let mut mroutes = Mroutes::default();
        let mut events = Vec::new();
        mroutes.collect(entry(7));
        assert!(!mroutes.apply(false, entry(0), &mut events));
        assert!(!mroutes.apply(false, entry(0), &mut events));
        assert_eq!(events, [Event::MrouteGone(entry(7))]);
    }
}
