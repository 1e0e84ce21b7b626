// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which rules a packet of a fast flow would have met, and whether one of them must see every packet.
//!
//! A packet is followed through all base chains of the hooks that forwarding passes, once for each IP version and
//! for each protocol that has flows. What is known of it (connection state, protocol, TCP flags without SYN, FIN and RST, no
//! fragment, no options) decides comparisons; every other comparison may go either way. Registers carry, bit by bit,
//! what is known and what may differ between packets of one flow (length, ECN, payload...): a decision on such a
//! bit is a finding, and so is every expression that is not known to be a function of the flow.

mod analysis;
mod constraint;
mod elements;
mod evaluate;
mod finding;
mod ipsec;
mod lookup;
mod packet;
mod passage;
mod registers;
mod report;
mod run;
mod uses;
mod walk;
mod words;
mod xtables;

use crate::model::Family;
use crate::nft::{Element, Ruleset, Set};
use packet::{Packet, protocols};
use report::Report;

pub use analysis::Analysis;
pub use finding::{AddrRange, Finding, IfMatch, PortRange};
pub use ipsec::analyse_policies;
pub use packet::PacketState;
pub use passage::{Passage, passage};
pub use uses::{Affected, SetName, SetUse};
pub use walk::Ways;

/// Follows packets of established connections through the ruleset.
pub fn analyse(ruleset: &Ruleset) -> Analysis {
    analyse_state(ruleset, PacketState::Established, Ways::Plain)
}

/// Follows packets of a given connection state through the ruleset.
pub fn analyse_state(ruleset: &Ruleset, state: PacketState, ways: Ways) -> Analysis {
    let mut report = Report::default();
    for ip in [Family::Ipv4, Family::Ipv6] {
        for protocol in protocols(ip) {
            walk::follow(
                ruleset,
                Packet {
                    ip,
                    protocol,
                    state,
                },
                ways,
                &mut report,
            );
        }
    }
    let mut analysis = report.finish();
    let unread = ruleset.legacy.iter().filter(|table| table.matters());
    let unread = unread.filter(|table| table.content.is_none());
    analysis.findings.extend(unread.map(|table| {
        Finding {
            family: "legacy".to_owned(),
            table: table.name.clone(),
            expression: format!("iptables-legacy table {} ({})", table.name, table.family),
            reason: "its rules cannot be read".to_owned(),
            ip: match table.family.as_str() {
                "ip" => vec![Family::Ipv4],
                _ => vec![Family::Ipv6],
            },
            protocols: match table.family.as_str() {
                "ip" => protocols(Family::Ipv4),
                _ => protocols(Family::Ipv6),
            }
            .to_vec(),
            ..Finding::default()
        }
    }));
    analysis.safe = analysis.findings.is_empty();
    analysis
}

/// What the elements of a set stand for: the first of each range, and its last or, of an interval, what comes behind it.
pub(crate) fn key_ranges(set: &Set, elements: &[Element]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let ranges = elements::key_ranges(set, elements).into_iter();
    ranges.map(|range| (range.from, range.to)).collect()
}
