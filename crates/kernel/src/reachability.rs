// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which rules a packet of a fast flow would have met, and whether one of them must see every packet.
//!
//! A packet is followed through all base chains of the hooks that forwarding passes, once for each IP version and
//! for each protocol that has flows. What is known of it (connection state, protocol, TCP flags without SYN, FIN and RST, no
//! fragment, no options) decides comparisons; every other comparison may go either way. Registers carry, bit by bit,
//! what is known and what may differ between packets of one flow (length, ECN, payload...): a decision on such a
//! bit is a finding, and so is every expression that is not known to be a function of the flow.

mod evaluate;
mod ipsec;
mod lookup;
mod packet;
mod registers;
mod report;
mod uses;
mod walk;
mod words;
mod xtables;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::IpAddr;

use serde::Serialize;

use crate::model::Family;
use crate::nft::Ruleset;
pub use ipsec::analyse_policies;
use packet::Packet;
use report::Report;
pub use uses::{Affected, SetName, SetUse};

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

/// What a ruleset means for the fast path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Analysis {
    /// True if there are no findings (marks do not count).
    pub safe: bool,
    /// Expressions that must see every packet.
    pub findings: Vec<Finding>,
    /// Expressions that set mark, connection mark or priority: shown by no frame.
    pub marks: Vec<Finding>,
    /// How the packet's way looks into named sets.
    #[serde(skip)]
    pub uses: BTreeMap<SetName, SetUse>,
}

impl Analysis {
    /// Adds how packets of another state look into sets.
    pub fn add_uses(&mut self, other: Analysis) {
        for (name, other) in other.uses {
            match self.uses.entry(name) {
                Entry::Vacant(entry) => drop(entry.insert(other)),
                Entry::Occupied(mut entry) => entry.get_mut().join(other),
            }
        }
    }
}

/// The protocols that have flows: TCP, UDP, GRE, ESP, and the family's ICMP, of which echoes.
const fn protocols(ip: Family) -> [u8; 5] {
    let icmp = match ip {
        Family::Ipv4 => libc::IPPROTO_ICMP,
        Family::Ipv6 => libc::IPPROTO_ICMPV6,
    };
    [
        libc::IPPROTO_TCP as u8,
        libc::IPPROTO_UDP as u8,
        libc::IPPROTO_GRE as u8,
        libc::IPPROTO_ESP as u8,
        icmp as u8,
    ]
}

/// Follows packets of established connections through the ruleset.
pub fn analyse(ruleset: &Ruleset) -> Analysis {
    analyse_state(ruleset, PacketState::Established, Ways::Plain)
}

/// The ways that packets may take through the hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ways {
    /// Each hook once.
    Plain,
    /// What comes in at a port of a VRF passes PREROUTING twice, the second time with the VRF as its input and with its
    /// connection (`vrf_rcv_nfhook()` in drivers/net/vrf.c).
    Vrf,
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
