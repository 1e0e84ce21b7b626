// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flows to groups: the copies of a packet are gathered, and must twice be those of the kernel's multicast route.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use freeway_abi::fw_candidate;
use freeway_kernel::model::{Mroute, Prefix};

use crate::around::Around;
use crate::gathering::{Before, Exit, Gathering, concerns};
use crate::key::{FlowKey, keyed, out_of};
use crate::manager::Manager;
use crate::nexthop::NexthopKey;
use crate::op::Op;
use crate::refusal::Refusal;

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
        let stale = self.groups.forget(route).into_iter();
        ops.extend(stale.map(|key| Op::ForgetOffer {
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
            self.refusals.note(key, Refusal::Local);
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
        if self.groups.join(key, c, around) {
            return;
        }
        if let Some(done) = self.groups.take(key) {
            self.gathered(key, done, now_tick, ops);
        }
        if !self.groups.begin(key, c, around) {
            self.note_refused(key, Err(Refusal::TableFull), ops);
        }
    }

    /// Packets of which no more copies can come; to be called when the data plane has had time for them.
    pub fn settle_groups(&mut self, now_tick: u32, ops: &mut Vec<Op>) {
        for key in self.groups.settled(now_tick) {
            if let Some(done) = self.groups.take(&key) {
                self.gathered(&key, done, now_tick, ops);
            }
        }
    }

    /// True if copies wait for others of their packet.
    #[must_use]
    pub fn is_gathering(&self) -> bool {
        self.groups.is_gathering()
    }

    fn gathered(&mut self, key: &FlowKey, mut done: Gathering, now_tick: u32, ops: &mut Vec<Op>) {
        done.copies.sort_unstable_by_key(|c| c.port_out);
        let exits: Vec<Exit> = done.copies.iter().map(Exit::of).collect();
        let admitted = self.check_copies(key, &done, &exits);
        if admitted == Ok(()) {
            match self.groups.compare(key, exits) {
                Before::Same => {}
                Before::Other => return,
                Before::None => {
                    // once more, and soon; one that keeps changing has to wait
                    ops.push(Op::ForgetOffer {
                        flow: Box::new(keyed(key)),
                    });
                    return;
                }
            }
        }
        self.groups.forget_before(key);
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
                self.refusals.note(key, Refusal::NexthopsFull);
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
