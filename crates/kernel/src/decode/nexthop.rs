// SPDX-License-Identifier: MIT OR Apache-2.0
//! RTM_NEWNEXTHOP (`nh_fill_node`) and RTM_NEWNEXTHOPBUCKET.

use crate::model::{Family, Nexthop};
use crate::nla::{attrs_after, u8_at, u32_at};

/// A nexthop object.
pub fn nexthop(payload: &[u8]) -> Option<Nexthop> {
    let mut nexthop = Nexthop {
        id: 0,
        family: Family::from_number(u8_at(payload, 0)?),
        oif: None,
        gateway: None,
        blackhole: false,
        flags: u32_at(payload, 4)?,
        group: Vec::new(),
        group_type: 0,
    };
    for attr in attrs_after(payload, 8) {
        match attr.kind {
            1 => nexthop.id = attr.u32()?,
            // struct nexthop_grp: id, weight, padding to 8 bytes.
            2 => {
                let members = attr.payload.chunks_exact(8);
                nexthop.group = members
                    .filter_map(|member| u32_at(member, 0).zip(u8_at(member, 4)))
                    .collect();
            }
            3 => nexthop.group_type = attr.u16()?,
            4 => nexthop.blackhole = true,
            5 => nexthop.oif = attr.u32(),
            6 => nexthop.gateway = attr.ip(),
            _ => {}
        }
    }
    (nexthop.id != 0).then_some(nexthop)
}

/// The nexthop object of a bucket.
pub fn bucket(payload: &[u8]) -> Option<u32> {
    attrs_after(payload, 8).find(1)?.u32()
}
