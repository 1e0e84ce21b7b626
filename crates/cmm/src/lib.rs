// SPDX-License-Identifier: MIT OR Apache-2.0
//! The connection manager: decides which flows the data plane may forward.
//!
//! It does no I/O. Candidates, kernel events and the time go in; operations on
//! the data plane and on conntrack come out ([`Op`]). The daemon carries them
//! out and reports what has an answer ([`Manager::prepared`]).

mod address;
mod admission;
mod age;
mod around;
mod bridge;
mod bridged;
mod class;
mod connection;
mod conns;
mod departure;
mod ends;
mod flow;
mod gathering;
mod group;
mod handed;
mod indices;
mod key;
mod leaks;
mod lookup;
mod manager;
mod memory;
mod nexthop;
mod op;
mod policy;
mod port;
mod recent;
mod record;
mod refusal;
mod scan;
mod scope;
mod share;
mod snooped;
mod station;
mod stations;
mod stats;
mod sweep;
mod table;
mod vrf;
mod walk;

#[cfg(test)]
mod tests;

pub use around::Around;
pub use bridge::{Bridges, PathView};
pub use bridged::{
    BridgeOp, BridgePort, BridgeRefusal, BridgedLeg, BridgedList, BridgedPath, RoutedPort, Stations,
};
pub use class::Classes;
pub use flow::{Connection, Flow, Preparation};
pub use key::{ConnKey, FlowKey, out_of};
pub use leaks::Leaks;
pub use manager::{Manager, Settings};
pub use op::{Op, StateView};
pub use policy::{Policy, RuleScope, Selection, Steering};
pub use port::{Fitness, Framing, Path, Port, Served, Session, Tag, Tags};
pub use refusal::Refusal;
pub use share::Holder;
pub use stations::StationExit;
pub use stats::{Latency, Stats};
