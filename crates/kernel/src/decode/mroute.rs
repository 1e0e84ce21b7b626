// SPDX-License-Identifier: MIT OR Apache-2.0
//! RTM_NEWROUTE of the multicast forwarding caches (`ipmr_fill_mroute`, `ip6mr_fill_mroute`, `mr_fill_mroute`).

use super::route::hops;
use crate::model::{Family, Mroute, Oif};
use crate::nla::{attrs_after, u8_at, u32_at};

/// rtm_family of an entry of IPv4.
pub const RTNL_FAMILY_IPMR: u8 = 128;
/// rtm_family of an entry of IPv6.
pub const RTNL_FAMILY_IP6MR: u8 = 129;

/// A message about multicast routing: of its rules, say (`ip mrule`).
pub fn is_family(payload: &[u8]) -> bool {
    matches!(
        payload.first(),
        Some(&(RTNL_FAMILY_IPMR | RTNL_FAMILY_IP6MR))
    )
}

const RTNH_F_UNRESOLVED: u32 = 0x20;
const RTA_DST: u16 = 1;
const RTA_SRC: u16 = 2;
const RTA_IIF: u16 = 3;
const RTA_MULTIPATH: u16 = 9;
const RTA_TABLE: u16 = 15;

/// An entry of a multicast forwarding cache; `None` for routes. Statistics and age are not part of it.
pub fn mroute(payload: &[u8]) -> Option<Mroute> {
    let family = match u8_at(payload, 0)? {
        RTNL_FAMILY_IPMR => Family::Ipv4,
        RTNL_FAMILY_IP6MR => Family::Ipv6,
        _ => return None,
    };
    let mut table = u32::from(u8_at(payload, 4)?);
    let resolved = u32_at(payload, 8)? & RTNH_F_UNRESOLVED == 0;
    let (mut src, mut group, mut iif, mut oifs) = (None, None, 0, Vec::new());
    for attr in attrs_after(payload, 12) {
        match attr.kind {
            RTA_DST => group = attr.ip(),
            RTA_SRC => src = attr.ip(),
            RTA_IIF => iif = attr.u32()?,
            RTA_TABLE => table = attr.u32()?,
            // a hop's weight and an interface's threshold are the same field, rtnh_hops
            RTA_MULTIPATH => {
                oifs = hops(attr.payload)
                    .into_iter()
                    .filter_map(|hop| {
                        Some(Oif {
                            ifindex: hop.oif?,
                            ttl: hop.weight,
                        })
                    })
                    .collect();
            }
            _ => {}
        }
    }
    if !resolved || iif == 0 {
        (iif, oifs) = (0, Vec::new());
    }
    let own = |ip: &_| Family::of(*ip) == family;
    Some(Mroute {
        src: src.filter(own)?,
        group: group.filter(own)?,
        iif,
        oifs,
        table,
    })
}
