// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway hosts`.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::select::Prefix;

/// What hosts sent and received through the router, kernel and fast path together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Hosts {
    /// Networks whose hosts are counted (`accounting.hosts`).
    pub prefixes: Vec<HostsOfPrefix>,
    /// Each host, the busiest first.
    pub hosts: Vec<HostCounts>,
    /// Hosts for which there was no room, together: sent.
    pub others_sent: IpPackets,
    /// The same: received.
    pub others_received: IpPackets,
    /// The kernel counts the packets that it forwards (`nf_conntrack_acct`).
    pub kernel_counts: bool,
    /// What is shown may be so much older.
    pub age_max_s: u32,
}

/// Packets and octets of IP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IpPackets {
    /// Packets.
    pub packets: u64,
    /// Octets from the IP header on.
    pub ip_bytes: u64,
}

/// A network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostsOfPrefix {
    /// The network.
    pub prefix: Prefix,
    /// Its hosts that are told apart.
    pub hosts: u64,
    /// What they sent.
    pub sent: IpPackets,
    /// What they received.
    pub received: IpPackets,
}

/// A host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostCounts {
    /// Its own address.
    pub address: IpAddr,
    /// What it sent.
    pub sent: IpPackets,
    /// What it received.
    pub received: IpPackets,
    /// Seconds since something was last told of it.
    pub told_s_ago: f64,
}
