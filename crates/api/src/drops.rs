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
