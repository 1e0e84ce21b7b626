// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is known of a packet, and of registers that were loaded from it.

use std::collections::BTreeMap;

use super::part::{Part, Side};
use crate::model::Family;
use crate::nft::*;

/// The NFPROTO_ number of an IP version.
pub(super) fn own(ip: Family) -> u8 {
    match ip {
        Family::Ipv4 => NFPROTO_IPV4,
        Family::Ipv6 => NFPROTO_IPV6,
    }
}

/// A packet of one IP version that comes in at a port.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts<'a> {
    pub ip: Family,
    pub ifindex: u32,
    pub name: &'a str,
}

/// Does a condition hold?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Truth {
    No,
    Maybe,
    Yes,
}

impl Truth {
    pub fn of(holds: bool) -> Truth {
        if holds { Truth::Yes } else { Truth::No }
    }

    pub fn not(self) -> Truth {
        match self {
            Truth::No => Truth::Yes,
            Truth::Maybe => Truth::Maybe,
            Truth::Yes => Truth::No,
        }
    }
}

/// What a register holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Known(Vec<u8>),
    /// A field that a pattern may ask for; of addresses which.
    Field(Part, Option<Side>),
    Unknown,
}

/// Registers by their first 32-bit slot, and how many they take.
#[derive(Debug, Default)]
pub(super) struct Registers(BTreeMap<Register, (u32, Value)>);

impl Registers {
    pub fn get(&self, register: Register) -> &Value {
        let found = self.0.get(&register);
        found.map_or(&Value::Unknown, |(_, value)| value)
    }

    /// What was in these slots is gone, and what was behind them counts as gone.
    fn put(&mut self, register: Register, len: u32, value: Value) {
        self.0.retain(|slot, (slots, _)| *slot + *slots <= register);
        self.0.insert(register, (len.div_ceil(4), value));
    }
}

/// IFNAMSIZ.
const NAME_LEN: usize = 16;
const META_PROTOCOL: u32 = 1;
const META_IIF: u32 = 4;
const META_IIFNAME: u32 = 6;
const META_NFPROTO: u32 = 15;
const META_L4PROTO: u32 = 16;

impl Facts<'_> {
    /// True if the port is one of these; names may end in an asterisk.
    pub fn is_among(&self, devices: &[String]) -> bool {
        devices.iter().any(|device| match device.strip_suffix('*') {
            Some(prefix) => self.name.starts_with(prefix),
            None => device == self.name,
        })
    }

    fn meta(&self, family: u8, key: u32) -> Value {
        match key {
            META_PROTOCOL => Value::Known(match self.ip {
                Family::Ipv4 => vec![0x08, 0x00],
                Family::Ipv6 => vec![0x86, 0xdd],
            }),
            META_IIF => Value::Known(self.ifindex.to_ne_bytes().to_vec()),
            META_IIFNAME => {
                let mut name = self.name.as_bytes().to_vec();
                name.resize(NAME_LEN, 0);
                Value::Known(name)
            }
            // there it is the family of the hook
            META_NFPROTO if family != NFPROTO_NETDEV => Value::Known(vec![own(self.ip)]),
            META_L4PROTO => Value::Field(Part::Proto, None),
            _ => Value::Unknown,
        }
    }

    fn payload(&self, base: u32, offset: u32, len: u32) -> Value {
        let addr = |side| Value::Field(Part::Addr, Some(side));
        match (self.ip, base, offset, len) {
            (Family::Ipv4, 1, 12, 4) | (Family::Ipv6, 1, 8, 16) => addr(Side::Source),
            (Family::Ipv4, 1, 16, 4) | (Family::Ipv6, 1, 24, 16) => addr(Side::Destination),
            (_, 2, 0, 2) => Value::Field(Part::Sport, None),
            (_, 2, 2, 2) => Value::Field(Part::Dport, None),
            _ => Value::Unknown,
        }
    }

    /// Carries out an expression that only loads or computes; false: it is none.
    pub fn load(&self, family: u8, registers: &mut Registers, expression: &Expression) -> bool {
        match expression {
            Expression::Load { dreg, data } => {
                registers.put(*dreg, data.len() as u32, Value::Known(data.clone()));
            }
            Expression::Meta { dreg, key } => {
                let value = self.meta(family, *key);
                let len = match &value {
                    Value::Known(bytes) => bytes.len() as u32,
                    Value::Field(..) => 1,
                    Value::Unknown => NAME_LEN as u32,
                };
                registers.put(*dreg, len, value);
            }
            Expression::Payload {
                dreg,
                base,
                offset,
                len,
            } => registers.put(*dreg, *len, self.payload(*base, *offset, *len)),
            Expression::Bitwise { dreg, .. }
            | Expression::BitwiseOther { dreg, .. }
            | Expression::Byteorder { dreg, .. }
            | Expression::Ct { dreg, .. }
            | Expression::Rt { dreg, .. }
            | Expression::Fib { dreg }
            | Expression::Exthdr { dreg, .. } => {
                registers.put(*dreg, NAME_LEN as u32, Value::Unknown)
            }
            _ => return false,
        }
        true
    }
}

/// What a comparison says of what is known.
pub(super) fn compare(value: &Value, op: CmpOp, data: &[u8]) -> Truth {
    let Value::Known(known) = value else {
        return Truth::Maybe;
    };
    let Some(known) = known.get(..data.len()) else {
        return Truth::Maybe;
    };
    Truth::of(match op {
        CmpOp::Eq => known == data,
        CmpOp::Ne => known != data,
        CmpOp::Lt => known < data,
        CmpOp::Le => known <= data,
        CmpOp::Gt => known > data,
        CmpOp::Ge => known >= data,
    })
}

/// The same of a set whose elements are known.
pub(super) fn contains(value: &Value, set: &Set) -> Truth {
    let (Value::Known(known), Some(elements)) = (value, &set.elements) else {
        return Truth::Maybe;
    };
    if set.flags & (SET_INTERVAL | SET_CONCAT) != 0 || elements.iter().any(|e| e.catch_all) {
        return Truth::Maybe;
    }
    let Some(known) = known.get(..set.key_len as usize) else {
        return Truth::Maybe;
    };
    Truth::of(elements.iter().any(|element| element.key == known))
}
