// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway drops`.

use serde::{Deserialize, Serialize};

use crate::Packets;

/// What XDP drops ahead of the kernel, by rules of the firewall that drop by sets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drops {
    /// The configuration allows it.
    pub enabled: bool,
    /// Something is dropped now: a rule is taken over, and everything that it asks is in step with the kernel.
    pub active: bool,
    /// What XDP dropped, by whatever rule, those that are gone included.
    pub dropped: Packets,
    /// Packets a second, in the last second.
    pub packets_per_s: u64,
    /// Rules that are taken over.
    pub rules: Vec<DropsByRule>,
    /// By port where they came in.
    pub ports: Vec<DropsByPort>,
    /// The addresses of which most was dropped, by sample: one drop of 64 is counted.
    pub top: Vec<DropsByAddress>,
    /// Rules that drop by sets and stay the kernel's, and why.
    pub kept: Vec<KeptRule>,
    /// Ports at which nothing is dropped, and why.
    pub ports_kept: Vec<KeptPort>,
    /// `[[scrub.limit]]`, in their order, and what was dropped over them.
    #[serde(default)]
    pub limits: Vec<DropsByLimit>,
    /// The sources of which most was dropped over a limit, those of the last second first.
    #[serde(default)]
    pub sources: Vec<DropsBySource>,
}

/// One of `[[scrub.limit]]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropsByLimit {
    /// The first is 1.
    pub number: u32,
    /// What it counts: `any`, `tcp`, `syn`, `udp` or `icmp`.
    pub proto: String,
    /// Packets a second that each source may send.
    pub packets_per_s: u32,
    /// Packets at once after a pause.
    pub burst: u32,
    /// Bits of an IPv4 address that make a source.
    pub prefix_len4: u32,
    /// Of an IPv6 address.
    pub prefix_len6: u32,
    /// What was dropped over it since it is in force, at ports that are gone included.
    pub dropped: Packets,
    /// Where it is in force, and what was dropped there.
    pub ports: Vec<DropsByPort>,
    /// Ports where it is not in force, and why.
    pub ports_kept: Vec<KeptPort>,
    /// Sources that could send anew before their time, for there were too many others.
    pub forgotten: u64,
}

/// A source that was over a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropsBySource {
    /// Its prefix.
    pub source: String,
    /// Number of the limit.
    pub limit: u32,
    /// Packets of it that were dropped.
    pub dropped: u64,
    /// The same a second, in the last second.
    pub dropped_per_s: u64,
}

/// A rule that is taken over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropsByRule {
    /// Family, table and name of its set.
    pub set: String,
    /// Where it is.
    pub rule: String,
    /// `4` or `6`.
    pub ip: u8,
    /// Ports where XDP drops by it.
    pub ports: Vec<String>,
    /// Addresses and prefixes of the set that XDP has.
    pub elements: u64,
    /// Elements that XDP cannot have: ranges in concatenations, or no room.
    pub elements_kept: u64,
    /// The set is still being read.
    pub loading: bool,
    /// What XDP dropped by it.
    pub dropped: Packets,
    /// Packets a second, in the last second.
    pub packets_per_s: u64,
    /// Packets in the set that the kernel was given to confirm the drop, one a second.
    pub confirmed: u64,
    /// Packets by the counter of the rule, if it has one: what the kernel dropped by it.
    pub kernel_packets: Option<u64>,
}

/// What was dropped at a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropsByPort {
    /// The port.
    pub port: String,
    /// What was dropped there.
    pub dropped: Packets,
    /// Packets a second, in the last second.
    pub packets_per_s: u64,
}

/// What was dropped of an address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropsByAddress {
    /// The address, and what stands beside it in a concatenation.
    pub address: String,
    /// Packets, by sample.
    pub packets: u64,
    /// Sets that have it.
    pub sets: Vec<String>,
    /// Seconds until it times out; absent: never.
    pub expires_s: Option<u64>,
}

/// A rule that drops by a set and stays the kernel's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptRule {
    /// Its set.
    pub set: String,
    /// Where it is.
    pub rule: String,
    /// Why.
    pub reason: String,
}

/// A port at which nothing is dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptPort {
    /// The port.
    pub port: String,
    /// Why.
    pub reason: String,
}
