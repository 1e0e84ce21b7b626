// SPDX-License-Identifier: MIT OR Apache-2.0
//! RTM_NEWROUTE (`fib_dump_info`, `rt6_fill_node`).

use std::net::IpAddr;

use crate::model::{Family, Hop, Prefix, Route};
use crate::nla::{Attr, attrs, attrs_after, ip, u8_at, u16_at, u32_at};

const RTM_F_CLONED: u32 = 0x200;
const RTA_DST: u16 = 1;
const RTA_SRC: u16 = 2;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
const RTA_METRICS: u16 = 8;
const RTA_MULTIPATH: u16 = 9;
const RTA_FLOW: u16 = 11;
const RTA_CACHEINFO: u16 = 12;
const RTA_TABLE: u16 = 15;
const RTA_VIA: u16 = 18;
const RTA_ENCAP_TYPE: u16 = 21;
const RTA_ENCAP: u16 = 22;
const RTA_NH_ID: u16 = 30;
const RTAX_LOCK: u16 = 1;
const RTAX_MTU: u16 = 2;
/// RTNH_F_ONLINK. Dead and linkdown follow from the links and change without an event of the route; offload and
/// trap marks do not change where packets go.
const HOP_FLAGS: u8 = 0x04;

/// A route; `None` also for cached clones (exceptions).
pub fn route(payload: &[u8]) -> Option<Route> {
    let family = Family::from_number(u8_at(payload, 0)?)?;
    let flags = u32_at(payload, 8)?;
    if flags & RTM_F_CLONED != 0 {
        return None;
    }
    let mut route = Route {
        family,
        table: u32::from(u8_at(payload, 4)?),
        dst: Prefix {
            len: u8_at(payload, 1)?,
            ..Prefix::all(family)
        },
        src: None,
        tos: u8_at(payload, 3)?,
        priority: 0,
        kind: u8_at(payload, 7)?,
        protocol: u8_at(payload, 5)?,
        scope: u8_at(payload, 6)?,
        prefsrc: None,
        nexthop_id: None,
        mtu: None,
        hops: Vec::new(),
        special: false,
    };
    let src_len = u8_at(payload, 2)?;
    let mut only = Hop {
        oif: None,
        gateway: None,
        weight: 0,
        flags: flags as u8 & HOP_FLAGS,
    };
    for attr in attrs_after(payload, 12) {
        match attr.kind {
            RTA_DST => route.dst.addr = attr.ip()?,
            RTA_SRC => route.src = attr.ip().map(|addr| Prefix { addr, len: src_len }),
            RTA_OIF => only.oif = attr.u32(),
            RTA_GATEWAY => only.gateway = attr.ip(),
            RTA_VIA => only.gateway = via(attr),
            RTA_PRIORITY => route.priority = attr.u32()?,
            RTA_PREFSRC => route.prefsrc = attr.ip(),
            RTA_METRICS => {
                let metric = |kind| attr.nested().find(kind).and_then(|metric| metric.u32());
                route.mtu = metric(RTAX_MTU);
                let locked = metric(RTAX_LOCK).unwrap_or(0);
                route.special |= locked >> RTAX_MTU & 1 != 0;
            }
            // struct rta_cacheinfo: past that time it is as if it were not there
            RTA_CACHEINFO => {
                route.special |= attr.payload.get(8..12).is_some_and(|at| at != [0; 4])
            }
            RTA_FLOW | RTA_ENCAP_TYPE | RTA_ENCAP => route.special = true,
            RTA_TABLE => route.table = attr.u32()?,
            RTA_NH_ID => route.nexthop_id = attr.u32(),
            RTA_MULTIPATH => route.hops = hops(attr.payload),
            _ => {}
        }
    }
    if route.hops.is_empty() && (only.oif.is_some() || only.gateway.is_some()) {
        route.hops.push(only);
    }
    Some(route)
}

/// struct rtvia: family, then the address.
fn via(attr: Attr<'_>) -> Option<IpAddr> {
    ip(attr.payload.get(2..)?)
}

/// A sequence of struct rtnexthop, each with attributes (`fib_add_nexthop`).
pub fn hops(mut rest: &[u8]) -> Vec<Hop> {
    let mut hops = Vec::new();
    while let (Some(len), Some(flags), Some(weight), Some(oif)) = (
        u16_at(rest, 0),
        u8_at(rest, 2),
        u8_at(rest, 3),
        u32_at(rest, 4),
    ) {
        let len = usize::from(len);
        let Some(body) = rest.get(8..len) else { break };
        let gateway = attrs(body).find_map(|attr| match attr.kind {
            RTA_GATEWAY => attr.ip(),
            RTA_VIA => via(attr),
            _ => None,
        });
        hops.push(Hop {
            oif: Some(oif),
            gateway,
            weight,
            flags: flags & HOP_FLAGS,
        });
        rest = rest.get(crate::nla::align(len)..).unwrap_or_default();
    }
    hops
}
