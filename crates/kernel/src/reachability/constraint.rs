// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which packets reach a place in the ruleset.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::finding::{AddrRange, IfMatch, PortRange};
use super::registers::{Field, Interface};
use crate::model::Family;

/// More alternatives than this become one range around them all.
const RANGES_MAX: usize = 64;

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
