// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the engine takes off and puts on at its ports: it is told, and what is new holds once it has said that it goes by it.

use std::collections::BTreeSet;

use freeway_abi::{Pod, fw_framed, fw_framing};
use freeway_api::engine::Framings;

use super::numbers::Numbers;

/// Of a VLAN or session: how its frames come in, and whose they are.
pub(super) type Record = (Vec<u8>, Vec<u8>);

pub(super) fn record(framing: &fw_framing, framed: &fw_framed) -> Record {
    (framing.as_bytes().to_vec(), framed.as_bytes().to_vec())
}

/// What an engine was told. One message at a time is under way.
#[derive(Debug, Default)]
pub(super) struct Told {
    numbers: Numbers,
    told: BTreeSet<Record>,
    /// Of these it surely goes by.
    held: BTreeSet<Record>,
    wanted: BTreeSet<Record>,
}

impl Told {
    /// Others are wanted from now on.
    pub(super) fn want(&mut self, wanted: BTreeSet<Record>) {
        self.held.retain(|record| wanted.contains(record));
        self.wanted = wanted;
    }

    /// What is to be said now.
    pub(super) fn next(&mut self) -> Option<Framings> {
        if self.numbers.is_under_way() || self.told == self.wanted {
            return None;
        }
        self.told.clone_from(&self.wanted);
        Some(Framings {
            number: self.numbers.next(),
            framings: self.told.iter().cloned().collect(),
        })
    }

    /// It surely takes that off and puts it on.
    pub(super) fn holds(&self, record: &Record) -> bool {
        self.held.contains(record)
    }

    /// It goes by those of that number.
    pub(super) fn taken(&mut self, number: u64) {
        if self.numbers.taken(number) {
            let still = |record: &&Record| self.wanted.contains(*record);
            self.held = self.told.iter().filter(still).cloned().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(ports: &[u8]) -> BTreeSet<Record> {
        ports.iter().map(|port| (vec![*port], vec![])).collect()
    }

    #[test]
    fn what_is_new_holds_once_it_is_taken() {
        let mut told = Told::default();
        told.want(records(&[1, 2]));
        assert_eq!(told.next().unwrap().number, 1);
        assert!(told.held.is_empty());
        // one message at a time
        told.want(records(&[2, 3]));
        assert_eq!(told.next(), None);
        told.taken(1);
        assert_eq!(told.held, records(&[2]));
        assert_eq!(told.next().unwrap().framings.len(), 2);
        assert_eq!(told.held, records(&[2]));
        // what comes again was taken off in between
        told.want(records(&[3]));
        told.want(records(&[2, 3]));
        assert!(told.held.is_empty());
        told.taken(2);
        assert_eq!(told.held, records(&[2, 3]));
        assert_eq!(told.next(), None);
    }
}
