// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules of the form: conditions, an address in a set, drop.

use super::facts::{self, Facts, Registers, Truth, Value};
use super::part::{Part, Side};
use super::transparent::{is_changed, is_counter};
use crate::model::Family;
use crate::nft::*;
use crate::reachability::{PortRange, key_ranges};

/// What a rule is.
pub(super) enum Pattern<'a> {
    /// None that drops by a set, or none that this port's packets meet.
    None,
    /// It does, and not as XDP could.
    Kept {
        set: String,
        reason: String,
    },
    Drops(Drops<'a>),
}

/// How it drops.
pub(super) struct Drops<'a> {
    pub set: &'a str,
    pub handle: u64,
    pub side: Side,
    pub parts: Vec<Part>,
    pub intervals: bool,
    pub protos: Vec<u8>,
    pub dports: Vec<PortRange>,
    pub counts: bool,
}

/// Ranges of ports that the data plane has room for.
const RANGES_MAX: usize = 8;

/// The named set of a rule that looks into one and drops.
pub(super) fn drops_by_set<'a>(rule: &'a Rule, table: &Table) -> Option<&'a str> {
    let drops = rule.expressions.iter().any(|expression| {
        matches!(expression, Expression::Verdict(Verdict::Drop))
            || matches!(expression, Expression::Target { name, .. } if name == "DROP")
    });
    let set = rule
        .expressions
        .iter()
        .find_map(|expression| match expression {
            Expression::Lookup {
                set, dreg: None, ..
            } => {
                let named = table.sets.get(set)?.flags & SET_ANONYMOUS == 0;
                named.then_some(set.as_str())
            }
            Expression::Match { name, .. } if name == "set" => Some("an ipset"),
            _ => None,
        });
    set.filter(|_| drops)
}

struct Reading<'a> {
    facts: &'a Facts<'a>,
    family: u8,
    table: &'a Table,
    registers: Registers,
    set: Option<(&'a str, &'a Set, Side, Vec<Part>)>,
    protos: Vec<u8>,
    dports: Vec<PortRange>,
    counts: bool,
}

/// Reads a rule.
pub(super) fn read<'a>(
    rule: &'a Rule,
    table: &'a Table,
    family: u8,
    facts: &'a Facts<'a>,
) -> Pattern<'a> {
    let Some(set) = drops_by_set(rule, table) else {
        return Pattern::None;
    };
    let mut reading = Reading {
        facts,
        family,
        table,
        registers: Registers::default(),
        set: None,
        protos: Vec::new(),
        dports: Vec::new(),
        counts: false,
    };
    for expression in &rule.expressions {
        match reading.expression(expression) {
            Ok(true) => {}
            Ok(false) => return Pattern::None,
            Err(reason) => {
                return Pattern::Kept {
                    set: set.to_owned(),
                    reason,
                };
            }
        }
    }
    match reading.set {
        Some((name, set, side, parts)) => Pattern::Drops(Drops {
            set: name,
            handle: set.handle,
            side,
            parts,
            intervals: set.flags & SET_INTERVAL != 0,
            protos: reading.protos,
            dports: reading.dports,
            counts: reading.counts,
        }),
        None => Pattern::Kept {
            set: set.to_owned(),
            reason: "it asks the set for something else than an address".into(),
        },
    }
}

impl<'a> Reading<'a> {
    /// False: the port's packets do not meet the rule.
    fn expression(&mut self, expression: &'a Expression) -> Result<bool, String> {
        let unknown = || Err(format!("its {} must see packets", expression.name()));
        match expression {
            Expression::Cmp { sreg, op, data } => self.compare(*sreg, *op, data),
            Expression::Range {
                sreg,
                negated: false,
                from,
                to,
            } => match self.registers.get(*sreg) {
                Value::Field(Part::Dport, _) => self.dports(vec![(port(from)?, port(to)?)]),
                _ => {
                    Err("one of its conditions is not one of addresses, protocol and ports".into())
                }
            },
            Expression::Lookup {
                set,
                sreg,
                dreg: None,
                negated,
            } => self.lookup(set, *sreg, *negated),
            Expression::Verdict(Verdict::Drop) => Ok(true),
            Expression::Named(name) if is_counter(name) => {
                self.counts |= name == "counter";
                Ok(true)
            }
            Expression::Objref {
                kind: Some(1),
                map: None,
                ..
            } => Ok(true),
            other => match self.facts.load(self.family, &mut self.registers, other) {
                true => Ok(true),
                false => unknown(),
            },
        }
    }

    fn compare(&mut self, sreg: Register, op: CmpOp, data: &[u8]) -> Result<bool, String> {
        let value = self.registers.get(sreg).clone();
        match (&value, op) {
            (Value::Known(_), _) => match facts::compare(&value, op, data) {
                Truth::Yes => Ok(true),
                Truth::No => Ok(false),
                Truth::Maybe => Err("one of its conditions is not understood".into()),
            },
            (Value::Field(Part::Proto, _), CmpOp::Eq) => self.protos(data.to_vec()),
            (Value::Field(Part::Dport, _), CmpOp::Eq) => {
                let port = port(data)?;
                self.dports(vec![(port, port)])
            }
            (Value::Field(Part::Dport, _), CmpOp::Le) => self.dports(vec![(0, port(data)?)]),
            (Value::Field(Part::Dport, _), CmpOp::Ge) => self.dports(vec![(port(data)?, u16::MAX)]),
            _ => Err("one of its conditions is not one of addresses, protocol and ports".into()),
        }
    }

    fn protos(&mut self, protos: Vec<u8>) -> Result<bool, String> {
        match self.protos.is_empty() {
            true => self.protos = protos,
            false => self.protos.retain(|proto| protos.contains(proto)),
        }
        // no packet is of two protocols
        Ok(!self.protos.is_empty())
    }

    fn dports(&mut self, dports: Vec<PortRange>) -> Result<bool, String> {
        if !self.dports.is_empty() {
            return Err("it has several conditions of ports".into());
        }
        if dports.is_empty() || dports.len() > RANGES_MAX {
            return Err(format!("it names more than {RANGES_MAX} ranges of ports"));
        }
        self.dports = dports;
        Ok(true)
    }

    fn lookup(&mut self, name: &'a str, sreg: Register, negated: bool) -> Result<bool, String> {
        let Some(set) = self.table.sets.get(name) else {
            return Err("looks into a set that is not known".into());
        };
        if set.flags & SET_ANONYMOUS != 0 {
            return self.anonymous(set, sreg, negated);
        }
        if negated {
            return Err("it drops what is not in the set".into());
        }
        if self.set.is_some() {
            return Err("it asks more than one set".into());
        }
        if set.flags & (SET_MAP | SET_OBJECT) != 0 {
            return Err("it asks a map".into());
        }
        if let Some(reason) = is_changed(set) {
            return Err(reason);
        }
        let (side, parts) = self.parts(sreg, set.key_len)?;
        self.set = Some((name, set, side, parts));
        Ok(true)
    }

    /// What a key is made of, if it has an address and, of a concatenation, what the data plane knows beside it.
    fn parts(&self, sreg: Register, len: u32) -> Result<(Side, Vec<Part>), String> {
        let addr_slots = match self.facts.ip {
            Family::Ipv4 => 1,
            Family::Ipv6 => 4,
        };
        let (mut slot, mut parts, mut side) = (0, Vec::new(), None);
        while slot < len.div_ceil(4) {
            let Value::Field(part, of) = self.registers.get(sreg + slot) else {
                return Err("its set's key is not one of an address, a protocol and a port".into());
            };
            if parts.contains(part) {
                return Err("its set's key has the same twice".into());
            }
            side = side.or(*of);
            parts.push(*part);
            slot += if *part == Part::Addr { addr_slots } else { 1 };
        }
        if parts.contains(&Part::Dport) && parts.contains(&Part::Sport) {
            return Err("its set's key has two ports".into());
        }
        side.map(|side| (side, parts))
            .ok_or_else(|| "its set's key has no address".into())
    }

    fn anonymous(&mut self, set: &'a Set, sreg: Register, negated: bool) -> Result<bool, String> {
        let value = self.registers.get(sreg).clone();
        let inside = facts::contains(&value, set);
        match if negated { inside.not() } else { inside } {
            Truth::Yes => return Ok(true),
            Truth::No => return Ok(false),
            Truth::Maybe => {}
        }
        let elements = set.elements.as_deref().unwrap_or_default();
        // a last range up to the last port has no end; one that ends before that has, at the last port
        let ends_last = |e: &Element| e.interval_end && e.key.starts_with(&[0xff, 0xff]);
        let odd = negated
            || elements.iter().any(ends_last)
            || elements.is_empty()
            || elements.iter().any(|e| e.catch_all);
        match value {
            Value::Field(Part::Proto, _) if !odd && set.flags & SET_INTERVAL == 0 => {
                let first = |element: &Element| element.key.first().copied();
                self.protos(elements.iter().filter_map(first).collect())
            }
            Value::Field(Part::Dport, _) if !odd => {
                let ranges = key_ranges(set, elements).into_iter();
                let ranges = ranges.map(|(from, to)| {
                    let (from, to) = (port(&from)?, port(&to)?);
                    // the end of an interval is one more than its last
                    let ends = set.flags & SET_INTERVAL != 0 && to != u16::MAX;
                    Ok((from, if ends { to.saturating_sub(1) } else { to }))
                });
                let ranges: Result<Vec<PortRange>, String> = ranges.collect();
                self.dports(ranges?)
            }
            _ => Err("one of its conditions is not one of addresses, protocol and ports".into()),
        }
    }
}

fn port(bytes: &[u8]) -> Result<u16, String> {
    let bytes: Option<[u8; 2]> = bytes.first_chunk().copied();
    bytes
        .map(u16::from_be_bytes)
        .ok_or_else(|| "it compares a port with something else".into())
}
