// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flows of a manager that leaves, for another one: as the data plane would offer them, so that the other admits each by all
//! that it knows itself. What is open about a flow is not told, and the other learns it from packets.

use freeway_abi::{
    FW_AF_INET, FW_AF_INET6, FW_EV_CANDIDATE, FW_FLOW_NAT, FW_KEY_IP6, FW_ST_ACTIVE, fw_candidate,
    fw_conn, fw_event, fw_flow, fw_kept, fw_key6, fw_tuple, words_of,
};
use freeway_kernel::model::Tuple;

use crate::around::Around;
use crate::flow::Preparation;
use crate::key::FlowKey;
use crate::manager::Manager;
use crate::op::Op;

/// Of an IPv6 header's first word what is the flow label.
const FLOW_LABEL: u32 = 0x000f_ffff;

fn tuple(tuple: &Tuple) -> fw_tuple {
    fw_tuple {
        saddr_be: words_of(tuple.src),
        daddr_be: words_of(tuple.dst),
        sport_be: tuple.sport.to_be(),
        dport_be: tuple.dport.to_be(),
    }
}

impl Manager {
    /// Changes are under way that flows do not show yet.
    #[must_use]
    pub fn is_unsettled(&self) -> bool {
        self.sweep.is_some()
    }

    /// A flow as it could be offered to another manager, from what the data plane has of it; the other gives it its own
    /// epoch. `ev.tick` is when the kernel confirmed it, `first_tick` when it is to do so again. `None`: it is not fast, not confirmed, waits for an answer, or is to a group.
    #[must_use]
    pub fn handed(&self, index: u32, flow: &fw_flow, kept: fw_kept) -> Option<fw_candidate> {
        let record = self.table.get(index)?;
        let state = &flow.state;
        let confirmed = state.epoch == self.epoch && state.misses == 0;
        if !record.is_active()
            || record.is_group()
            || state.status != FW_ST_ACTIVE
            || !confirmed
            || self.nexthops.is_dead(record.nexthop)
        {
            return None;
        }
        let exit = self.nexthops.key(record.nexthop)?;
        let (key, out) = (record.key(), record.out());
        let family = match key.tuple.src.is_ipv4() {
            true => FW_AF_INET,
            false => FW_AF_INET6,
        };
        let mut conn = fw_conn {
            status: kept.ct_status,
            ..Default::default()
        };
        if record.conn != 0 {
            let known = self.conns.get(record.conn)?;
            if known.preparation == Preparation::Asked {
                return None;
            }
            conn = fw_conn {
                orig: tuple(&record.orig().tracked()),
                status: known.status,
                mark: known.mark,
                timeout_ticks: known.timeout_s.saturating_mul(self.settings.hz),
                present: 1,
                dir: record.is_reply().into(),
                // it was found out what the kernel gives it
                timeout_policy: 1,
                ..Default::default()
            };
        }
        let mut l2_in = fw_candidate::default().l2_in;
        l2_in[..flow.l2_in.len()].copy_from_slice(&flow.l2_in);
        // a port without a link layer has nothing there; nor has the device of a session
        let l2_in_len = if flow.l2_in == [0; 14] { 0 } else { 14 };
        let (l2_out, l2_out_len) = match exit.framing.session {
            Some(_) => Default::default(),
            None => (exit.l2, exit.l2_len.into()),
        };
        let of_ip6 = if family == FW_AF_INET6 { FW_KEY_IP6 } else { 0 };
        let marked = exit.mark != 0 || conn.mark != 0;
        Some(fw_candidate {
            ev: fw_event {
                kind: FW_EV_CANDIDATE,
                tick: state.confirmed_tick,
                ..Default::default()
            },
            first_tick: state.reval_tick,
            key: fw_key6 {
                port_proto: of_ip6 | key.port << 8 | u32::from(key.tuple.proto),
                ..key.v6()
            },
            l2_in,
            l2_out,
            l2_in_len,
            l2_out_len,
            saddr_be: words_of(out.src),
            daddr_be: words_of(out.dst),
            sport_be: out.sport.to_be(),
            dport_be: out.dport.to_be(),
            len_l3: state.len_max,
            l3_delta: flow.l3_delta,
            l4_delta: flow.l4_delta,
            family: family as u8,
            tos_in: flow.dscp_in,
            tos_out: flow.dscp_out,
            ttl_in: flow.ttl_in,
            ttl_out: flow.ttl_out,
            nat: (u32::from(flow.flags) & FW_FLOW_NAT != 0).into(),
            unwired: (record.is_bound() && !marked).into(),
            port_out: record.port_out,
            mark: exit.mark,
            priority: exit.priority,
            flow_label_be: if family == FW_AF_INET6 {
                flow.word0_in_be & FLOW_LABEL.to_be()
            } else {
                0
            },
            conn,
            ..Default::default()
        })
    }

    /// Admits a flow of another manager, by all that this one knows. It has to hear of every change since the other one's
    /// last look after that, and of none before. True if the flow is in the table.
    pub fn adopt(
        &mut self,
        handed: &fw_candidate,
        around: Around,
        now_tick: u32,
        ops: &mut Vec<Op>,
    ) -> bool {
        let mut c = *handed;
        c.epoch = self.epoch;
        c.first_tick = now_tick;
        // later than anything that this manager was told when it began
        c.ev.tick = now_tick.wrapping_add(1);
        let Some(key) = FlowKey::of(&c).filter(|key| !key.tuple.dst.is_multicast()) else {
            return false;
        };
        let first = ops.len();
        let admitted = self.admit(std::slice::from_ref(&c), &key, around, now_tick, ops);
        for op in &mut ops[first..] {
            if let Op::InsertFlow { flow, .. } = op {
                // it is not trusted longer for having changed hands
                let left = handed.first_tick.wrapping_sub(now_tick).cast_signed();
                let left = left.clamp(0, flow.state.interval.into()).cast_unsigned();
                flow.state.reval_tick = now_tick.wrapping_add(left);
                flow.state.confirmed_tick = handed.ev.tick;
            }
        }
        admitted.is_ok()
    }
}
