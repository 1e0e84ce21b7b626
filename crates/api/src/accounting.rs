// SPDX-License-Identifier: MIT OR Apache-2.0
//! What became of the accounts of connections.

use serde::{Deserialize, Serialize};

/// Accounts of connections, and who is told of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accounting {
    /// Connections of which something is remembered.
    pub connections: u64,
    /// The kernel counts the packets that it forwards (`nf_conntrack_acct`).
    pub kernel_counts: bool,
    /// Records that were due.
    pub records: u64,
    /// Connections that ended without counters of the kernel.
    pub uncounted: u64,
    /// Connections whose end the kernel did not tell.
    pub missed: u64,
    /// Each of `[[export]]`.
    pub collectors: Vec<Collector>,
}

/// Who is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collector {
    /// Address and port.
    pub collector: String,
    /// `ipfix` or `netflow9`.
    pub format: String,
    /// `udp` or `tcp`.
    pub transport: String,
    /// How it is.
    pub state: CollectorState,
    /// Records that were sent.
    pub records: u64,
    /// Messages that were sent.
    pub messages: u64,
    /// Their octets, without the headers of transport and IP.
    pub bytes: u64,
    /// Records that found no room while they waited, or that the collector's host refused.
    pub dropped: u64,
    /// Times that the connection was made (TCP), or the socket opened (UDP).
    pub connects: u64,
    /// What the last failure was.
    pub error: Option<String>,
}

/// How a collector is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CollectorState {
    /// It is being connected to.
    #[default]
    Connecting,
    /// It is sent to. UDP does not tell whether anybody listens.
    Ready,
    /// It cannot be reached, and is tried again, later each time; over UDP its host refuses what is sent.
    Down,
}

impl CollectorState {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            CollectorState::Connecting => "connecting",
            CollectorState::Ready => "ready",
            CollectorState::Down => "down",
        }
    }
}
