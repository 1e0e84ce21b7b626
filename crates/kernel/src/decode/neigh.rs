// SPDX-License-Identifier: MIT OR Apache-2.0
//! RTM_NEWNEIGH: neighbours (`neigh_fill_info`) and FDB entries (`fdb_fill_info`, `nlmsg_populate_fdb_fill`).

use std::net::IpAddr;

use crate::model::{Family, Fdb, Neigh};
use crate::nla::{attrs_after, u8_at, u16_at, u32_at};

const HEADER: usize = 12;
const NTF_PROXY: u8 = 0x08;
const NUD_PERMANENT: u16 = 0x80;

/// A neighbour; `None` for proxy entries and for group addresses, which resolve by computation.
pub fn neigh(payload: &[u8]) -> Option<Neigh> {
    Family::from_number(u8_at(payload, 0)?)?;
    if u8_at(payload, 10)? & NTF_PROXY != 0 {
        return None;
    }
    let (mut addr, mut lladdr) = (None, None);
    for attr in attrs_after(payload, HEADER) {
        match attr.kind {
            1 => addr = attr.ip(),
            2 => lladdr = attr.mac(),
            _ => {}
        }
    }
    let ip = addr?;
    let group = match ip {
        IpAddr::V4(v4) => v4.is_multicast() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_multicast(),
    };
    (!group).then_some(Neigh {
        ifindex: u32_at(payload, 4)?,
        ip,
        lladdr,
        state: u16_at(payload, 8)?,
    })
}

/// An entry of a forwarding database, from a message of family AF_BRIDGE; `None` for group addresses.
pub fn fdb(payload: &[u8]) -> Option<Fdb> {
    let (mut mac, mut vlan, mut master, mut remote) = (None, None, None, None);
    for attr in attrs_after(payload, HEADER) {
        match attr.kind {
            1 => remote = attr.ip(),
            2 => mac = attr.mac(),
            5 => vlan = attr.u16(),
            9 => master = attr.u32(),
            _ => {}
        }
    }
    let mac = mac.filter(|mac| !mac.is_multicast())?;
    Some(Fdb {
        ifindex: u32_at(payload, 4)?,
        master,
        mac,
        vlan: vlan.filter(|&vlan| vlan != 0),
        remote,
        local: u16_at(payload, 8)? & NUD_PERMANENT != 0,
    })
}
