// SPDX-License-Identifier: MIT OR Apache-2.0
//! The flows: a slab by flow index, and the ways to find them.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

use freeway_kernel::model::{Prefix, Tuple};
use hashbrown::HashTable;

use crate::address::Addresses;
use crate::key::FlowKey;
use crate::port::Path;
use crate::record::{Chain, Record};

const BY_ADDRESS: [Chain; 3] = [Chain::Src, Chain::Dst, Chain::Out];

/// What is at an index, one byte each: a scan reads little else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Free,
    Tcp,
    Udp,
    Other,
}

/// True of a flow whose connection programs do not look up.
fn is_unseen(kind: Kind, path: Path) -> bool {
    kind == Kind::Other || path == Path::Engine
}

#[derive(Debug)]
pub(crate) struct Table {
    /// By index; index 0 stays unused.
    slots: Vec<Option<Record>>,
    kinds: Vec<Kind>,
    /// Hashes of the keys, apart from the flows: growing the table below reads them all.
    hashes: Vec<u32>,
    by_key: HashTable<u32>,
    hasher: RandomState,
    addresses: Addresses,
    /// First flow of each ingress port and next hop.
    by_port_in: BTreeMap<u32, u32>,
    by_nexthop: Vec<u32>,
    len: usize,
    of_tc: usize,
    of_engine: usize,
    /// Whose connections programs do not look up.
    unseen: usize,
}

/// Words of a tuple, without what is always zero.
pub(crate) fn hash_tuple(hasher: &RandomState, tuple: &Tuple, port: u32) -> u32 {
    let rest = u64::from(port) << 8 | u64::from(tuple.proto);
    let l4 = u64::from(tuple.sport) << 16 | u64::from(tuple.dport);
    let hash = match (tuple.src, tuple.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let addrs = u64::from(u32::from(src)) << 32 | u64::from(u32::from(dst));
            hasher.hash_one((addrs, rest << 32 | l4))
        }
        (src, dst) => hasher.hash_one((src, dst, rest << 32 | l4)),
    };
    hash as u32
}

/// The hash table wants 64 bits, of which it looks at the lowest and the highest.
pub(crate) fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Table {
    pub fn new() -> Self {
        Self {
            slots: vec![None],
            kinds: vec![Kind::Free],
            hashes: vec![0],
            by_key: HashTable::new(),
            hasher: RandomState::new(),
            addresses: Addresses::default(),
            by_port_in: BTreeMap::new(),
            by_nexthop: Vec::new(),
            len: 0,
            of_tc: 0,
            of_engine: 0,
            unseen: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Flows that tc forwards.
    pub fn of_tc(&self) -> usize {
        self.of_tc
    }

    /// Flows that the engine forwards.
    pub fn of_engine(&self) -> usize {
        self.of_engine
    }

    /// One more than the highest index that was ever used.
    pub fn end(&self) -> u32 {
        self.slots.len() as u32
    }

    pub fn kind(&self, index: u32) -> Kind {
        self.kinds
            .get(index as usize)
            .copied()
            .unwrap_or(Kind::Free)
    }

    pub fn get(&self, index: u32) -> Option<&Record> {
        self.slots.get(index as usize)?.as_ref()
    }

    pub fn get_mut(&mut self, index: u32) -> Option<&mut Record> {
        self.slots.get_mut(index as usize)?.as_mut()
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &Record)> {
        let filled =
            |(index, slot): (usize, &'_ Option<Record>)| slot.as_ref().map(|_| index as u32);
        let indices = self.slots.iter().enumerate().filter_map(filled);
        indices.filter_map(|index| Some((index, self.get(index)?)))
    }

    pub fn find(&self, key: &FlowKey) -> Option<u32> {
        let hash = hash_tuple(&self.hasher, &key.tuple, key.port);
        let same = |index: &u32| {
            self.hashes.get(*index as usize) == Some(&hash)
                && self.get(*index).is_some_and(|r| r.key() == *key)
        };
        self.by_key.find(spread(hash), same).copied()
    }

    /// Enters a flow at an unused index. Its key must not be in the table.
    pub fn insert(&mut self, index: u32, record: Record) {
        let at = index as usize;
        if self.slots.len() <= at {
            self.slots.resize_with(at + 1, || None);
            self.kinds.resize(at + 1, Kind::Free);
            self.hashes.resize(at + 1, 0);
        }
        let key = record.key();
        let hash = hash_tuple(&self.hasher, &key.tuple, key.port);
        let nexthop = record.nexthop as usize;
        if self.by_nexthop.len() <= nexthop {
            self.by_nexthop.resize(nexthop + 1, 0);
        }
        self.of_tc += usize::from(record.path() == Path::Tc);
        self.of_engine += usize::from(record.path() == Path::Engine);
        let port_in = record.port_in;
        let addrs = BY_ADDRESS.map(|chain| record.chain_addr(chain));
        self.kinds[at] = match record.proto {
            6 => Kind::Tcp,
            17 => Kind::Udp,
            _ => Kind::Other,
        };
        self.unseen += usize::from(is_unseen(self.kinds[at], record.path()));
        self.hashes[at] = hash;
        self.slots[at] = Some(record);
        let hashes = &self.hashes;
        self.by_key
            .insert_unique(spread(hash), index, |index| spread(hashes[*index as usize]));
        self.len += 1;
        for (i, (chain, addr)) in BY_ADDRESS.into_iter().zip(addrs).enumerate() {
            let head = std::mem::replace(&mut self.addresses.heads(addr)[i], index);
            self.link(chain, index, head);
        }
        let head = self.by_port_in.insert(port_in, index).unwrap_or(0);
        self.link(Chain::PortIn, index, head);
        let head = std::mem::replace(&mut self.by_nexthop[nexthop], index);
        self.link(Chain::Nexthop, index, head);
    }

    /// At most `max` flows whose connections programs do not look up, each once, beginning at an index.
    pub fn unseen(&self, first: u32, max: usize) -> Vec<u32> {
        if self.unseen == 0 {
            return Vec::new();
        }
        let unseen = |index: &u32| {
            let record = self.get(*index);
            record.is_some_and(|record| is_unseen(self.kind(*index), record.path()))
        };
        let first = first.min(self.end());
        (first..self.end())
            .chain(0..first)
            .filter(unseen)
            .take(max)
            .collect()
    }

    /// Takes a flow out; true if it was the last one through its next hop.
    pub fn remove(&mut self, index: u32) -> Option<(Record, bool)> {
        let record = self.slots.get_mut(index as usize)?.take()?;
        let kind = std::mem::replace(&mut self.kinds[index as usize], Kind::Free);
        self.unseen -= usize::from(is_unseen(kind, record.path()));
        self.len -= 1;
        self.of_tc -= usize::from(record.path() == Path::Tc);
        self.of_engine -= usize::from(record.path() == Path::Engine);
        let hash = self.hashes[index as usize];
        if let Ok(entry) = self.by_key.find_entry(spread(hash), |i| *i == index) {
            entry.remove();
        }
        for (i, chain) in BY_ADDRESS.into_iter().enumerate() {
            if let Some(head) = self.unlink(chain, &record) {
                let addr = record.chain_addr(chain);
                self.addresses.heads(addr)[i] = head;
                if head == 0 {
                    self.addresses.forget_unused(addr);
                }
            }
        }
        match self.unlink(Chain::PortIn, &record) {
            Some(0) => drop(self.by_port_in.remove(&record.port_in)),
            Some(head) => drop(self.by_port_in.insert(record.port_in, head)),
            None => {}
        }
        let head = self.unlink(Chain::Nexthop, &record);
        if let Some(head) = head {
            self.by_nexthop[record.nexthop as usize] = head;
        }
        Some((record, head == Some(0)))
    }

    /// Puts a flow before the head of a chain.
    fn link(&mut self, chain: Chain, index: u32, head: u32) {
        if let Some(record) = self.get_mut(index) {
            record.links[chain as usize].next = head;
        }
        if let Some(record) = self.get_mut(head) {
            record.links[chain as usize].prev = index;
        }
    }

    /// Joins the neighbours of a flow; the new head if it was the first.
    fn unlink(&mut self, chain: Chain, record: &Record) -> Option<u32> {
        let link = record.links[chain as usize];
        if let Some(next) = self.get_mut(link.next) {
            next.links[chain as usize].prev = link.prev;
        }
        match self.get_mut(link.prev) {
            Some(prev) => {
                prev.links[chain as usize].next = link.next;
                None
            }
            None => Some(link.next),
        }
    }

    fn chain(&self, chain: Chain, head: u32) -> impl Iterator<Item = u32> + '_ {
        let next = move |index: &u32| Some(self.get(*index)?.links[chain as usize].next);
        let known = |index: u32| (index != 0).then_some(index);
        std::iter::successors(known(head), move |index| next(index).and_then(known))
    }

    /// The flows through a next hop.
    pub fn through(&self, nexthop: u32) -> impl Iterator<Item = u32> + '_ {
        let head = self.by_nexthop.get(nexthop as usize);
        self.chain(Chain::Nexthop, head.copied().unwrap_or(0))
    }

    /// The flows that come in at a port.
    pub fn at_port(&self, port: u32) -> impl Iterator<Item = u32> + '_ {
        let head = self.by_port_in.get(&port);
        self.chain(Chain::PortIn, head.copied().unwrap_or(0))
    }

    /// The flows that depend on addresses in a prefix, each once.
    pub fn within(&self, prefix: Prefix) -> impl Iterator<Item = u32> + '_ {
        self.between(prefix.range())
    }

    /// The flows that depend on addresses from one to another, each once.
    pub fn between(&self, range: (IpAddr, IpAddr)) -> impl Iterator<Item = u32> + '_ {
        let inside = move |addr: IpAddr| (range.0..=range.1).contains(&addr);
        self.addresses.between(range).flat_map(move |heads| {
            (0..BY_ADDRESS.len()).flat_map(move |i| {
                // found by another of its addresses before
                let earlier = move |index: &u32| {
                    let before = |chain: &Chain| {
                        let record = self.get(*index);
                        record.is_some_and(|r| inside(r.chain_addr(*chain)))
                    };
                    !BY_ADDRESS[..i].iter().any(before)
                };
                self.chain(BY_ADDRESS[i], heads[i]).filter(earlier)
            })
        })
    }

    /// Distinct addresses that flows depend on.
    pub fn address_count(&self) -> usize {
        self.addresses.len()
    }
}
