// SPDX-License-Identifier: MIT OR Apache-2.0
//! A rule while it is evaluated.

use super::constraint::{Constraint, Place};
use super::finding::IfMatch;
use super::packet::{Packet, Stage};
use super::registers::{Field, Interface, Origin, Registers, Truth};
use crate::nft::*;

/// What may become of a packet in a chain or rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fate {
    /// It may go on: to the next rule, or back to the caller.
    pub continues: bool,
    /// It may leave the chain for the caller's next rule, or the policy.
    pub returns: bool,
    pub accepts: bool,
}

pub(super) const ANYTHING: Fate = Fate {
    continues: true,
    returns: true,
    accepts: true,
};

/// What does not change within a base chain and what it calls.
#[derive(Clone, Copy)]
pub(super) struct Hooked<'a> {
    pub(super) family: u8,
    pub(super) name: &'a str,
    pub(super) table: &'a Table,
    pub(super) stage: Stage,
    /// Behind source translation.
    pub(super) postrouting: bool,
}

pub(super) enum Step {
    /// The rule goes on with this truth.
    On(Truth),
    /// The rule has a verdict.
    End(Fate),
}

impl Fate {
    pub(super) const ACCEPT: Fate = Fate {
        continues: false,
        returns: false,
        accepts: true,
    };
    pub(super) const CONTINUE: Fate = Fate {
        continues: true,
        returns: false,
        accepts: false,
    };
    pub(super) const RETURN: Fate = Fate {
        continues: false,
        returns: true,
        accepts: false,
    };

    /// The fate of a jump to a chain with this one.
    pub(super) fn jumped(self) -> Fate {
        Fate {
            continues: self.returns,
            returns: false,
            accepts: self.accepts,
        }
    }

    /// The fate of a rule whose conditions hold with `truth`.
    pub(super) fn or_next(self, truth: Truth) -> Fate {
        Fate {
            continues: self.continues || truth != Truth::Yes,
            ..self
        }
    }
}

/// A rule being evaluated.
pub(super) struct Run<'a> {
    pub(super) at: Hooked<'a>,
    pub(super) packet: Packet,
    pub(super) place: Place<'a>,
    pub(super) constraint: Constraint,
    pub(super) registers: Registers,
    pub(super) truth: Truth,
    /// An expression that is not understood may have accepted the packet.
    pub(super) accepts: bool,
}

impl Run<'_> {
    /// Narrows the interfaces, if the register tells of one and every literal is understood.
    pub(super) fn constrain(&mut self, register: Register, literals: &[Option<IfMatch>]) {
        let literals = literals.iter().cloned().collect::<Option<Vec<_>>>();
        if let Some((interface, literals)) = self.registers.interface(register).zip(literals) {
            self.constraint.narrow_interface(interface, literals);
        }
    }

    /// Narrows what a register was loaded from to values; `None` if they are not understood.
    pub(super) fn confine(&mut self, register: Register, values: Option<Vec<Values>>) {
        if let (Some(Origin::Field { field, bits }), Some(values)) =
            (self.registers.origin(register), values)
        {
            self.confine_field(field, bits, &values);
        }
    }

    pub(super) fn confine_field(&mut self, field: Field, bits: u8, values: &[Values]) {
        let packet = self.packet;
        let len = packet.field_len(field);
        let ranges: Option<Vec<_>> = values.iter().map(|v| v.range(len, bits)).collect();
        if let Some(ranges) = ranges {
            self.constraint.narrow_field(packet.ip, field, &ranges);
        }
    }
}

/// Values of the first bytes of a field, from one to another.
#[derive(Clone, Debug)]
pub(super) struct Values {
    pub from: Vec<u8>,
    pub to: Vec<u8>,
}

impl Values {
    /// All values of a field that begin so, right-aligned; only its first `bits` were looked at.
    fn range(&self, len: usize, bits: u8) -> Option<(u128, u128)> {
        let number = |bytes: &[u8], fill: u8| {
            let bytes = bytes.iter().copied().chain(std::iter::repeat(fill));
            bytes
                .take(len)
                .fold(0u128, |sum, byte| sum << 8 | u128::from(byte))
        };
        let free = (len * 8).checked_sub(bits.into())?;
        let rest = u128::MAX.checked_shr(128 - free as u32).unwrap_or_default();
        Some((number(&self.from, 0) & !rest, number(&self.to, 0xff) | rest))
    }
}

/// A device name as the kernel lists it.
pub(super) fn literal(device: &str) -> IfMatch {
    match device.strip_suffix('*') {
        Some(prefix) => IfMatch::Prefix(prefix.to_owned()),
        None => IfMatch::Name(device.to_owned()),
    }
}

/// What a register that tells of an interface was compared with. Names without terminating NUL are prefixes.
pub(super) fn literal_of(
    interface: Option<Interface>,
    data: &[u8],
    padded: bool,
) -> Option<IfMatch> {
    let interface = interface?;
    if !interface.name {
        return crate::nla::u32_at(data, 0)
            .filter(|_| data.len() == 4)
            .map(IfMatch::Index);
    }
    let name = crate::nla::text(data);
    if data.contains(&0) || padded {
        Some(IfMatch::Name(name))
    } else {
        Some(IfMatch::Prefix(name))
    }
}
