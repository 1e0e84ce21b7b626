// SPDX-License-Identifier: MIT OR Apache-2.0
//! The manager: candidates in, operations out.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;

use freeway_abi::{
    FW_CT_STATUS_KEEP, FW_EV_CHANGED, FW_FLOW_CT, FW_FLOW_NAT, FW_INDEX_NONE, FW_R_CLOSING,
    FW_ST_PREPARING, fw_candidate, fw_flow, fw_state,
};

use crate::flow::{Connection, Flow, Preparation};
use crate::key::{ConnKey, FlowKey, out_of, tuple_of};
use crate::nexthop::{NexthopKey, Nexthops};
use crate::op::Op;
use crate::policy::{Policy, RuleScope};
use crate::port::Port;
use crate::refusal::Refusal;
use crate::stats::Stats;

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
            policy: Policy::default(),
        }
    }
}

/// Recent refusals kept for `explain`, and outcomes that changed.
const MEMORY_MAX: usize = 4096;
/// Outcomes that change more often than this in a minute stay in the kernel.
const CHANGES_MAX: u32 = 3;

#[derive(Clone, Copy)]
pub(crate) struct Changes {
    since_tick: u32,
    count: u32,
}

/// The connection manager.
pub struct Manager {
    pub(crate) settings: Settings,
    pub(crate) flows: HashMap<u32, Flow>,
    pub(crate) by_key: HashMap<FlowKey, u32>,
    pub(crate) conns: HashMap<ConnKey, Connection>,
    pub(crate) nexthops: Nexthops,
    pub(crate) ports: BTreeMap<u32, Port>,
    pub(crate) neighbours: HashMap<(u32, IpAddr), [u8; 6]>,
    pub(crate) stats: Stats,
    pub(crate) epoch: u32,
    /// Flows that rules keep in the kernel, and flows whose marks rules set.
    unsafe_scopes: Vec<RuleScope>,
    mark_scopes: Vec<RuleScope>,
    free: Vec<u32>,
    next: u32,
    /// States and next hops that the data plane may still be holding.
    pub(crate) quarantine: VecDeque<(u32, Retired)>,
    changes: HashMap<FlowKey, Changes>,
    refusals: HashMap<FlowKey, Refusal>,
    refusal_order: VecDeque<FlowKey>,
}

/// What waits for the last packet that could refer to it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Retired {
    State(u32),
    Nexthop(u32),
}

impl Manager {
    /// An empty manager. Nothing is learned before ports and a safe ruleset are known.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            nexthops: Nexthops::new(settings.nexthops_max),
            settings,
            flows: HashMap::new(),
            by_key: HashMap::new(),
            conns: HashMap::new(),
            ports: BTreeMap::new(),
            neighbours: HashMap::new(),
            stats: Stats::default(),
            epoch: 1,
            unsafe_scopes: vec![RuleScope::everything()],
            mark_scopes: Vec::new(),
            free: Vec::new(),
            next: 1,
            quarantine: VecDeque::new(),
            changes: HashMap::new(),
            refusals: HashMap::new(),
            refusal_order: VecDeque::new(),
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

    /// All flows with their state indices, in no order.
    pub fn flows(&self) -> impl Iterator<Item = (u32, &Flow)> {
        self.flows.iter().map(|(index, flow)| (*index, flow))
    }

    /// Flows in the table.
    #[must_use]
    pub fn flow_count(&self) -> usize {
        self.flows.len()
    }

    /// The flow with a state index.
    #[must_use]
    pub fn flow(&self, index: u32) -> Option<&Flow> {
        self.flows.get(&index)
    }

    /// Every flow's state index is below this one, and at least 1.
    #[must_use]
    pub fn index_end(&self) -> u32 {
        self.next
    }

    /// States of removed flows that count packets not yet in [`Stats`].
    pub fn retired_states(&self) -> impl Iterator<Item = u32> + '_ {
        self.quarantine
            .iter()
            .filter_map(|(_, retired)| match retired {
                Retired::State(index) => Some(*index),
                Retired::Nexthop(_) => None,
            })
    }

    /// The flow with a key.
    #[must_use]
    pub fn find(&self, key: &FlowKey) -> Option<(u32, &Flow)> {
        let index = *self.by_key.get(key)?;
        self.flows.get(&index).map(|flow| (index, flow))
    }

    /// Connections with a flow in the table.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.conns.len()
    }

    /// A connection.
    #[must_use]
    pub fn connection(&self, key: &ConnKey) -> Option<&Connection> {
        self.conns.get(key)
    }

    /// Next hops in use.
    #[must_use]
    pub fn nexthop_count(&self) -> usize {
        self.nexthops.len()
    }

    /// The L2 header that a next hop writes.
    #[must_use]
    pub fn nexthop_l2(&self, index: u32) -> Option<&[u8]> {
        self.nexthops.l2(index).map(|l2| &l2[..14])
    }

    /// The last refusal for a key.
    #[must_use]
    pub fn refusal(&self, key: &FlowKey) -> Option<Refusal> {
        self.refusals.get(key).copied()
    }

    /// What the ruleset's analysis says. Flows that are no longer allowed leave.
    pub fn set_ruleset(
        &mut self,
        unsafe_scopes: Vec<RuleScope>,
        mark_scopes: Vec<RuleScope>,
        now_tick: u32,
        ops: &mut Vec<Op>,
    ) {
        self.unsafe_scopes = unsafe_scopes;
        self.mark_scopes = mark_scopes;
        let hit = |f: &Flow| {
            let mut scopes = self.unsafe_scopes.iter().chain(&self.mark_scopes);
            scopes.any(|s| s.matches(&f.key.tuple, f.key.port, f.port_out))
        };
        let mut gone: Vec<u32> = self
            .flows
            .iter()
            .filter(|(_, f)| hit(f))
            .map(|(index, _)| *index)
            .collect();
        gone.sort_unstable();
        for index in gone {
            self.remove(index, now_tick, ops);
        }
    }

    /// Begins a new hard epoch: every flow waits in the kernel until confirmed.
    pub fn new_epoch(&mut self, ops: &mut Vec<Op>) {
        self.epoch = self.epoch.checked_add(1).unwrap_or(1);
        self.stats.epochs += 1;
        ops.push(Op::SetEpoch { epoch: self.epoch });
    }

    /// A candidate from the data plane. `copies`: frames that left under its token by now.
    pub fn candidate(&mut self, c: &fw_candidate, copies: u32, now_tick: u32, ops: &mut Vec<Op>) {
        self.stats.candidates += 1;
        let Some(key) = FlowKey::of(c) else {
            *self.stats.refused.entry(Refusal::Malformed).or_default() += 1;
            return;
        };
        if let Err(refusal) = self.admit(c, &key, copies, now_tick, ops) {
            *self.stats.refused.entry(refusal).or_default() += 1;
            self.remember(key, refusal);
        }
    }

    /// A candidate that the daemon itself leaves to the kernel.
    pub fn refuse(&mut self, key: FlowKey, refusal: Refusal) {
        self.stats.candidates += 1;
        *self.stats.refused.entry(refusal).or_default() += 1;
        self.remember(key, refusal);
    }

    /// A flow that the daemon leaves to the kernel from now on leaves the table.
    pub fn refuse_flow(&mut self, index: u32, refusal: Refusal, now_tick: u32, ops: &mut Vec<Op>) {
        if let Some(key) = self.flow(index).map(|flow| flow.key) {
            self.remove(index, now_tick, ops);
            self.remember(key, refusal);
        }
    }

    fn remember(&mut self, key: FlowKey, refusal: Refusal) {
        if self.refusals.insert(key, refusal).is_none() {
            self.refusal_order.push_back(key);
        }
        if self.refusal_order.len() > MEMORY_MAX
            && let Some(oldest) = self.refusal_order.pop_front()
        {
            self.refusals.remove(&oldest);
        }
    }

    fn admit(
        &mut self,
        c: &fw_candidate,
        key: &FlowKey,
        copies: u32,
        now_tick: u32,
        ops: &mut Vec<Op>,
    ) -> Result<(), Refusal> {
        self.check(c, key, copies)?;
        if c.ev.kind == FW_EV_CHANGED {
            self.check_stable(key, now_tick)?;
        }
        let mtu = self.ports.get(&c.port_out).map_or(0, |p| p.mtu);
        let slot = self.ports.get(&c.port_out).map_or(0, |p| p.slot);
        if u32::from(c.len_l3) > mtu {
            return Err(Refusal::Length);
        }
        let family = c.family;
        let out = out_of(c).ok_or(Refusal::Malformed)?;
        if !self
            .settings
            .policy
            .allows(&key.tuple, &out, [key.port, c.port_out])
        {
            return Err(Refusal::Policy);
        }
        let conn = match c.conn.present {
            0 => None,
            _ => Some(ConnKey {
                orig: tuple_of(family, key.tuple.proto, &c.conn.orig).ok_or(Refusal::Malformed)?,
                zone: c.conn.zone,
            }),
        };
        let replaced = self.by_key.get(key).copied();
        if replaced.is_none() && self.flows.len() >= self.settings.flows_max as usize {
            return Err(Refusal::TableFull);
        }
        let index = self.take_state().ok_or(Refusal::TableFull)?;
        let nexthop_key = NexthopKey {
            port: c.port_out,
            l2: c.l2_out,
            l2_len: c.l2_out_len as u8,
        };
        let Some((nexthop, new)) = self.nexthops.take(nexthop_key) else {
            self.free.push(index);
            return Err(Refusal::NexthopsFull);
        };
        if new {
            ops.push(Op::SetNexthop {
                index: nexthop,
                nexthop: nexthop_key.record(slot, mtu),
            });
        }
        // linked first: the replaced flow may be the last one through it
        self.nexthops.link(nexthop, index);
        if let Some(old) = replaced {
            self.stats.replaced += 1;
            self.remove(old, now_tick, ops);
        }
        let flow = Flow {
            key: *key,
            out,
            port_out: c.port_out,
            nexthop,
            conn,
            reply: c.conn.dir != 0,
            created_tick: now_tick,
            first_tick: c.first_tick,
            ttl_in: c.ttl_in,
            dscp_in: c.tos_in & 0xfc,
            active: false,
            prepared_bytes: 0,
        };
        let state = self.state_of(c, index, now_tick);
        ops.push(Op::InsertFlow {
            index,
            flow: record_of(c, key, nexthop, state),
        });
        self.refusals.remove(key);
        self.by_key.insert(*key, index);
        self.flows.insert(index, flow);
        self.stats.learned += 1;
        self.join_connection(c, index, conn, now_tick, ops);
        Ok(())
    }

    fn check(&self, c: &fw_candidate, key: &FlowKey, copies: u32) -> Result<(), Refusal> {
        if c.l2_in_len != 14 || c.l2_out_len != 14 {
            return Err(Refusal::Framing);
        }
        if !self.ports.get(&key.port).is_some_and(|p| p.input) {
            return Err(Refusal::PortIn);
        }
        if !self.ports.get(&c.port_out).is_some_and(|p| p.output) {
            return Err(Refusal::PortOut);
        }
        let concerned = |s: &RuleScope| s.matches(&key.tuple, key.port, c.port_out);
        if self.unsafe_scopes.iter().any(concerned) {
            return Err(Refusal::Ruleset);
        }
        if c.mark != 0 || c.conn.mark != 0 || self.mark_scopes.iter().any(concerned) {
            return Err(Refusal::Mark);
        }
        if c.conn.present != 0 && c.conn.zone != 0 {
            return Err(Refusal::Zone);
        }
        if copies > 1 {
            return Err(Refusal::Copies);
        }
        if c.epoch != self.epoch {
            return Err(Refusal::Epoch);
        }
        Ok(())
    }

    fn check_stable(&mut self, key: &FlowKey, now_tick: u32) -> Result<(), Refusal> {
        let minute = 60 * self.settings.hz;
        if self.changes.len() >= MEMORY_MAX {
            self.changes
                .retain(|_, c| now_tick.wrapping_sub(c.since_tick) < minute);
        }
        let fresh = Changes {
            since_tick: now_tick,
            count: 0,
        };
        let changes = self.changes.entry(*key).or_insert(fresh);
        if now_tick.wrapping_sub(changes.since_tick) >= minute {
            *changes = fresh;
        }
        changes.count += 1;
        if changes.count > CHANGES_MAX {
            Err(Refusal::Unstable)
        } else {
            Ok(())
        }
    }

    fn take_state(&mut self) -> Option<u32> {
        if let Some(index) = self.free.pop() {
            return Some(index);
        }
        // States in quarantine need room beside the flows; the array has none.
        if self.next > self.settings.flows_max {
            return None;
        }
        self.next += 1;
        Some(self.next - 1)
    }

    fn interval_ticks(&self, c: &fw_candidate, index: u32) -> u32 {
        let mut interval = self.settings.revalidate_s * self.settings.hz;
        if c.conn.present != 0 {
            interval = interval
                .min(c.conn.timeout_ticks / 4)
                .max(self.settings.hz / 4);
        }
        // spread by up to an eighth, so that flows learned together part
        interval - index.wrapping_mul(0x9e37_79b9) % (interval / 8 + 1)
    }

    fn state_of(&self, c: &fw_candidate, index: u32, now_tick: u32) -> fw_state {
        let interval = self.interval_ticks(c, index);
        fw_state {
            status: FW_ST_PREPARING,
            epoch: c.epoch,
            used_tick: now_tick,
            // the connection may have begun to close meanwhile: checked at once
            due_tick: now_tick,
            reval_tick: now_tick.wrapping_add(interval),
            confirmed_tick: now_tick,
            interval,
            ct_mark: c.conn.mark,
            ct_status: c.conn.status & FW_CT_STATUS_KEEP,
            len_max: c.len_l3,
            ..Default::default()
        }
    }

    fn join_connection(
        &mut self,
        c: &fw_candidate,
        index: u32,
        conn: Option<ConnKey>,
        now_tick: u32,
        ops: &mut Vec<Op>,
    ) {
        let Some(key) = conn else {
            self.activate(index, now_tick, ops);
            return;
        };
        let tcp = key.orig.proto == 6;
        let mut timeout_s = c.conn.timeout_ticks.div_ceil(self.settings.hz);
        if tcp && timeout_s <= self.settings.tcp_unacknowledged_s {
            // learned from a packet with data, which is acknowledged by now
            timeout_s = self.settings.tcp_established_s;
        }
        let connection = self.conns.entry(key).or_insert(Connection {
            flows: [None; 2],
            preparation: Preparation::None,
            status: c.conn.status,
            mark: c.conn.mark,
            timeout_s,
            prepared_tick: now_tick,
        });
        let dir = usize::from(c.conn.dir != 0);
        connection.flows[dir] = Some(index);
        if let Some(peer) = connection.flows[1 - dir] {
            ops.push(Op::SetPeer { index, peer });
            ops.push(Op::SetPeer {
                index: peer,
                peer: index,
            });
        }
        if !tcp || connection.preparation == Preparation::Done {
            self.activate(index, now_tick, ops);
        } else if connection.preparation == Preparation::None {
            connection.preparation = Preparation::Asked;
            ops.push(Op::Prepare { conn: key });
        }
    }

    fn activate(&mut self, index: u32, now_tick: u32, ops: &mut Vec<Op>) {
        let Some(flow) = self.flows.get_mut(&index) else {
            return;
        };
        flow.active = true;
        self.stats.activated += 1;
        let waited = u64::from(now_tick.wrapping_sub(flow.first_tick)) * 1000;
        let waited_ms = waited / u64::from(self.settings.hz);
        self.stats
            .learnable_to_fast
            .record(u32::try_from(waited_ms).unwrap_or(u32::MAX));
        ops.push(Op::Activate { index });
    }

    /// conntrack's answer to [`Op::Prepare`].
    pub fn prepared(&mut self, conn: &ConnKey, ok: bool, now_tick: u32, ops: &mut Vec<Op>) {
        let Some(connection) = self.conns.get_mut(conn) else {
            return;
        };
        if !ok {
            *self.stats.refused.entry(Refusal::Preparation).or_default() += 1;
            self.end_connection(conn, now_tick, ops);
            return;
        }
        self.stats.prepared += 1;
        connection.preparation = Preparation::Done;
        connection.prepared_tick = now_tick;
        for index in connection.flows.into_iter().flatten() {
            if self.flows.get(&index).is_some_and(|f| !f.active) {
                self.activate(index, now_tick, ops);
            }
        }
    }

    /// The data plane suspended the connection of this state.
    pub fn suspended(&mut self, index: u32, reason: u32, now_tick: u32, ops: &mut Vec<Op>) {
        self.stats.suspended += 1;
        let Some(flow) = self.flows.get(&index) else {
            return;
        };
        match flow.conn {
            Some(conn) => self.end_connection(&conn, now_tick, ops),
            None => {
                // Without a connection nothing links the directions but their tuples.
                let inverse = flow.out.inverse();
                let port = flow.port_out;
                self.remove(index, now_tick, ops);
                let peer = self
                    .by_key
                    .get(&FlowKey {
                        tuple: inverse,
                        port,
                    })
                    .copied();
                if let (Some(peer), FW_R_CLOSING) = (peer, reason) {
                    self.remove(peer, now_tick, ops);
                }
            }
        }
    }

    /// Both directions leave the table.
    pub(crate) fn end_connection(&mut self, conn: &ConnKey, now_tick: u32, ops: &mut Vec<Op>) {
        let Some(connection) = self.conns.remove(conn) else {
            return;
        };
        for index in connection.flows.into_iter().flatten() {
            self.stats.ended += 1;
            self.remove(index, now_tick, ops);
        }
    }

    pub(crate) fn remove(&mut self, index: u32, now_tick: u32, ops: &mut Vec<Op>) {
        let Some(flow) = self.flows.remove(&index) else {
            return;
        };
        ops.push(Op::RemoveFlow { index });
        if self.by_key.get(&flow.key) == Some(&index) {
            self.by_key.remove(&flow.key);
        }
        if self.nexthops.unlink(flow.nexthop, index) {
            self.quarantine
                .push_back((now_tick, Retired::Nexthop(flow.nexthop)));
        }
        self.quarantine.push_back((now_tick, Retired::State(index)));
        if let Some(conn) = flow.conn
            && let Some(connection) = self.conns.get_mut(&conn)
        {
            for slot in &mut connection.flows {
                if *slot == Some(index) {
                    *slot = None;
                }
            }
            // the index will be another flow's
            for peer in connection.flows.into_iter().flatten() {
                ops.push(Op::SetPeer {
                    index: peer,
                    peer: FW_INDEX_NONE,
                });
            }
            if connection.flows == [None; 2] {
                self.conns.remove(&conn);
            }
        }
    }

    pub(crate) fn recycle(&mut self, retired: Retired) {
        match retired {
            Retired::State(index) => self.free.push(index),
            Retired::Nexthop(index) => self.nexthops.recycle(index),
        }
    }

    /// The table did not take the flow.
    pub fn insert_failed(&mut self, index: u32, now_tick: u32, ops: &mut Vec<Op>) {
        if let Some(key) = self.flows.get(&index).map(|f| f.key) {
            *self.stats.refused.entry(Refusal::TableFull).or_default() += 1;
            self.remember(key, Refusal::TableFull);
        }
        self.remove(index, now_tick, ops);
    }

    /// Conntrack's timeouts for TCP, in seconds, for connections that are learned from now on.
    pub fn set_tcp_timeouts(&mut self, established_s: u32, unacknowledged_s: u32) {
        self.settings.tcp_established_s = established_s;
        self.settings.tcp_unacknowledged_s = unacknowledged_s;
    }

    /// Replaces the policy; flows that it no longer allows leave.
    pub fn set_policy(&mut self, policy: Policy, now_tick: u32, ops: &mut Vec<Op>) {
        self.settings.policy = policy;
        let policy = &self.settings.policy;
        let mut gone: Vec<u32> = self
            .flows
            .iter()
            .filter(|(_, f)| !policy.allows(&f.key.tuple, &f.out, [f.key.port, f.port_out]))
            .map(|(index, _)| *index)
            .collect();
        gone.sort_unstable();
        for index in gone {
            self.remove(index, now_tick, ops);
        }
    }

    /// Empties the table.
    pub fn flush(&mut self, now_tick: u32, ops: &mut Vec<Op>) {
        let mut indices: Vec<u32> = self.flows.keys().copied().collect();
        indices.sort_unstable();
        for index in indices {
            self.remove(index, now_tick, ops);
        }
    }
}

fn record_of(c: &fw_candidate, key: &FlowKey, nexthop: u32, state: fw_state) -> fw_flow {
    let mut flags = 0;
    if c.nat != 0 {
        flags |= FW_FLOW_NAT;
    }
    if c.conn.present != 0 {
        flags |= FW_FLOW_CT;
    }
    let mut flow = fw_flow {
        ttl_in: c.ttl_in,
        dscp_in: c.tos_in & 0xfc,
        sport_be: c.sport_be,
        dport_be: c.dport_be,
        nexthop,
        l3_delta: c.l3_delta,
        l4_delta: c.l4_delta,
        ttl_out: c.ttl_out,
        dscp_out: c.tos_out & 0xfc,
        flags: flags as u8,
        l2_in_len: c.l2_in_len as u8,
        state,
        ..Default::default()
    };
    flow.l2_in.copy_from_slice(&c.l2_in[..14]);
    match key.v4() {
        Some(key) => {
            flow.key = key;
            flow.saddr_be = c.saddr_be[0];
            flow.daddr_be = c.daddr_be[0];
        }
        None => {
            let key = key.v6();
            flow.key.sport_be = key.sport_be;
            flow.key.dport_be = key.dport_be;
            flow.key.port_proto = key.port_proto;
            flow.key_saddr6_be = key.saddr_be;
            flow.key_daddr6_be = key.daddr_be;
            flow.saddr6_be = c.saddr_be;
            flow.daddr6_be = c.daddr_be;
        }
    }
    flow
}
