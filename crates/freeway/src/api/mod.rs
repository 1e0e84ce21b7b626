// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the daemon says over its control socket, and what `--json` prints.
//!
//! Names are stable: fields may be added, none is renamed or removed within a major version. Units are part of a name,
//! counters count since the daemon started, ports and addresses read as people write them.

mod ends;
mod explain;
mod failure;
mod flow;
mod select;
mod stats;
mod status;
mod switch;
mod top;

pub use ends::{ends, halves};
pub use explain::{
    Connection, Dropped, Endpoints, Explain, ExplainQuery, Neighbour, Seen, Verdict, Watched, Why,
};
pub use failure::{Failure, FailureKind};
#[cfg(test)]
pub use flow::Flows;
pub use flow::{Flow, FlowFilter, FlowPath, FlowState, Tuples};
pub use select::{PortRange, Prefix, Proto};
pub use stats::{BridgedFrames, Events, Limit, Netlink, Packets, ReasonCount, RefusalCount, Stats};
pub use status::{
    Feature, FeatureState, FlowCounts, Holder, Invalidation, Latency, Learning, Port, PortPath,
    PortState, RulesetStatus, Shares, Status,
};
pub use switch::{Flushed, Resynced, Switch, Switched};
pub use top::{Rate, ReasonRate, Top, TopFlow, TopPort, TopQuery};
