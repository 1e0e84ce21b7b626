// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a ruleset means for connection tracking.

use super::{Expression, NFPROTO_INET, NFPROTO_IPV4, NFPROTO_IPV6, Ruleset, Table};
use crate::model::Family;

/// Expressions that have conntrack hooked (`nf_ct_netns_get`), beside those of their own type.
const TRACKING: [&str; 7] = [
    "masq",
    "nat",
    "redir",
    "connlimit",
    "synproxy",
    "flow_offload",
    "tproxy",
];
/// Matches and targets of xtables that do.
const XT_TRACKING: [&str; 17] = [
    "conntrack",
    "state",
    "connmark",
    "connlimit",
    "connbytes",
    "connlabel",
    "helper",
    "cluster",
    "CT",
    "CONNMARK",
    "CONNSECMARK",
    "SNAT",
    "DNAT",
    "MASQUERADE",
    "REDIRECT",
    "NETMAP",
    "SYNPROXY",
];

impl Ruleset {
    /// True if packets may pass conntrack by on demand.
    pub fn bypasses_conntrack(&self) -> bool {
        let legacy = self.legacy.iter().flat_map(|table| &table.content);
        let mut all = self.tables.values().chain(legacy).flat_map(expressions);
        all.any(|e| match e {
            Expression::Named(name) => name == "notrack",
            Expression::Target { name, .. } => matches!(name.as_str(), "CT" | "NOTRACK"),
            _ => false,
        })
    }

    /// True if the rules may put connections into zones.
    pub fn zones(&self) -> bool {
        /// NFT_CT_ZONE.
        const ZONE: u32 = 17;
        let legacy = self.legacy.iter();
        legacy.clone().any(|table| table.content.is_none())
            || self
                .tables
                .values()
                .chain(legacy.flat_map(|table| &table.content))
                .flat_map(expressions)
                .any(|e| match e {
                    Expression::CtSet { key } => *key == ZONE,
                    Expression::Target { name, .. } => name == "CT",
                    _ => false,
                })
    }

    /// True if the rules have conntrack hooked for an IP version.
    pub fn tracks(&self, ip: Family) -> bool {
        let own = match ip {
            Family::Ipv4 => NFPROTO_IPV4,
            Family::Ipv6 => NFPROTO_IPV6,
        };
        let concerned = |family: u8| family == own || family == NFPROTO_INET;
        let mut tables = self.tables.iter().filter(|((f, _), _)| concerned(*f));
        let mut legacy = self.legacy.iter().filter(|t| t.nfproto() == Some(own));
        tables.any(|(_, table)| tracks(table))
            || legacy.any(|t| t.name == "nat" || t.content.as_ref().is_none_or(tracks))
    }
}

fn tracks(table: &Table) -> bool {
    // ct helper, ct timeout, ct expectation, SYN proxy
    let by_object = |(_, kind): &(String, u32)| matches!(kind, 3 | 7 | 9 | 10);
    let by_chain = |hook: &super::Hook| hook.kind == "nat";
    let by_set = |name: &String| TRACKING.contains(&name.as_str());
    let by_rule = |e: &Expression| match e {
        Expression::Ct { .. } | Expression::CtSet { .. } => true,
        Expression::Named(name) => TRACKING.contains(&name.as_str()),
        Expression::Match { name, .. } | Expression::Target { name, .. } => {
            XT_TRACKING.contains(&name.as_str())
        }
        _ => false,
    };
    table.objects.iter().any(by_object)
        || table.chains.values().flat_map(|c| &c.hook).any(by_chain)
        || table.sets.values().flat_map(|s| &s.expressions).any(by_set)
        || expressions(table).any(by_rule)
}

fn expressions(table: &Table) -> impl Iterator<Item = &Expression> {
    let rules = table.chains.values().flat_map(|chain| &chain.rules);
    rules.flat_map(|rule| &rule.expressions)
}
