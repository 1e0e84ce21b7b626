// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flows and connections as the manager shows them.

use freeway_kernel::model::Tuple;

use crate::key::{ConnKey, FlowKey};
use crate::port::Path;

/// One direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Its key.
    pub key: FlowKey,
    /// The tuple that leaves.
    pub out: Tuple,
    /// Egress ifindex.
    pub port_out: u32,
    /// Next-hop index.
    pub nexthop: u32,
    /// Its connection, if conntrack sees it.
    pub conn: Option<ConnKey>,
    /// It is the reply direction of its connection.
    pub reply: bool,
    /// When it was entered.
    pub created_tick: u32,
    /// When the first of its two observations was made.
    pub first_tick: u32,
    /// Ingress TTL or hop limit.
    pub ttl_in: u8,
    /// Ingress DSCP, in the upper six bits.
    pub dscp_in: u8,
    /// `Activate` was issued.
    pub active: bool,
    /// Who forwards it.
    pub path: Path,
    /// A mark or a class of its packets matters, or they are not as on a wire: tc alone forwards it.
    pub bound: bool,
    /// A packet socket takes its packets: likewise.
    pub sniffed: bool,
}

/// Where the preparation of a TCP connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preparation {
    /// Not needed (UDP).
    None,
    /// Asked for.
    Asked,
    /// Done.
    Done,
}

/// A connection with at least one flow in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Flow indices of the original and the reply direction.
    pub flows: [Option<u32>; 2],
    /// TCP preparation.
    pub preparation: Preparation,
    /// conntrack status bits when learned.
    pub status: u32,
    /// conntrack mark when learned.
    pub mark: u32,
    /// Seconds that the kernel gives it after each packet.
    pub timeout_s: u32,
    /// When the connection manager last asked conntrack to stay liberal.
    pub prepared_tick: u32,
}
