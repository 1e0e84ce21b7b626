// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flows as the API shows them, a page at a time.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use freeway_abi::{
    FW_AF_INET6, FW_KEY_IP6, FW_NH_OLIST, FW_NH_OLIST_ALIKE, FW_ST_PREPARING, FW_ST_SUSPENDED,
    addr_of, fw_flow, fw_state,
};
use freeway_api::{Flow, FlowFilter, FlowPath, FlowState, Proto, Tuples};
use freeway_cmm::{Flow as Managed, Path};

use super::Engine;
use crate::{Page, PageQuery};

/// Most flows of a page.
const ROOM: usize = 256;
/// Most flows that are looked at for a page.
const LOOKS: u32 = 8192;

impl Engine {
    /// The next flows in the order of their indices, which they keep as long as they live.
    pub(super) fn page(&self, query: &PageQuery, now_tick: u32) -> Page {
        let filter = &*query.filter;
        let end = self.manager.index_end();
        let room = query.room.min(ROOM);
        let port = filter.port.as_ref().map(|name| {
            let link = self.mirror.link_by_name(name);
            link.map(|link| link.ifindex)
        });
        let mut page = Page {
            table: self.manager.flow_count() as u64,
            ..Page::default()
        };
        let mut cursor = query.from;
        let last = cursor.saturating_add(LOOKS).min(end);
        while cursor < last && (room == 0 || page.flows.len() < room) {
            let index = cursor;
            cursor += 1;
            // the shared record is next to the one before; the manager's need not be
            if !self.census.is_live(index) || !self.passes(filter, port, index) {
                continue;
            }
            let Some(flow) = (room > 0).then(|| self.manager.flow(index)) else {
                page.matched += 1;
                continue;
            };
            let Some(flow) = flow else {
                continue;
            };
            page.matched += 1;
            page.flows.push(self.flow(index, &flow, now_tick));
        }
        page.next = (cursor < end).then_some(cursor);
        page
    }

    /// `port`: the ifindex that the filter names; `Some(None)`: there is no such port.
    fn passes(&self, filter: &FlowFilter, port: Option<Option<u32>>, index: u32) -> bool {
        if filter.is_open() {
            return true;
        }
        let record = self.datapath.flows.get(index);
        let leaves = |port| match self.datapath.nexthops.get(record.nexthop) {
            list if [FW_NH_OLIST, FW_NH_OLIST_ALIKE].contains(&list.valid) => {
                let legs = self.manager.legs(record.nexthop);
                legs.is_some_and(|legs| legs.contains(&port))
            }
            nexthop => nexthop.port == port,
        };
        let through = match port {
            None => true,
            Some(None) => false,
            Some(Some(port)) => port_in(&record) == port || leaves(port),
        };
        through
            && filter.matches_tuples(&tuples(&record))
            && filter
                .state
                .is_none_or(|state| state == self.flow_state(&record.state))
    }

    pub(super) fn flow(&self, index: u32, flow: &Managed, now_tick: u32) -> Flow {
        let state = self.datapath.flows.state(index);
        let seconds = |tick: u32| {
            let ticks = now_tick.wrapping_sub(tick).cast_signed().max(0);
            f64::from(ticks) / f64::from(self.datapath.clock.hz())
        };
        let l2 = self.manager.nexthop_l2(flow.nexthop).unwrap_or(&[]);
        let legs = self.manager.legs(flow.nexthop).unwrap_or_default();
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
            ports_out: legs.iter().map(|port| self.port_name(*port)).collect(),
            src_mac_out: l2.get(6..12).map(mac),
            dst_mac_out: l2.get(..6).map(mac),
            state: self.flow_state(&state),
            path: match flow.path {
                Path::Xdp => FlowPath::Xdp,
                Path::Tc => FlowPath::Tc,
                Path::Engine => FlowPath::Engine,
            },
            packets: state.packets,
            bytes: state.bytes,
            age_s: seconds(flow.created_tick),
            idle_s: seconds(state.used_tick),
            confirmed_s_ago: seconds(state.confirmed_tick),
            length_max: state.len_max.into(),
            ttl: flow.ttl_in,
            dscp: flow.dscp_in >> 2,
            connection: flow.conn.is_some(),
            mark: self.datapath.kept.get(index).ct_mark,
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

fn port_in(record: &fw_flow) -> u32 {
    (record.key.port_proto & !FW_KEY_IP6) >> 8
}

fn tuples(record: &fw_flow) -> Tuples {
    let six = record.key.port_proto & FW_KEY_IP6 != 0;
    let address = |four_be: u32, six_be: &[u32; 4]| -> IpAddr {
        if six {
            addr_of(FW_AF_INET6 as u8, six_be).unwrap_or(Ipv6Addr::UNSPECIFIED.into())
        } else {
            Ipv4Addr::from(four_be.to_ne_bytes()).into()
        }
    };
    Tuples {
        proto: Proto(record.key.port_proto as u8),
        src: [
            address(record.key.saddr_be, &record.key_saddr6_be),
            address(record.saddr_be, &record.saddr6_be),
        ],
        sport: [record.key.sport_be, record.sport_be].map(u16::from_be),
        dst: [
            address(record.key.daddr_be, &record.key_daddr6_be),
            address(record.daddr_be, &record.daddr6_be),
        ],
        dport: [record.key.dport_be, record.dport_be].map(u16::from_be),
    }
}

fn mac(bytes: &[u8]) -> String {
    let hex: Vec<String> = bytes.iter().map(|b| format!("{b:02x}")).collect();
    hex.join(":")
}
