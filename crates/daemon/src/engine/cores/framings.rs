// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the engine takes off and puts on at its ports: it is told, and what is new holds once it has said that it goes by it.

use std::collections::BTreeSet;
use std::os::fd::AsFd;

use freeway_abi::{Pod, fw_framed, fw_framing};
use freeway_api::engine::{Answer, FRAMINGS_MAX, Framings};
use freeway_api::handover;

use super::super::Engine;
use super::Cores;

/// Of a VLAN or session: how its frames come in, and whose they are.
type Record = (Vec<u8>, Vec<u8>);

/// What an engine was told. One message at a time is under way.
#[derive(Debug, Default)]
pub(super) struct Told {
    number: u64,
    /// Of the last one that it goes by.
    taken: u64,
    told: BTreeSet<Record>,
    /// Of these it surely goes by.
    held: BTreeSet<Record>,
    wanted: BTreeSet<Record>,
}

impl Told {
    /// Others are wanted from now on.
    fn want(&mut self, wanted: BTreeSet<Record>) {
        self.held.retain(|record| wanted.contains(record));
        self.wanted = wanted;
    }

    /// What is to be said now.
    fn next(&mut self) -> Option<Framings> {
        if self.taken != self.number || self.told == self.wanted {
            return None;
        }
        self.number += 1;
        self.told.clone_from(&self.wanted);
        Some(Framings {
            number: self.number,
            framings: self.told.iter().cloned().collect(),
        })
    }

    /// It goes by those of that number.
    pub(super) fn taken(&mut self, number: u64) {
        if number == self.number {
            self.taken = number;
            let still = |record: &&Record| self.wanted.contains(*record);
            self.held = self.told.iter().filter(still).cloned().collect();
        }
    }
}

impl Cores {
    /// True if the engine takes that off and puts it on.
    pub fn frames(&self, framing: &fw_framing, framed: &fw_framed) -> bool {
        let record = (framing.as_bytes().to_vec(), framed.as_bytes().to_vec());
        let there = self.there.as_ref();
        there.is_some_and(|there| there.framings.held.contains(&record))
    }
}

impl Engine {
    /// Tells the engine what the ports have come to.
    pub(in crate::engine) fn tell_framings(&mut self) {
        let ports = self.ports.by_index.iter();
        let records = ports.filter_map(|(ifindex, port)| {
            let carried = port.carried.as_ref().filter(|carried| carried.by_engine)?;
            let (framing, framed) = carried.records(*ifindex);
            Some((framing.as_bytes().to_vec(), framed.as_bytes().to_vec()))
        });
        let wanted: BTreeSet<Record> = records.take(FRAMINGS_MAX).collect();
        let Some(there) = &mut self.cores.there else {
            return;
        };
        there.framings.want(wanted);
        if let Some(framings) = there.framings.next() {
            let sent = handover::send(there.socket.as_fd(), &Answer::Framings(framings), &[]);
            if let Err(error) = sent {
                tracing::warn!("the engine (process {}): {error}", there.status.pid);
            }
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
