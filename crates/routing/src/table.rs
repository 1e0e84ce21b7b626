// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table that the data plane is to have, and what of it has not been told yet.

use std::collections::{BTreeMap, BTreeSet};

use freeway_prefix::{NextHop, Prefix};

use crate::answer::Why;
use crate::hops::{Hops, LEAF_KERNEL, LEAF_UNICAST};
use crate::ip::Ip;
use crate::lead::{Lead, View};
use crate::longest::Longest;

/// What a prefix has in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub leaf: NextHop,
    /// Why it is the kernel's.
    pub why: Option<Why>,
}

/// Prefixes and their leaves.
#[derive(Clone, Debug)]
pub struct Table<A> {
    entries: Longest<A, Entry>,
    /// What was told, of those that may differ from it.
    told: BTreeMap<Prefix<A>, Option<NextHop>>,
    /// Those that found no number of a next hop.
    crowded: BTreeSet<Prefix<A>>,
    kept: BTreeMap<Why, usize>,
}

impl<A> Default for Table<A> {
    fn default() -> Self {
        Self {
            entries: Longest::default(),
            told: BTreeMap::new(),
            crowded: BTreeSet::new(),
            kept: BTreeMap::new(),
        }
    }
}

impl<A: Ip> Table<A> {
    /// Has a prefix be as what is known says.
    pub fn settle(&mut self, prefix: Prefix<A>, view: View<'_, A>, hops: &mut Hops<A>) {
        let entry = self.entry(prefix, view.lead(prefix), hops);
        let old = match entry {
            Some(entry) => self.entries.insert(prefix, entry),
            None => self.entries.remove(prefix),
        };
        self.replaced(prefix, old, entry, hops);
    }

    /// Has all of it be as what is known says. Prefixes are in order, each once, and all that may say anything are among them.
    pub fn settle_all(&mut self, prefixes: &[Prefix<A>], view: View<'_, A>, hops: &mut Hops<A>) {
        let mut entries = Vec::with_capacity(prefixes.len());
        let mut old = std::mem::take(&mut self.entries).into_iter().peekable();
        for (prefix, lead) in view.leads(prefixes) {
            let Some(entry) = self.entry(prefix, lead, hops) else {
                continue;
            };
            while let Some((gone, entry)) = old.next_if(|(old, _)| *old < prefix) {
                self.replaced(gone, Some(entry), None, hops);
            }
            let before = old.next_if(|(old, _)| *old == prefix);
            let before = before.map(|(_, entry)| entry);
            self.replaced(prefix, before, Some(entry), hops);
            entries.push((prefix, entry));
        }
        for (gone, entry) in old {
            self.replaced(gone, Some(entry), None, hops);
        }
        self.entries = entries.into_iter().collect();
    }

    /// What it is to have, with a number taken.
    fn entry(
        &mut self,
        prefix: Prefix<A>,
        lead: Option<Lead<A>>,
        hops: &mut Hops<A>,
    ) -> Option<Entry> {
        self.crowded.remove(&prefix);
        let entry = match lead? {
            Lead::Kernel(why) => Entry {
                leaf: LEAF_KERNEL,
                why: Some(why),
            },
            Lead::Unicast(why) => Entry {
                leaf: LEAF_UNICAST,
                why: Some(why),
            },
            Lead::To(target) => match hops.take(target) {
                Some(leaf) => Entry { leaf, why: None },
                None => {
                    self.crowded.insert(prefix);
                    Entry {
                        leaf: LEAF_UNICAST,
                        why: Some(Why::Full),
                    }
                }
            },
        };
        Some(entry)
    }

    /// Gives the old number back, counts, and notes what is to be told.
    fn replaced(
        &mut self,
        prefix: Prefix<A>,
        old: Option<Entry>,
        new: Option<Entry>,
        hops: &mut Hops<A>,
    ) {
        if let Some(old) = old {
            hops.give(old.leaf);
        }
        let leaf = |entry: Option<Entry>| entry.map(|entry| entry.leaf);
        if leaf(old) != leaf(new) {
            self.told.entry(prefix).or_insert(leaf(old));
        }
        if let Some(why) = old.and_then(|old| old.why)
            && let Some(count) = self.kept.get_mut(&why)
        {
            *count -= 1;
        }
        if let Some(why) = new.and_then(|new| new.why) {
            *self.kept.entry(why).or_default() += 1;
        }
    }

    /// Tries again what found no number.
    pub fn settle_crowded(&mut self, view: View<'_, A>, hops: &mut Hops<A>) {
        while hops.has_room()
            && let Some(prefix) = self.crowded.first().copied()
        {
            self.settle(prefix, view, hops);
        }
    }

    /// What differs from what was told.
    pub fn changes(&mut self) -> Vec<(Prefix<A>, Option<NextHop>)> {
        let told = std::mem::take(&mut self.told).into_iter();
        let now = told.map(|(prefix, told)| (prefix, told, self.leaf(prefix)));
        let changed = now.filter(|(_, told, now)| told != now);
        changed.map(|(prefix, _, now)| (prefix, now)).collect()
    }

    fn leaf(&self, prefix: Prefix<A>) -> Option<NextHop> {
        self.entries.get(prefix).map(|entry| entry.leaf)
    }

    pub fn longest(&self, address: A) -> Option<(Prefix<A>, Entry)> {
        let (prefix, entry) = self.entries.longest(address, A::LENGTH)?;
        Some((prefix, *entry))
    }

    /// Prefixes with a next hop, and those without by reason.
    pub fn counts(&self) -> (usize, BTreeMap<Why, usize>) {
        let kept = self.kept.iter().filter(|(_, count)| **count > 0);
        let mut by_reason = BTreeMap::new();
        by_reason.extend(kept.map(|(why, count)| (*why, *count)));
        let without = by_reason.values().sum::<usize>();
        (self.entries.len() - without, by_reason)
    }
}
