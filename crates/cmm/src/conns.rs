// SPDX-License-Identifier: MIT OR Apache-2.0
//! The connections of the flows: a slab, found by their original tuple.
//!
//! The tuple is not kept here: one of the flows has it.

use std::collections::{BTreeSet, HashMap};
use std::hash::RandomState;

use freeway_kernel::model::Tuple;
use hashbrown::HashTable;

use crate::flow::{Connection, Preparation};
use crate::table::{Table, hash_tuple, spread};

/// The VRFs of a flow's two ports, in order, so that both directions have the same; 0: none.
pub(crate) type Vrfs = [u32; 2];

/// A connection with at least one flow in the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conn {
    /// Flow indices of the original and the reply direction; 0 is none.
    pub flows: [u32; 2],
    pub status: u32,
    pub mark: u32,
    pub timeout_s: u32,
    pub prepared_tick: u32,
    /// Of its ports, in order. Between them and others conntrack, without zones, does not tell.
    pub vrfs: Vrfs,
    hash: u32,
    pub preparation: Preparation,
    /// Both directions were fast at some time.
    pub both_fast: bool,
}

impl Conn {
    pub fn new(status: u32, mark: u32, timeout_s: u32, now_tick: u32) -> Self {
        Self {
            flows: [0; 2],
            status,
            mark,
            timeout_s,
            prepared_tick: now_tick,
            vrfs: [0; 2],
            hash: 0,
            preparation: Preparation::None,
            both_fast: false,
        }
    }

    /// Indices of its flows in the table.
    pub fn indices(&self) -> impl Iterator<Item = u32> + use<> {
        self.flows.into_iter().filter(|index| *index != 0)
    }

    /// As the manager shows it.
    pub fn shown(&self) -> Connection {
        Connection {
            flows: self.flows.map(|index| (index != 0).then_some(index)),
            preparation: self.preparation,
            status: self.status,
            mark: self.mark,
            timeout_s: self.timeout_s,
            prepared_tick: self.prepared_tick,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Conns {
    /// By index; index 0 stays unused.
    slots: Vec<Conn>,
    free: Vec<u32>,
    by_orig: HashTable<u32>,
    /// Those that conntrack calls by one tuple, of addresses alone.
    by_addresses: HashMap<Tuple, BTreeSet<u32>>,
    hasher: RandomState,
}

impl Conns {
    pub fn new() -> Self {
        Self {
            slots: vec![Conn::new(0, 0, 0, 0)],
            free: Vec::new(),
            by_orig: HashTable::new(),
            by_addresses: HashMap::new(),
            hasher: RandomState::new(),
        }
    }

    pub fn len(&self) -> usize {
        self.by_orig.len()
    }

    /// The connection at an index that a flow names.
    pub fn get(&self, index: u32) -> Option<&Conn> {
        (index != 0).then(|| self.slots.get(index as usize))?
    }

    pub fn get_mut(&mut self, index: u32) -> Option<&mut Conn> {
        (index != 0).then(|| self.slots.get_mut(index as usize))?
    }

    pub fn find(&self, table: &Table, orig: &Tuple, vrfs: Vrfs) -> Option<u32> {
        let mut named = self.named(table, orig);
        named.find(|index| self.slots[*index as usize].vrfs == vrfs)
    }

    /// Those of all VRFs with this tuple.
    fn named(&self, table: &Table, orig: &Tuple) -> impl Iterator<Item = u32> {
        let hash = hash_tuple(&self.hasher, orig, 0);
        let same = move |index: &u32| {
            let conn = &self.slots[*index as usize];
            let mut flows = conn.indices().filter_map(|flow| table.get(flow));
            conn.hash == hash && flows.next().is_some_and(|r| r.orig() == *orig)
        };
        self.by_orig.iter_hash(spread(hash)).copied().filter(same)
    }

    /// All that conntrack calls by a tuple.
    pub fn tracked_as(&self, table: &Table, tuple: &Tuple) -> Vec<u32> {
        if !tuple.is_of_addresses() {
            return self.named(table, tuple).collect();
        }
        let numbers = self.by_addresses.get(tuple);
        numbers.into_iter().flatten().copied().collect()
    }

    /// Enters a connection, whose flow is in the table.
    pub fn insert(&mut self, orig: &Tuple, conn: Conn) -> u32 {
        let hash = hash_tuple(&self.hasher, orig, 0);
        let conn = Conn { hash, ..conn };
        let index = match self.free.pop() {
            Some(index) => {
                self.slots[index as usize] = conn;
                index
            }
            None => {
                self.slots.push(conn);
                (self.slots.len() - 1) as u32
            }
        };
        let slots = &self.slots;
        self.by_orig.insert_unique(spread(hash), index, |index| {
            spread(slots[*index as usize].hash)
        });
        if orig.is_of_addresses() {
            let named = self.by_addresses.entry(orig.tracked()).or_default();
            named.insert(index);
        }
        index
    }

    pub fn remove(&mut self, index: u32, orig: &Tuple) {
        let Some(hash) = self.get(index).map(|conn| conn.hash) else {
            return;
        };
        if let Ok(entry) = self.by_orig.find_entry(spread(hash), |i| *i == index) {
            entry.remove();
            self.free.push(index);
        }
        if orig.is_of_addresses()
            && let Some(named) = self.by_addresses.get_mut(&orig.tracked())
        {
            named.remove(&index);
            if named.is_empty() {
                self.by_addresses.remove(&orig.tracked());
            }
        }
    }
}
