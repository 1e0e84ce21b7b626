// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flows as the API shows them.

use freeway_abi::{FW_ST_PREPARING, FW_ST_SUSPENDED, fw_state};
use freeway_cmm::Flow as Managed;

use super::Engine;
use crate::api::{Flow, FlowFilter, FlowPath, FlowState, Flows, Proto};

impl Engine {
    pub(super) fn flows(&self, filter: &FlowFilter, now_tick: u32) -> Flows {
        let mut all: Vec<(u32, &Managed)> = self.manager.flows().collect();
        all.sort_unstable_by_key(|(_, f)| (f.key.tuple, f.key.port));
        let limit = filter
            .limit
            .map_or(usize::MAX, |l| usize::try_from(l).unwrap_or(usize::MAX));
        let mut total = 0;
        let mut flows = Vec::new();
        for (index, managed) in all {
            let flow = self.flow(index, managed, now_tick);
            if filter.matches(&flow) {
                total += 1;
                if flows.len() < limit {
                    flows.push(flow);
                }
            }
        }
        Flows { flows, total }
    }

    pub(super) fn flow(&self, index: u32, flow: &Managed, now_tick: u32) -> Flow {
        let state = self.datapath.flows.state(index);
        let seconds = |tick: u32| {
            let ticks = now_tick.wrapping_sub(tick).cast_signed().max(0);
            f64::from(ticks) / f64::from(self.datapath.clock.hz())
        };
        let l2 = self.manager.nexthop_l2(flow.nexthop).unwrap_or(&[0; 14]);
        Flow {
            family: if flow.key.tuple.src.is_ipv4() { 4 } else { 6 },
            proto: Proto(flow.key.tuple.proto),
            src: flow.key.tuple.src,
            sport: flow.key.tuple.sport,
            dst: flow.key.tuple.dst,
            dport: flow.key.tuple.dport,
            port_in: self.port_name(flow.key.port),
            to_src: flow.out.src,
            to_sport: flow.out.sport,
            to_dst: flow.out.dst,
            to_dport: flow.out.dport,
            port_out: self.port_name(flow.port_out),
            src_mac_out: mac(&l2[6..12]),
            dst_mac_out: mac(&l2[..6]),
            state: self.flow_state(&state),
            path: FlowPath::Xdp,
            packets: state.packets,
            bytes: state.bytes,
            age_s: seconds(flow.created_tick),
            idle_s: seconds(state.used_tick),
            confirmed_s_ago: seconds(state.confirmed_tick),
            length_max: state.len_max.into(),
            ttl: flow.ttl_in,
            dscp: flow.dscp_in >> 2,
            connection: flow.conn.is_some(),
            mark: state.ct_mark,
            reply: flow.reply,
        }
    }

    pub(super) fn flow_state(&self, state: &fw_state) -> FlowState {
        match state.status {
            FW_ST_PREPARING => FlowState::Preparing,
            FW_ST_SUSPENDED => FlowState::Suspended,
            _ if state.epoch != self.manager.epoch() => FlowState::Unconfirmed,
            _ => FlowState::Active,
        }
    }

    pub(super) fn port_name(&self, ifindex: u32) -> String {
        let link = self.mirror.links().get(&ifindex);
        link.map_or_else(|| format!("if{ifindex}"), |l| l.name.clone())
    }
}

fn mac(bytes: &[u8]) -> String {
    let hex: Vec<String> = bytes.iter().map(|b| format!("{b:02x}")).collect();
    hex.join(":")
}
