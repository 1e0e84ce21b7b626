// SPDX-License-Identifier: MIT OR Apache-2.0
//! RTM_NEWADDR (`inet_fill_ifaddr`, `inet6_fill_ifaddr`).

use crate::model::{Addr, Family};
use crate::nla::{attrs_after, u8_at, u32_at};

/// An interface address.
pub fn addr(payload: &[u8]) -> Option<Addr> {
    Family::from_number(u8_at(payload, 0)?)?;
    let (mut address, mut local, mut broadcast) = (None, None, None);
    let mut flags = u32::from(u8_at(payload, 2)?);
    for attr in attrs_after(payload, 8) {
        match attr.kind {
            1 => address = attr.ip(),
            2 => local = attr.ip(),
            4 => broadcast = attr.ip(),
            8 => flags = attr.u32()?,
            _ => {}
        }
    }
    let own = local.or(address)?;
    Some(Addr {
        ifindex: u32_at(payload, 4)?,
        local: own,
        prefix_len: u8_at(payload, 1)?,
        peer: address.filter(|&peer| peer != own),
        broadcast,
        flags,
        scope: u8_at(payload, 3)?,
    })
}
