// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which flows a change in the kernel concerns: the narrowest set that is safe.

use std::net::IpAddr;

use freeway_kernel::Affected;
use freeway_kernel::model::{Connection as Tracked, CtStatus, Event, Mac, Neigh, Prefix, TcpState};

use crate::key::ConnKey;
use crate::manager::Manager;
use crate::op::Op;
use crate::port::Port;
use crate::recent::Matter;
use crate::record::Record;

impl Manager {
    /// A port is new or its fitness changed. Its flows wait for confirmation, or
    /// leave if the port is no longer fit.
    pub fn set_port(&mut self, port: Port, now_tick: u32, ops: &mut Vec<Op>) {
        let ifindex = port.ifindex;
        let old = self.ports.get(&ifindex);
        if old == Some(&port) {
            return;
        }
        // what the kernel does is the same
        if let Some(old) = old
            && *old
                == (Port {
                    engine: old.engine,
                    ..port.clone()
                })
        {
            self.ports.insert(ifindex, port);
            return self.begin_sweep(false, now_tick, ops);
        }
        // what it became fit for may be a better path
        let means = |p: &Port| {
            (
                p.xdp,
                p.by_station,
                p.tc,
                p.slot,
                p.device,
                p.framing,
                p.classes.clone(),
                p.vrf,
            )
        };
        let moves = old.is_some_and(|old| means(old) != means(&port));
        if old.is_some_and(|old| old.vrf != port.vrf) {
            // all of the port's decisions were of other tables
            self.new_epoch(ops);
        }
        self.ports.insert(ifindex, port);
        self.changed(Matter::Port(ifindex), now_tick);
        let flows = self.flows_at(ifindex);
        if moves {
            self.remove_at_port(ifindex, flows, now_tick, ops);
        } else {
            self.unconfirm(flows, ops);
        }
    }

    /// A port is gone.
    pub fn remove_port(&mut self, ifindex: u32, now_tick: u32, ops: &mut Vec<Op>) {
        if self.ports.remove(&ifindex).is_some() {
            let flows = self.flows_at(ifindex);
            self.remove_at_port(ifindex, flows, now_tick, ops);
        }
        self.neighbours.retain(|(port, _), _| *port != ifindex);
        self.stations.forget(ifindex);
    }

    /// The flows in or out at a port; `None` if there are very many.
    fn flows_at(&self, port: u32) -> Option<Vec<u32>> {
        let nexthops = self.nexthops.at_port(port);
        let out = nexthops.iter().flat_map(|n| self.table.through(*n));
        let other = |index: &u32| self.table.get(*index).is_some_and(|r| r.port_in != port);
        let flows = out.filter(other).chain(self.table.at_port(port));
        self.narrow(flows)
    }

    pub(crate) fn narrow(&self, flows: impl Iterator<Item = u32>) -> Option<Vec<u32>> {
        let max = self.settings.narrow_max;
        let flows: Vec<u32> = flows.take(max + 1).collect();
        (flows.len() <= max).then_some(flows)
    }

    fn remove_at_port(
        &mut self,
        port: u32,
        flows: Option<Vec<u32>>,
        now_tick: u32,
        ops: &mut Vec<Op>,
    ) {
        if let Some(flows) = flows {
            for index in flows {
                self.remove(index, now_tick, ops);
            }
            return;
        }
        let nexthops = self.nexthops.at_port(port);
        self.end_nexthops(&nexthops, now_tick, ops);
    }

    /// Nothing leaves through these any more, at once; the flows go by and by.
    pub(crate) fn end_nexthops(&mut self, nexthops: &[u32], now_tick: u32, ops: &mut Vec<Op>) {
        for index in nexthops {
            self.nexthops.kill(*index);
            ops.push(Op::InvalidateNexthop { index: *index });
        }
        self.new_epoch(ops);
        self.begin_sweep(false, now_tick, ops);
    }

    /// A change in the kernel. Links, qdiscs and rulesets reach the manager by
    /// [`Manager::set_port`] and [`Manager::set_ruleset`] instead.
    pub fn kernel_event(&mut self, event: &Event, now_tick: u32, ops: &mut Vec<Op>) {
        match event {
            Event::RouteChanged(route, _) | Event::RouteGone(route) => {
                self.unconfirm_prefix(&route.dst, now_tick, ops);
            }
            Event::AddrChanged(addr) | Event::AddrGone(addr) => {
                // it may have been another router's, which forwarded for these connections
                if matches!(event, Event::AddrChanged(_)) {
                    ops.push(Op::ForgetEnds { now_tick });
                }
                let len = if addr.local.is_ipv4() { 32 } else { 128 };
                self.unconfirm_prefix(
                    &Prefix {
                        addr: addr.local,
                        len,
                    },
                    now_tick,
                    ops,
                );
            }
            Event::NeighChanged(neigh) => self.neighbour(neigh, true, now_tick, ops),
            Event::NeighGone(neigh) => self.neighbour(neigh, false, now_tick, ops),
            Event::MrouteChanged(route) => self.mroute(route, true, now_tick, ops),
            Event::MrouteGone(route) => self.mroute(route, false, now_tick, ops),
            Event::ConnectionDestroyed(tracked) => {
                self.connection_gone(&key_of(tracked), now_tick, ops);
            }
            Event::ConnectionUpdated(tracked) => self.connection_updated(tracked, now_tick, ops),
            Event::RoutesUnknown => {
                self.changed(Matter::All, now_tick);
                let all = self.narrow(self.indices());
                self.unconfirm(all, ops);
            }
            Event::RuleChanged(_)
            | Event::MruleChanged
            | Event::NexthopChanged { .. }
            | Event::NetconfChanged { .. }
            | Event::RulesetChanged { .. }
            | Event::SetElementsChanged { .. }
            | Event::XfrmChanged
            | Event::Overrun { .. } => self.new_epoch(ops),
            _ => {}
        }
    }

    /// Elements of a set changed that match some addresses or ports; flows with one of them wait. `everywhere`: source
    /// addresses count as they leave, too, by which flows cannot be found.
    pub fn elements_changed(
        &mut self,
        affected: &Affected,
        everywhere: bool,
        now_tick: u32,
        ops: &mut Vec<Op>,
    ) {
        self.changed(Matter::Elements(affected.clone()), now_tick);
        let flows = if affected.ports.is_empty() && !everywhere {
            let within = |range: &(IpAddr, IpAddr)| self.table.between(*range);
            self.narrow(affected.addrs.iter().flat_map(within))
        } else if self.table.len() <= self.settings.narrow_max {
            let concerned = |(index, record): (u32, &Record)| {
                let ends = [record.key().tuple, record.out()];
                ends.iter().any(|t| affected.hits(t)).then_some(index)
            };
            Some(self.table.iter().filter_map(concerned).collect())
        } else {
            None
        };
        self.unconfirm(flows, ops);
    }

    /// Candidates on their way show what was before.
    fn changed(&mut self, matter: Matter, now_tick: u32) {
        self.recent.add(matter, self.settings.hz, now_tick);
    }

    /// Routes decide by destination; rp_filter looks the source up too.
    fn unconfirm_prefix(&mut self, prefix: &Prefix, now_tick: u32, ops: &mut Vec<Op>) {
        self.changed(Matter::Prefix(*prefix), now_tick);
        let flows = self.narrow(self.table.within(*prefix));
        self.unconfirm(flows, ops);
    }

    /// Flows wait for confirmation. Of very many each takes a write; an epoch takes one for all.
    fn unconfirm(&mut self, flows: Option<Vec<u32>>, ops: &mut Vec<Op>) {
        let Some(flows) = flows else {
            return self.new_epoch(ops);
        };
        self.stats.unconfirmed += flows.len() as u64;
        ops.extend(flows.into_iter().map(|index| Op::Unconfirm { index }));
    }

    /// The kernel's neighbours at start: what later changes are compared with.
    pub fn learn_neighbour(&mut self, ifindex: u32, ip: IpAddr, mac: Mac) {
        self.neighbours.insert((ifindex, ip), mac.0);
    }

    fn neighbour(&mut self, neigh: &Neigh, present: bool, now_tick: u32, ops: &mut Vec<Op>) {
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
        self.changed(Matter::Neighbour(neigh.ifindex, old), now_tick);
        for nexthop in self.nexthops.behind(neigh.ifindex, old) {
            let flows = self.narrow(self.table.through(nexthop));
            // One write stops them all; then each waits for its own confirmation.
            ops.push(Op::InvalidateNexthop { index: nexthop });
            self.unconfirm(flows, ops);
            let key = self.nexthops.key(nexthop);
            if let Some((key, slot)) = key.and_then(|key| Some((key, self.slot_of(key)?))) {
                ops.push(Op::SetNexthop {
                    index: nexthop,
                    nexthop: Box::new(key.record(slot)),
                });
            }
        }
    }

    /// conntrack has no such connection any more.
    pub fn connection_gone(&mut self, key: &ConnKey, now_tick: u32, ops: &mut Vec<Op>) {
        for number in self.connections_of(key) {
            self.end_connection(number, now_tick, ops);
        }
    }

    /// Those that conntrack calls so; only those of zone 0 are learned.
    pub(crate) fn connections_of(&self, key: &ConnKey) -> Vec<u32> {
        match key.zone {
            0 => self.conns.tracked_as(&self.table, &key.orig),
            _ => Vec::new(),
        }
    }

    /// A connection as conntrack has it now.
    pub fn connection_updated(&mut self, tracked: &Tracked, now_tick: u32, ops: &mut Vec<Op>) {
        for number in self.connections_of(&key_of(tracked)) {
            self.update_connection(number, tracked, now_tick, ops);
        }
    }

    fn update_connection(
        &mut self,
        number: u32,
        tracked: &Tracked,
        now_tick: u32,
        ops: &mut Vec<Op>,
    ) {
        let Some(connection) = self.conns.get(number) else {
            return;
        };
        const KEEP: u32 = freeway_abi::FW_CT_STATUS_KEEP;
        // another one may have taken its place, with another translation
        let translates = |index| {
            let record: Option<&Record> = self.table.get(index);
            record.is_none_or(|r| match r.is_reply() {
                true => r.key().tuple.tracked() == tracked.reply,
                false => r.out().inverse().tracked() == tracked.reply,
            })
        };
        let changed = !connection.indices().all(translates)
            || tracked.mark != connection.mark
            || tracked.helper.is_some()
            || tracked.labels
            || (tracked.status.0 ^ connection.status) & KEEP != 0
            || tracked.status.any(CtStatus::DYING)
            || tracked
                .tcp
                .is_some_and(|tcp| tcp.state != TcpState::Established);
        if changed {
            self.end_connection(number, now_tick, ops);
        }
    }
}

fn key_of(tracked: &Tracked) -> ConnKey {
    ConnKey {
        orig: tracked.orig,
        zone: tracked.zone,
    }
}
