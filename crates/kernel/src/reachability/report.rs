// SPDX-License-Identifier: MIT OR Apache-2.0
//! Collects findings; the same finding for several kinds of packet is one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::packet::Packet;
use super::registers::{Field, Interface};
use super::uses::Uses;
use super::{AddrRange, Analysis, Finding, IfMatch, PortRange};
use crate::model::Family;

/// What the packets of a path have in common, at least; empty: any.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Constraint {
    /// The interfaces are devices whose hook it is.
    pub of_device: bool,
    pub iif: Vec<IfMatch>,
    pub oif: Vec<IfMatch>,
    pub src: Vec<AddrRange>,
    pub dst: Vec<AddrRange>,
    pub sport: Vec<PortRange>,
    pub dport: Vec<PortRange>,
}

/// More alternatives than this become one range around them all.
const RANGES_MAX: usize = 64;

impl Constraint {
    /// The innermost condition on interfaces stands for all: it is true of at least the packets that reach it.
    pub fn narrow_interface(&mut self, interface: Interface, mut literals: Vec<IfMatch>) {
        literals.sort();
        if interface.input {
            self.iif = literals;
        } else {
            self.oif = literals;
        }
    }

    /// Narrows a field to values, each from one to another, right-aligned.
    pub fn narrow_field(&mut self, ip: Family, field: Field, values: &[(u128, u128)]) {
        let addr = |value: u128| -> IpAddr {
            match ip {
                Family::Ipv4 => Ipv4Addr::from(value as u32).into(),
                Family::Ipv6 => Ipv6Addr::from(value).into(),
            }
        };
        let addrs = || ranges(values.iter().map(|(from, to)| (addr(*from), addr(*to))));
        let ports = || ranges(values.iter().map(|(from, to)| (*from as u16, *to as u16)));
        match field {
            Field::Source => intersect(&mut self.src, addrs()),
            Field::Destination => intersect(&mut self.dst, addrs()),
            Field::SourcePort => intersect(&mut self.sport, ports()),
            Field::DestinationPort => intersect(&mut self.dport, ports()),
        }
    }
}

fn ranges<T: Ord + Copy>(values: impl Iterator<Item = (T, T)>) -> Vec<(T, T)> {
    let mut ranges: Vec<(T, T)> = values.filter(|(from, to)| from <= to).collect();
    ranges.sort();
    ranges.dedup();
    if ranges.len() > RANGES_MAX {
        let from = ranges.iter().map(|range| range.0).min();
        let to = ranges.iter().map(|range| range.1).max();
        ranges = from.zip(to).into_iter().collect();
    }
    ranges
}

/// Both hold. Where that is impossible the later one stands: what was understood of them may be too little.
fn intersect<T: Ord + Copy>(old: &mut Vec<(T, T)>, new: Vec<(T, T)>) {
    let pairs = old.iter().flat_map(|a| {
        let both = |b: &(T, T)| (a.0.max(b.0), a.1.min(b.1));
        new.iter().map(both)
    });
    let both = ranges(pairs);
    *old = if both.is_empty() { new } else { both };
}

/// A place in the ruleset.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    pub family: &'static str,
    pub table: &'a str,
    pub chain: &'a str,
    pub rule_index: usize,
    pub handle: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    mark: bool,
    family: &'static str,
    table: String,
    chain: String,
    rule_index: usize,
    handle: u64,
    expression: String,
    reason: String,
    constraint: Constraint,
}

/// The findings so far, with the packets that reach them.
#[derive(Debug, Default)]
pub struct Report {
    found: BTreeMap<Key, BTreeSet<(Family, u8)>>,
    /// How named sets are used.
    pub uses: Uses,
    /// Calls of [`Report::add`].
    pub added: u64,
}

impl Report {
    /// Adds a finding; `mark` for what sets a mark or a priority.
    pub fn add(
        &mut self,
        place: Place<'_>,
        packet: Packet,
        constraint: &Constraint,
        mark: bool,
        expression: String,
        reason: String,
    ) {
        let key = Key {
            mark,
            family: place.family,
            table: place.table.to_owned(),
            chain: place.chain.to_owned(),
            rule_index: place.rule_index,
            handle: place.handle,
            expression,
            reason,
            constraint: constraint.clone(),
        };
        self.added += 1;
        self.found
            .entry(key)
            .or_default()
            .insert((packet.ip, packet.protocol));
    }

    /// The findings as an analysis.
    pub fn finish(self) -> Analysis {
        let mut analysis = Analysis {
            uses: self.uses,
            ..Analysis::default()
        };
        for (key, packets) in self.found {
            let ip: BTreeSet<Family> = packets.iter().map(|&(ip, _)| ip).collect();
            let protocols: BTreeSet<u8> = packets.iter().map(|&(_, protocol)| protocol).collect();
            let list = if key.mark {
                &mut analysis.marks
            } else {
                &mut analysis.findings
            };
            list.push(Finding {
                family: key.family.to_owned(),
                table: key.table,
                chain: key.chain,
                handle: key.handle,
                rule_index: key.rule_index,
                expression: key.expression,
                reason: key.reason,
                of_device: key.constraint.of_device,
                iif: key.constraint.iif,
                oif: key.constraint.oif,
                src: key.constraint.src,
                dst: key.constraint.dst,
                sport: key.constraint.sport,
                dport: key.constraint.dport,
                ip: ip.into_iter().collect(),
                protocols: protocols.into_iter().collect(),
            });
        }
        analysis
    }
}
