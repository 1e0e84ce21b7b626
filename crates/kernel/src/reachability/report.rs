// SPDX-License-Identifier: MIT OR Apache-2.0
//! Collects findings; the same finding for several kinds of packet is one.

use std::collections::{BTreeMap, BTreeSet};

use super::analysis::Analysis;
use super::constraint::{Constraint, Place};
use super::finding::Finding;
use super::packet::Packet;
use super::uses::Uses;
use crate::model::Family;

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
            let (mut ip, mut protocols) = (BTreeSet::new(), BTreeSet::new());
            ip.extend(packets.iter().map(|&(ip, _)| ip));
            protocols.extend(packets.iter().map(|&(_, protocol)| protocol));
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
