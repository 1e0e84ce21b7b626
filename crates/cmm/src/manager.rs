// SPDX-License-Identifier: MIT OR Apache-2.0
//! The manager: candidates in, operations out.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use freeway_abi::fw_candidate;
use freeway_kernel::model::Tuple;

use crate::around::Around;
use crate::class::Classes;
use crate::conns::Conns;
use crate::flow::{Connection, Flow};
use crate::gathering::Groups;
use crate::indices::Indices;
use crate::key::{ConnKey, FlowKey, keyed};
use crate::leaks::Leaks;
use crate::memory::{Outcomes, Refusals};
use crate::nexthop::Nexthops;
use crate::op::Op;
use crate::policy::{Policy, RuleScope};
use crate::port::{Path, Port, Served};
use crate::recent::Recent;
use crate::refusal::Refusal;
use crate::scan::Scan;
use crate::share::{Holder, Shares};
use crate::stations::KnownStations;
use crate::stats::Stats;
use crate::table::Table;
use crate::walk::Walk;

/// Sizes and times.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Most flows, each direction counted.
    pub flows_max: u32,
    /// Most next hops.
    pub nexthops_max: u32,
    /// Ticks a second.
    pub hz: u32,
    /// Longest revalidation interval in seconds.
    pub revalidate_s: u32,
    /// A TCP flow without packets leaves the table after so many seconds.
    pub idle_tcp_s: u32,
    /// The same for UDP.
    pub idle_udp_s: u32,
    /// Seconds that conntrack gives an established TCP connection.
    pub tcp_established_s: u32,
    /// The same while data is not acknowledged.
    pub tcp_unacknowledged_s: u32,
    /// Fast bytes of a direction after which conntrack is asked again to be liberal.
    pub prepare_bytes: u64,
    /// Every flow is looked at once in so many seconds at least.
    pub scan_s: u32,
    /// A change that concerns more flows than this begins a new epoch instead.
    pub narrow_max: usize,
    /// Flows that leave or are renewed in one call at most, so that none takes long.
    pub work_max: usize,
    /// What may be fast.
    pub policy: Policy,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            flows_max: 65_536,
            nexthops_max: 4096,
            hz: 250,
            revalidate_s: 10,
            idle_tcp_s: 60,
            idle_udp_s: 30,
            tcp_established_s: 432_000,
            tcp_unacknowledged_s: 300,
            // conntrack drops a RST 2 GiB behind what it believes (kernel-side
            // arithmetic of before(seq, td_maxack)); half of that leaves time.
            prepare_bytes: 1 << 30,
            scan_s: 20,
            narrow_max: 65_536,
            work_max: 4096,
            policy: Policy::default(),
        }
    }
}

/// The connection manager.
pub struct Manager {
    pub(crate) settings: Settings,
    pub(crate) table: Table,
    pub(crate) conns: Conns,
    pub(crate) nexthops: Nexthops,
    pub(crate) ports: BTreeMap<u32, Port>,
    pub(crate) stations: KnownStations,
    pub(crate) neighbours: HashMap<(u32, IpAddr), [u8; 6]>,
    pub(crate) stats: Stats,
    pub(crate) epoch: u32,
    /// Flows that rules keep in the kernel, and flows whose marks rules set.
    pub(crate) unsafe_scopes: Vec<RuleScope>,
    pub(crate) mark_scopes: Vec<RuleScope>,
    /// Connections without an answer may be fast: rules see their packets as new.
    pub(crate) one_way: bool,
    pub(crate) indices: Indices,
    pub(crate) outcomes: Outcomes,
    pub(crate) refusals: Refusals,
    pub(crate) scan: Scan,
    /// Index of the flow from which on connections are asked for.
    pub(crate) next_asked: u32,
    pub(crate) sweep: Option<Walk>,
    pub(crate) groups: Groups,
    pub(crate) leaks: Leaks,
    pub(crate) recent: Recent,
    pub(crate) shares: Shares,
}

impl Manager {
    /// An empty manager. Nothing is learned before ports and a safe ruleset are known.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            nexthops: Nexthops::new(settings.nexthops_max),
            indices: Indices::new(settings.flows_max),
            settings,
            table: Table::new(),
            conns: Conns::new(),
            ports: BTreeMap::new(),
            stations: KnownStations::default(),
            neighbours: HashMap::new(),
            stats: Stats::default(),
            epoch: 1,
            unsafe_scopes: vec![RuleScope::everything()],
            mark_scopes: Vec::new(),
            one_way: true,
            outcomes: Outcomes::default(),
            refusals: Refusals::default(),
            scan: Scan::default(),
            next_asked: 0,
            sweep: None,
            groups: Groups::default(),
            leaks: Leaks::default(),
            recent: Recent::default(),
            shares: Shares::default(),
        }
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The hard epoch.
    #[must_use]
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// All flows with their indices, in the order of these.
    pub fn flows(&self) -> impl Iterator<Item = (u32, Flow)> {
        self.table
            .iter()
            .map(|(index, record)| (index, record.flow()))
    }

    /// The indices of all flows, in order.
    pub(crate) fn indices(&self) -> impl Iterator<Item = u32> {
        self.table.iter().map(|(index, _)| index)
    }

    /// The flow at an index.
    #[must_use]
    pub fn flow(&self, index: u32) -> Option<Flow> {
        self.table.get(index).map(|record| record.flow())
    }

    /// States of removed flows that count packets not yet in [`Stats`].
    pub fn retired_states(&self) -> impl Iterator<Item = u32> + '_ {
        self.indices.retired_states()
    }

    /// Flows in the table.
    #[must_use]
    pub fn flow_count(&self) -> usize {
        self.table.len()
    }

    /// Of which tc forwards.
    #[must_use]
    pub fn tc_flow_count(&self) -> usize {
        self.table.of_tc()
    }

    /// Of which the engine forwards.
    #[must_use]
    pub fn engine_flow_count(&self) -> usize {
        self.table.of_engine()
    }

    /// Who has the most flows, the greatest first.
    #[must_use]
    pub fn greatest_holders(&self, most: usize) -> Vec<Holder> {
        self.shares.greatest(most)
    }

    /// How many have flows.
    #[must_use]
    pub fn holder_count(&self) -> usize {
        self.shares.holders()
    }

    /// The flow with a key.
    #[must_use]
    pub fn find(&self, key: &FlowKey) -> Option<(u32, Flow)> {
        let index = self.table.find(key)?;
        self.flow(index).map(|flow| (index, flow))
    }

    /// Connections with a flow in the table.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.conns.len()
    }

    /// A connection; of several that conntrack calls one, one.
    #[must_use]
    pub fn connection(&self, key: &ConnKey) -> Option<Connection> {
        let index = *self.connections_of(key).first()?;
        self.conns.get(index).map(|conn| conn.shown())
    }

    /// Distinct addresses by which changes of routes find their flows.
    #[must_use]
    pub fn address_count(&self) -> usize {
        self.table.address_count()
    }

    /// Next hops in use.
    #[must_use]
    pub fn nexthop_count(&self) -> usize {
        self.nexthops.len()
    }

    /// The L2 header that a next hop writes; empty at a port without a link layer.
    #[must_use]
    pub fn nexthop_l2(&self, index: u32) -> Option<&[u8]> {
        self.nexthops.l2(index)
    }

    /// The ports at which a flow's frames leave: more than one if it is to a group.
    #[must_use]
    pub fn exits(&self, flow: &Flow) -> Vec<u32> {
        let legs = self.legs(flow.nexthop);
        legs.unwrap_or_else(|| vec![flow.port_out])
    }

    /// The ports of a list of next hops; `None`: it is none.
    #[must_use]
    pub fn legs(&self, nexthop: u32) -> Option<Vec<u32>> {
        let legs = self.nexthops.legs(nexthop)?;
        Some(legs.iter().map(|leg| leg.port).collect())
    }

    /// The last refusal for a key.
    #[must_use]
    pub fn refusal(&self, key: &FlowKey) -> Option<Refusal> {
        self.refusals.of(key)
    }

    /// Begins a new hard epoch: every flow waits in the kernel until confirmed.
    pub fn new_epoch(&mut self, ops: &mut Vec<Op>) {
        self.epoch = self.epoch.checked_add(1).unwrap_or(1);
        self.stats.epochs += 1;
        ops.push(Op::SetEpoch { epoch: self.epoch });
    }

    /// A candidate from the data plane.
    pub fn candidate(
        &mut self,
        c: &fw_candidate,
        around: Around,
        now_tick: u32,
        ops: &mut Vec<Op>,
    ) {
        self.stats.candidates += 1;
        let Some(key) = FlowKey::of(c) else {
            *self.stats.refused.entry(Refusal::Malformed).or_default() += 1;
            return;
        };
        if key.tuple.dst.is_multicast() {
            return self.gather(c, &key, around, now_tick, ops);
        }
        let admitted = self.admit(std::slice::from_ref(c), &key, around, now_tick, ops);
        self.note_refused(&key, admitted, ops);
    }

    pub(crate) fn note_refused(
        &mut self,
        key: &FlowKey,
        admitted: Result<(), Refusal>,
        ops: &mut Vec<Op>,
    ) {
        if let Err(refusal) = admitted {
            *self.stats.refused.entry(refusal).or_default() += 1;
            self.refusals.note(*key, refusal);
            if refusal.is_momentary() {
                ops.push(Op::ForgetOffer {
                    flow: Box::new(keyed(key)),
                });
            }
        }
    }

    /// Who forwards a flow, `tuple` as it comes in and `out` as it leaves: as [`Manager::path`], but the policy gives some of
    /// XDP's to the engine.
    pub(crate) fn path_of(
        &self,
        (tuple, out): (&Tuple, &Tuple),
        (port_in, port_out): (u32, u32),
        bound: bool,
    ) -> Result<Path, Refusal> {
        let path = self.path(port_in, port_out, bound)?;
        let ports = [port_in, port_out];
        let shared = ports.iter().all(|port| {
            let port = self.ports.get(port);
            port.is_some_and(|port| port.engine == Served::Chosen)
        });
        let engine = path == Path::Xdp && shared && self.settings.policy.steers(tuple, out, ports);
        Ok(if engine { Path::Engine } else { path })
    }

    /// The classes of what the engine sends from one port to another, if it has a scheduler there.
    pub(crate) fn classes(&self, port_in: u32, port_out: u32) -> Option<&Classes> {
        let whole = |port: u32| {
            let port = self.ports.get(&port);
            port.filter(|port| port.engine == Served::Whole)
        };
        whole(port_in)?;
        whole(port_out)?.classes.as_deref()
    }

    /// Leaf of the engine's scheduler that a next hop leads to, from 1 on; none: it leads to none.
    #[must_use]
    pub fn nexthop_leaf(&self, nexthop: u32) -> Option<u16> {
        let leaf = self.nexthops.key(nexthop)?.leaf;
        (leaf > 0).then_some(leaf)
    }

    /// Who forwards from one port to another; `bound`: flows that neither XDP nor the engine can forward. If nobody, what
    /// is in the way.
    pub(crate) fn path(&self, port_in: u32, port_out: u32, bound: bool) -> Result<Path, Refusal> {
        let fit = |port: u32| self.ports.get(&port).map(|p| (p.xdp, p.tc, p.engine));
        let (from_xdp, from_tc, from_engine) = fit(port_in).unwrap_or_default();
        let (to_xdp, to_tc, to_engine) = fit(port_out).unwrap_or_default();
        let (from_engine, to_engine) = (from_engine == Served::Whole, to_engine == Served::Whole);
        // neither has the other's ports
        if !bound && from_xdp.input && to_xdp.output && from_engine == to_engine {
            return Ok(if from_engine { Path::Engine } else { Path::Xdp });
        }
        if from_tc.input && to_tc.output {
            return Ok(Path::Tc);
        }
        Err(if !from_xdp.input && !from_tc.input {
            Refusal::PortIn
        } else if !to_xdp.output && !to_tc.output {
            Refusal::PortOut
        } else {
            Refusal::NoPath
        })
    }
}
