// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the daemon says over its control socket, what `--json` prints, and the client that asks.
//!
//! Names are stable: fields may be added, none is renamed or removed within a major version. Units are part of a name,
//! counters count since the daemon started, ports and addresses read as people write them.

mod accounting;
mod capture;
mod client;
mod drops;
mod endpoint;
mod ends;
pub mod engine;
mod explain;
mod failure;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
pub mod filter;
mod flow;
pub mod handover;
mod hosts;
pub mod measured;
pub mod netns;
mod path;
mod reload;
mod routes;
pub mod schedule;
mod select;
pub mod serving;
mod stats;
mod status;
mod steer;
mod switch;
mod top;
mod upgrade;

pub use accounting::{Accounting, Collector, CollectorState};
pub use capture::CaptureQuery;
pub use client::{Client, Stream};
pub use drops::{
    Drops, DropsByAddress, DropsByLimit, DropsByPort, DropsByRule, DropsBySource, KeptPort,
    KeptRule,
};
pub use endpoint::{Endpoint, identifier};
pub use ends::{ends, halves};
pub use explain::{
    Connection, Dropped, Endpoints, Explain, ExplainQuery, Neighbour, Seen, Verdict, Watched, Why,
};
pub use failure::{Failure, FailureKind};
pub use flow::{Flow, FlowFilter, FlowPath, FlowState, Tuples};
pub use hosts::{HostCounts, Hosts, HostsOfPrefix, IpPackets};
pub use path::PathChoice;
pub use reload::{KeyChange, Reloaded};
pub use routes::{FamilyRoutes, HopState, KeptPrefixes, NextHop, RouteAnswer, Routes, RoutesQuery};
pub use select::{PortRange, Prefix, Proto};
pub use stats::{
    BridgedFrames, DropsBySet, Events, Limit, Netlink, Packets, ReasonCount, RefusalCount, Reloads,
    ScrubLimit, Stats,
};
pub use status::{
    Feature, FeatureState, FlowCounts, Holder, Invalidation, Latency, Learning, Port, PortPath,
    PortState, RulesetStatus, Shares, Status,
};
pub use steer::{
    Selection, SteerChange, SteerPath, SteerRule, Steering, check_rules as check_steering,
};
pub use switch::{Flushed, Resynced, Switch, Switched};
pub use top::{Rate, ReasonRate, Top, TopFlow, TopPath, TopPort, TopQuery};
pub use upgrade::{Process, TakenOver, Upgrade, Upgraded};
