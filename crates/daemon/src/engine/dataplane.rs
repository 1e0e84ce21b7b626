// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events of the data plane.

use freeway_abi::fw_candidate;
use freeway_cmm::{Around, FlowKey, Op, out_of};
use freeway_datapath::DataplaneEvent;

use super::Engine;
use crate::DaemonError;

/// Data-plane events taken in one turn, so that kernel events never wait long.
const EVENTS_PER_TURN: usize = 256;

impl Engine {
    /// True if there may be more.
    pub(super) fn dataplane_events(&mut self) -> Result<bool, DaemonError> {
        let events = self.datapath.events.take(EVENTS_PER_TURN);
        let more = events.len() >= EVENTS_PER_TURN;
        let now_tick = self.now_tick()?;
        let mut ops = Vec::new();
        for event in events {
            match event {
                DataplaneEvent::Candidate(c) => {
                    self.counts.candidates += 1;
                    if c.ev.kind == freeway_abi::FW_EV_CHANGED {
                        self.counts.changed += 1;
                    }
                    self.see_translation(&c);
                    let around = Around {
                        copies: self.copies(&c),
                        sniffed: FlowKey::of(&c).is_some_and(|key| self.sniffed(&key, &c)),
                        local: FlowKey::of(&c)
                            .is_some_and(|key| self.received(&key, &[c.port_out])),
                    };
                    self.manager.candidate(&c, around, now_tick, &mut ops);
                }
                DataplaneEvent::Suspended(ev) => {
                    self.counts.suspended += 1;
                    self.manager
                        .suspended(ev.state, ev.reason, now_tick, &mut ops);
                }
                DataplaneEvent::Crossed(crossed) => {
                    let mut bridge_ops = Vec::new();
                    let epoch = self.manager.epoch();
                    self.bridges
                        .crossed(&crossed, epoch, now_tick, &mut bridge_ops);
                    self.bridge(bridge_ops, now_tick, &mut ops);
                }
                DataplaneEvent::Watch(seen) => {
                    self.counts.watched += 1;
                    self.explanations.seen(&seen);
                }
                DataplaneEvent::Strayed(strayed) => self.strayed(&strayed)?,
                DataplaneEvent::Dropped(dropped) => self.explanations.dropped(&dropped),
            }
        }
        if !more {
            // what waits in the ring may be copies of the same packets
            self.manager.settle_groups(now_tick, &mut ops);
            let mut bridge_ops = Vec::new();
            let epoch = self.manager.epoch();
            self.bridges.settle_groups(epoch, now_tick, &mut bridge_ops);
            self.bridge(bridge_ops, now_tick, &mut ops);
        }
        self.execute(ops)?;
        self.follow_stations()?;
        Ok(more)
    }

    pub(super) fn sniffed(&self, key: &FlowKey, c: &fw_candidate) -> bool {
        out_of(c).is_some_and(|out| self.is_sniffed(key, &out, c.port_out))
    }

    /// True if a socket of the router itself takes what is sent to a group. Where it leaves the kernel delivers it, too,
    /// if the group is joined there: `ip_mc_output()` and `ip6_finish_output()`.
    fn received(&self, key: &FlowKey, ports_out: &[u32]) -> bool {
        let (group, dport) = (key.tuple.dst, key.tuple.dport);
        let mut ports = ports_out.iter().chain([&key.port]);
        group.is_multicast()
            && ports.any(|port| match &self.polled.memberships {
                Some(memberships) => memberships.delivers(*port, group, dport),
                None => true,
            })
    }

    /// Flows to groups that the router itself has begun to receive leave.
    pub(super) fn look_at_memberships(&mut self, ops: &mut Vec<Op>) -> Result<(), DaemonError> {
        let now_tick = self.now_tick()?;
        for index in self.manager.group_flows() {
            if let Some(flow) = self.manager.flow(index)
                && self.received(&flow.key, &self.manager.exits(&flow))
            {
                self.manager.received_here(index, now_tick, ops);
            }
        }
        Ok(())
    }

    /// Frames that left under the candidate's token, if its slot still is its own.
    fn copies(&self, c: &fw_candidate) -> u32 {
        let slot = self.datapath.slots.get(c.token);
        if slot.key == c.key { slot.egress } else { 1 }
    }
}
