// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway flows`.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::select::{PortRange, Prefix, Proto};

/// One direction of one conversation, as the fast path forwards it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// 4 or 6.
    pub family: u8,
    /// `tcp`, `udp`, or a number.
    pub proto: Proto,
    /// Source address as it comes in.
    pub src: IpAddr,
    /// Source port as it comes in.
    pub sport: u16,
    /// Destination address as it comes in.
    pub dst: IpAddr,
    /// Destination port as it comes in.
    pub dport: u16,
    /// Port that it comes in at.
    pub port_in: String,
    /// Source address as it goes out.
    pub to_src: IpAddr,
    /// Source port as it goes out.
    pub to_sport: u16,
    /// Destination address as it goes out.
    pub to_dst: IpAddr,
    /// Destination port as it goes out.
    pub to_dport: u16,
    /// Port that it goes out at.
    pub port_out: String,
    /// All egress ports, if each gets a copy; else none.
    #[serde(default)]
    pub ports_out: Vec<String>,
    /// Source MAC address as it goes out; none at a port without a link layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub src_mac_out: Option<String>,
    /// Destination MAC address as it goes out; likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dst_mac_out: Option<String>,
    /// State of the flow.
    pub state: FlowState,
    /// Which program forwards it.
    pub path: FlowPath,
    /// Packets that the fast path forwarded.
    pub packets: u64,
    /// Their bytes: L2, as sent, without FCS.
    pub bytes: u64,
    /// Seconds since it was learned.
    pub age_s: f64,
    /// Seconds since its last fast packet.
    pub idle_s: f64,
    /// Seconds since the kernel last confirmed it.
    pub confirmed_s_ago: f64,
    /// Longest L3 packet that the kernel is proven to forward, bytes.
    pub length_max: u32,
    /// TTL or hop limit as it comes in.
    pub ttl: u8,
    /// DSCP as it comes in.
    pub dscp: u8,
    /// True if a conntrack entry stands behind it.
    pub connection: bool,
    /// The connection's mark.
    pub mark: u32,
    /// True for the connection's reply direction.
    pub reply: bool,
}

/// State of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowState {
    /// Forwarded by the fast path.
    Active,
    /// Its connection is being prepared.
    Preparing,
    /// Stopped by FIN, RST or a change of its connection.
    Suspended,
    /// Waits for the kernel to confirm it after a change.
    Unconfirmed,
}

impl FlowState {
    /// All states.
    pub const ALL: [FlowState; 4] = [
        FlowState::Active,
        FlowState::Preparing,
        FlowState::Suspended,
        FlowState::Unconfirmed,
    ];

    /// The word for people.
    pub fn word(self) -> &'static str {
        match self {
            FlowState::Active => "fast",
            FlowState::Preparing => "learning",
            FlowState::Suspended | FlowState::Unconfirmed => self.name(),
        }
    }

    /// The word in JSON.
    pub fn name(self) -> &'static str {
        match self {
            FlowState::Active => "active",
            FlowState::Preparing => "preparing",
            FlowState::Suspended => "suspended",
            FlowState::Unconfirmed => "unconfirmed",
        }
    }
}

impl fmt::Display for FlowState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// Which program forwards a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowPath {
    /// XDP, in the driver.
    Xdp,
    /// tc ingress.
    Tc,
    /// The engine, on a core of its own.
    Engine,
}

impl FlowPath {
    /// All paths.
    pub const ALL: [FlowPath; 3] = [FlowPath::Xdp, FlowPath::Tc, FlowPath::Engine];
}

impl fmt::Display for FlowPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            FlowPath::Xdp => "xdp",
            FlowPath::Tc => "tc",
            FlowPath::Engine => "engine",
        })
    }
}

/// Which flows to show. What is absent lets everything through.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowFilter {
    /// IP version: 4 or 6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<u8>,
    /// IP protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proto: Option<Proto>,
    /// Source address, as it comes in or as it goes out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub src: Option<Prefix>,
    /// Destination address, as it comes in or as it goes out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dst: Option<Prefix>,
    /// Source port, as it comes in or as it goes out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sport: Option<PortRange>,
    /// Destination port, as it comes in or as it goes out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dport: Option<PortRange>,
    /// Name of the network port that it comes in or goes out at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// State.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<FlowState>,
    /// At most so many flows; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// What a filter sees of a flow's key: the tuple as it comes in, and as it goes out.
#[derive(Clone, Copy, Debug)]
pub struct Tuples {
    /// IP protocol.
    pub proto: Proto,
    /// Source addresses.
    pub src: [IpAddr; 2],
    /// Source ports.
    pub sport: [u16; 2],
    /// Destination addresses.
    pub dst: [IpAddr; 2],
    /// Destination ports.
    pub dport: [u16; 2],
}

impl FlowFilter {
    /// True if addresses, ports and protocol pass. Network port, state and limit do not count here.
    pub fn matches_tuples(&self, tuples: &Tuples) -> bool {
        let prefix = |wanted: Option<Prefix>, ips: [IpAddr; 2]| {
            wanted.is_none_or(|prefix| ips.iter().any(|ip| prefix.contains(*ip)))
        };
        let range = |wanted: Option<PortRange>, ports: [u16; 2]| {
            let has = |range: PortRange| ports.iter().any(|port| range.contains(*port));
            // others have no ports in their place
            wanted.is_none_or(|range| !tuples.proto.has_id() && has(range))
        };
        let family = if tuples.src[0].is_ipv4() { 4 } else { 6 };
        self.family.is_none_or(|wanted| wanted == family)
            && self.proto.is_none_or(|proto| proto == tuples.proto)
            && prefix(self.src, tuples.src)
            && prefix(self.dst, tuples.dst)
            && range(self.sport, tuples.sport)
            && range(self.dport, tuples.dport)
    }

    /// True if every flow passes.
    pub fn is_open(&self) -> bool {
        let limit = self.limit;
        *self
            == FlowFilter {
                limit,
                ..FlowFilter::default()
            }
    }
}

#[cfg(any(test, feature = "fake"))]
impl FlowFilter {
    /// True if the filter lets the flow through. The limit does not count here.
    pub fn matches(&self, flow: &Flow) -> bool {
        let tuples = Tuples {
            proto: flow.proto,
            src: [flow.src, flow.to_src],
            sport: [flow.sport, flow.to_sport],
            dst: [flow.dst, flow.to_dst],
            dport: [flow.dport, flow.to_dport],
        };
        let port = |port: &String| {
            *port == flow.port_in || *port == flow.port_out || flow.ports_out.contains(port)
        };
        self.matches_tuples(&tuples)
            && self.port.as_ref().is_none_or(port)
            && self.state.is_none_or(|state| state == flow.state)
    }
}
