// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flows to groups: the copies of a packet are gathered, and must twice be those of the kernel's multicast route.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use freeway_abi::fw_candidate;
use freeway_kernel::model::{Mroute, Prefix};

use crate::admission::keyed;
use crate::key::{FlowKey, out_of};
use crate::manager::{Around, MEMORY_MAX, Manager};
use crate::nexthop::NexthopKey;
use crate::op::Op;
use crate::refusal::Refusal;

/// The kernel copies in one go, and the events of one go come together: after so many ticks there are no more.
const SETTLED_TICKS: u32 = 2;

/// All groups.
const GROUPS: [Prefix; 2] = [
    Prefix {
        addr: IpAddr::V4(Ipv4Addr::new(224, 0, 0, 0)),
        len: 4,
    },
    Prefix {
        addr: IpAddr::V6(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0)),
        len: 8,
    },
];

/// The copies of one packet, so far.
struct Gathering {
    token: u32,
    tick: u32,
    copies: Vec<fw_candidate>,
    around: Around,
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
struct Exit {
    port: u32,
    l2: [u8; freeway_abi::FW_L2_MAX as usize],
    action: [u32; 11],
    ttl: [u8; 4],
}

impl Exit {
    fn of(c: &fw_candidate) -> Self {
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
    fn shared(&self) -> ([u32; 11], [u8; 4]) {
        (self.action, self.ttl)
    }
}

impl Groups {
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
    fn ports(&self, key: &FlowKey, ttl: u8) -> Option<Vec<u32>> {
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
fn concerns(route: &Mroute, key: &FlowKey) -> bool {
    let is = |wanted: IpAddr, address| wanted.is_unspecified() || wanted == address;
    key.tuple.dst.is_multicast() && is(route.group, key.tuple.dst) && is(route.src, key.tuple.src)
}

impl Manager {
    /// True if the kernel routes multicast.
    #[must_use]
    pub fn routes_multicast(&self) -> bool {
        self.groups.any_route()
    }

    /// The kernel's multicast routes at start: what later changes are compared with.
    pub fn learn_mroute(&mut self, route: &Mroute) {
        self.groups.set_route(route);
    }

    /// A multicast route changed, or is gone: its flows are learned anew.
    pub(crate) fn mroute(
        &mut self,
        route: &Mroute,
        present: bool,
        now_tick: u32,
        ops: &mut Vec<Op>,
    ) {
        match present {
            true => self.groups.set_route(route),
            false => self.groups.remove_route(route),
        }
        let flows: Vec<u32> = match route.group.is_unspecified() {
            true => self.group_flows(),
            false => self.table.between((route.group, route.group)).collect(),
        };
        for index in flows {
            let key = self.table.get(index).map(|record| record.key());
            if key.is_some_and(|key| concerns(route, &key)) {
                self.remove(index, now_tick, ops);
            }
        }
        // those under way may have been the former ones
        self.groups.before.retain(|key, _| !concerns(route, key));
        let stale = self
            .groups
            .gathering
            .extract_if(|key, _| concerns(route, key));
        ops.extend(stale.map(|(key, _)| Op::ForgetOffer {
            flow: Box::new(keyed(&key)),
        }));
    }

    /// All flows to groups.
    #[must_use]
    pub fn group_flows(&self) -> Vec<u32> {
        let flows = GROUPS
            .into_iter()
            .flat_map(|prefix| self.table.within(prefix));
        let of_group = |index: &u32| self.table.get(*index).is_some_and(|r| r.is_group());
        flows.filter(of_group).collect()
    }

    /// A socket of the router itself takes a flow's packets: the kernel has to see them.
    pub fn received_here(&mut self, index: u32, now_tick: u32, ops: &mut Vec<Op>) {
        if let Some(key) = self.table.get(index).map(|record| record.key()) {
            self.remove(index, now_tick, ops);
            self.remember(key, Refusal::Local);
        }
    }

    /// A copy of a packet. The first of the next packet says that the packet before has no more.
    pub(crate) fn gather(
        &mut self,
        c: &fw_candidate,
        key: &FlowKey,
        around: Around,
        now_tick: u32,
        ops: &mut Vec<Op>,
    ) {
        let open = self.groups.gathering.get_mut(key);
        if let Some(open) = open.filter(|open| open.token == c.token && c.copy != 0) {
            open.copies.push(*c);
            open.around.local |= around.local;
            open.around.sniffed |= around.sniffed;
            return;
        }
        if let Some(done) = self.groups.gathering.remove(key) {
            self.gathered(key, done, now_tick, ops);
        }
        if self.groups.gathering.len() >= MEMORY_MAX {
            return self.note_refused(key, Err(Refusal::TableFull), ops);
        }
        let gathering = Gathering {
            token: c.token,
            tick: c.ev.tick,
            copies: vec![*c],
            around,
        };
        self.groups.gathering.insert(*key, gathering);
    }

    /// Packets of which no more copies can come; to be called when the data plane has had time for them.
    pub fn settle_groups(&mut self, now_tick: u32, ops: &mut Vec<Op>) {
        let settled =
            |(_, open): &(&FlowKey, &Gathering)| now_tick.wrapping_sub(open.tick) >= SETTLED_TICKS;
        let keys: Vec<FlowKey> = self
            .groups
            .gathering
            .iter()
            .filter(settled)
            .map(|(key, _)| *key)
            .collect();
        for key in keys {
            if let Some(done) = self.groups.gathering.remove(&key) {
                self.gathered(&key, done, now_tick, ops);
            }
        }
    }

    /// True if copies wait for others of their packet.
    #[must_use]
    pub fn is_gathering(&self) -> bool {
        !self.groups.gathering.is_empty()
    }

    fn gathered(&mut self, key: &FlowKey, mut done: Gathering, now_tick: u32, ops: &mut Vec<Op>) {
        done.copies.sort_unstable_by_key(|c| c.port_out);
        let exits: Vec<Exit> = done.copies.iter().map(Exit::of).collect();
        let admitted = self.check_copies(key, &done, &exits);
        if admitted == Ok(()) && self.groups.before.get(key) != Some(&exits) {
            if self.groups.before.len() >= MEMORY_MAX {
                self.groups.before.clear();
            }
            // once more, and soon; one that keeps changing has to wait
            if self.groups.before.insert(*key, exits).is_none() {
                ops.push(Op::ForgetOffer {
                    flow: Box::new(keyed(key)),
                });
            }
            return;
        }
        self.groups.before.remove(key);
        let admitted =
            admitted.and_then(|()| self.admit(&done.copies, key, done.around, now_tick, ops));
        self.note_refused(key, admitted, ops);
    }

    fn check_copies(&self, key: &FlowKey, done: &Gathering, exits: &[Exit]) -> Result<(), Refusal> {
        if done.around.local {
            return Err(Refusal::Local);
        }
        let first = done.copies.first().ok_or(Refusal::Malformed)?;
        out_of(first).ok_or(Refusal::Malformed)?;
        if exits
            .windows(2)
            .any(|pair| pair[0].shared() != pair[1].shared())
        {
            return Err(Refusal::Copies);
        }
        let ports: Vec<u32> = exits.iter().map(|exit| exit.port).collect();
        // a VRF's own interface may have joined the group, and each has routes of its own
        if ports
            .iter()
            .any(|port| self.vrfs(key.port, *port) != [0; 2])
        {
            return Err(Refusal::VrfGroup);
        }
        if self.groups.ports(key, first.ttl_in).as_deref() != Some(&ports) {
            return Err(Refusal::Copies);
        }
        // a device has one copy: its program could not tell two apart
        let device = |port: &u32| self.ports.get(port).map(|port| port.device);
        let mut devices: Vec<Option<u32>> = ports.iter().map(device).collect();
        devices.sort_unstable();
        devices.dedup();
        if devices.len() < ports.len() || ports.len() > freeway_abi::FW_OLIST_MAX as usize {
            return Err(Refusal::NoPath);
        }
        Ok(())
    }

    /// A list was not written: its flows leave, and no other comes to be of it.
    pub fn list_failed(&mut self, nexthop: u32, now_tick: u32, ops: &mut Vec<Op>) {
        self.nexthops.kill(nexthop);
        let flows: Vec<u32> = self.table.through(nexthop).collect();
        for index in flows {
            if let Some(key) = self.table.get(index).map(|record| record.key()) {
                *self.stats.refused.entry(Refusal::NexthopsFull).or_default() += 1;
                self.remember(key, Refusal::NexthopsFull);
            }
            self.remove(index, now_tick, ops);
        }
    }

    /// The index of a list of next hops; `None`: there are too many.
    pub(crate) fn take_list(&mut self, exits: Vec<NexthopKey>, ops: &mut Vec<Op>) -> Option<u32> {
        let first = *exits.first()?;
        let slot = |exit: &NexthopKey| self.ports.get(&exit.port).map_or(0, |port| port.slot);
        let legs = exits.iter().map(|exit| exit.record(slot(exit))).collect();
        let (index, number) = self.nexthops.take_list(exits)?;
        if let Some(number) = number {
            ops.push(Op::SetOlist {
                index,
                number,
                legs,
                nexthop: Box::new(first.list_record(number)),
            });
        }
        Some(index)
    }
}
