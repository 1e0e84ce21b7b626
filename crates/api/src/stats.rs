// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway stats`.

use serde::{Deserialize, Serialize};

use super::accounting::Accounting;

/// Packets by path and by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Forwarded by the fast path. Bytes are L2, as sent, without FCS.
    pub fast: Packets,
    /// Every reason but `fast` with its packets, in the order of `docs/reasons.md`, zeros included.
    pub reasons: Vec<ReasonCount>,
    /// Limits that the configuration sets, and what was dropped over them.
    #[serde(default)]
    pub limits: Vec<Limit>,
    /// Frames that XDP bridged.
    #[serde(default)]
    pub bridged: BridgedFrames,
    /// What XDP dropped ahead of the kernel, by set of the firewall (`freeway drops`).
    #[serde(default)]
    pub drops: Vec<DropsBySet>,
    /// `[[scrub.limit]]`, and what XDP dropped over them (`freeway drops`).
    #[serde(default)]
    pub scrub_limits: Vec<ScrubLimit>,
    /// Events from the data plane.
    pub events: Events,
    /// Why the connection manager refused candidates.
    pub refused: Vec<RefusalCount>,
    /// Health of the kernel's event sockets.
    pub netlink: Netlink,
    /// Times that the configuration was to be read again.
    #[serde(default)]
    pub reloads: Reloads,
    /// Accounts of connections; `None`: nobody is told of them.
    #[serde(default)]
    pub accounting: Option<Accounting>,
}

/// A count of packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packets {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// What XDP dropped by a set, in `freeway stats`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropsBySet {
    /// Family, table and name of the set.
    pub set: String,
    /// What XDP dropped by it.
    pub dropped: Packets,
    /// Packets in it that the kernel was given to confirm the drop.
    pub confirmed: u64,
}

/// One of `[[scrub.limit]]`, in `freeway stats` and `status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubLimit {
    /// The first is 1.
    pub number: u32,
    /// What it counts: `any`, `tcp`, `syn`, `udp` or `icmp`.
    pub proto: String,
    /// Packets a second that each source may send.
    pub packets_per_s: u32,
    /// What was dropped over it.
    pub dropped: Packets,
}

/// Packets that left the data plane for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReasonCount {
    /// Stable name.
    pub name: String,
    /// `fast`, `punt` (given to the kernel), `drop` (dropped), `learn` (not learned from) or `keep` (learned from).
    pub stage: String,
    /// The reason in words.
    pub words: String,
    /// Packets.
    pub packets: u64,
}

/// One of `[punts.limits]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// Name of the reason.
    pub name: String,
    /// Most packets a second that each CPU gives to the kernel.
    pub packets_per_s: u32,
    /// Packets over it, which were dropped.
    pub dropped: u64,
}

/// Events from the data plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Events {
    /// Flows offered.
    pub candidates: u64,
    /// Flows that the kernel forwarded otherwise than the table said.
    pub changed: u64,
    /// Flows that the data plane suspended.
    pub suspended: u64,
    /// Packets of a watched tuple (`freeway explain`).
    pub watched: u64,
    /// Events lost for want of room.
    pub lost: u64,
}

/// What is bridged, beside the flows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BridgedFrames {
    /// Pairs of stations whose frames XDP bridges.
    pub paths: u64,
    /// Paths learned since the start.
    pub learned: u64,
    /// Frames that XDP bridged.
    pub packets: u64,
    /// Their bytes, L2 as received, without FCS.
    pub bytes: u64,
    /// Offered paths that were refused.
    pub refused: Vec<RefusalCount>,
}

/// Candidates that the connection manager refused for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusalCount {
    /// Stable name.
    pub name: String,
    /// The reason in words.
    pub words: String,
    /// Candidates.
    pub count: u64,
}

/// Health of the kernel's event sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Netlink {
    /// Events read.
    pub events: u64,
    /// Times that the kernel dropped events.
    pub overruns: u64,
    /// Times that everything was read anew.
    pub resyncs: u64,
}

/// Times that the configuration was to be read again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloads {
    /// It was applied, also if nothing had changed.
    pub applied: u64,
    /// It was refused, and nothing changed.
    pub refused: u64,
}
