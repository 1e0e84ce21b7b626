// SPDX-License-Identifier: MIT OR Apache-2.0
//! What must see every packet, and which packets reach it.

use std::net::IpAddr;

use serde::Serialize;

use crate::model::Family;

/// A literal that an interface name was compared with.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
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

/// Addresses from one to another, both included.
pub type AddrRange = (IpAddr, IpAddr);

/// Ports from one to another, both included.
pub type PortRange = (u16, u16);

/// One reachable expression that is not a function of flow key, connection state, interfaces and guarded fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// Family of the table: ip, ip6, inet, netdev, bridge; or "legacy", of a table that cannot be read.
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
    /// It is at a device's hook, which sees the frames of what is above, too.
    #[serde(skip)]
    pub of_device: bool,
    /// Only packets from these L3 interfaces (or ingress devices) reach it; empty: any.
    pub iif: Vec<IfMatch>,
    /// Only packets to these L3 interfaces (or egress devices) reach it; empty: any.
    pub oif: Vec<IfMatch>,
    /// Only packets from these addresses reach it, as they are where the rule is; empty: any.
    pub src: Vec<AddrRange>,
    /// Only packets to these addresses reach it; empty: any.
    pub dst: Vec<AddrRange>,
    /// Only packets from these ports reach it; empty: any.
    pub sport: Vec<PortRange>,
    /// Only packets to these ports reach it; empty: any.
    pub dport: Vec<PortRange>,
    /// IP versions whose packets reach it.
    pub ip: Vec<Family>,
    /// IP protocols whose packets reach it, of those that have flows.
    pub protocols: Vec<u8>,
}
