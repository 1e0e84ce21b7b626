// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel has and what happened to it: plain data, no I/O.
//!
//! Numbers are in host byte order, ports too; addresses are [`IpAddr`]s.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// The IP version of a route, rule, connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// AF_INET.
    Ipv4,
    /// AF_INET6.
    Ipv6,
}

impl Family {
    /// The family of an address.
    pub fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(_) => Family::Ipv4,
            IpAddr::V6(_) => Family::Ipv6,
        }
    }

    /// AF_INET or AF_INET6.
    pub fn number(self) -> u8 {
        match self {
            Family::Ipv4 => libc::AF_INET as u8,
            Family::Ipv6 => libc::AF_INET6 as u8,
        }
    }

    /// The family with an AF_ number; `None` for others than IPv4 and IPv6.
    pub fn from_number(number: u8) -> Option<Self> {
        match i32::from(number) {
            libc::AF_INET => Some(Family::Ipv4),
            libc::AF_INET6 => Some(Family::Ipv6),
            _ => None,
        }
    }
}

/// A MAC address.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String")]
#[serde(try_from = "String")]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// True for group addresses, broadcast included.
    pub fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<Mac> for String {
    fn from(mac: Mac) -> String {
        mac.to_string()
    }
}

impl TryFrom<String> for Mac {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut mac = [0u8; 6];
        let mut parts = text.split(':');
        for byte in &mut mac {
            *byte = parts
                .next()
                .and_then(|part| u8::from_str_radix(part, 16).ok())
                .ok_or_else(|| format!("{text} is no MAC address"))?;
        }
        if parts.next().is_some() {
            return Err(format!("{text} is no MAC address"));
        }
        Ok(Mac(mac))
    }
}

/// An address prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Prefix {
    /// The network address, as the kernel gives it.
    pub addr: IpAddr,
    /// The prefix length in bits.
    pub len: u8,
}

impl Prefix {
    /// The prefix that holds every address of a family.
    pub fn all(family: Family) -> Self {
        let addr = match family {
            Family::Ipv4 => IpAddr::from([0u8; 4]),
            Family::Ipv6 => IpAddr::from([0u8; 16]),
        };
        Prefix { addr, len: 0 }
    }

    /// True if the prefix holds the address.
    pub fn contains(&self, ip: IpAddr) -> bool {
        match (self.addr, ip) {
            (IpAddr::V4(net), IpAddr::V4(ip)) => {
                let shift = 32u32.saturating_sub(u32::from(self.len));
                net.to_bits().checked_shr(shift) == ip.to_bits().checked_shr(shift)
            }
            (IpAddr::V6(net), IpAddr::V6(ip)) => {
                let shift = 128u32.saturating_sub(u32::from(self.len));
                net.to_bits().checked_shr(shift) == ip.to_bits().checked_shr(shift)
            }
            _ => false,
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.len)
    }
}

/// A network interface (RTM_NEWLINK, `rtnl_fill_ifinfo`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Link {
    /// Interface index.
    pub ifindex: u32,
    /// Interface name.
    pub name: String,
    /// The driver kind of a virtual link (veth, bridge, vlan, bond, vrf, ppp, macsec...), `None` for hardware.
    pub kind: Option<String>,
    /// ARPHRD_ number: 1 is Ethernet, 512 PPP, 772 loopback.
    pub hw_type: u16,
    /// The MAC address, if it has one of 6 bytes.
    pub mac: Option<Mac>,
    /// MTU in bytes, without the L2 header.
    pub mtu: u32,
    /// Raw IFF_ flags.
    pub flags: u32,
    /// IFF_UP: the administrator wants it up.
    pub up: bool,
    /// IFF_RUNNING: operational.
    pub running: bool,
    /// IFLA_CARRIER: the wire is connected.
    pub carrier: bool,
    /// RFC 2863 operational state (IF_OPER_): 6 is up, 2 down, 0 unknown.
    pub oper_state: u8,
    /// The bridge, bond, VRF... that it belongs to.
    pub master: Option<u32>,
    /// The lower device (of a VLAN, macvlan) or the peer (of a veth in the same namespace).
    pub link: Option<u32>,
    /// Set when `link` counts in another network namespace.
    pub link_netnsid: Option<i32>,
    /// References that put the link into promiscuous mode (bridges do, tcpdump does).
    pub promiscuity: u32,
    /// Name of the root qdisc.
    pub qdisc: Option<String>,
    /// Attached XDP programs.
    pub xdp: Vec<XdpProg>,
    /// Transmit queues.
    pub tx_queues: u32,
    /// Receive queues.
    pub rx_queues: u32,
    /// Interface group.
    pub group: u32,
    /// What is particular to the kind.
    pub detail: LinkDetail,
    /// What is particular to being a port of the master.
    pub port: PortDetail,
}

impl Link {
    /// True for an Ethernet-framed link.
    pub fn is_ethernet(&self) -> bool {
        self.hw_type == 1
    }
}

/// An XDP program on a link (IFLA_XDP).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct XdpProg {
    /// Program id, 0 when the kernel does not tell.
    pub id: u32,
    /// How it is attached.
    pub mode: XdpMode,
}

/// Where an XDP program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum XdpMode {
    /// In the driver.
    Native,
    /// In the stack, after the skb is made.
    Generic,
    /// In the device.
    Offload,
}

/// What is particular to a kind of link (IFLA_INFO_DATA).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkDetail {
    /// Nothing that matters here.
    #[default]
    None,
    /// A VLAN.
    Vlan {
        /// VLAN identifier.
        id: u16,
        /// Tag protocol, 0x8100 or 0x88a8.
        protocol: u16,
    },
    /// A bridge.
    Bridge {
        /// vlan_filtering is on.
        vlan_filtering: bool,
        /// Spanning tree: 0 off, 1 kernel, 2 user space.
        stp_state: u32,
        /// Multiple spanning trees (BR_BOOLOPT_MST_ENABLE).
        mst: bool,
    },
    /// A bond.
    Bond {
        /// BOND_MODE_: 0 balance-rr, 1 active-backup, 2 balance-xor, 3 broadcast, 4 802.3ad, 5 balance-tlb, 6 balance-alb.
        mode: u8,
        /// The active slave of active-backup.
        active_slave: Option<u32>,
    },
    /// A VRF.
    Vrf {
        /// Its routing table.
        table: u32,
    },
}

/// What is particular to a port of a master (IFLA_INFO_SLAVE_DATA).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PortDetail {
    /// No port, or nothing that matters here.
    #[default]
    None,
    /// A bridge port.
    Bridge {
        /// BR_STATE_: 0 disabled, 1 listening, 2 learning, 3 forwarding, 4 blocking.
        state: u8,
        /// Hairpin mode.
        hairpin: bool,
        /// Isolated from other isolated ports.
        isolated: bool,
    },
    /// A bond slave.
    Bond {
        /// 0 active, 1 backup.
        state: u8,
        /// 0 up, 1 fail, 2 down, 3 back.
        mii_status: u8,
    },
}

/// A queueing discipline (RTM_NEWQDISC, `tc_fill_qdisc`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Qdisc {
    /// The interface.
    pub ifindex: u32,
    /// noqueue, fq_codel, htb, clsact...
    pub kind: String,
    /// Handle, major in the upper 16 bits.
    pub handle: u32,
    /// Parent class, 0xffffffff for root, 0xfffffff1 for ingress and clsact.
    pub parent: u32,
    /// Shared filter block of its ingress.
    pub ingress_block: Option<u32>,
    /// Shared filter block of its egress.
    pub egress_block: Option<u32>,
}

/// Parent of the ingress side of clsact, and of the ingress qdisc (TC_H_MIN_INGRESS).
pub const TC_INGRESS: u32 = 0xffff_fff2;
/// Parent of the egress side of clsact (TC_H_MIN_EGRESS).
pub const TC_EGRESS: u32 = 0xffff_fff3;

/// A tc filter (RTM_NEWTFILTER, `tcf_fill_node`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Filter {
    /// The interface.
    pub ifindex: u32,
    /// [`TC_INGRESS`], [`TC_EGRESS`], or the qdisc or class.
    pub parent: u32,
    /// bpf, matchall, flower, u32...
    pub kind: String,
    /// Chain index.
    pub chain: u32,
    /// Priority, lower runs first.
    pub priority: u16,
    /// EtherType it looks at, 0x0003 for all.
    pub protocol: u16,
    /// Filter handle.
    pub handle: u32,
    /// Name of a BPF filter (TCA_BPF_NAME).
    pub name: Option<String>,
    /// Program id of a BPF filter.
    pub prog_id: Option<u32>,
}

/// An interface address (RTM_NEWADDR).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Addr {
    /// The interface.
    pub ifindex: u32,
    /// The local address.
    pub local: IpAddr,
    /// Prefix length in bits.
    pub prefix_len: u8,
    /// The peer's address on a point-to-point link.
    pub peer: Option<IpAddr>,
    /// IPv4 broadcast address.
    pub broadcast: Option<IpAddr>,
    /// IFA_F_ flags.
    pub flags: u32,
    /// RT_SCOPE_.
    pub scope: u8,
}

/// One way out of a route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Hop {
    /// Output interface.
    pub oif: Option<u32>,
    /// Gateway.
    pub gateway: Option<IpAddr>,
    /// Weight minus one in a multipath route.
    pub weight: u8,
    /// RTNH_F_ONLINK (4) or 0. Whether a hop is dead or without carrier, its link tells.
    pub flags: u8,
}

/// A route (RTM_NEWROUTE).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Route {
    /// IP version.
    pub family: Family,
    /// Table: 254 main, 255 local.
    pub table: u32,
    /// Destination.
    pub dst: Prefix,
    /// Source prefix of a source-specific IPv6 route.
    pub src: Option<Prefix>,
    /// TOS of an IPv4 route.
    pub tos: u8,
    /// Metric, lower wins.
    pub priority: u32,
    /// RTN_: 1 unicast, 2 local, 3 broadcast, 6 blackhole, 7 unreachable, 8 prohibit.
    pub kind: u8,
    /// RTPROT_: who made it.
    pub protocol: u8,
    /// RT_SCOPE_.
    pub scope: u8,
    /// Preferred source address.
    pub prefsrc: Option<IpAddr>,
    /// Nexthop object, if it uses one.
    pub nexthop_id: Option<u32>,
    /// Path MTU metric in bytes.
    pub mtu: Option<u32>,
    /// Ways out: one, several for multipath, none for blackholes.
    pub hops: Vec<Hop>,
}

impl Route {
    /// The output interface of a route with one hop.
    pub fn oif(&self) -> Option<u32> {
        match self.hops.as_slice() {
            [hop] => hop.oif,
            _ => None,
        }
    }

    /// The gateway of a route with one hop.
    pub fn gateway(&self) -> Option<IpAddr> {
        match self.hops.as_slice() {
            [hop] => hop.gateway,
            _ => None,
        }
    }
}

/// A policy rule (RTM_NEWRULE, `fib_nl_fill_rule`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Rule {
    /// IP version.
    pub family: Family,
    /// Priority, lower is looked at first.
    pub priority: u32,
    /// FR_ACT_: 1 to table, 2 goto, 3 nop, 6 blackhole, 7 unreachable, 8 prohibit.
    pub action: u8,
    /// Table of a "to table" rule.
    pub table: u32,
    /// FIB_RULE_ flags: 2 inverts the selector.
    pub flags: u32,
    /// Source selector.
    pub src: Option<Prefix>,
    /// Destination selector.
    pub dst: Option<Prefix>,
    /// Input interface selector.
    pub iif: Option<String>,
    /// Output interface selector.
    pub oif: Option<String>,
    /// Mark and mask selector.
    pub fwmark: Option<(u32, u32)>,
    /// TOS selector.
    pub tos: u8,
    /// L4 protocol selector.
    pub ip_proto: Option<u8>,
    /// Source port range selector.
    pub sport: Option<(u16, u16)>,
    /// Destination port range selector.
    pub dport: Option<(u16, u16)>,
    /// Target priority of a goto rule.
    pub goto: Option<u32>,
    /// Looks into the table of the L3 master device.
    pub l3mdev: bool,
    /// User range selector: never matches forwarded packets.
    pub uid_range: Option<(u32, u32)>,
    /// suppress_prefixlength.
    pub suppress_prefix_len: Option<u32>,
    /// suppress_ifgroup.
    pub suppress_ifgroup: Option<u32>,
}

/// A nexthop object (RTM_NEWNEXTHOP).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Nexthop {
    /// Identifier.
    pub id: u32,
    /// IP version, `None` for groups.
    pub family: Option<Family>,
    /// Output interface.
    pub oif: Option<u32>,
    /// Gateway.
    pub gateway: Option<IpAddr>,
    /// Drops.
    pub blackhole: bool,
    /// RTNH_F_ flags.
    pub flags: u32,
    /// Members and their weights (minus one), empty for single nexthops.
    pub group: Vec<(u32, u8)>,
    /// 0 hash threshold, 1 resilient.
    pub group_type: u16,
}

/// A neighbour (RTM_NEWNEIGH).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Neigh {
    /// The interface.
    pub ifindex: u32,
    /// Its IP address.
    pub ip: IpAddr,
    /// Its link address.
    pub lladdr: Option<Mac>,
    /// NUD_ state bits.
    pub state: u16,
}

impl Neigh {
    /// True if packets may be sent to it (NUD_VALID: permanent, noarp, reachable, probe, stale, delay).
    pub fn is_valid(&self) -> bool {
        self.state & 0xde != 0
    }

    /// True if `self` and `other` send packets to the same place. Reachable, stale, delay and probe are one.
    pub fn same_outcome(&self, other: &Neigh) -> bool {
        self.ifindex == other.ifindex
            && self.ip == other.ip
            && self.is_valid() == other.is_valid()
            && (!self.is_valid() || self.lladdr == other.lladdr)
    }
}

/// An entry of a forwarding database (RTM_NEWNEIGH, AF_BRIDGE).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fdb {
    /// The port that the station is behind.
    pub ifindex: u32,
    /// The bridge; `None` for entries of the device itself (vxlan).
    pub master: Option<u32>,
    /// The station.
    pub mac: Mac,
    /// VLAN of a filtering bridge.
    pub vlan: Option<u16>,
    /// Remote end of a tunnel device.
    pub remote: Option<IpAddr>,
    /// The bridge's own address (NUD_PERMANENT).
    pub local: bool,
}

/// Forwarding switches of an interface (RTM_NEWNETCONF).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Netconf {
    /// IP version.
    pub family: Family,
    /// Interface index, -1 for "all", -2 for "default".
    pub ifindex: i32,
    /// `forwarding`.
    pub forwarding: Option<bool>,
    /// `rp_filter`: 0 off, 1 strict, 2 loose.
    pub rp_filter: Option<u32>,
    /// `mc_forwarding`.
    pub mc_forwarding: Option<bool>,
    /// `proxy_arp` or `proxy_ndp`.
    pub proxy_neigh: Option<bool>,
    /// `ignore_routes_with_linkdown`.
    pub ignore_linkdown: Option<bool>,
}

/// Source, destination, protocol and ports of one direction. For ICMP the ports are identifier and `type << 8 | code`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Tuple {
    /// Source address.
    pub src: IpAddr,
    /// Destination address, of the same family.
    pub dst: IpAddr,
    /// IP protocol number.
    pub proto: u8,
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
}

impl Tuple {
    /// The same conversation seen from the other end.
    pub fn inverse(self) -> Self {
        Tuple {
            src: self.dst,
            dst: self.src,
            proto: self.proto,
            sport: self.dport,
            dport: self.sport,
        }
    }

    /// The IP version.
    pub fn family(&self) -> Family {
        Family::of(self.src)
    }
}

impl fmt::Display for Tuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use std::net::SocketAddr;
        let proto = match i32::from(self.proto) {
            libc::IPPROTO_TCP => "tcp",
            libc::IPPROTO_UDP => "udp",
            _ => return write!(f, "proto {} {} > {}", self.proto, self.src, self.dst),
        };
        write!(
            f,
            "{proto} {} > {}",
            SocketAddr::new(self.src, self.sport),
            SocketAddr::new(self.dst, self.dport)
        )
    }
}

/// Status bits of a connection (enum ip_conntrack_status).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct CtStatus(pub u32);

#[allow(missing_docs)]
impl CtStatus {
    pub const EXPECTED: u32 = 1 << 0;
    pub const SEEN_REPLY: u32 = 1 << 1;
    pub const ASSURED: u32 = 1 << 2;
    pub const CONFIRMED: u32 = 1 << 3;
    pub const SRC_NAT: u32 = 1 << 4;
    pub const DST_NAT: u32 = 1 << 5;
    pub const SEQ_ADJUST: u32 = 1 << 6;
    pub const SRC_NAT_DONE: u32 = 1 << 7;
    pub const DST_NAT_DONE: u32 = 1 << 8;
    pub const DYING: u32 = 1 << 9;
    pub const FIXED_TIMEOUT: u32 = 1 << 10;
    pub const TEMPLATE: u32 = 1 << 11;
    pub const NAT_CLASH: u32 = 1 << 12;
    pub const HELPER: u32 = 1 << 13;
    pub const OFFLOAD: u32 = 1 << 14;
    pub const HW_OFFLOAD: u32 = 1 << 15;

    /// True if all of `bits` are set.
    pub fn has(self, bits: u32) -> bool {
        self.0 & bits == bits
    }

    /// True if any of `bits` is set.
    pub fn any(self, bits: u32) -> bool {
        self.0 & bits != 0
    }
}

/// Conntrack's view of a TCP connection (CTA_PROTOINFO_TCP).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TcpInfo {
    /// The state.
    pub state: TcpState,
    /// IP_CT_TCP_FLAG_ bits of the original direction: 0x08 liberal, 0x10 data unacknowledged, 0x20 maxack set.
    pub flags_orig: u8,
    /// The same for the reply direction.
    pub flags_reply: u8,
}

/// Be liberal in window checking (IP_CT_TCP_FLAG_BE_LIBERAL).
pub const TCP_FLAG_BE_LIBERAL: u8 = 0x08;
/// Data sent and not acknowledged (IP_CT_TCP_FLAG_DATA_UNACKNOWLEDGED).
pub const TCP_FLAG_DATA_UNACKNOWLEDGED: u8 = 0x10;
/// The highest acknowledgement is known (IP_CT_TCP_FLAG_MAXACK_SET).
pub const TCP_FLAG_MAXACK_SET: u8 = 0x20;

/// State of a TCP connection (enum tcp_conntrack).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum TcpState {
    None,
    SynSent,
    SynRecv,
    Established,
    FinWait,
    CloseWait,
    LastAck,
    TimeWait,
    Close,
    SynSent2,
    /// A number this crate does not know.
    Other(u8),
}

impl From<u8> for TcpState {
    fn from(number: u8) -> Self {
        match number {
            0 => TcpState::None,
            1 => TcpState::SynSent,
            2 => TcpState::SynRecv,
            3 => TcpState::Established,
            4 => TcpState::FinWait,
            5 => TcpState::CloseWait,
            6 => TcpState::LastAck,
            7 => TcpState::TimeWait,
            8 => TcpState::Close,
            9 => TcpState::SynSent2,
            other => TcpState::Other(other),
        }
    }
}

/// Packets and bytes of one direction (`nf_conntrack_acct`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CtCounters {
    /// Packets that the kernel saw.
    pub packets: u64,
    /// L3 bytes that the kernel saw.
    pub bytes: u64,
}

/// A tracked connection (`ctnetlink_fill_info`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Connection {
    /// CTA_ID: stable for the life of the connection, differs between connections of one tuple.
    pub id: u32,
    /// IP version.
    pub family: Family,
    /// IP protocol number.
    pub proto: u8,
    /// The tuple of the first packet, before translation.
    pub orig: Tuple,
    /// The tuple of the answers, after translation of the first packet.
    pub reply: Tuple,
    /// Status bits.
    pub status: CtStatus,
    /// Seconds until it expires; `None` where the kernel does not tell (DESTROY events).
    pub timeout_s: Option<u32>,
    /// Connection mark.
    pub mark: u32,
    /// Zone of both directions.
    pub zone: u16,
    /// Zone of the original direction only.
    pub zone_orig: Option<u16>,
    /// Zone of the reply direction only.
    pub zone_reply: Option<u16>,
    /// TCP state, if it is TCP and not ended.
    pub tcp: Option<TcpInfo>,
    /// Helper (ALG) of the connection, set explicitly or not.
    pub helper: Option<String>,
    /// It has a SYNPROXY extension.
    pub synproxy: bool,
    /// It has a sequence adjustment extension.
    pub seq_adjust: bool,
    /// It has labels, and at least one bit of them is set.
    pub labels: bool,
    /// Counters of the original direction, if accounting is on.
    pub counters_orig: Option<CtCounters>,
    /// Counters of the reply direction.
    pub counters_reply: Option<CtCounters>,
    /// Start, nanoseconds of the real-time clock, if time stamping is on.
    pub start_ns: Option<u64>,
    /// End, nanoseconds of the real-time clock.
    pub stop_ns: Option<u64>,
}

/// The event socket that lost messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Links, addresses, netconf, rules, nexthops, qdiscs, filters.
    Link,
    /// Neighbours and FDB.
    Neigh,
    /// Routes.
    Route,
    /// nftables.
    Nft,
    /// Connection tracking.
    Conntrack,
    /// IPsec policies and states.
    Xfrm,
}

/// Something changed in the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(clippy::large_enum_variant)]
pub enum Event {
    /// A link is new or changed.
    LinkChanged(Link),
    /// A link is gone (deleted, or moved to another namespace).
    LinkGone {
        /// Its index.
        ifindex: u32,
    },
    /// An address is new or changed.
    AddrChanged(Addr),
    /// An address is gone.
    AddrGone(Addr),
    /// A route is new or changed.
    RouteChanged(Route),
    /// A route is gone.
    RouteGone(Route),
    /// Routes changed, and it is not known which.
    RoutesUnknown,
    /// A policy rule is new or gone.
    RuleChanged(Rule),
    /// A nexthop object (or a bucket of it) is new, changed or gone.
    NexthopChanged {
        /// Its identifier.
        id: u32,
    },
    /// A neighbour is new, or its address or validity changed.
    NeighChanged(Neigh),
    /// A neighbour is gone.
    NeighGone(Neigh),
    /// An FDB entry is new or its station moved.
    FdbChanged(Fdb),
    /// An FDB entry is gone.
    FdbGone(Fdb),
    /// Qdiscs of a link changed.
    QdiscChanged {
        /// The link.
        ifindex: u32,
    },
    /// tc filters of a link changed.
    FilterChanged {
        /// The link.
        ifindex: u32,
    },
    /// Forwarding switches of an interface changed.
    NetconfChanged {
        /// The interface, -1 for "all", -2 for "default".
        ifindex: i32,
        /// IP version.
        family: Family,
    },
    /// The nftables ruleset changed in more than set elements.
    RulesetChanged {
        /// Its generation.
        generation: u32,
    },
    /// Elements of one nftables set changed, nothing else.
    SetElementsChanged {
        /// NFPROTO_ number of the table.
        family: u8,
        /// The table.
        table: String,
        /// The set.
        set: String,
    },
    /// An IPsec policy or state is new, changed or gone.
    XfrmChanged,
    /// A connection is gone.
    ConnectionDestroyed(Connection),
    /// A connection changed (state, status, mark, helper, labels).
    ConnectionUpdated(Connection),
    /// The kernel dropped messages: resynchronise.
    Overrun {
        /// The socket that lost them.
        source: Source,
    },
}
