// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway routes`.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::{FlowPath, KeptPort, Packets};

/// Of `freeway routes`: an address whose route is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoutesQuery {
    /// None: the table alone.
    #[serde(default)]
    pub address: Option<IpAddr>,
}

/// Prefix paths: what XDP, tc or the engine forwards by the kernel's routes, without flows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Routes {
    /// The configuration allows it.
    pub enabled: bool,
    /// Of IPv4.
    pub ipv4: FamilyRoutes,
    /// Of IPv6.
    pub ipv6: FamilyRoutes,
    /// What left by prefixes.
    pub routed: Packets,
    /// Packets that the kernel was given to confirm a next hop.
    pub asked: u64,
    /// Those that confirmed it.
    pub confirmed: u64,
    /// Those that left otherwise.
    pub contradicted: u64,
    /// Next hops.
    pub next_hops: Vec<NextHop>,
    /// Ports where packets come in that may leave by prefixes.
    pub ports: Vec<String>,
    /// The other ports, and why; of those above, why not both families.
    pub ports_kept: Vec<KeptPort>,
    /// Of the address that was asked for.
    #[serde(default)]
    pub answer: Option<RouteAnswer>,
}

/// Prefix paths of a family.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FamilyRoutes {
    /// Some port has prefix paths, and the table is in step with the kernel.
    pub active: bool,
    /// Why no port has them, if that is not for a port's sake.
    #[serde(default)]
    pub reason: Option<String>,
    /// The kernel's routes are being read.
    pub loading: bool,
    /// Routes of the kernel, of all tables that count.
    pub routes: u64,
    /// Prefixes in the data plane's table, neighbours on the link among them.
    pub prefixes: u64,
    /// Bytes that a lookup may read.
    pub table_bytes: u64,
    /// Prefixes that are the kernel's since it sent a packet otherwise.
    pub withdrawn: u64,
    /// Prefixes that are the kernel's, by reason.
    pub kept: Vec<KeptPrefixes>,
}

/// Where prefixes lead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextHop {
    /// The port where packets leave.
    pub port: String,
    /// The neighbour's address.
    pub neighbour: IpAddr,
    /// Its MAC address.
    pub mac: String,
    /// By what packets are sent: XDP, and tc where they come in at a port without it; or tc alone.
    pub path: FlowPath,
    /// The longest packet.
    pub len_max: u16,
    /// `confirmed`: packets leave by it; `unconfirmed`: the next one goes through the kernel, and is looked at.
    pub state: HopState,
    /// Milliseconds since the kernel last sent a packet by it; absent: not yet.
    #[serde(default)]
    pub confirmed_ms: Option<u64>,
    /// What left by it.
    pub routed: Packets,
}

/// Of a next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HopState {
    /// Packets leave by it.
    Confirmed,
    /// The kernel has not sent a packet by it lately.
    Unconfirmed,
}

impl HopState {
    /// As `--json` has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::Unconfirmed => "unconfirmed",
        }
    }
}

/// Prefixes that are the kernel's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptPrefixes {
    /// Why.
    pub reason: String,
    /// How many.
    pub prefixes: u64,
}

/// What becomes of packets to an address that are of no flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteAnswer {
    /// The address.
    pub address: IpAddr,
    /// The kernel's route that they take, as it is known here; absent: none.
    #[serde(default)]
    pub prefix: Option<String>,
    /// Where they leave by that route; absent: not as to one next hop.
    #[serde(default)]
    pub port: Option<String>,
    /// The neighbour that they are sent to.
    #[serde(default)]
    pub neighbour: Option<IpAddr>,
    /// They leave by a prefix path, if they come in at one of `ports`.
    pub fast: bool,
    /// By what, as that of a next hop; absent: by none.
    #[serde(default)]
    pub path: Option<FlowPath>,
    /// Why the kernel does.
    #[serde(default)]
    pub reason: Option<String>,
    /// Where `ip route get` says that they leave; absent: it has no route.
    #[serde(default)]
    pub kernel_port: Option<String>,
    /// The neighbour by `ip route get`.
    #[serde(default)]
    pub kernel_neighbour: Option<IpAddr>,
    /// Both are the same, or the kernel alone decides.
    pub agrees: bool,
}
