// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is known of a packet that the fast path could have forwarded, and what a rule may read of it.

use serde::Serialize;

use super::registers::{Bits, Field, Interface, Origin};
use crate::model::{CtStatus, Family, has_ports};

/// A packet of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    pub ip: Family,
    /// One that has flows.
    pub protocol: u8,
    pub state: PacketState,
}

/// Where in the stack a chain sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// IP hooks before connection tracking: no connection yet.
    BeforeConntrack,
    /// IP hooks at the very priority of connection tracking.
    AtConntrack,
    /// IP hooks behind it.
    AfterConntrack,
    /// Device and bridge hooks: the frame may be tagged, a connection attached or not.
    Frame,
}

/// What reading a fact of the packet gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// A value.
    Value(Bits, Option<Origin>),
    /// Nothing: the rule ends (NFT_BREAK).
    Break,
    /// Something that differs between packets of one flow.
    Varies(&'static str),
}

use Reading::{Break, Value, Varies};

/// NF_CT_STATE_INVALID_BIT and its like, as `ct state` gives them, in host byte order.
pub const STATE_INVALID: u32 = 1;
const STATE_ESTABLISHED: u32 = 2;
const STATE_NEW: u32 = 8;
const STATE_UNTRACKED: u32 = 64;

fn unknown(len: usize) -> Reading {
    Value(Bits::unknown(len), None)
}

fn constant(value: &[u8]) -> Reading {
    Value(Bits::constant(value), None)
}

impl Packet {
    /// The connection state bit at a stage, if it is known.
    pub fn ct_state(&self, stage: Stage) -> Option<u32> {
        match (stage, self.state) {
            (Stage::BeforeConntrack, PacketState::Untracked) => None,
            (Stage::BeforeConntrack, _) => Some(STATE_INVALID),
            (Stage::AtConntrack | Stage::Frame, _) => None,
            (Stage::AfterConntrack, PacketState::Established) => Some(STATE_ESTABLISHED),
            (Stage::AfterConntrack, PacketState::New) => Some(STATE_NEW),
            (Stage::AfterConntrack, PacketState::Untracked) => Some(STATE_UNTRACKED),
        }
    }

    /// True if there surely is no connection at a stage.
    fn unconnected(&self, stage: Stage) -> bool {
        stage == Stage::BeforeConntrack
            || (stage == Stage::AfterConntrack && self.state == PacketState::Untracked)
    }

    /// Reads a connection's fact (`nft_ct_get_eval`).
    pub fn ct(&self, key: u32, stage: Stage) -> Reading {
        const NAMES: [&str; 2] = ["ct bytes, packets or average size", "ct expiration"];
        if key == 0 {
            return match self.ct_state(stage) {
                Some(bit) => constant(&bit.to_ne_bytes()),
                None => unknown(4),
            };
        }
        if self.unconnected(stage) {
            return Break;
        }
        let exact = stage == Stage::AfterConntrack;
        match key {
            1 | 7 | 10 if exact && key != 1 => constant(&[match (key, self.ip) {
                (10, _) => self.protocol,
                (_, Family::Ipv4) => 2,
                (_, Family::Ipv6) => 10,
            }]),
            1 | 7 | 10 => unknown(1),
            2 if exact => Value(self.ct_status(), None),
            // mark, helper, addresses, ports, labels, zone, id.
            2 | 3 | 23 => unknown(4),
            6 | 8 | 9 | 13 | 19..=22 => unknown(16),
            11 | 12 | 17 => unknown(2),
            5 => Varies(NAMES[1]),
            14..=16 => Varies(NAMES[0]),
            4 => Varies("ct secmark"),
            _ => Varies("an unknown ct key"),
        }
    }

    fn ct_status(&self) -> Bits {
        let (mut set, mut clear) = (0, CtStatus::DYING | CtStatus::TEMPLATE);
        match self.state {
            PacketState::Established => set |= CtStatus::SEEN_REPLY | CtStatus::CONFIRMED,
            PacketState::New => clear |= CtStatus::SEEN_REPLY | CtStatus::ASSURED,
            PacketState::Untracked => {}
        }
        Bits {
            value: set.to_ne_bytes().to_vec(),
            known: (set | clear).to_ne_bytes().to_vec(),
            varies: vec![0; 4],
        }
    }

    /// Reads a fact of the packet's surroundings (`nft_meta_get_eval`).
    pub fn meta(&self, key: u32, stage: Stage) -> Reading {
        let exact = stage != Stage::Frame;
        let interface = |len, input, name| {
            let origin = Origin::Interface(Interface { input, name });
            Value(Bits::unknown(len), Some(origin))
        };
        let name = |input| interface(16, input, true);
        let index = |input| interface(4, input, false);
        let (nfproto, ethertype) = match self.ip {
            Family::Ipv4 => (2, 0x0800u16),
            Family::Ipv6 => (10, 0x86dd),
        };
        match key {
            0 => Varies("meta length"),
            1 if exact => constant(&ethertype.to_be_bytes()),
            15 if exact => constant(&[nfproto]),
            16 if exact => constant(&[self.protocol]),
            1 => unknown(2),
            15 | 16 | 19 => unknown(1),
            // priority (of TOS, which is guarded; VLANs whose tags give one take no part), mark, realm, groups.
            2 | 3 | 13 | 21 | 22 | 33 => unknown(4),
            4 => index(true),
            5 => index(false),
            6 => name(true),
            7 => name(false),
            // iftype, oiftype, pvid, vproto.
            8 | 9 | 28 | 29 => unknown(2),
            // The user or group of a socket: a forwarded packet has none.
            10 | 11 => Break,
            // Bridge port names, kinds, sdifname; hwaddr.
            17 | 18 | 26 | 27 | 34 => unknown(16),
            36 => unknown(6),
            14 => Varies("meta secmark"),
            20 => Varies("meta cpu"),
            23 => Varies("meta cgroup"),
            24 => Varies("meta random"),
            // Secpath: what comes in from the wire has none, what was decrypted has one.
            25 => unknown(1),
            30..=32 => Varies("meta time"),
            _ => Varies("an unknown meta key"),
        }
    }

    /// Reads a fact of the route (`nft_rt_get_eval`).
    pub fn rt(&self, key: u32) -> Reading {
        match key {
            0 | 1 => unknown(4),
            2 => unknown(16),
            3 => unknown(2),
            // A route into IPsec: its flows leave as ESP and are not learned.
            4 => unknown(1),
            _ => Varies("an unknown rt key"),
        }
    }

    /// Reads an option or extension header: the fast path takes no packet with extension headers or IP options.
    pub fn exthdr(&self, op: u32, present: bool) -> Reading {
        match (op, present) {
            (0 | 2, true) => constant(&[0]),
            (0 | 2, false) => Break,
            (1, _) if self.protocol != libc::IPPROTO_TCP as u8 => {
                if present {
                    constant(&[0])
                } else {
                    Break
                }
            }
            (1, _) => Varies("a TCP option"),
            (3, _) => Break,
            _ => Varies("an option"),
        }
    }

    /// Reads bytes of the packet (`nft_payload_eval`).
    pub fn payload(&self, base: u32, offset: u32, len: u32, stage: Stage) -> Reading {
        let byte = match base {
            // The L2 header is guarded, of tags protocol and VLAN, not priority and DEI.
            0 => |_: &Packet, at: u32| match at {
                14 | 18 => (0, 0, 0xf0),
                0..22 => (0, 0, 0),
                _ => (0, 0, 0xff),
            },
            1 => Packet::network_byte,
            2 => Packet::transport_byte,
            _ => return Varies("an inner header"),
        };
        let mut bits = Bits::default();
        for at in offset..offset.saturating_add(len.min(64)) {
            let (value, known, varies) = byte(self, at);
            match stage {
                Stage::Frame => bits.push(0, 0, varies),
                _ => bits.push(value, known, varies),
            }
        }
        let origin = (stage != Stage::Frame).then(|| self.field(base, offset, len));
        Value(bits, origin.flatten())
    }

    /// The field that begins where a load begins, and how much of it the load takes.
    fn field(&self, base: u32, offset: u32, len: u32) -> Option<Origin> {
        let (field, size) = match (base, self.ip, offset) {
            (1, Family::Ipv4, 12) => (Field::Source, 4),
            (1, Family::Ipv4, 16) => (Field::Destination, 4),
            (1, Family::Ipv6, 8) => (Field::Source, 16),
            (1, Family::Ipv6, 24) => (Field::Destination, 16),
            (2, _, 0) if has_ports(self.protocol) => (Field::SourcePort, 2),
            (2, _, 2) if has_ports(self.protocol) => (Field::DestinationPort, 2),
            _ => return None,
        };
        if !(1..=size).contains(&len) {
            return None;
        }
        let bits = len as u8 * 8;
        Some(Origin::Field { field, bits })
    }

    /// Bytes of a field.
    pub fn field_len(&self, field: Field) -> usize {
        match (field, self.ip) {
            (Field::SourcePort | Field::DestinationPort, _) => 2,
            (_, Family::Ipv4) => 4,
            (_, Family::Ipv6) => 16,
        }
    }

    /// A byte of the IP header: value, known bits, bits that vary within a flow.
    fn network_byte(&self, at: u32) -> (u8, u8, u8) {
        const FREE: (u8, u8, u8) = (0, 0, 0);
        const VARIES: (u8, u8, u8) = (0, 0, 0xff);
        match (self.ip, at) {
            // Version and header length: no options.
            (Family::Ipv4, 0) => (0x45, 0xff, 0),
            // DSCP is guarded, ECN is not.
            (Family::Ipv4, 1) => (0, 0, 0x03),
            // No fragment; don't-fragment may vary.
            (Family::Ipv4, 6) => (0, 0x3f, 0xc0),
            (Family::Ipv4, 7) => (0, 0xff, 0),
            (Family::Ipv4, 9) | (Family::Ipv6, 6) => (self.protocol, 0xff, 0),
            // TTL and hop limit are guarded.
            (Family::Ipv4, 8 | 12..=19) | (Family::Ipv6, 7..=39) => FREE,
            (Family::Ipv6, 0) => (0x60, 0xf0, 0),
            // Two bits of DSCP, then ECN and the flow label, which is guarded.
            (Family::Ipv6, 1) => (0, 0, 0x30),
            (Family::Ipv6, 2 | 3) => FREE,
            // Total length, identification, checksum, payload length, what lies behind.
            _ => VARIES,
        }
    }

    /// A byte behind the IP header: what tells flows apart there (`dataplane/l4.h`) is the same in each packet.
    fn transport_byte(&self, at: u32) -> (u8, u8, u8) {
        const FREE: (u8, u8, u8) = (0, 0, 0);
        const VARIES: (u8, u8, u8) = (0, 0, 0xff);
        match (i32::from(self.protocol), at) {
            // Type and identifier; the code is 0. Checksum and sequence number vary.
            (libc::IPPROTO_ICMP | libc::IPPROTO_ICMPV6, 0 | 4 | 5) => FREE,
            (libc::IPPROTO_ICMP | libc::IPPROTO_ICMPV6, 1) => (0, 0xff, 0),
            (libc::IPPROTO_ICMP | libc::IPPROTO_ICMPV6, _) => VARIES,
            (_, 0..=3) => FREE,
            // ACK without SYN, RST, FIN; PSH, URG, ECE, CWR vary.
            (libc::IPPROTO_TCP, 13) => (0x10, 0x17, 0xe8),
            _ => VARIES,
        }
    }

    /// True if a rule may write these bytes: what it writes is guarded, and shows in the frame. What differs within a
    /// flow (ECN) has to be written back: two frames that happen to have what a rule writes would not show it.
    pub fn may_write(&self, base: u32, offset: u32, written: &Bits) -> bool {
        let end = offset.saturating_add(written.varies.len() as u32);
        let written_back = (offset..).zip(&written.varies).all(|(at, varies)| {
            let (_, _, own) = self.network_byte(at);
            own & !varies == 0
        });
        // DSCP, and TTL or hop limit, written as the byte or the word that holds it.
        let (first, last) = match self.ip {
            Family::Ipv4 => (8, 10),
            Family::Ipv6 => (6, 8),
        };
        base == 1 && written_back && (end <= 2 || (offset >= first && end <= last))
    }
}

/// What connection tracking says of the packet that is followed through the ruleset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PacketState {
    /// Of an established connection, translated if it is to be.
    Established,
    /// Of a connection that has seen no answer (one-way UDP).
    New,
    /// Not tracked.
    Untracked,
}

/// The protocols that have flows: TCP, UDP, GRE, ESP, and the family's ICMP, of which echoes.
pub(super) const fn protocols(ip: Family) -> [u8; 5] {
    let icmp = match ip {
        Family::Ipv4 => libc::IPPROTO_ICMP,
        Family::Ipv6 => libc::IPPROTO_ICMPV6,
    };
    [
        libc::IPPROTO_TCP as u8,
        libc::IPPROTO_UDP as u8,
        libc::IPPROTO_GRE as u8,
        libc::IPPROTO_ESP as u8,
        icmp as u8,
    ]
}
