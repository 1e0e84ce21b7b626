// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which flows a change in the kernel concerns: the narrowest set that is safe.

use std::net::IpAddr;

use freeway_kernel::model::{Connection as Tracked, CtStatus, Event, Mac, Neigh, Prefix, TcpState};

use crate::flow::Flow;
use crate::key::ConnKey;
use crate::manager::Manager;
use crate::op::Op;
use crate::port::Port;

impl Manager {
    /// A port is new or its fitness changed. Its flows wait for confirmation, or
    /// leave if the port is no longer fit.
    pub fn set_port(&mut self, port: Port, now_tick: u32, ops: &mut Vec<Op>) {
        let ifindex = port.ifindex;
        if self.ports.get(&ifindex) == Some(&port) {
            return;
        }
        let gone = |old: &Port| (old.input && !port.input) || (old.output && !port.output);
        let unfit = self.ports.get(&ifindex).is_some_and(gone);
        let slot_moved = self
            .ports
            .get(&ifindex)
            .is_some_and(|old| old.slot != port.slot);
        self.ports.insert(ifindex, port);
        if unfit || slot_moved {
            self.remove_port_flows(ifindex, now_tick, ops);
        } else {
            self.unconfirm_where(ops, |f| f.key.port == ifindex || f.port_out == ifindex);
        }
    }

    /// A port is gone.
    pub fn remove_port(&mut self, ifindex: u32, now_tick: u32, ops: &mut Vec<Op>) {
        if self.ports.remove(&ifindex).is_some() {
            self.remove_port_flows(ifindex, now_tick, ops);
        }
        self.neighbours.retain(|(port, _), _| *port != ifindex);
    }

    fn remove_port_flows(&mut self, ifindex: u32, now_tick: u32, ops: &mut Vec<Op>) {
        for index in self.indices(|f| f.key.port == ifindex || f.port_out == ifindex) {
            self.remove(index, now_tick, ops);
        }
    }

    /// A change in the kernel. Links, qdiscs and rulesets reach the manager by
    /// [`Manager::set_port`] and [`Manager::set_ruleset`] instead.
    pub fn kernel_event(&mut self, event: &Event, now_tick: u32, ops: &mut Vec<Op>) {
        match event {
            Event::RouteChanged(route) | Event::RouteGone(route) => {
                self.unconfirm_prefix(&route.dst, ops);
            }
            Event::AddrChanged(addr) | Event::AddrGone(addr) => {
                let len = if addr.local.is_ipv4() { 32 } else { 128 };
                self.unconfirm_prefix(
                    &Prefix {
                        addr: addr.local,
                        len,
                    },
                    ops,
                );
            }
            Event::NeighChanged(neigh) => self.neighbour(neigh, true, ops),
            Event::NeighGone(neigh) => self.neighbour(neigh, false, ops),
            Event::ConnectionDestroyed(tracked) => {
                self.end_connection(&key_of(tracked), now_tick, ops);
            }
            Event::ConnectionUpdated(tracked) => self.connection_updated(tracked, now_tick, ops),
            Event::RoutesUnknown => self.unconfirm_where(ops, |_| true),
            Event::RuleChanged(_)
            | Event::NexthopChanged { .. }
            | Event::NetconfChanged { .. }
            | Event::RulesetChanged { .. }
            | Event::SetElementsChanged { .. }
            | Event::XfrmChanged
            | Event::Overrun { .. } => self.new_epoch(ops),
            _ => {}
        }
    }

    /// Routes decide by destination; rp_filter looks the source up too.
    fn unconfirm_prefix(&mut self, prefix: &Prefix, ops: &mut Vec<Op>) {
        self.unconfirm_where(ops, |f| {
            [f.out.dst, f.key.tuple.dst, f.key.tuple.src]
                .into_iter()
                .any(|ip| prefix.contains(ip))
        });
    }

    fn unconfirm_where(&mut self, ops: &mut Vec<Op>, concerned: impl Fn(&Flow) -> bool) {
        for index in self.indices(concerned) {
            self.stats.unconfirmed += 1;
            ops.push(Op::Unconfirm { index });
        }
    }

    fn indices(&self, concerned: impl Fn(&Flow) -> bool) -> Vec<u32> {
        self.flows
            .iter()
            .filter(|(_, f)| concerned(f))
            .map(|(index, _)| *index)
            .collect()
    }

    /// The kernel's neighbours at start: what later changes are compared with.
    pub fn learn_neighbour(&mut self, ifindex: u32, ip: IpAddr, mac: Mac) {
        self.neighbours.insert((ifindex, ip), mac.0);
    }

    fn neighbour(&mut self, neigh: &Neigh, present: bool, ops: &mut Vec<Op>) {
        let mac = neigh
            .lladdr
            .filter(|_| present && neigh.is_valid())
            .map(|mac| mac.0);
        let key = (neigh.ifindex, neigh.ip);
        let old = match mac {
            Some(mac) => self.neighbours.insert(key, mac),
            None => self.neighbours.remove(&key),
        };
        let Some(old) = old.filter(|old| Some(*old) != mac) else {
            return;
        };
        // One write stops them all; then each waits for its own confirmation.
        for nexthop in self.nexthops.behind(neigh.ifindex, old) {
            ops.push(Op::InvalidateNexthop { index: nexthop });
            for index in self.nexthops.flows(nexthop) {
                self.stats.unconfirmed += 1;
                ops.push(Op::Unconfirm { index });
            }
            if let (Some(key), Some(port)) =
                (self.nexthops.key(nexthop), self.ports.get(&neigh.ifindex))
            {
                let nexthop_record = key.record(port.slot, port.mtu);
                ops.push(Op::SetNexthop {
                    index: nexthop,
                    nexthop: nexthop_record,
                });
            }
        }
    }

    fn connection_updated(&mut self, tracked: &Tracked, now_tick: u32, ops: &mut Vec<Op>) {
        let key = key_of(tracked);
        let Some(connection) = self.conns.get(&key) else {
            return;
        };
        const KEEP: u32 = freeway_abi::FW_CT_STATUS_KEEP;
        let changed = tracked.mark != connection.mark
            || tracked.helper.is_some()
            || tracked.labels
            || (tracked.status.0 ^ connection.status) & KEEP != 0
            || tracked.status.any(CtStatus::DYING)
            || tracked
                .tcp
                .is_some_and(|tcp| tcp.state != TcpState::Established);
        if changed {
            self.end_connection(&key, now_tick, ops);
        }
    }
}

fn key_of(tracked: &Tracked) -> ConnKey {
    ConnKey {
        orig: tracked.orig,
        zone: tracked.zone,
    }
}
