// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the configuration allows.

use std::net::IpAddr;

use freeway_kernel::model::{Prefix, Tuple};

/// Flows that the configuration means: everything that is named must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// IP protocol number.
    pub proto: Option<u8>,
    /// Source networks; any of them.
    pub src: Vec<Prefix>,
    /// Destination networks; any of them.
    pub dst: Vec<Prefix>,
    /// Source ports, inclusive ranges; any of them.
    pub sport: Vec<(u16, u16)>,
    /// Destination ports, inclusive ranges; any of them.
    pub dport: Vec<(u16, u16)>,
    /// Interfaces, ingress or egress; any of them.
    pub ifindex: Option<Vec<u32>>,
}

impl Selection {
    /// True if it holds for a direction, or the other one, of a conversation: `tuple` as it comes in, `out` as it leaves.
    #[must_use]
    pub fn matches_either(&self, tuple: &Tuple, out: &Tuple, ports: [u32; 2]) -> bool {
        self.matches(tuple, ports) || self.matches(&out.inverse(), ports)
    }

    /// True if it holds for a direction that passes these two interfaces.
    #[must_use]
    pub fn matches(&self, tuple: &Tuple, ports: [u32; 2]) -> bool {
        fn any<T>(wanted: &[T], test: impl Fn(&T) -> bool) -> bool {
            wanted.is_empty() || wanted.iter().any(test)
        }
        // others have no ports in their place
        let of_ports = !self.sport.is_empty() || !self.dport.is_empty();
        self.proto.is_none_or(|proto| proto == tuple.proto)
            && (!of_ports || tuple.has_ports())
            && any(&self.src, |net| net.contains(tuple.src))
            && any(&self.dst, |net| net.contains(tuple.dst))
            && any(&self.sport, |(low, high)| {
                (low..=high).contains(&&tuple.sport)
            })
            && any(&self.dport, |(low, high)| {
                (low..=high).contains(&&tuple.dport)
            })
            && self
                .ifindex
                .as_ref()
                .is_none_or(|list| ports.iter().any(|p| list.contains(p)))
    }
}

/// The policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// TCP may be fast.
    pub tcp: bool,
    /// UDP may be fast.
    pub udp: bool,
    /// Echoes of ICMP and ICMPv6 may be fast.
    pub icmp: bool,
    /// ESP of tunnels that end elsewhere may be fast.
    pub esp: bool,
    /// GRE of tunnels that end elsewhere may be fast.
    pub gre: bool,
    /// What goes to groups may be fast.
    pub multicast: bool,
    /// Flows that stay in the kernel.
    pub exclude: Vec<Selection>,
    /// Whose are flows of ports that XDP and the engine share; the first that matches counts, and without one XDP's.
    pub steer: Vec<Steering>,
}

/// Flows that the engine forwards, or XDP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Steering {
    /// Which.
    pub flows: Selection,
    /// The engine; else XDP.
    pub engine: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            tcp: true,
            udp: true,
            icmp: true,
            esp: true,
            gre: true,
            multicast: true,
            exclude: Vec::new(),
            steer: Vec::new(),
        }
    }
}

impl Policy {
    /// True if a flow may be fast. An exclusion may describe either direction of
    /// the conversation: `tuple` as it comes in, `out` as it leaves.
    #[must_use]
    pub fn allows(&self, tuple: &Tuple, out: &Tuple, ports: [u32; 2]) -> bool {
        let proto = match tuple.proto {
            6 => self.tcp,
            17 => self.udp,
            1 | 58 => self.icmp,
            47 => self.gre,
            50 => self.esp,
            _ => false,
        };
        proto
            && (self.multicast || !tuple.dst.is_multicast())
            && !self
                .exclude
                .iter()
                .any(|e| e.matches_either(tuple, out, ports))
    }

    /// True of a flow that the engine is to have where XDP could. XDP alone copies.
    #[must_use]
    pub fn steers(&self, tuple: &Tuple, out: &Tuple, ports: [u32; 2]) -> bool {
        let first = self
            .steer
            .iter()
            .find(|s| s.flows.matches_either(tuple, out, ports));
        first.is_some_and(|s| s.engine) && !tuple.dst.is_multicast()
    }
}

/// The flows that a rule of the firewall keeps in the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleScope {
    /// Ingress interfaces; `None`: any.
    pub iif: Option<Vec<u32>>,
    /// Egress interfaces; `None`: any.
    pub oif: Option<Vec<u32>>,
    /// It concerns IPv4.
    pub ipv4: bool,
    /// It concerns IPv6.
    pub ipv6: bool,
    /// IP protocols; empty: any.
    pub protos: Vec<u8>,
    /// Source addresses, each from one to another; empty: any.
    pub src: Vec<(IpAddr, IpAddr)>,
    /// Destination addresses; empty: any.
    pub dst: Vec<(IpAddr, IpAddr)>,
    /// Source ports; empty: any.
    pub sport: Vec<(u16, u16)>,
    /// Destination ports; empty: any.
    pub dport: Vec<(u16, u16)>,
    /// Only flows with a connection, or only those without; `None`: any.
    pub connection: Option<bool>,
}

impl RuleScope {
    /// True if it concerns flows with or without a connection.
    #[must_use]
    pub fn concerns(&self, connection: bool) -> bool {
        self.connection.is_none_or(|wanted| wanted == connection)
    }

    /// Every flow.
    #[must_use]
    pub fn everything() -> Self {
        Self {
            ipv4: true,
            ipv6: true,
            ..Self::default()
        }
    }

    /// True if it concerns a flow: `tuple` as it comes in, `out` as it leaves. A rule may see each address and port
    /// before or after its translation, so either counts.
    #[must_use]
    pub fn matches(&self, tuple: &Tuple, out: &Tuple, port_in: u32, port_out: u32) -> bool {
        fn either<T: Ord>(ranges: &[(T, T)], came: T, left: T) -> bool {
            let holds = |(from, to): &(T, T)| {
                (from <= &came && &came <= to) || (from <= &left && &left <= to)
            };
            ranges.is_empty() || ranges.iter().any(holds)
        }
        let among = |list: &Option<Vec<u32>>, port| list.as_ref().is_none_or(|l| l.contains(&port));
        among(&self.iif, port_in)
            && among(&self.oif, port_out)
            && (if tuple.src.is_ipv4() {
                self.ipv4
            } else {
                self.ipv6
            })
            && (self.protos.is_empty() || self.protos.contains(&tuple.proto))
            && either(&self.src, tuple.src, out.src)
            && either(&self.dst, tuple.dst, out.dst)
            && either(&self.sport, tuple.sport, out.sport)
            && either(&self.dport, tuple.dport, out.dport)
    }
}
