// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flows and their state as data. Deltas are computed here from the words that change, slowly.

use std::net::IpAddr;

use freeway_abi::{
    FW_FLOW_CT, FW_FLOW_NAT, FW_FLOW_TC, FW_KEY_IP6, FW_ST_ACTIVE, FW_ST_PREPARING,
    FW_ST_SUSPENDED, fw_flow, fw_kept, fw_key4, fw_nexthop, fw_state,
};
use serde::Deserialize;

use super::frame::{Frame, mac, octets, sum};

/// A time: `now`, and terms of ticks or `hz`, `hz/4` added or taken away.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub struct Tick(pub String);

impl Tick {
    pub fn at(&self, now: u32, hz: u32) -> u32 {
        let mut total = 0u32;
        for term in self
            .0
            .replace('-', "+-")
            .split('+')
            .filter(|t| !t.is_empty())
        {
            let (minus, term) = term.strip_prefix('-').map_or((false, term), |t| (true, t));
            let value = match term {
                "now" => now,
                "hz" => hz,
                "hz/4" => hz / 4,
                ticks => ticks
                    .parse()
                    .unwrap_or_else(|_| panic!("no time: {}", self.0)),
            };
            total = if minus {
                total.wrapping_sub(value)
            } else {
                total.wrapping_add(value)
            };
        }
        total
    }
}

/// One flow of the table. What is not said: UDP over IPv4, routed, active, fresh.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Flow {
    pub port: u32,
    pub proto: u8,
    pub src: IpAddr,
    pub dst: IpAddr,
    pub sport: u16,
    pub dport: u16,
    pub to_src: Option<IpAddr>,
    pub to_dst: Option<IpAddr>,
    pub to_sport: Option<u16>,
    pub to_dport: Option<u16>,
    pub dst_mac: String,
    pub src_mac: String,
    pub to_dst_mac: String,
    pub to_src_mac: String,
    pub to_port: u32,
    pub nexthop_valid: bool,
    pub ttl: u8,
    pub to_ttl: u8,
    pub dscp: u8,
    pub to_dscp: u8,
    /// IPv6.
    pub flow_label: u32,
    /// It belongs to the path under test.
    pub own: bool,
    pub conn: bool,
    pub status: String,
    pub epoch: u32,
    pub len_max: u16,
    pub used: Tick,
    pub due: Tick,
    pub reval: Tick,
    pub confirmed: Tick,
    pub interval: u16,
    /// Of the last plain segment, with so many octets of data.
    pub seq: u32,
    pub ack: u32,
    pub len_data: u16,
    pub peer: u32,
    pub misses: u8,
    pub pending: u8,
    pub ct_mark: u32,
    pub ct_status: u32,
}

impl Default for Flow {
    fn default() -> Self {
        let tick = |text: &str| Tick(text.into());
        Self {
            port: 1,
            proto: 17,
            src: [192, 0, 2, 2].into(),
            dst: [198, 51, 100, 2].into(),
            sport: 40000,
            dport: 7000,
            to_src: None,
            to_dst: None,
            to_sport: None,
            to_dport: None,
            dst_mac: "02:00:00:00:00:01".into(),
            src_mac: "02:00:00:00:00:02".into(),
            to_dst_mac: "02:00:00:00:00:04".into(),
            to_src_mac: "02:00:00:00:00:03".into(),
            to_port: 2,
            nexthop_valid: true,
            ttl: 64,
            to_ttl: 63,
            dscp: 0,
            to_dscp: 0,
            flow_label: 0,
            own: true,
            conn: false,
            status: "active".into(),
            epoch: 1,
            len_max: 1500,
            used: tick("now-1000"),
            due: tick("now+1000000"),
            reval: tick("now+1000000"),
            confirmed: tick("now-500"),
            interval: 2000,
            seq: 0,
            ack: 0,
            len_data: 0,
            peer: 0,
            misses: 0,
            pending: 0,
            ct_mark: 0,
            ct_status: 0,
        }
    }
}

pub fn status(name: &str) -> u32 {
    match name {
        "preparing" => FW_ST_PREPARING,
        "active" => FW_ST_ACTIVE,
        "suspended" => FW_ST_SUSPENDED,
        _ => panic!("no status: {name}"),
    }
}

pub fn words(ip: IpAddr) -> [u32; 4] {
    let mut words = [0; 4];
    for (word, chunk) in words.iter_mut().zip(octets(ip).chunks(4)) {
        *word = u32::from_ne_bytes(chunk.try_into().expect("four bytes"));
    }
    words
}

/// What of addresses and ports is in the L4 checksum.
pub fn l4_summed(proto: u8, addresses: Vec<u8>, ports: Vec<u8>) -> Vec<u8> {
    match proto {
        6 | 17 | 58 => [addresses, ports].concat(),
        _ => ports,
    }
}

/// The ones' complement of the old bytes and the new ones, summed: never 0 (RFC 1624).
pub fn delta(old: &[u8], new: &[u8]) -> u16 {
    let mut bytes: Vec<u8> = old.iter().map(|byte| !byte).collect();
    bytes.extend(new);
    // as words lie in memory
    u16::from_ne_bytes(sum(&bytes).to_be_bytes())
}

impl Flow {
    fn is_nat(&self) -> bool {
        self.to_src.is_some()
            || self.to_dst.is_some()
            || self.to_sport.is_some()
            || self.to_dport.is_some()
    }

    /// A packet of the flow, as it comes in.
    pub fn frame(&self) -> Frame {
        Frame {
            dst_mac: self.dst_mac.clone(),
            src_mac: self.src_mac.clone(),
            src: self.src,
            dst: self.dst,
            sport: self.sport,
            dport: self.dport,
            proto: self.proto,
            ttl: self.ttl,
            tos: self.dscp,
            flow_label: self.flow_label,
            ..Frame::default()
        }
    }

    pub fn nexthop(&self, slot: u32) -> fw_nexthop {
        let mut nexthop = fw_nexthop {
            port: self.to_port,
            devmap_slot: slot,
            valid: self.nexthop_valid.into(),
            l2_len: 14,
            ..Default::default()
        };
        nexthop.l2[..6].copy_from_slice(&mac(&self.to_dst_mac));
        nexthop.l2[6..12].copy_from_slice(&mac(&self.to_src_mac));
        nexthop.l2[12..14].copy_from_slice(&self.ethertype());
        nexthop
    }

    fn ethertype(&self) -> [u8; 2] {
        if self.src.is_ipv4() {
            [0x08, 0x00]
        } else {
            [0x86, 0xdd]
        }
    }

    pub fn state(&self, now: u32, hz: u32) -> fw_state {
        fw_state {
            packets: 0,
            bytes: 0,
            status: status(&self.status),
            epoch: self.epoch,
            used_tick: self.used.at(now, hz),
            due_tick: self.due.at(now, hz),
            reval_tick: self.reval.at(now, hz),
            interval: self.interval,
            confirmed_tick: self.confirmed.at(now, hz),
            len_max: self.len_max,
            misses: self.misses,
            pending: self.pending,
            seq_be: self.seq.to_be(),
            ack_be: self.ack.to_be(),
            len_data: self.len_data,
            ..Default::default()
        }
    }

    /// What its connection was.
    pub fn kept(&self) -> fw_kept {
        fw_kept {
            ct_mark: self.ct_mark,
            ct_status: self.ct_status,
        }
    }

    pub fn record(&self, nexthop: u32, tc: bool, state: fw_state) -> fw_flow {
        let (to_src, to_dst) = (
            self.to_src.unwrap_or(self.src),
            self.to_dst.unwrap_or(self.dst),
        );
        let to_sport = self.to_sport.unwrap_or(self.sport);
        let to_dport = self.to_dport.unwrap_or(self.dport);
        let addresses = |src, dst| [octets(src), octets(dst)].concat();
        let ports = |sport: u16, dport: u16| [sport.to_be_bytes(), dport.to_be_bytes()].concat();
        let old = addresses(self.src, self.dst);
        let new = addresses(to_src, to_dst);
        let l4_delta = delta(
            &l4_summed(self.proto, old.clone(), ports(self.sport, self.dport)),
            &l4_summed(self.proto, new.clone(), ports(to_sport, to_dport)),
        );
        // TTL and protocol are one word, version and TOS another
        let l3_delta = delta(
            &[old, vec![self.ttl, self.proto, 0x45, self.dscp]].concat(),
            &[new, vec![self.to_ttl, self.proto, 0x45, self.to_dscp]].concat(),
        );
        let mut flags = 0;
        if self.is_nat() {
            flags |= FW_FLOW_NAT;
        }
        if self.conn {
            flags |= FW_FLOW_CT;
        }
        if self.own == tc {
            flags |= FW_FLOW_TC;
        }
        let mut flow = fw_flow {
            key: fw_key4 {
                sport_be: self.sport.to_be(),
                dport_be: self.dport.to_be(),
                port_proto: self.port << 8 | u32::from(self.proto),
                ..Default::default()
            },
            ttl_in: self.ttl,
            ttl_out: self.to_ttl,
            dscp_in: self.dscp,
            dscp_out: self.to_dscp,
            sport_be: to_sport.to_be(),
            dport_be: to_dport.to_be(),
            nexthop,
            l3_delta,
            l4_delta,
            flags: flags as u8,
            state,
            ..Default::default()
        };
        flow.l2_in[..6].copy_from_slice(&mac(&self.dst_mac));
        flow.l2_in[6..12].copy_from_slice(&mac(&self.src_mac));
        flow.l2_in[12..14].copy_from_slice(&self.ethertype());
        if self.src.is_ipv4() {
            (flow.version_ihl, flow.proto) = (0x45, self.proto);
            flow.key.saddr_be = words(self.src)[0];
            flow.key.daddr_be = words(self.dst)[0];
            flow.saddr_be = words(to_src)[0];
            flow.daddr_be = words(to_dst)[0];
        } else {
            flow.key.port_proto |= FW_KEY_IP6;
            flow.key_saddr6_be = words(self.src);
            flow.key_daddr6_be = words(self.dst);
            let word0 = 6 << 28 | u32::from(self.dscp) << 20 | self.flow_label;
            flow.word0_in_be = word0.to_be();
            flow.saddr6_be = words(to_src);
            flow.daddr6_be = words(to_dst);
        }
        flow
    }
}

/// What becomes of a flow's state; a field that is not said stays as it was.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Change {
    pub packets: Option<u64>,
    pub bytes: Option<u64>,
    pub status: Option<String>,
    pub epoch: Option<u32>,
    pub used: Option<Tick>,
    pub due: Option<Tick>,
    pub reval: Option<Tick>,
    pub confirmed: Option<Tick>,
    pub len_max: Option<u16>,
    pub misses: Option<u8>,
    pub pending: Option<u8>,
}

impl Change {
    /// The state after it, at `now`.
    pub fn apply(&self, mut state: fw_state, now: u32, hz: u32) -> fw_state {
        let tick = |to: &mut u32, change: &Option<Tick>| {
            if let Some(change) = change {
                *to = change.at(now, hz);
            }
        };
        tick(&mut state.used_tick, &self.used);
        tick(&mut state.due_tick, &self.due);
        tick(&mut state.reval_tick, &self.reval);
        tick(&mut state.confirmed_tick, &self.confirmed);
        state.packets = self.packets.unwrap_or(state.packets);
        state.bytes = self.bytes.unwrap_or(state.bytes);
        state.status = self.status.as_deref().map_or(state.status, status);
        state.epoch = self.epoch.unwrap_or(state.epoch);
        state.len_max = self.len_max.unwrap_or(state.len_max);
        state.misses = self.misses.unwrap_or(state.misses);
        state.pending = self.pending.unwrap_or(state.pending);
        state
    }
}
