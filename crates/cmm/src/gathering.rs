// SPDX-License-Identifier: MIT OR Apache-2.0
//! The copies of packets to groups, and the kernel's multicast routes.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use freeway_abi::fw_candidate;
use freeway_kernel::model::Mroute;

use crate::around::Around;
use crate::key::FlowKey;
use crate::memory::MEMORY_MAX;

/// The kernel copies in one go, and the events of one go come together: after so many ticks there are no more.
const SETTLED_TICKS: u32 = 2;

/// The copies of one packet, so far.
pub(crate) struct Gathering {
    token: u32,
    tick: u32,
    pub copies: Vec<fw_candidate>,
    pub around: Around,
}

/// What is known of groups.
#[derive(Default)]
pub(crate) struct Groups {
    /// By source, group and table.
    routes: BTreeMap<(IpAddr, IpAddr, u32), Mroute>,
    gathering: HashMap<FlowKey, Gathering>,
    /// Where the copies of the packet before left, in order.
    before: HashMap<FlowKey, Vec<Exit>>,
}

/// What must be the same for two packets: where a copy leaves, and as what.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Exit {
    pub port: u32,
    l2: [u8; freeway_abi::FW_L2_MAX as usize],
    action: [u32; 11],
    ttl: [u8; 4],
}

impl Exit {
    pub fn of(c: &fw_candidate) -> Self {
        let mut action = [0; 11];
        action[..4].copy_from_slice(&c.saddr_be);
        action[4..8].copy_from_slice(&c.daddr_be);
        action[8] = u32::from(c.sport_be) << 16 | u32::from(c.dport_be);
        action[9] = c.mark;
        action[10] = c.priority;
        Self {
            port: c.port_out,
            l2: c.l2_out,
            action,
            ttl: [c.ttl_in, c.ttl_out, c.tos_in & 0xfc, c.tos_out & 0xfc],
        }
    }

    /// Of what all copies must be alike: the rewriting is done once.
    pub fn shared(&self) -> ([u32; 11], [u8; 4]) {
        (self.action, self.ttl)
    }
}

/// What the copies of a packet say of those of the packet before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// The same.
    Same,
    /// Something else.
    Other,
    /// There was none.
    None,
}

impl Groups {
    /// A further copy of the packet whose copies are being gathered; false: it is the first of another.
    pub fn join(&mut self, key: &FlowKey, c: &fw_candidate, around: Around) -> bool {
        let open = self.gathering.get_mut(key);
        let open = open.filter(|open| open.token == c.token && c.copy != 0);
        if let Some(open) = open {
            open.copies.push(*c);
            open.around.local |= around.local;
            open.around.sniffed |= around.sniffed;
            return true;
        }
        false
    }

    /// The copies so far, which are all there are.
    pub fn take(&mut self, key: &FlowKey) -> Option<Gathering> {
        self.gathering.remove(key)
    }

    /// The first copy of a packet; false if there is no room.
    pub fn begin(&mut self, key: &FlowKey, c: &fw_candidate, around: Around) -> bool {
        if self.gathering.len() >= MEMORY_MAX {
            return false;
        }
        let gathering = Gathering {
            token: c.token,
            tick: c.ev.tick,
            copies: vec![*c],
            around,
        };
        self.gathering.insert(*key, gathering);
        true
    }

    /// Packets of which no more copies can come.
    pub fn settled(&self, now_tick: u32) -> Vec<FlowKey> {
        let settled =
            |(_, open): &(&FlowKey, &Gathering)| now_tick.wrapping_sub(open.tick) >= SETTLED_TICKS;
        let gathering = self.gathering.iter();
        gathering.filter(settled).map(|(key, _)| *key).collect()
    }

    /// True if copies wait for others of their packet.
    pub fn is_gathering(&self) -> bool {
        !self.gathering.is_empty()
    }

    /// Whether the packet before left like this; unless it did, the next is compared with this one.
    pub fn compare(&mut self, key: &FlowKey, exits: Vec<Exit>) -> Before {
        if self.before.get(key) == Some(&exits) {
            return Before::Same;
        }
        if self.before.len() >= MEMORY_MAX {
            self.before.clear();
        }
        match self.before.insert(*key, exits) {
            Some(_) => Before::Other,
            None => Before::None,
        }
    }

    /// The next packet is the first.
    pub fn forget_before(&mut self, key: &FlowKey) {
        self.before.remove(key);
    }

    /// What was seen of packets that a route concerns may be as it was before a change; returns those under way.
    pub fn forget(&mut self, route: &Mroute) -> Vec<FlowKey> {
        self.before.retain(|key, _| !concerns(route, key));
        let stale = self.gathering.extract_if(|key, _| concerns(route, key));
        stale.map(|(key, _)| key).collect()
    }

    pub fn set_route(&mut self, route: &Mroute) {
        let key = (route.src, route.group, route.table);
        self.routes.insert(key, route.clone());
    }

    pub fn remove_route(&mut self, route: &Mroute) {
        self.routes.remove(&(route.src, route.group, route.table));
    }

    pub fn any_route(&self) -> bool {
        !self.routes.is_empty()
    }

    /// Where the kernel sends a packet with that TTL, in order: `ip_mr_forward()` and `ip6_mr_forward()`. `None` if no
    /// route of its source, or more than one, may be meant; those of any source go by more than the packet.
    pub fn ports(&self, key: &FlowKey, ttl: u8) -> Option<Vec<u32>> {
        let (src, group) = (key.tuple.src, key.tuple.dst);
        let of = |table| (src, group, table);
        let mut routes = self
            .routes
            .range(of(0)..=of(u32::MAX))
            .map(|(_, route)| route);
        let (Some(route), None) = (routes.next(), routes.next()) else {
            return None;
        };
        if route.iif != key.port {
            return None;
        }
        let leaves = route.oifs.iter().filter(|oif| ttl > oif.ttl);
        let mut ports: Vec<u32> = leaves.map(|oif| oif.ifindex).collect();
        ports.sort_unstable();
        Some(ports)
    }
}

/// May the route decide about these packets? Any source or group is unspecified there.
pub(crate) fn concerns(route: &Mroute, key: &FlowKey) -> bool {
    let is = |wanted: IpAddr, address| wanted.is_unspecified() || wanted == address;
    key.tuple.dst.is_multicast() && is(route.group, key.tuple.dst) && is(route.src, key.tuple.src)
}
