// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which rules a packet of a fast flow would have met, and whether one of them must see every packet.

use serde::Serialize;

use crate::model::Family;
use crate::nft::Ruleset;

/// What connection tracking says of the packet that is followed through the ruleset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PacketState {
    /// Of an established connection, translated if it is to be.
    Established,
    /// Of a connection that has seen no answer (one-way UDP).
    New,
    /// Not tracked.
    Untracked,
}

/// A literal that an interface name was compared with.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum IfMatch {
    /// This name.
    Name(String),
    /// Any name that begins so.
    Prefix(String),
    /// This index.
    Index(u32),
}

impl IfMatch {
    /// True if an interface satisfies the comparison.
    pub fn matches(&self, ifindex: u32, name: &str) -> bool {
        match self {
            IfMatch::Name(wanted) => wanted == name,
            IfMatch::Prefix(prefix) => name.starts_with(prefix.as_str()),
            IfMatch::Index(index) => *index == ifindex,
        }
    }
}

/// One reachable expression that is not a function of flow key, connection state, interfaces and guarded fields.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// Family of the table: ip, ip6, inet, netdev, bridge; or "legacy".
    pub family: String,
    /// Table.
    pub table: String,
    /// Chain that holds the rule.
    pub chain: String,
    /// Rule handle, as `nft -a list ruleset` shows it; 0 where there is none.
    pub handle: u64,
    /// Index of the rule in its chain, from 0.
    pub rule_index: usize,
    /// The expression: limit, quota, numgen, xt match hashlimit...
    pub expression: String,
    /// Why it matters, in words.
    pub reason: String,
    /// Only packets from these interfaces reach it; empty: any.
    pub iif: Vec<IfMatch>,
    /// Only packets to these interfaces reach it; empty: any.
    pub oif: Vec<IfMatch>,
    /// IP versions whose packets reach it.
    pub ip: Vec<Family>,
    /// IP protocols whose packets reach it, of 6 (TCP) and 17 (UDP).
    pub protocols: Vec<u8>,
}

/// What a ruleset means for the fast path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Analysis {
    /// True if there are no findings (marks do not count).
    pub safe: bool,
    /// Expressions that must see every packet.
    pub findings: Vec<Finding>,
    /// Expressions that set mark, connection mark or priority: shown by no frame.
    pub marks: Vec<Finding>,
}

/// Follows packets of established connections through the ruleset.
pub fn analyse(ruleset: &Ruleset) -> Analysis {
    analyse_state(ruleset, PacketState::Established)
}

/// Follows packets of a given connection state through the ruleset.
pub fn analyse_state(_ruleset: &Ruleset, _state: PacketState) -> Analysis {
    Analysis::default()
}
