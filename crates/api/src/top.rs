// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway top`.

use serde::{Deserialize, Serialize};

use super::engine::EngineStatus;
use super::flow::{Flow, FlowPath};
use super::status::FlowCounts;

/// How much to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopQuery {
    /// At most so many flows; 200 are the most.
    pub flows: u32,
}

/// What is forwarded at this moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Top {
    /// Seconds over which all rates were taken; 0 for who asks first: ask again.
    pub interval_s: f64,
    /// False after `freeway off`.
    pub on: bool,
    /// The flow table.
    pub table: FlowCounts,
    /// What the fast path forwarded.
    pub fast: Rate,
    /// The same by program; only those that forwarded.
    #[serde(default)]
    pub paths: Vec<TopPath>,
    /// The same by port; only ports that take part.
    pub ports: Vec<TopPort>,
    /// The busiest flows, by bytes.
    pub flows: Vec<TopFlow>,
    /// Packets that left the data plane otherwise, by reason; only those that were met.
    pub reasons: Vec<ReasonRate>,
    /// The engine on cores of its own, if it is there.
    #[serde(default)]
    pub engine: Option<EngineStatus>,
}

/// A rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// Packets a second.
    pub packets_per_s: f64,
    /// Bits a second: L2, as sent, without FCS.
    pub bits_per_s: f64,
}

/// What one program of the fast path forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TopPath {
    /// The program.
    pub path: FlowPath,
    /// Its rate.
    pub rate: Rate,
}

/// What the fast path forwarded through one port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TopPort {
    /// The port's name.
    pub name: String,
    /// What came in there.
    pub received: Rate,
    /// What left there.
    pub sent: Rate,
}

/// A busy flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TopFlow {
    /// The flow, as `freeway flows` shows it.
    pub flow: Flow,
    /// Its rate.
    pub rate: Rate,
}

/// Packets that left the data plane for one reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReasonRate {
    /// Stable name.
    pub name: String,
    /// `hand`, `punt`, `learn` or `keep`.
    pub stage: String,
    /// The reason in words.
    pub words: String,
    /// Packets a second.
    pub packets_per_s: f64,
}
