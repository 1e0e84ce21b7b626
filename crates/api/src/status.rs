// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway status`.

use serde::{Deserialize, Serialize};

use super::accounting::Accounting;
use super::engine::{EngineStatus, SameCore};
use super::upgrade::TakenOver;
use super::{Limit, ScrubLimit};

/// State of the daemon, its ports and what it learned of the kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The daemon's version.
    pub version: String,
    /// The daemon's process.
    pub pid: u32,
    /// Seconds since it started.
    pub uptime_s: u64,
    /// The daemon that handed over to it then; `None`: it was started by itself.
    #[serde(default)]
    pub taken_over: Option<TakenOver>,
    /// The kernel's release.
    pub kernel: String,
    /// False after `freeway off`.
    pub on: bool,
    /// Why everything is the kernel's at this moment, although the fast path is on.
    pub paused: Option<String>,
    /// Count of changes after which every flow had to be confirmed anew.
    pub epoch: u32,
    /// The flow table.
    pub flows: FlowCounts,
    /// Who has how much of the flow table.
    #[serde(default)]
    pub shares: Shares,
    /// Connections behind the flows.
    pub connections: u64,
    /// Shared next-hop records in use.
    pub next_hops: u64,
    /// Every port that was asked for or that forwards.
    pub ports: Vec<Port>,
    /// What the rules mean for the fast path.
    pub ruleset: RulesetStatus,
    /// Limits that the configuration sets to what the kernel is given.
    #[serde(default)]
    pub limits: Vec<Limit>,
    /// Limits that it sets to what sources may send.
    #[serde(default)]
    pub scrub_limits: Vec<ScrubLimit>,
    /// Features of the kernel that Freeway uses.
    pub features: Vec<Feature>,
    /// The engine on cores of its own, if it is there.
    #[serde(default)]
    pub engine: Option<EngineStatus>,
    /// Translated connections on one core; `None`: `engine.same_core` is off.
    #[serde(default)]
    pub same_core: Option<SameCore>,
    /// Accounts of connections; `None`: nobody is told of them.
    #[serde(default)]
    pub accounting: Option<Accounting>,
    /// What someone should know, in words.
    pub notices: Vec<String>,
    /// Time from a kernel event's arrival to its effect in the data plane.
    pub invalidation: Invalidation,
    /// Longest time, in seconds, for which a change that sends no event can go unnoticed.
    pub staleness_bound_s: f64,
    /// How flows become fast.
    pub learn: Learning,
    /// Memory of the daemon itself, resident bytes.
    pub memory_rss_bytes: u64,
    /// Memory of the data plane's maps, bytes.
    pub memory_maps_bytes: u64,
    /// The configuration file in force.
    pub config_file: Option<String>,
}

/// Flows in the table, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowCounts {
    /// Forwarded by the fast path.
    pub active: u64,
    /// Waiting for their connection to be prepared.
    pub preparing: u64,
    /// Stopped by FIN, RST or a change of their connection.
    pub suspended: u64,
    /// Waiting for the kernel to confirm them after a change.
    pub unconfirmed: u64,
    /// Room in the table.
    pub capacity: u64,
}

/// Who has how much of the flow table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shares {
    /// Addresses with flows in the table: those that opened the connections, without conntrack the flows' sources.
    pub holders: u64,
    /// Those with the most flows, the greatest first.
    pub greatest: Vec<Holder>,
    /// Flows of a full table that left for hotter ones, or for those of a holder of less.
    pub displaced: u64,
}

/// An address with flows in the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// IPv4 address, or IPv6 prefix of 64 bits.
    pub address: String,
    /// Its flows, each direction counted.
    pub flows: u64,
}

/// One network port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// Interface index.
    pub ifindex: u32,
    /// Interface name.
    pub name: String,
    /// Whether it takes part.
    pub state: PortState,
    /// Which program forwards for it.
    pub path: PortPath,
    /// Why it is in this state, in words; empty where nothing is in the way.
    pub reasons: Vec<String>,
    /// MTU in bytes, without the L2 header.
    pub mtu: u32,
    /// MAC address.
    pub mac: Option<String>,
    /// Frames that were redirected to this port and lost.
    pub redirect_failures: u64,
    /// Frames that were redirected to this port and for which its driver's ring had no room.
    #[serde(default)]
    pub ring_drops: u64,
    /// What the driver says that it can do: basic, redirect, ndo_xmit...
    pub xdp_features: Vec<String>,
    /// What comes in here may leave by prefixes, without a flow (`freeway routes`).
    #[serde(default)]
    pub routes: bool,
    /// Why not.
    #[serde(default)]
    pub routes_reason: Option<String>,
}

/// Whether a port takes part in the fast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PortState {
    /// Flows through it may be fast.
    Fast,
    /// All its traffic is the kernel's.
    Kernel,
    /// The same, but its programs are about to be attached.
    Attaching,
    /// No link.
    Down,
}

/// Which program forwards for a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PortPath {
    /// XDP, in the driver.
    Xdp,
    /// tc ingress.
    Tc,
    /// The engine, on a core of its own.
    Engine,
    /// None.
    Kernel,
}

/// What the rules mean for the fast path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RulesetStatus {
    /// nftables' generation.
    pub generation: u32,
    /// True if no reachable rule must see every packet.
    pub safe: bool,
    /// Rules that keep flows in the kernel, in words.
    pub findings: Vec<String>,
}

/// A feature of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Feature {
    /// Its name.
    pub name: String,
    /// Whether it is there.
    pub state: FeatureState,
    /// What it is needed for.
    pub needed_for: String,
    /// The first kernel that has it.
    pub minimum_kernel: String,
}

/// Whether a feature is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeatureState {
    /// It is.
    Present,
    /// It is not.
    Missing,
    /// It could not be tried.
    Unknown,
}

/// Time from a kernel event's arrival to its effect in the data plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Invalidation {
    /// Changes that invalidated something.
    pub count: u64,
    /// Median, milliseconds.
    pub p50_ms: f64,
    /// 99th percentile, milliseconds.
    pub p99_ms: f64,
    /// Longest, milliseconds.
    pub worst_ms: f64,
}

/// How flows become fast.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Learning {
    /// Candidates that the data plane offered.
    pub candidates: u64,
    /// Flows that came of them.
    pub learned: u64,
    /// Candidates that were refused; `freeway stats` has the reasons.
    pub refused: u64,
    /// Time from the first packet that could be learned from to the first fast one.
    pub learnable_to_fast_ms: Latency,
    /// Connections of which both directions became fast.
    #[serde(default)]
    pub connections: u64,
    /// Time from when both directions had shown a packet that could be learned from until both are fast.
    #[serde(default)]
    pub connection_to_fast_ms: Latency,
}

/// A distribution of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    #[serde(default)]
    pub p99: f64,
    /// Longest.
    pub max: f64,
}
