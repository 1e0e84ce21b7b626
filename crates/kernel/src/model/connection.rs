// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tracked connections.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::Family;

/// Source, destination, protocol and ports of one direction. What packets of other protocols have in the place of the
/// ports (`dataplane/l4.h`): of ICMP identifier and `type << 8 | code`, of ESP the SPI's halves, of GRE flags and
/// protocol.
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
        // an answer has the question's identifier
        let (sport, dport) = match i32::from(self.proto) {
            libc::IPPROTO_ICMP if self.is_echo() => (self.sport, self.dport ^ 8 << 8),
            libc::IPPROTO_ICMPV6 if self.is_echo() => (self.sport, self.dport ^ 1 << 8),
            // the same flags and protocol
            libc::IPPROTO_GRE => (self.sport, self.dport),
            _ => (self.dport, self.sport),
        };
        Tuple {
            src: self.dst,
            dst: self.src,
            proto: self.proto,
            sport,
            dport,
        }
    }

    /// Of ICMP or ICMPv6: a question or an answer of `ping`.
    pub fn is_echo(&self) -> bool {
        match i32::from(self.proto) {
            libc::IPPROTO_ICMP => matches!(self.dport, 0 | 0x0800),
            libc::IPPROTO_ICMPV6 => matches!(self.dport, 0x8000 | 0x8100),
            _ => false,
        }
    }

    /// True if the protocol has ports.
    pub fn has_ports(&self) -> bool {
        has_ports(self.proto)
    }

    /// True if conntrack has no more than addresses of the protocol, so that a connection may be that of many flows
    /// (`generic_pkt_to_tuple`; `gre_pkt_to_tuple` but for PPTP).
    pub fn is_of_addresses(&self) -> bool {
        matches!(i32::from(self.proto), libc::IPPROTO_ESP | libc::IPPROTO_GRE)
    }

    /// As conntrack has it.
    pub fn tracked(self) -> Self {
        match self.is_of_addresses() {
            true => Tuple {
                sport: 0,
                dport: 0,
                ..self
            },
            false => self,
        }
    }

    /// The IP version.
    pub fn family(&self) -> Family {
        Family::of(self.src)
    }
}

/// True of the protocols whose flows are told by ports.
pub(crate) fn has_ports(proto: u8) -> bool {
    matches!(i32::from(proto), libc::IPPROTO_TCP | libc::IPPROTO_UDP)
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

    /// True while packets have come one way only.
    pub fn one_way(self) -> bool {
        !self.any(Self::SEEN_REPLY)
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
