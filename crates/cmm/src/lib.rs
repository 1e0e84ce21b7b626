// SPDX-License-Identifier: MIT OR Apache-2.0
//! The connection manager: decides which flows the data plane may forward.
//!
//! It does no I/O. Candidates, kernel events and the time go in; operations on
//! the data plane and on conntrack come out ([`Op`]). The daemon carries them
//! out and reports what has an answer ([`Manager::prepared`]).

mod address;
mod admission;
mod age;
mod bridge;
mod connection;
mod conns;
mod departure;
mod flow;
mod group;
mod key;
mod lookup;
mod manager;
mod nexthop;
mod op;
mod policy;
mod port;
mod recent;
mod record;
mod refusal;
mod scope;
mod share;
mod snoop;
mod station;
mod stats;
mod sweep;
mod table;
mod vrf;

#[cfg(test)]
mod tests;

pub use bridge::{
    BridgeOp, BridgePort, BridgeRefusal, BridgedPath, Bridges, PathView, RoutedPort, Stations,
};
pub use flow::{Connection, Flow, Preparation};
pub use key::{ConnKey, FlowKey, addr_of, out_of, words_of};
pub use manager::{Around, Manager, Settings};
pub use op::{Op, StateView};
pub use policy::{Exclusion, Policy, RuleScope};
pub use port::{Fitness, Framing, Path, Port, Session, Tag, Tags};
pub use refusal::Refusal;
pub use share::Holder;
pub use snoop::{BridgedLeg, BridgedList};
pub use station::StationExit;
pub use stats::{Latency, Stats};
pub use vrf::Leaks;
