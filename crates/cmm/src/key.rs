// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keys of flows and connections.

use std::net::IpAddr;

use freeway_abi::{
    FW_KEY_IP6, addr_of, fw_candidate, fw_flow, fw_key4, fw_key6, fw_tuple, words_of,
};
use freeway_kernel::model::Tuple;

/// A flow's key: physical ingress port and the tuple as the frame came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowKey {
    /// The tuple on the wire.
    pub tuple: Tuple,
    /// Ingress ifindex.
    pub port: u32,
}

impl FlowKey {
    /// The key of a candidate; `None` if its family is unknown.
    #[must_use]
    pub fn of(candidate: &fw_candidate) -> Option<Self> {
        let key = &candidate.key;
        let family = candidate.family;
        let tuple = Tuple {
            src: addr_of(family, &key.saddr_be)?,
            dst: addr_of(family, &key.daddr_be)?,
            proto: (key.port_proto & 0xff) as u8,
            sport: u16::from_be(key.sport_be),
            dport: u16::from_be(key.dport_be),
        };
        Some(Self {
            tuple,
            port: (key.port_proto & !FW_KEY_IP6) >> 8,
        })
    }

    /// The key as an IPv4 flow has it; `None` for IPv6.
    #[must_use]
    pub fn v4(&self) -> Option<fw_key4> {
        let (IpAddr::V4(src), IpAddr::V4(dst)) = (self.tuple.src, self.tuple.dst) else {
            return None;
        };
        Some(fw_key4 {
            saddr_be: u32::from_ne_bytes(src.octets()),
            daddr_be: u32::from_ne_bytes(dst.octets()),
            sport_be: self.tuple.sport.to_be(),
            dport_be: self.tuple.dport.to_be(),
            port_proto: self.port << 8 | u32::from(self.tuple.proto),
        })
    }

    /// The key as an IPv6 flow has it.
    #[must_use]
    pub fn v6(&self) -> fw_key6 {
        fw_key6 {
            saddr_be: words_of(self.tuple.src),
            daddr_be: words_of(self.tuple.dst),
            sport_be: self.tuple.sport.to_be(),
            dport_be: self.tuple.dport.to_be(),
            port_proto: FW_KEY_IP6 | self.port << 8 | u32::from(self.tuple.proto),
        }
    }
}

/// A connection: its original tuple and zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnKey {
    /// The original direction's tuple.
    pub orig: Tuple,
    /// conntrack zone.
    pub zone: u16,
}

/// The tuple that leaves, of a candidate; `None` if its family is unknown.
#[must_use]
pub fn out_of(c: &fw_candidate) -> Option<Tuple> {
    Some(Tuple {
        src: addr_of(c.family, &c.saddr_be)?,
        dst: addr_of(c.family, &c.daddr_be)?,
        proto: (c.key.port_proto & 0xff) as u8,
        sport: u16::from_be(c.sport_be),
        dport: u16::from_be(c.dport_be),
    })
}

/// A conntrack tuple as the data plane reported it.
pub(crate) fn tuple_of(family: u8, proto: u8, t: &fw_tuple) -> Option<Tuple> {
    Some(Tuple {
        src: addr_of(family, &t.saddr_be)?,
        dst: addr_of(family, &t.daddr_be)?,
        proto,
        sport: u16::from_be(t.sport_be),
        dport: u16::from_be(t.dport_be),
    })
}

/// A flow of which there is only the key.
pub(crate) fn keyed(key: &FlowKey) -> fw_flow {
    let mut flow = fw_flow::default();
    match key.v4() {
        Some(key4) => {
            (flow.version_ihl, flow.proto) = (0x45, key.tuple.proto);
            flow.key = key4;
        }
        None => {
            let key = key.v6();
            flow.key.sport_be = key.sport_be;
            flow.key.dport_be = key.dport_be;
            flow.key.port_proto = key.port_proto;
            flow.key_saddr6_be = key.saddr_be;
            flow.key_daddr6_be = key.daddr_be;
        }
    }
    flow
}
