// SPDX-License-Identifier: MIT OR Apache-2.0
//! Collects findings; the same finding for several kinds of packet is one.

use std::collections::{BTreeMap, BTreeSet};

use super::packet::Packet;
use super::{Analysis, Finding, IfMatch};
use crate::model::Family;

/// Which interfaces the packets of a path come from and go to; empty: any.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Constraint {
    pub iif: Vec<IfMatch>,
    pub oif: Vec<IfMatch>,
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
        self.found
            .entry(key)
            .or_default()
            .insert((packet.ip, packet.protocol));
    }

    /// The findings as an analysis.
    pub fn finish(self) -> Analysis {
        let mut analysis = Analysis::default();
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
                iif: key.constraint.iif,
                oif: key.constraint.oif,
                ip: ip.into_iter().collect(),
                protocols: protocols.into_iter().collect(),
            });
        }
        analysis
    }
}
