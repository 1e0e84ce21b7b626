// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shared next hops: egress port and L2 header.

use std::collections::{BTreeSet, HashMap};

use freeway_abi::{FW_L2_MAX, fw_nexthop};

/// What makes two next hops one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NexthopKey {
    pub port: u32,
    pub l2: [u8; FW_L2_MAX as usize],
    pub l2_len: u8,
}

struct Nexthop {
    key: NexthopKey,
    flows: BTreeSet<u32>,
}

/// The next hops in use, with the flows through each.
pub(crate) struct Nexthops {
    by_key: HashMap<NexthopKey, u32>,
    by_index: HashMap<u32, Nexthop>,
    free: Vec<u32>,
    next: u32,
    max: u32,
}

impl Nexthops {
    pub fn new(max: u32) -> Self {
        Self {
            by_key: HashMap::new(),
            by_index: HashMap::new(),
            free: Vec::new(),
            next: 1,
            max,
        }
    }

    pub fn len(&self) -> usize {
        self.by_index.len()
    }

    /// The index for a key, and whether it must be written first; `None` if full.
    pub fn take(&mut self, key: NexthopKey) -> Option<(u32, bool)> {
        if let Some(&index) = self.by_key.get(&key) {
            return Some((index, false));
        }
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.next <= self.max => {
                self.next += 1;
                self.next - 1
            }
            None => return None,
        };
        self.by_key.insert(key, index);
        self.by_index.insert(
            index,
            Nexthop {
                key,
                flows: BTreeSet::new(),
            },
        );
        Some((index, true))
    }

    pub fn link(&mut self, index: u32, flow: u32) {
        if let Some(nexthop) = self.by_index.get_mut(&index) {
            nexthop.flows.insert(flow);
        }
    }

    /// True if that was the last flow: the next hop is no longer known.
    pub fn unlink(&mut self, index: u32, flow: u32) -> bool {
        let Some(nexthop) = self.by_index.get_mut(&index) else {
            return false;
        };
        nexthop.flows.remove(&flow);
        if !nexthop.flows.is_empty() {
            return false;
        }
        let key = nexthop.key;
        self.by_key.remove(&key);
        self.by_index.remove(&index);
        true
    }

    /// The index may be used again: no flow that the data plane could still hold names it.
    pub fn recycle(&mut self, index: u32) {
        self.free.push(index);
    }

    /// Next hops behind a port with this destination MAC.
    pub fn behind(&self, port: u32, mac: [u8; 6]) -> Vec<u32> {
        let hit = |n: &Nexthop| n.key.port == port && n.key.l2[..6] == mac;
        self.by_index
            .iter()
            .filter(|(_, n)| hit(n))
            .map(|(i, _)| *i)
            .collect()
    }

    pub fn flows(&self, index: u32) -> impl Iterator<Item = u32> + '_ {
        self.by_index
            .get(&index)
            .into_iter()
            .flat_map(|n| n.flows.iter().copied())
    }

    pub fn l2(&self, index: u32) -> Option<&[u8; FW_L2_MAX as usize]> {
        self.by_index.get(&index).map(|n| &n.key.l2)
    }

    pub fn key(&self, index: u32) -> Option<&NexthopKey> {
        self.by_index.get(&index).map(|n| &n.key)
    }
}

impl NexthopKey {
    pub fn record(&self, slot: u32, mtu: u32) -> fw_nexthop {
        fw_nexthop {
            l2: self.l2,
            port: self.port,
            devmap_slot: slot,
            valid: 1,
            l2_len: self.l2_len.into(),
            len_max: mtu,
            ..Default::default()
        }
    }
}
