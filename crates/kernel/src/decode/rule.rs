// SPDX-License-Identifier: MIT OR Apache-2.0
//! RTM_NEWRULE (`fib_nl_fill_rule`).

use crate::model::{Family, Prefix, Rule};
use crate::nla::{Attr, attrs_after, u8_at, u16_at, u32_at};

/// A policy rule.
pub fn rule(payload: &[u8]) -> Option<Rule> {
    let family = Family::from_number(u8_at(payload, 0)?)?;
    let (dst_len, src_len) = (u8_at(payload, 1)?, u8_at(payload, 2)?);
    let mut rule = Rule {
        action: u8_at(payload, 7)?,
        table: u32::from(u8_at(payload, 4)?),
        flags: u32_at(payload, 8)?,
        tos: u8_at(payload, 3)?,
        ..Rule::any(family)
    };
    let (mut mark, mut mask) = (None, None);
    for attr in attrs_after(payload, 12) {
        match attr.kind {
            1 => rule.dst = attr.ip().map(|addr| Prefix { addr, len: dst_len }),
            2 => rule.src = attr.ip().map(|addr| Prefix { addr, len: src_len }),
            3 => rule.iif = Some(attr.text()),
            4 => rule.goto = attr.u32(),
            6 => rule.priority = attr.u32()?,
            10 => mark = attr.u32(),
            13 => rule.suppress_ifgroup = attr.u32().filter(|&group| group != u32::MAX),
            14 => rule.suppress_prefix_len = attr.u32().filter(|&len| len != u32::MAX),
            15 => rule.table = attr.u32()?,
            16 => mask = attr.u32(),
            17 => rule.oif = Some(attr.text()),
            19 => rule.l3mdev = attr.u8()? != 0,
            20 => rule.uid_range = u32_at(attr.payload, 0).zip(u32_at(attr.payload, 4)),
            22 => rule.ip_proto = attr.u8(),
            23 => rule.sport = range(attr),
            24 => rule.dport = range(attr),
            _ => {}
        }
    }
    if mark.is_some() || mask.is_some() {
        rule.fwmark = Some((mark.unwrap_or(0), mask.unwrap_or(u32::MAX)));
    }
    Some(rule)
}

/// struct fib_rule_port_range, in host byte order.
fn range(attr: Attr<'_>) -> Option<(u16, u16)> {
    u16_at(attr.payload, 0).zip(u16_at(attr.payload, 2))
}
