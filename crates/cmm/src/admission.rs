// SPDX-License-Identifier: MIT OR Apache-2.0
//! From a candidate to a flow in the table.

use freeway_abi::{
    FW_CT_STATUS_KEEP, FW_EV_CHANGED, FW_FLOW_CT, FW_FLOW_ENGINE, FW_FLOW_NAT, FW_FLOW_TC,
    FW_ST_PREPARING, fw_candidate, fw_flow, fw_kept, fw_state,
};
use freeway_kernel::model::{CtStatus, Tuple};

use crate::around::Around;
use crate::ends::receiver;
use crate::key::{ConnKey, FlowKey, keyed, out_of, tuple_of};
use crate::manager::Manager;
use crate::nexthop::NexthopKey;
use crate::op::Op;
use crate::policy::RuleScope;
use crate::port::{Framing, Path};
use crate::record::Record;
use crate::refusal::Refusal;
use crate::share::Newcomer;

/// Bytes of an Ethernet header.
const ETH_LEN: u16 = 14;

impl Manager {
    pub(crate) fn admit(
        &mut self,
        copies: &[fw_candidate],
        key: &FlowKey,
        around: Around,
        now_tick: u32,
        ops: &mut Vec<Op>,
    ) -> Result<(), Refusal> {
        let c = copies.first().ok_or(Refusal::Malformed)?;
        let out = out_of(c).ok_or(Refusal::Malformed)?;
        let (mut path, mut bound) = (Path::Xdp, false);
        let mut exits = Vec::with_capacity(copies.len());
        for copy in copies {
            (path, bound) = self.check(copy, key, &out, around)?;
            exits.push(self.exit(copy, key, &out, path)?);
        }
        if self
            .recent
            .concerns(c, key, &out, self.settings.hz, now_tick)
        {
            return Err(Refusal::Epoch);
        }
        if c.ev.kind == FW_EV_CHANGED && !self.is_explained(key, &out, now_tick) {
            self.outcomes
                .changed(key, 60 * self.settings.hz, now_tick)?;
        }
        let mut record = Record::new(key, &out).ok_or(Refusal::Malformed)?;
        record.port_out = c.port_out;
        record.created_tick = now_tick;
        record.first_tick = c.first_tick;
        record.ttl_in = c.ttl_in;
        record.dscp_in = c.tos_in & 0xfc;
        record.set_path(path, bound);
        record.set_sniffed(around.sniffed);
        if c.conn.dir != 0 {
            record.set_reply();
        }
        let orig = tuple_of(c.family, key.tuple.proto, &c.conn.orig);
        if c.conn.present != 0 && orig != Some(record.orig().tracked()) {
            return Err(Refusal::Malformed);
        }
        let replaced = self.table.find(key);
        if replaced.is_none() && self.table.len() >= self.settings.flows_max as usize {
            self.make_room(&record, c, now_tick, ops)?;
        }
        let index = self.indices.take().ok_or(Refusal::TableFull)?;
        let taken = match exits.as_slice() {
            [exit] if !record.is_group() => self.take_nexthop(*exit, ops),
            _ => self.take_list(exits, ops),
        };
        let Some(nexthop) = taken else {
            self.indices.give_back(index);
            return Err(Refusal::NexthopsFull);
        };
        if let Some(old) = replaced {
            self.stats.replaced += 1;
            // it may be the last flow through the next hop
            self.remove_but(old, Some(nexthop), now_tick, ops);
        }
        record.nexthop = nexthop;
        let connection = ConnKey {
            orig: record.orig().tracked(),
            zone: 0,
        };
        let state = self.state_of(c, index, now_tick);
        ops.push(Op::InsertFlow {
            index,
            flow: Box::new(record_of(c, key, nexthop, path, state)),
            kept: fw_kept {
                ct_mark: c.conn.mark,
                ct_status: c.conn.status & FW_CT_STATUS_KEEP,
            },
            conn: (c.conn.present != 0).then(|| (connection, record.is_reply())),
        });
        self.refusals.forget(key);
        self.shares.enter(index, &record, now_tick);
        self.table.insert(index, record);
        self.stats.learned += 1;
        self.join_connection(c, index, now_tick, ops);
        Ok(())
    }

    /// A flow that is colder, or of a holder of more than its share, leaves for this one.
    fn make_room(
        &mut self,
        record: &Record,
        c: &fw_candidate,
        now_tick: u32,
        ops: &mut Vec<Op>,
    ) -> Result<(), Refusal> {
        let spare = self.indices.any_free();
        if !spare && self.indices.any_waits() {
            // the next offer finds one of those
            return Err(Refusal::TableFull);
        }
        // the second may have come in before the first had left
        let ticks = c.ev.tick.wrapping_sub(c.first_tick).cast_signed().max(1);
        let newcomer = Newcomer {
            holder: record.holder(),
            packets_per_s: self.settings.hz as f32 / ticks as f32,
        };
        let victim = self
            .shares
            .victim(&self.table, newcomer, self.settings.flows_max)
            .ok_or(Refusal::TableFull)?;
        self.stats.displaced += 1;
        self.remove(victim, now_tick, ops);
        if spare {
            Ok(())
        } else {
            Err(Refusal::TableFull)
        }
    }

    /// Where a frame leaves, and as what.
    fn exit(
        &self,
        c: &fw_candidate,
        key: &FlowKey,
        out: &Tuple,
        path: Path,
    ) -> Result<NexthopKey, Refusal> {
        let (mtu, framing) = self
            .ports
            .get(&c.port_out)
            .map_or_else(Default::default, |p| (p.mtu, p.framing));
        if u32::from(c.len_l3) > mtu {
            return Err(Refusal::Length);
        }
        let ports = [key.port, c.port_out];
        if !self.settings.policy.allows(&key.tuple, out, ports) {
            return Err(Refusal::Policy);
        }
        let station = self.stations.exit(c.port_out, receiver(c));
        let exit = station.filter(|_| path == Path::Xdp && self.is_by_station(c.port_out));
        let framing = match (path, exit) {
            (Path::Xdp, Some(exit)) => exit.framing(),
            (Path::Xdp, None) | (Path::Engine, _) => framing,
            (Path::Tc, _) => Framing::default(),
        };
        let (l2, l2_len) = match framing.session {
            Some(session) => (session.link(c.family), ETH_LEN),
            None => (c.l2_out, c.l2_out_len),
        };
        let class = match path {
            Path::Engine => self.class_of(c, key),
            Path::Xdp | Path::Tc => None,
        };
        let leaf = class.flatten().map_or(0, |class| class + 1);
        let qdiscs = path == Path::Tc || leaf > 0;
        Ok(NexthopKey {
            port: c.port_out,
            l2,
            l2_len: l2_len as u8,
            framing,
            device: exit.map_or(0, |exit| exit.device),
            mark: if qdiscs { c.mark } else { 0 },
            priority: if qdiscs { c.priority } else { 0 },
            leaf,
        })
    }

    /// Of the engine's scheduler, by what the kernel gave the frame; none: there is no scheduler, or it is past its classes.
    fn class_of(&self, c: &fw_candidate, key: &FlowKey) -> Option<Option<u16>> {
        let classes = self.classes(key.port, c.port_out)?;
        Some(classes.of(c.priority, c.mark, c.tos_out))
    }

    /// The index of a next hop; `None`: there are too many.
    fn take_nexthop(&mut self, exit: NexthopKey, ops: &mut Vec<Op>) -> Option<u32> {
        let (index, new) = self.nexthops.take(exit)?;
        if new {
            let slot = self.slot_of(&exit).unwrap_or(0);
            ops.push(Op::SetNexthop {
                index,
                nexthop: Box::new(exit.record(slot)),
            });
        }
        Some(index)
    }

    /// The kernel routes what is for another than the port only where a macvlan above it took it, whose rules, filters and
    /// sniffers are its own.
    fn is_for_another(&self, c: &fw_candidate, port: u32) -> bool {
        let own = self.ports.get(&port).and_then(|port| port.mac);
        c.l2_in_len == ETH_LEN && own.is_some_and(|own| c.l2_in[..6] != own)
    }

    fn check(
        &self,
        c: &fw_candidate,
        key: &FlowKey,
        out: &Tuple,
        around: Around,
    ) -> Result<(Path, bool), Refusal> {
        // 0: a port without a link layer
        if [c.l2_in_len, c.l2_out_len]
            .iter()
            .any(|len| ![0, ETH_LEN].contains(len))
        {
            return Err(Refusal::Framing);
        }
        self.path(key.port, c.port_out, false)?;
        let group = key.tuple.dst.is_multicast();
        if !group && self.is_for_another(c, key.port) {
            return Err(Refusal::Station);
        }
        let connection = c.conn.present != 0;
        let concerned = |s: &RuleScope| {
            s.concerns(connection) && s.matches(&key.tuple, out, key.port, c.port_out)
        };
        let one_way = connection && CtStatus(c.conn.status).one_way();
        if self.unsafe_scopes.iter().any(concerned) || (one_way && !self.one_way) {
            return Err(Refusal::Ruleset);
        }
        let classed = self.class_of(c, key);
        let marked = c.mark != 0 || self.mark_scopes.iter().any(concerned);
        // to a scheduler a mark is a class; the engine does not see that of a connection change
        let marked = (marked && classed.is_none()) || c.conn.mark != 0 || classed == Some(None);
        let bound = marked || c.unwired != 0;
        let known = self.knows_stations(c, key);
        // seen before the station was known: the next frames XDP keeps from being merged
        let entered = known && self.is_by_station(key.port) && !marked && c.unwired != 0;
        if entered && self.path(key.port, c.port_out, around.sniffed) == Ok(Path::Xdp) {
            return Err(Refusal::Unwired);
        }
        let without_xdp = bound || around.sniffed || !known;
        let ports = (key.port, c.port_out);
        let path = match self.path_of((&key.tuple, out), ports, without_xdp) {
            // XDP alone copies
            Ok(Path::Tc | Path::Engine) if group => Err(Refusal::NoPath),
            path => path,
        };
        let path = path.map_err(|refusal| match (marked, around.sniffed, c.unwired) {
            (true, ..) => Refusal::Mark,
            (_, true, _) => Refusal::Sniffed,
            (.., 0) => refusal,
            _ => Refusal::Unwired,
        })?;
        if c.conn.present != 0 && c.conn.zone != 0 {
            return Err(Refusal::Zone);
        }
        if self.may_leak(key.port, c.port_out, out.dst) {
            return Err(Refusal::Leak);
        }
        if around.copies > 1 && !group {
            return Err(Refusal::Copies);
        }
        if c.epoch != self.epoch {
            return Err(Refusal::Epoch);
        }
        Ok((path, bound))
    }

    /// A route, an address, a neighbour, a port or an element of a set that changed is why the flow leaves otherwise now.
    fn is_explained(&self, key: &FlowKey, out: &Tuple, now_tick: u32) -> bool {
        let flow = self.table.find(key).and_then(|index| self.table.get(index));
        let left = flow.and_then(|flow| self.nexthops.key(flow.nexthop));
        left.is_some_and(|left| {
            self.recent
                .explains(left.exit(), key, out, self.settings.hz, now_tick)
        })
    }

    fn interval_ticks(&self, c: &fw_candidate, index: u32) -> u16 {
        let mut interval = self.settings.revalidate_s * self.settings.hz;
        if c.conn.present != 0 {
            interval = interval
                .min(c.conn.timeout_ticks / 4)
                .max(self.settings.hz / 4);
        }
        // spread by up to an eighth, so that flows learned together part
        let interval = interval - index.wrapping_mul(0x9e37_79b9) % (interval / 8 + 1);
        u16::try_from(interval).unwrap_or(u16::MAX)
    }

    fn state_of(&self, c: &fw_candidate, index: u32, now_tick: u32) -> fw_state {
        let interval = self.interval_ticks(c, index);
        fw_state {
            status: FW_ST_PREPARING,
            epoch: c.epoch,
            used_tick: now_tick,
            // the connection may have begun to close meanwhile: checked at once
            due_tick: now_tick,
            reval_tick: now_tick.wrapping_add(interval.into()),
            confirmed_tick: now_tick,
            interval,
            len_max: c.len_l3,
            ..Default::default()
        }
    }
}

fn record_of(
    c: &fw_candidate,
    key: &FlowKey,
    nexthop: u32,
    path: Path,
    state: fw_state,
) -> fw_flow {
    let mut flags = 0;
    flags |= match path {
        Path::Xdp => 0,
        Path::Tc => FW_FLOW_TC,
        Path::Engine => FW_FLOW_ENGINE,
    };
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
        state,
        ..keyed(key)
    };
    flow.l2_in.copy_from_slice(&c.l2_in[..usize::from(ETH_LEN)]);
    if key.tuple.src.is_ipv4() {
        (flow.saddr_be, flow.daddr_be) = (c.saddr_be[0], c.daddr_be[0]);
    } else {
        (flow.saddr6_be, flow.daddr6_be) = (c.saddr_be, c.daddr_be);
        let word0 = 6 << 28 | u32::from(flow.dscp_in) << 20;
        flow.word0_in_be = word0.to_be() | c.flow_label_be;
    }
    flow
}
