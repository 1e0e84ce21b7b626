// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway flows`.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::select::{PortRange, Prefix, Proto};

/// Flows of the table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Flows {
    /// Those that the filter lets through, at most as many as its limit.
    pub flows: Vec<Flow>,
    /// How many the filter lets through.
    pub total: u64,
}

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
    /// Source MAC address as it goes out.
    pub src_mac_out: String,
    /// Destination MAC address as it goes out.
    pub dst_mac_out: String,
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
    /// Stopped by SYN, FIN, RST or a change of its connection.
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

    /// The word for it.
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
        f.pad(self.name())
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
}

impl fmt::Display for FlowPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            FlowPath::Xdp => "xdp",
            FlowPath::Tc => "tc",
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

impl FlowFilter {
    /// True if the filter lets the flow through. The limit does not count here.
    pub fn matches(&self, flow: &Flow) -> bool {
        let prefix =
            |wanted: Option<Prefix>, a, b| wanted.is_none_or(|p| p.contains(a) || p.contains(b));
        let range =
            |wanted: Option<PortRange>, a, b| wanted.is_none_or(|r| r.contains(a) || r.contains(b));
        self.family.is_none_or(|family| family == flow.family)
            && self.proto.is_none_or(|proto| proto == flow.proto)
            && prefix(self.src, flow.src, flow.to_src)
            && prefix(self.dst, flow.dst, flow.to_dst)
            && range(self.sport, flow.sport, flow.to_sport)
            && range(self.dport, flow.dport, flow.to_dport)
            && self
                .port
                .as_ref()
                .is_none_or(|port| *port == flow.port_in || *port == flow.port_out)
            && self.state.is_none_or(|state| state == flow.state)
    }
}
