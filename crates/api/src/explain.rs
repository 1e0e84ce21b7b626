// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway explain`.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::ends::ends;
use super::flow::Flow;
use super::select::Proto;

/// Which flow to explain: addresses and ports as they come in, or as they go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExplainQuery {
    /// IP protocol.
    pub proto: Proto,
    /// Source address and port.
    pub src: SocketAddr,
    /// Destination address and port.
    pub dst: SocketAddr,
    /// Watch real packets for at most so many milliseconds.
    pub watch_ms: u32,
}

/// Whether a flow is fast, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explain {
    /// What was asked.
    pub tuple: Endpoints,
    /// The answer.
    pub verdict: Verdict,
    /// The answer in one sentence.
    pub summary: String,
    /// What stands behind it, the most decisive first.
    pub reasons: Vec<Why>,
    /// The flow's entry in the table.
    pub flow: Option<Flow>,
    /// The entry of the other direction.
    pub reply_flow: Option<Flow>,
    /// The kernel's connection.
    pub connection: Option<Connection>,
    /// The neighbour that the flow is sent to.
    pub neighbour: Option<Neighbour>,
    /// What real packets of the tuple met.
    pub watched: Watched,
    /// What else someone should know, in words.
    pub notes: Vec<String>,
}

/// Whether a flow is fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The fast path forwards it.
    Fast,
    /// The kernel forwards or drops it.
    Kernel,
    /// Neither a packet nor an entry was seen.
    Unknown,
}

/// A reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Why {
    /// Stable name.
    pub name: String,
    /// The reason in words.
    pub words: String,
    /// What it is about: `fast`, `punt` (given to the kernel), `learn` (nothing was learned), `keep` (it was), `refused`
    /// (by the connection manager), `kernel` (it dropped the packet).
    pub stage: String,
}

/// Source and destination of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoints {
    /// IP protocol.
    pub proto: Proto,
    /// Source address.
    pub src: IpAddr,
    /// Source port, or what is in its place: an echo's identifier, the upper half of an SPI.
    pub sport: u16,
    /// Destination address.
    pub dst: IpAddr,
    /// Destination port, or what is in its place: an echo's type and code, the lower half of an SPI.
    pub dport: u16,
}

impl fmt::Display for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = ends(self.proto, (self.src, self.sport), (self.dst, self.dport));
        write!(f, "{} {words}", self.proto)
    }
}

impl From<ExplainQuery> for Endpoints {
    fn from(query: ExplainQuery) -> Self {
        Endpoints {
            proto: query.proto,
            src: query.src.ip(),
            sport: query.src.port(),
            dst: query.dst.ip(),
            dport: query.dst.port(),
        }
    }
}

/// The kernel's connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// Tuple of its first packet, before translation.
    pub orig: Endpoints,
    /// Tuple of the answers.
    pub reply: Endpoints,
    /// Status in words: `assured`, `seen_reply`, `src_nat`...
    pub status: Vec<String>,
    /// TCP state.
    pub state: Option<String>,
    /// Seconds until it expires.
    pub timeout_s: Option<u32>,
    /// Connection mark.
    pub mark: u32,
    /// Helper (ALG).
    pub helper: Option<String>,
    /// Conntrack zone.
    pub zone: u16,
}

/// The neighbour that a flow is sent to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbour {
    /// Its address.
    pub ip: IpAddr,
    /// Its MAC address.
    pub mac: Option<String>,
    /// The kernel's state of it: reachable, stale, failed...
    pub state: String,
    /// The port it is behind.
    pub port: String,
}

/// What real packets of the tuple met.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Watched {
    /// Packets that came; 0 says that none did.
    pub packets: u64,
    /// How long was watched, seconds.
    pub seconds: f64,
    /// What they met, the most frequent first.
    pub results: Vec<Seen>,
    /// Those that the kernel dropped, by its own reasons, the most frequent first.
    pub dropped: Vec<Dropped>,
}

/// Watched packets that the kernel dropped for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    /// The kernel's name of the reason: `netfilter_drop`, `ip_rpfilter`... `not_specified` if it gives none.
    pub reason: String,
    /// The reason in words.
    pub words: String,
    /// Packets.
    pub count: u64,
    /// The device that they were at.
    pub port: String,
    /// The kernel's function that freed them.
    pub function: Option<String>,
}

/// What some of the watched packets met.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// `xdp`, `tc ingress` or `tc egress`.
    pub stage: String,
    /// Stable name of the reason.
    pub reason: String,
    /// The reason in words.
    pub words: String,
    /// Packets.
    pub count: u64,
    /// The port it happened at.
    pub port: String,
}
