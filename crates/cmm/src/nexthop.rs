// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shared next hops: egress port and L2 header, or a list of them for copies. The table chains the flows through each.

use std::collections::{BTreeMap, HashMap, HashSet};

use freeway_abi::{FW_L2_MAX, FW_NH_OLIST, FW_NH_PORT, FW_OLISTS, fw_nexthop};

use crate::port::{Framing, Session, Tag};
use crate::recent::Exit;

const L2_MAX: usize = FW_L2_MAX as usize;

/// What makes two next hops one. In order by port, then by destination MAC, which an L2 header begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct NexthopKey {
    pub port: u32,
    pub l2: [u8; L2_MAX],
    pub l2_len: u8,
    /// None for tc, which sends through the device that writes them.
    pub framing: Framing,
    /// Of what XDP sends to a station: the bridge's port where it is; else 0.
    pub device: u32,
    /// Of the skb; 0 for XDP, which has none, and for the engine without a scheduler.
    pub mark: u32,
    pub priority: u32,
    /// Of the engine's scheduler there, from 1 on; 0: there is none.
    pub leaf: u16,
}

/// A list of ports for copies, in order.
#[derive(Debug)]
struct Olist {
    /// Of a bridge: no flow's.
    bridged: bool,
    number: u32,
    legs: Vec<NexthopKey>,
}

/// The next hops in use.
pub(crate) struct Nexthops {
    by_key: BTreeMap<NexthopKey, u32>,
    by_index: HashMap<u32, NexthopKey>,
    /// The same of lists.
    by_legs: HashMap<Vec<NexthopKey>, u32>,
    lists: BTreeMap<u32, Olist>,
    /// Numbers of lists, and those of which the data plane may be holding the next hop.
    free_lists: Vec<u32>,
    retired_lists: HashMap<u32, u32>,
    /// Those whose flows are still to leave.
    dead: HashSet<u32>,
    free: Vec<u32>,
    next: u32,
    max: u32,
}

impl Nexthops {
    pub fn new(max: u32) -> Self {
        Self {
            by_key: BTreeMap::new(),
            by_index: HashMap::new(),
            by_legs: HashMap::new(),
            lists: BTreeMap::new(),
            free_lists: (1..FW_OLISTS).rev().collect(),
            retired_lists: HashMap::new(),
            dead: HashSet::new(),
            free: Vec::new(),
            next: 1,
            max,
        }
    }

    pub fn len(&self) -> usize {
        self.by_index.len() + self.lists.len()
    }

    /// The index for a key, and whether it must be written first; `None` if full.
    pub fn take(&mut self, key: NexthopKey) -> Option<(u32, bool)> {
        if let Some(&index) = self.by_key.get(&key) {
            return Some((index, false));
        }
        let index = self.take_index()?;
        self.by_key.insert(key, index);
        self.by_index.insert(index, key);
        Some((index, true))
    }

    fn take_index(&mut self) -> Option<u32> {
        match self.free.pop() {
            Some(index) => Some(index),
            None if self.next <= self.max => {
                self.next += 1;
                Some(self.next - 1)
            }
            None => None,
        }
    }

    /// The index for a list, which is in order, and its number if it must be written first; `None` if full.
    pub fn take_list(&mut self, legs: Vec<NexthopKey>) -> Option<(u32, Option<u32>)> {
        if let Some(&index) = self.by_legs.get(&legs) {
            return Some((index, None));
        }
        let (index, number) = self.take_number(legs.clone(), false)?;
        self.by_legs.insert(legs, index);
        Some((index, Some(number)))
    }

    /// The same of a list that is a bridge's alone, and its number.
    pub fn take_bridged(&mut self, legs: Vec<NexthopKey>) -> Option<(u32, u32)> {
        self.take_number(legs, true)
    }

    fn take_number(&mut self, legs: Vec<NexthopKey>, bridged: bool) -> Option<(u32, u32)> {
        let number = self.free_lists.pop()?;
        let Some(index) = self.take_index() else {
            self.free_lists.push(number);
            return None;
        };
        let list = Olist {
            bridged,
            number,
            legs,
        };
        self.lists.insert(index, list);
        Some((index, number))
    }

    /// The legs of a list; `None`: it is none.
    pub fn legs(&self, index: u32) -> Option<&[NexthopKey]> {
        self.lists.get(&index).map(|list| list.legs.as_slice())
    }

    /// No flow goes through it any more.
    pub fn release(&mut self, index: u32) {
        if let Some(key) = self.by_index.remove(&index)
            && !self.dead.remove(&index)
        {
            self.by_key.remove(&key);
        }
        if let Some(list) = self.lists.remove(&index) {
            self.retired_lists.insert(index, list.number);
            if !self.dead.remove(&index) && !list.bridged {
                self.by_legs.remove(&list.legs);
            }
        }
    }

    /// No new flow goes through it; those that do are to leave.
    pub fn kill(&mut self, index: u32) {
        if let Some(key) = self.by_index.get(&index)
            && self.dead.insert(index)
        {
            self.by_key.remove(key);
        }
        if let Some(list) = self.lists.get(&index)
            && self.dead.insert(index)
        {
            self.by_legs.remove(&list.legs);
        }
    }

    pub fn is_dead(&self, index: u32) -> bool {
        self.dead.contains(&index)
    }

    /// The index may be used again: no flow that the data plane could still hold names it.
    pub fn recycle(&mut self, index: u32) {
        self.free.push(index);
        self.free_lists.extend(self.retired_lists.remove(&index));
    }

    /// Next hops behind a port with this destination MAC.
    pub fn behind(&self, port: u32, mac: [u8; 6]) -> Vec<u32> {
        let key = |rest: u8| {
            let mut l2 = [rest; L2_MAX];
            l2[..6].copy_from_slice(&mac);
            NexthopKey {
                l2,
                ..NexthopKey::extreme(port, rest)
            }
        };
        let range = self.by_key.range(key(0)..=key(u8::MAX));
        range.map(|(_, index)| *index).collect()
    }

    /// Next hops at a port, and lists of flows with a leg there.
    pub fn at_port(&self, port: u32) -> Vec<u32> {
        let key = |rest: u8| NexthopKey::extreme(port, rest);
        let range = self.by_key.range(key(0)..=key(u8::MAX));
        let there = |list: &Olist| !list.bridged && list.legs.iter().any(|leg| leg.port == port);
        let lists = self.lists.iter().filter(|(_, list)| there(list));
        let lists = lists.map(|(index, _)| *index);
        range.map(|(_, index)| *index).chain(lists).collect()
    }

    pub fn l2(&self, index: u32) -> Option<&[u8]> {
        let key = self.by_index.get(&index)?;
        key.l2.get(..key.l2_len.into())
    }

    pub fn key(&self, index: u32) -> Option<&NexthopKey> {
        self.by_index.get(&index)
    }
}

impl NexthopKey {
    /// Its port, and who receives what leaves there.
    pub fn exit(&self) -> Exit {
        let mut receiver = [0; 6];
        receiver.copy_from_slice(&self.l2[..6]);
        (self.port, receiver)
    }

    /// The first or the last of a port: 0 or 255 in each octet.
    fn extreme(port: u32, rest: u8) -> Self {
        let (half, word) = (u16::from_ne_bytes([rest; 2]), u32::from_ne_bytes([rest; 4]));
        let tag = Tag {
            protocol: half,
            vlan: half,
        };
        Self {
            port,
            l2: [rest; L2_MAX],
            l2_len: rest,
            framing: Framing {
                tags: [tag; 2],
                session: (rest != 0).then_some(Session {
                    id: half,
                    remote: [rest; 6],
                    own: [rest; 6],
                }),
            },
            device: word,
            mark: word,
            priority: word,
            leaf: half,
        }
    }

    /// Of a list whose legs begin with this one.
    pub fn list_record(&self, number: u32) -> fw_nexthop {
        fw_nexthop {
            port: 0,
            valid: FW_NH_OLIST,
            ..NexthopKey {
                framing: Framing::default(),
                ..*self
            }
            .record(number)
        }
    }

    pub fn record(&self, slot: u32) -> fw_nexthop {
        let mut l2 = fw_nexthop::default().l2;
        let len = l2.len();
        l2.copy_from_slice(&self.l2[..len]);
        fw_nexthop {
            l2,
            tag: self.framing.tags.map(Tag::record),
            tags_len: self.framing.tags_len(),
            outer_len: self.framing.outer_len(),
            session: self.framing.session_word(),
            port: self.port,
            devmap_slot: slot,
            valid: FW_NH_PORT,
            l2_len: self.l2_len.into(),
            leaf: self.leaf,
            mark: self.mark,
            priority: self.priority,
        }
    }
}
