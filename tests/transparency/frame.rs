// SPDX-License-Identifier: MIT OR Apache-2.0
//! One frame: what it is to be, and its bytes.

use std::net::{IpAddr, SocketAddr};

use freeway_lab::frame::sum16;

use crate::flow::{ESP, GRE, ICMP, ICMP6, TCP, UDP, Way};
use freeway_testkit::random::Random;

pub const ETH: usize = 14;
/// Begins a payload that has room for it; the number of the frame follows.
pub const TAG: [u8; 4] = *b"FWDF";
/// The shortest frame on a wire, without FCS.
const WIRE_MIN: usize = 60;
/// The longest that a host sends.
const HOST_MTU: usize = 1508;

/// How a checksum is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sum {
    Right,
    /// None at all (UDP).
    None,
    Wrong,
    /// The sum of what comes in gives 0x0000.
    InZero,
    /// The same, sent as 0xffff.
    InOnes,
    /// The sum of what leaves gives 0x0000.
    OutZero,
}

/// A frame to be built; all that is random about it is in here or follows from its number.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Index of its flow.
    pub flow: usize,
    pub back: bool,
    pub number: u32,
    pub proto: u8,
    pub v6: bool,
    pub payload: usize,
    pub ttl: u8,
    pub tos: u8,
    pub id: u16,
    /// DF and the reserved bit.
    pub flags: u16,
    pub ip_sum: Sum,
    pub l4_sum: Sum,
    pub ip_options: Vec<u8>,
    pub extension: Option<u8>,
    pub label: u32,
    pub tcp_flags: u8,
    pub tcp_options: bool,
    pub seq: u32,
    pub reserved: u8,
    pub doff_bad: bool,
    pub udp_len: Option<i32>,
    pub total_len_bad: bool,
    pub pad: usize,
    /// Not padded to what a wire needs.
    pub bare: bool,
    pub mac_foreign: bool,
    pub mac_roams: bool,
    pub split: bool,
    /// Tags (TPID, TCI) before the IP header.
    pub tags: Vec<(u16, u16)>,
}

impl Plan {
    pub fn plain(flow: usize, back: bool, number: u32, proto: u8, v6: bool) -> Self {
        Self {
            flow,
            back,
            number,
            proto,
            v6,
            payload: 64,
            ttl: 64,
            tos: 0,
            id: number as u16,
            flags: 0x4000,
            ip_sum: Sum::Right,
            l4_sum: Sum::Right,
            ip_options: Vec::new(),
            extension: None,
            label: 0,
            tcp_flags: 0x10,
            tcp_options: false,
            seq: 1,
            reserved: 0,
            doff_bad: false,
            udp_len: None,
            total_len_bad: false,
            pad: 0,
            bare: false,
            mac_foreign: false,
            mac_roams: false,
            split: false,
            tags: Vec::new(),
        }
    }

    fn l4_header(&self) -> usize {
        match self.proto {
            TCP if self.tcp_options => 32,
            TCP => 20,
            _ => 8,
        }
    }

    /// Without room for its number.
    pub fn is_short(&self) -> bool {
        self.payload < 8
    }

    /// The payload that makes the packet as long as this.
    pub fn payload_for(&self, len_l3: usize) -> usize {
        let l3 = if self.v6 { 40 } else { 20 };
        let extension = if self.extension.is_some() { 8 } else { 0 };
        len_l3 - l3 - extension - self.ip_options.len() - self.l4_header()
    }

    /// The L4 header and what follows.
    fn segment(&self, way: &Way, rng: &mut Random) -> Vec<u8> {
        let (source, destination) = way.tuple;
        let len = self.l4_header() + self.payload;
        let mut l4 = Vec::with_capacity(len);
        let (upper, lower) = (
            source.port().to_be_bytes(),
            destination.port().to_be_bytes(),
        );
        let mut covered = len;
        let mut check_at = None;
        match self.proto {
            TCP => {
                l4.extend([upper, lower].concat());
                self.tcp_header(&mut l4, rng);
                check_at = Some(16);
            }
            ICMP | ICMP6 => {
                let question = if self.v6 { 128 } else { 8 };
                let answer = if self.v6 { 129 } else { 0 };
                l4.extend([if self.back { answer } else { question }, 0, 0, 0]);
                l4.extend(upper);
                l4.extend((self.seq as u16).to_be_bytes());
                check_at = Some(2);
            }
            // a key
            GRE => {
                l4.extend([0x20, 0, upper[0], upper[1]]);
                l4.extend(self.seq.to_be_bytes());
            }
            ESP => {
                l4.extend([upper, lower].concat());
                l4.extend(self.seq.to_be_bytes());
            }
            _ => {
                let said = (len as i32 + self.udp_len.unwrap_or(0)).max(0);
                covered = (said as usize).clamp(8, len);
                l4.extend([upper, lower].concat());
                l4.extend((said as u16).to_be_bytes());
                l4.extend([0, 0]);
                check_at = Some(6);
            }
        }
        let payload = l4.len();
        l4.resize(len, 0);
        for chunk in l4[payload..].chunks_mut(8) {
            chunk.copy_from_slice(&rng.draw().to_be_bytes()[..chunk.len()]);
        }
        if !self.is_short() {
            l4[payload..payload + 4].copy_from_slice(&TAG);
            l4[payload + 4..payload + 8].copy_from_slice(&self.number.to_be_bytes());
        }
        let Some(check_at) = check_at else {
            return l4;
        };
        let pseudo = |tuple: (SocketAddr, SocketAddr), l4: &[u8]| match self.proto {
            ICMP => sum16(l4),
            proto => pseudo_sum(tuple.0.ip(), tuple.1.ip(), proto, l4),
        };
        let corner = matches!(self.l4_sum, Sum::InZero | Sum::InOnes | Sum::OutZero);
        if corner && self.payload >= 10 && covered == len {
            l4[payload + 8..payload + 10].fill(0);
            let sum = if self.l4_sum == Sum::OutZero {
                let (source, destination) = way.leaves_as;
                let mut out = l4.clone();
                let (upper, lower) = (
                    source.port().to_be_bytes(),
                    destination.port().to_be_bytes(),
                );
                match self.proto {
                    ICMP | ICMP6 => out[4..6].copy_from_slice(&upper),
                    _ => out[0..4].copy_from_slice(&[upper, lower].concat()),
                }
                pseudo(way.leaves_as, &out)
            } else {
                pseudo(way.tuple, &l4)
            };
            l4[payload + 8..payload + 10].copy_from_slice(&(0xffff - sum).to_be_bytes());
        }
        let sum = pseudo(way.tuple, &l4[..covered]);
        let check = match self.l4_sum {
            Sum::None if self.proto == UDP => 0,
            Sum::Wrong => !sum ^ (1 << rng.below(16)),
            Sum::InOnes if !sum == 0 => 0xffff,
            _ if !sum == 0 && self.proto == UDP => 0xffff,
            _ => !sum,
        };
        l4[check_at..check_at + 2].copy_from_slice(&check.to_be_bytes());
        l4
    }

    fn tcp_header(&self, l4: &mut Vec<u8>, rng: &mut Random) {
        let (own, other) = if self.back {
            (0x2000_0000u32, 0x1000_0000u32)
        } else {
            (0x1000_0000, 0x2000_0000)
        };
        let ack = if self.tcp_flags & 0x10 == 0 {
            0
        } else {
            other + 1
        };
        let mut doff = (self.l4_header() as u8 / 4) << 4;
        if self.doff_bad {
            doff = 0x40;
        }
        l4.extend((own.wrapping_add(self.seq)).to_be_bytes());
        l4.extend(ack.to_be_bytes());
        l4.extend([doff | self.reserved, self.tcp_flags, 0xff, 0xff, 0, 0]);
        let urgent: u16 = if self.tcp_flags & 0x20 == 0 { 0 } else { 7 };
        l4.extend(urgent.to_be_bytes());
        if self.tcp_options {
            l4.extend([1, 1, 8, 10]);
            l4.extend((rng.draw() as u32).to_be_bytes());
            l4.extend(0u32.to_be_bytes());
        }
    }

    fn ethernet(&self, way: &Way) -> Vec<u8> {
        let (mut to, mut from) = (way.to_mac, way.from_mac);
        if self.mac_foreign {
            to[5] ^= 0x40;
        }
        if self.mac_roams {
            // Never the same twice, or Freeway would learn it.
            from[1..4].copy_from_slice(&self.number.to_be_bytes()[1..]);
        }
        let mut frame = [to, from].concat();
        for (tpid, tci) in &self.tags {
            frame.extend(tpid.to_be_bytes());
            frame.extend(tci.to_be_bytes());
        }
        let kind: u16 = if self.v6 { 0x86dd } else { 0x0800 };
        frame.extend(kind.to_be_bytes());
        frame
    }

    fn ipv4(&self, way: &Way, l4: &[u8], fragment: u16) -> Vec<u8> {
        let header = |tuple: (SocketAddr, SocketAddr), id: u16, ttl: u8, check: u16| {
            let len = 20 + self.ip_options.len();
            let mut total = len + l4.len();
            if self.total_len_bad {
                total += 200;
            }
            let mut ip = vec![0x40 | (len / 4) as u8, self.tos];
            ip.extend((total as u16).to_be_bytes());
            ip.extend(id.to_be_bytes());
            ip.extend((self.flags | fragment).to_be_bytes());
            ip.extend([ttl, self.proto]);
            ip.extend(check.to_be_bytes());
            for address in [tuple.0.ip(), tuple.1.ip()] {
                if let IpAddr::V4(address) = address {
                    ip.extend(address.octets());
                }
            }
            ip.extend(&self.ip_options);
            ip
        };
        let id = match self.ip_sum {
            Sum::InZero | Sum::InOnes => 0xffff - sum16(&header(way.tuple, 0, self.ttl, 0)),
            Sum::OutZero => {
                let ttl = self.ttl.saturating_sub(1);
                0xffff - sum16(&header(way.leaves_as, 0, ttl, 0))
            }
            _ => self.id,
        };
        let mut check = !sum16(&header(way.tuple, id, self.ttl, 0));
        match self.ip_sum {
            Sum::Wrong => check ^= 0x0400,
            Sum::InOnes if check == 0 => check = 0xffff,
            _ => {}
        }
        header(way.tuple, id, self.ttl, check)
    }

    fn ipv6(&self, way: &Way, l4: &[u8], fragment: Option<u16>) -> Vec<u8> {
        let mut extension = Vec::new();
        let mut next = self.proto;
        if let Some(offset) = fragment {
            extension.extend([next, 0]);
            extension.extend(offset.to_be_bytes());
            extension.extend(self.number.to_be_bytes());
            next = 44;
        } else if let Some(kind) = self.extension {
            // PadN
            extension.extend([next, 0, 1, 4, 0, 0, 0, 0]);
            next = kind;
        }
        let mut len = l4.len() + extension.len();
        if self.total_len_bad {
            len += 200;
        }
        let mut ip = Vec::new();
        ip.extend((6u32 << 28 | u32::from(self.tos) << 20 | self.label).to_be_bytes());
        ip.extend((len as u16).to_be_bytes());
        ip.extend([next, self.ttl]);
        for address in [way.tuple.0.ip(), way.tuple.1.ip()] {
            if let IpAddr::V6(address) = address {
                ip.extend(address.octets());
            }
        }
        ip.extend(extension);
        ip
    }

    /// The frames; two if it is fragmented.
    pub fn frames(&self, way: &Way) -> Vec<Vec<u8>> {
        let mut rng = Random(u64::from(self.number) << 32 | u64::from(self.id));
        let l4 = self.segment(way, &mut rng);
        let pieces: Vec<(&[u8], u16, bool)> = if self.split && l4.len() >= 32 {
            let at = (l4.len() / 2).next_multiple_of(8);
            vec![(&l4[..at], 0, true), (&l4[at..], at as u16, false)]
        } else {
            vec![(&l4, 0, false)]
        };
        let fragmented = pieces.len() > 1;
        let frame = |(piece, offset, more): (&[u8], u16, bool)| {
            let mut frame = self.ethernet(way);
            if self.v6 {
                frame.extend(self.ipv6(way, piece, fragmented.then_some(offset | u16::from(more))));
            } else {
                frame.extend(self.ipv4(way, piece, (offset / 8) | (u16::from(more) << 13)));
            }
            frame.extend(piece);
            let wire = if self.bare { 0 } else { WIRE_MIN };
            let least = wire.max(frame.len() + self.pad).min(ETH + HOST_MTU);
            while frame.len() < least {
                frame.push(0xa5);
            }
            frame
        };
        pieces.into_iter().map(frame).collect()
    }
}

/// The ones' complement sum of pseudo header and segment.
pub fn pseudo_sum(source: IpAddr, destination: IpAddr, proto: u8, l4: &[u8]) -> u16 {
    let mut bytes = Vec::with_capacity(l4.len() + 36);
    for address in [source, destination] {
        match address {
            IpAddr::V4(address) => bytes.extend(address.octets()),
            IpAddr::V6(address) => bytes.extend(address.octets()),
        }
    }
    bytes.extend([0, proto]);
    bytes.extend((l4.len() as u16).to_be_bytes());
    bytes.extend(l4);
    sum16(&bytes)
}

/// A frame without tags, read slowly.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    pub bytes: &'a [u8],
    pub v6: bool,
    pub proto: u8,
    /// Where the L4 header begins; extension headers are not followed.
    pub l4: usize,
    pub fragment: bool,
}

impl<'a> View<'a> {
    /// IPv4 or IPv6 with all of its header.
    pub fn of(bytes: &'a [u8]) -> Option<Self> {
        match bytes.get(12..14)? {
            [8, 0] if bytes.len() >= 34 => Some(Self {
                bytes,
                v6: false,
                proto: bytes[23],
                l4: ETH + usize::from(bytes[14] & 15) * 4,
                fragment: u16::from_be_bytes([bytes[20], bytes[21]]) & 0x3fff != 0,
            }),
            [0x86, 0xdd] if bytes.len() >= 54 => Some(Self {
                bytes,
                v6: true,
                proto: bytes[20],
                l4: 54,
                fragment: false,
            }),
            _ => None,
        }
    }

    /// Where what tells a flow lies behind the IP header, ports or what is in their place, of each end.
    pub fn numbers(&self) -> Option<[usize; 2]> {
        if self.fragment || self.bytes.len() < self.l4 + 8 {
            return None;
        }
        let echo = |types: [u8; 2]| {
            let is = types.contains(&self.bytes[self.l4]) && self.bytes[self.l4 + 1] == 0;
            is.then_some([self.l4 + 4; 2])
        };
        match self.proto {
            TCP | UDP | ESP => Some([self.l4, self.l4 + 2]),
            GRE => Some([self.l4 + 2; 2]),
            ICMP if !self.v6 => echo([8, 0]),
            ICMP6 if self.v6 => echo([128, 129]),
            _ => None,
        }
    }

    /// Where the L4 checksum is.
    pub fn check(&self) -> Option<usize> {
        match self.proto {
            TCP => Some(self.l4 + 16),
            UDP => Some(self.l4 + 6),
            ICMP | ICMP6 => Some(self.l4 + 2),
            _ => None,
        }
    }

    pub fn tuple(&self) -> Option<(SocketAddr, SocketAddr)> {
        let number = |at: usize| u16::from_be_bytes([self.bytes[at], self.bytes[at + 1]]);
        let [from, to] = self.numbers()?.map(number);
        let [source, destination] = self.addresses();
        Some((
            SocketAddr::new(source, from),
            SocketAddr::new(destination, to),
        ))
    }

    /// Where both addresses are.
    pub fn address_bytes(&self) -> std::ops::Range<usize> {
        if self.v6 { 22..54 } else { 26..34 }
    }

    fn addresses(&self) -> [IpAddr; 2] {
        let (at, len) = if self.v6 { (22, 16) } else { (26, 4) };
        [at, at + len].map(|at| {
            let bytes = &self.bytes[at..at + len];
            match <[u8; 4]>::try_from(bytes) {
                Ok(bytes) => bytes.into(),
                Err(_) => <[u8; 16]>::try_from(bytes).unwrap().into(),
            }
        })
    }

    /// As the IP header tells it.
    pub fn len_l3(&self) -> usize {
        let at = if self.v6 { 18 } else { 16 };
        let len = u16::from_be_bytes([self.bytes[at], self.bytes[at + 1]]);
        usize::from(len) + if self.v6 { 40 } else { 0 }
    }

    /// What neither NAT nor forwarding writes in a TCP segment: all but ports and checksum.
    pub fn tcp_unchanged(&self) -> Option<[&'a [u8]; 2]> {
        if self.proto != TCP || self.fragment {
            return None;
        }
        let segment = self.bytes.get(self.l4..ETH + self.len_l3())?;
        Some([segment.get(4..16)?, segment.get(18..)?])
    }

    pub fn ttl(&self) -> u8 {
        self.bytes[if self.v6 { 21 } else { 22 }]
    }

    pub fn tos(&self) -> u8 {
        match self.v6 {
            false => self.bytes[15],
            true => self.bytes[14] << 4 | self.bytes[15] >> 4,
        }
    }

    /// Addresses, protocol and ports as far as it has them: what tells flows apart.
    pub fn key(&self) -> Vec<u8> {
        let mut key = self.bytes[self.address_bytes()].to_vec();
        key.push(self.proto);
        for at in self.numbers().into_iter().flatten() {
            key.extend(&self.bytes[at..at + 2]);
        }
        key
    }
}

/// The number of the frame that this one was, or that an ICMP error quotes.
pub fn number(frame: &[u8]) -> Option<u32> {
    let at = frame.windows(4).position(|bytes| bytes == TAG)?;
    let bytes = frame.get(at + 4..at + 8)?;
    Some(u32::from_be_bytes(bytes.try_into().unwrap()))
}

pub fn hex(bytes: &[u8]) -> String {
    let text: Vec<String> = bytes.iter().take(96).map(|b| format!("{b:02x}")).collect();
    let rest = if bytes.len() > 96 { " ..." } else { "" };
    text.join(" ") + rest
}
