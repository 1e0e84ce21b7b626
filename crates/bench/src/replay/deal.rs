// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which side sends which frame of a capture, and which frames cannot be replayed.
//!
//! An address is on one side. Who sends the first packet between two addresses that nobody has met is on the LAN, the other
//! beyond the WAN, as with tcpprep's `--auto=first`; who talks to an address that is known is on its other side.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::ControlFlow;

use freeway_lab::frame::sum16;
use freeway_lab::{Direction, Tape};
use serde::{Deserialize, Serialize};

use super::capture::Recorded;

/// Frames and bytes that are kept in memory, at most.
pub const FRAMES_MAX: usize = 1_000_000;
/// Their bytes.
pub const BYTES_MAX: u64 = 512 << 20;
/// Addresses on the LAN, each with a route; those beyond the WAN share one.
pub const NEAR_MAX: usize = 65_536;
/// The lab's MTU.
const MTU: usize = 1500;

const ETH_LEN: usize = 14;
const TAG_LEN: usize = 4;
const TYPE_IPV4: u16 = 0x0800;
const TYPE_IPV6: u16 = 0x86dd;
/// IEEE 802.1Q, 802.1ad, and an older number of the latter.
const TYPES_TAG: [u16; 3] = [0x8100, 0x88a8, 0x9100];
const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
const PORTS_LEN: usize = 4;

/// Why a frame is not replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Skip {
    /// Neither IPv4 nor IPv6.
    NotIp,
    /// The capture has only its beginning.
    CutShort,
    /// Lengths or versions that contradict each other.
    Malformed,
    /// The IPv4 header's.
    Checksum,
    /// Longer than the lab's MTU.
    TooLong,
    /// TTL or hop limit of 0 or 1.
    Expiring,
    /// To or from a group, or to all.
    Group,
    /// A loopback address.
    Loopback,
    /// A link-local address.
    LinkLocal,
    /// 0.0.0.0/8, ::, or an IPv4 address in an IPv6 one.
    Reserved,
    /// Between two addresses on one side.
    OneSide,
    /// One more address on the LAN.
    TooMany,
}

impl Skip {
    /// All, in the order of the result.
    pub const ALL: [Skip; 12] = [
        Skip::NotIp,
        Skip::CutShort,
        Skip::Malformed,
        Skip::Checksum,
        Skip::TooLong,
        Skip::Expiring,
        Skip::Group,
        Skip::Loopback,
        Skip::LinkLocal,
        Skip::Reserved,
        Skip::OneSide,
        Skip::TooMany,
    ];

    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Skip::NotIp => "neither IPv4 nor IPv6",
            Skip::CutShort => "cut short by the capture",
            Skip::Malformed => "malformed",
            Skip::Checksum => "wrong IPv4 header checksum",
            Skip::TooLong => "longer than 1,500 bytes of L3",
            Skip::Expiring => "TTL or hop limit of 0 or 1",
            Skip::Group => "multicast or broadcast",
            Skip::Loopback => "loopback address",
            Skip::LinkLocal => "link-local address",
            Skip::Reserved => "reserved address",
            Skip::OneSide => "between two addresses on one side",
            Skip::TooMany => "too many addresses on the LAN",
        }
    }
}

/// What a router could forward.
#[derive(Clone, Copy, Debug)]
struct Packet<'a> {
    ethertype: u16,
    /// Without padding.
    bytes: &'a [u8],
    source: IpAddr,
    destination: IpAddr,
    proto: u8,
    /// Of both ports, if there are any.
    ports: [u16; 2],
    tagged: bool,
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

fn octets<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

impl<'a> Packet<'a> {
    fn of(frame: &Recorded<'a>) -> Result<Self, Skip> {
        let mut at = ETH_LEN - 2;
        let mut ethertype = be16(frame.bytes, at).ok_or(Skip::Malformed)?;
        while TYPES_TAG.contains(&ethertype) {
            at += TAG_LEN;
            ethertype = be16(frame.bytes, at).ok_or(Skip::Malformed)?;
        }
        if ![TYPE_IPV4, TYPE_IPV6].contains(&ethertype) {
            return Err(Skip::NotIp);
        }
        if frame.bytes[0] & 1 == 1 {
            return Err(Skip::Group);
        }
        // its length is in the part that is there, but what it carries may not be
        if !frame.whole {
            return Err(Skip::CutShort);
        }
        let packet = frame.bytes.get(at + 2..).unwrap_or_default();
        let of = if ethertype == TYPE_IPV4 {
            Self::ipv4(packet)
        } else {
            Self::ipv6(packet)
        }?;
        let unfit = [of.source, of.destination].into_iter().find_map(unfit);
        unfit.map_or(
            Ok(Self {
                tagged: at + 2 > ETH_LEN,
                ..of
            }),
            Err,
        )
    }

    fn ipv4(packet: &'a [u8]) -> Result<Self, Skip> {
        let malformed = Skip::Malformed;
        let header: [u8; IPV4_LEN] = octets(packet, 0).ok_or(malformed)?;
        let header_len = usize::from(header[0] & 0xf) * 4;
        let length = be16(packet, 2).map_or(0, usize::from);
        let fits = header_len >= IPV4_LEN && length >= header_len && packet.len() >= length;
        if header[0] >> 4 != 4 || !fits {
            return Err(malformed);
        }
        if sum16(&packet[..header_len]) != 0xffff {
            return Err(Skip::Checksum);
        }
        let address = |at| octets::<4>(packet, at).map(|octets| Ipv4Addr::from(octets).into());
        let first = be16(packet, 6).is_some_and(|fragment| fragment & 0x1fff == 0);
        Self {
            ethertype: TYPE_IPV4,
            bytes: &packet[..length],
            source: address(12).ok_or(malformed)?,
            destination: address(16).ok_or(malformed)?,
            proto: header[9],
            ports: [0; 2],
            tagged: false,
        }
        .checked(header[8], first.then_some(header_len))
    }

    fn ipv6(packet: &'a [u8]) -> Result<Self, Skip> {
        let malformed = Skip::Malformed;
        let header: [u8; IPV6_LEN] = octets(packet, 0).ok_or(malformed)?;
        let length = IPV6_LEN + be16(packet, 4).map_or(0, usize::from);
        if header[0] >> 4 != 6 || packet.len() < length {
            return Err(malformed);
        }
        let address = |at| octets::<16>(packet, at).map(|octets| Ipv6Addr::from(octets).into());
        Self {
            ethertype: TYPE_IPV6,
            bytes: &packet[..length],
            source: address(8).ok_or(malformed)?,
            destination: address(24).ok_or(malformed)?,
            proto: header[6],
            ports: [0; 2],
            tagged: false,
        }
        .checked(header[7], Some(IPV6_LEN))
    }

    /// With ports, if it has any at `l4`.
    fn checked(mut self, ttl: u8, l4: Option<usize>) -> Result<Self, Skip> {
        if self.bytes.len() > MTU {
            return Err(Skip::TooLong);
        }
        if ttl <= 1 {
            return Err(Skip::Expiring);
        }
        let has_ports = [libc::IPPROTO_TCP, libc::IPPROTO_UDP].contains(&self.proto.into());
        let l4 = l4.filter(|_| has_ports);
        if let Some([a, b, c, d]) = l4.and_then(|at| octets::<PORTS_LEN>(self.bytes, at)) {
            self.ports = [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])];
        }
        Ok(self)
    }

    /// The same for both of its directions, and hardly for any other conversation.
    fn conversation(&self) -> u64 {
        let [source, destination] = self.ports;
        let mut ends = [(self.source, source), (self.destination, destination)];
        ends.sort_unstable();
        let mut hasher = DefaultHasher::new();
        (self.proto, ends).hash(&mut hasher);
        hasher.finish()
    }
}

/// What no router forwards from or to an address.
fn unfit(address: IpAddr) -> Option<Skip> {
    let (group, link_local, reserved) = match address {
        IpAddr::V4(v4) => (
            v4.is_multicast() || v4.is_broadcast(),
            v4.is_link_local(),
            v4.octets()[0] == 0,
        ),
        IpAddr::V6(v6) => (
            v6.is_multicast(),
            v6.is_unicast_link_local(),
            v6.is_unspecified() || v6.to_ipv4_mapped().is_some(),
        ),
    };
    let reasons = [
        (group, Skip::Group),
        (address.is_loopback(), Skip::Loopback),
        (link_local, Skip::LinkLocal),
        (reserved, Skip::Reserved),
    ];
    let mut reasons = reasons.into_iter();
    reasons.find_map(|(is, reason)| is.then_some(reason))
}

/// A capture, dealt to both sides.
#[derive(Debug, Default)]
pub struct Deal {
    /// What is replayed.
    pub tape: Tape,
    /// Addresses on the LAN.
    pub near: Vec<IpAddr>,
    /// How many are beyond the WAN.
    pub far: u64,
    /// Frames that were read.
    pub read: u64,
    /// Frames whose tags were taken off.
    pub untagged: u64,
    /// There was more than is kept.
    pub full: bool,
    sides: HashMap<IpAddr, Direction>,
    conversations: HashSet<u64>,
    skipped: [u64; Skip::ALL.len()],
    began_ns: Option<u64>,
}

impl Deal {
    /// Takes a frame, or counts why not; breaks if there is no room for another one.
    pub fn take(&mut self, frame: Recorded<'_>) -> ControlFlow<()> {
        let room = BYTES_MAX - self.tape.bytes().min(BYTES_MAX);
        if self.tape.len() >= FRAMES_MAX || room < (ETH_LEN + MTU) as u64 {
            self.full = true;
            return ControlFlow::Break(());
        }
        self.read += 1;
        let dealt = Packet::of(&frame).and_then(|packet| {
            let side = self.side(&packet)?;
            Ok((packet, side))
        });
        match dealt {
            Ok((packet, side)) => {
                let began_ns = *self.began_ns.get_or_insert(frame.at_ns);
                let at_ns = frame.at_ns.saturating_sub(began_ns);
                self.untagged += u64::from(packet.tagged);
                self.conversations.insert(packet.conversation());
                self.tape.push(side, at_ns, packet.ethertype, packet.bytes);
            }
            Err(reason) => self.skipped[reason as usize] += 1,
        }
        ControlFlow::Continue(())
    }

    /// Who sends a packet. Addresses that are met the first time get their sides.
    fn side(&mut self, packet: &Packet<'_>) -> Result<Direction, Skip> {
        let (source, destination) = (packet.source, packet.destination);
        let known = |address| self.sides.get(&address).copied();
        let from = match (known(source), known(destination)) {
            (Some(from), Some(to)) if from == to => return Err(Skip::OneSide),
            (Some(from), _) => from,
            (None, Some(to)) => opposite(to),
            (None, None) => Direction::Forward,
        };
        if source == destination {
            return Err(Skip::OneSide);
        }
        let sides = [(source, from), (destination, opposite(from))];
        let fresh = sides.map(|(address, side)| (address, side, known(address).is_none()));
        let nears = fresh
            .iter()
            .filter(|(_, side, new)| *new && *side == Direction::Forward);
        if self.near.len() + nears.count() > NEAR_MAX {
            return Err(Skip::TooMany);
        }
        for (address, side, _) in fresh.into_iter().filter(|(.., new)| *new) {
            self.sides.insert(address, side);
            match side {
                Direction::Forward => self.near.push(address),
                Direction::Reply => self.far += 1,
            }
        }
        Ok(from)
    }

    /// Pairs of ends, ports included.
    pub fn conversations(&self) -> u64 {
        self.conversations.len() as u64
    }

    /// How many frames were skipped, by reason; only those that were met.
    pub fn skipped(&self) -> impl Iterator<Item = (Skip, u64)> {
        let all = Skip::ALL.into_iter();
        all.map(|reason| (reason, self.skipped[reason as usize]))
            .filter(|(_, frames)| *frames > 0)
    }
}

fn opposite(direction: Direction) -> Direction {
    match direction {
        Direction::Forward => Direction::Reply,
        Direction::Reply => Direction::Forward,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNICAST: [u8; 12] = [2, 9, 9, 9, 9, 9, 2, 8, 8, 8, 8, 8];

    fn udp4(source: &str, destination: &str, ttl: u8) -> Vec<u8> {
        let octets = |text: &str| text.parse::<Ipv4Addr>().unwrap().octets();
        let mut packet = vec![0x45, 0, 0, 30, 0, 0, 0, 0, ttl, 17, 0, 0];
        packet.extend(octets(source));
        packet.extend(octets(destination));
        let sum = !sum16(&packet);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet.extend([0x10, 0, 0x20, 0, 0, 10, 0, 0, 7, 7]);
        packet
    }

    fn udp6(source: &str, destination: &str) -> Vec<u8> {
        let octets = |text: &str| text.parse::<Ipv6Addr>().unwrap().octets();
        let mut packet = vec![0x60, 0, 0, 0, 0, 8, 17, 64];
        packet.extend(octets(source));
        packet.extend(octets(destination));
        packet.extend([0x10, 0, 0x20, 0, 0, 8, 0, 0]);
        packet
    }

    fn framed(ethertype: &[u8], packet: &[u8]) -> Vec<u8> {
        [&UNICAST[..], ethertype, packet].concat()
    }

    fn ipv4(source: &str, destination: &str) -> Vec<u8> {
        framed(&[8, 0], &udp4(source, destination, 64))
    }

    fn ipv6(source: &str, destination: &str) -> Vec<u8> {
        framed(&[0x86, 0xdd], &udp6(source, destination))
    }

    fn deal(frames: &[Vec<u8>]) -> Deal {
        let mut deal = Deal::default();
        for (at_ns, bytes) in (1000..).zip(frames) {
            let flow = deal.take(Recorded {
                at_ns,
                bytes,
                whole: true,
            });
            assert!(flow.is_continue());
        }
        deal
    }

    fn reason(frame: &[u8]) -> Option<Skip> {
        let deal = deal(&[frame.to_vec()]);
        deal.skipped().next().map(|(reason, _)| reason)
    }

    #[test]
    fn who_sends_first_is_on_the_lan() {
        let deal = deal(&[
            ipv4("10.0.0.1", "192.0.2.1"),
            ipv4("192.0.2.1", "10.0.0.1"),
            // one that is known decides about the other
            ipv4("198.51.100.7", "10.0.0.1"),
            ipv4("192.0.2.1", "10.0.0.2"),
            ipv6("2001:db8::1", "2001:db8:1::1"),
            // both are on the LAN
            ipv4("10.0.0.1", "10.0.0.2"),
            ipv4("10.0.0.1", "10.0.0.1"),
        ]);
        let tape = &deal.tape;
        let [near, far] = [Direction::Forward, Direction::Reply].map(|side| tape.sent(side));
        assert_eq!((near, far, deal.read), (2, 3, 7));
        let expected: [IpAddr; 3] =
            ["10.0.0.1", "10.0.0.2", "2001:db8::1"].map(|text| text.parse().unwrap());
        assert_eq!(deal.near, expected);
        assert_eq!(deal.far, 3);
        // the ports of the second frame are not those of an answer
        assert_eq!(deal.conversations(), 5);
        assert_eq!(deal.skipped().collect::<Vec<_>>(), [(Skip::OneSide, 2)]);
        assert_eq!(tape.span_ns(), 4);
    }

    #[test]
    fn tags_and_padding_come_off() {
        let packet = udp4("10.0.0.1", "192.0.2.1", 64);
        let mut tagged = framed(&[0x88, 0xa8, 0, 7, 0x81, 0, 0, 5, 8, 0], &packet);
        tagged.extend([0; 20]);
        let deal = deal(&[tagged, framed(&[8, 0], &packet)]);
        assert_eq!((deal.untagged, deal.tape.len()), (1, 2));
        assert_eq!(deal.tape.frame(0), deal.tape.frame(1));
        assert_eq!(deal.tape.frame(0)[14..44], packet);
    }

    #[test]
    fn reasons() {
        let good = ipv4("10.0.0.1", "192.0.2.1");
        assert_eq!(reason(&good), None);
        assert_eq!(reason(&ipv6("2001:db8::1", "2001:db8::2")), None);
        let with = |at: usize, value: u8| {
            let mut frame = good.clone();
            frame[at] = value;
            frame
        };
        let summed = |ttl| framed(&[8, 0], &udp4("10.0.0.1", "192.0.2.1", ttl));
        for (frame, expected) in [
            (with(13, 6), Skip::NotIp),
            (with(14, 0x44), Skip::Malformed),
            (with(14, 0x65), Skip::Malformed),
            (with(17, 31), Skip::Malformed),
            (with(17, 19), Skip::Malformed),
            (with(24, 1), Skip::Checksum),
            (with(0, 3), Skip::Group),
            (summed(1), Skip::Expiring),
            (ipv4("10.0.0.1", "224.0.0.251"), Skip::Group),
            (ipv4("10.0.0.1", "255.255.255.255"), Skip::Group),
            (ipv4("127.0.0.1", "192.0.2.1"), Skip::Loopback),
            (ipv4("169.254.9.9", "192.0.2.1"), Skip::LinkLocal),
            (ipv4("10.0.0.1", "0.1.2.3"), Skip::Reserved),
            (ipv6("2001:db8::1", "ff02::fb"), Skip::Group),
            (ipv6("::1", "2001:db8::1"), Skip::Loopback),
            (ipv6("fe80::1", "2001:db8::1"), Skip::LinkLocal),
            (ipv6("::", "2001:db8::1"), Skip::Reserved),
            (ipv6("2001:db8::1", "::ffff:10.0.0.1"), Skip::Reserved),
        ] {
            assert_eq!(reason(&frame), Some(expected), "{frame:x?}");
        }
        let mut long = ipv6("2001:db8::1", "2001:db8::2");
        long.extend([0; 1500]);
        long[18..20].copy_from_slice(&1500u16.to_be_bytes());
        assert_eq!(reason(&long), Some(Skip::TooLong));
        let mut cut = Deal::default();
        let _ = cut.take(Recorded {
            at_ns: 0,
            bytes: &good[..30],
            whole: false,
        });
        assert_eq!(cut.skipped().collect::<Vec<_>>(), [(Skip::CutShort, 1)]);
    }

    #[test]
    fn short_frames_do_no_harm() {
        let tag = framed(&[0x81, 0, 0, 5, 8, 0], &udp4("10.0.0.1", "192.0.2.1", 64));
        for frame in [
            tag,
            ipv4("10.0.0.1", "192.0.2.1"),
            ipv6("2001:db8::1", "2001:db8::2"),
        ] {
            for length in 0..frame.len() {
                assert!(reason(&frame[..length]).is_some(), "{length}");
            }
            assert_eq!(reason(&frame), None);
        }
    }
}
