// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames as data: fields in, bytes out, every checksum computed slowly from all the bytes.

use std::net::IpAddr;

use serde::Deserialize;

/// One of two families' addresses; IPv6 by its last group.
pub fn address(v6: bool, v4: [u8; 4], v6_last: u16) -> IpAddr {
    if v6 {
        [0x2001, 0xdb8, 0, 0, 0, 0, 0, v6_last].into()
    } else {
        v4.into()
    }
}

/// One frame. What is not said is an ordinary UDP datagram over IPv4.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Frame {
    /// The whole frame in hexadecimal, instead of everything else; spaces are ignored.
    pub hex: Option<String>,
    pub dst_mac: String,
    pub src_mac: String,
    /// Instead of that of the addresses' family.
    pub ethertype: Option<u16>,
    pub src: IpAddr,
    pub dst: IpAddr,
    /// First byte of the IPv4 header.
    pub version_ihl: u8,
    /// Version of IPv6.
    pub version: u8,
    pub tos: u8,
    pub id: u16,
    /// Flags and offset of IPv4.
    pub frag: u16,
    pub ttl: u8,
    pub flow_label: u32,
    /// Instead of the right one.
    pub ip_check: Option<u16>,
    /// Total length (IPv4) or payload length (IPv6), instead of the right one.
    pub ip_len: Option<u16>,
    pub proto: u8,
    /// Of ICMP the identifier, of ESP and GRE the first two octets.
    pub sport: u16,
    /// Of ICMP type and code, of ESP and GRE the next two octets.
    pub dport: u16,
    pub seq: u32,
    pub ack: u32,
    /// TCP header length in words; options are zeros.
    pub doff: u8,
    pub tcp_flags: u8,
    pub window: u16,
    /// UDP length, instead of the right one.
    pub udp_len: Option<u16>,
    /// Instead of the right one.
    pub l4_check: Option<u16>,
    /// The first two bytes of the payload.
    pub payload_word: Option<u16>,
    /// Bytes behind the L4 header.
    pub payload: usize,
    /// Bytes behind the IP packet, as a sender pads short frames.
    pub padding: usize,
    /// Cut to so many bytes in the end.
    pub cut: Option<usize>,
}

impl Default for Frame {
    fn default() -> Self {
        Self {
            hex: None,
            dst_mac: "02:00:00:00:00:01".into(),
            src_mac: "02:00:00:00:00:02".into(),
            ethertype: None,
            src: [192, 0, 2, 2].into(),
            dst: [198, 51, 100, 2].into(),
            version_ihl: 0x45,
            version: 6,
            tos: 0,
            id: 0x1234,
            frag: 0x4000,
            ttl: 64,
            flow_label: 0,
            ip_check: None,
            ip_len: None,
            proto: 17,
            sport: 40000,
            dport: 7000,
            seq: 0x0102_0304,
            ack: 0x0506_0708,
            doff: 5,
            tcp_flags: 0x10,
            window: 500,
            udp_len: None,
            l4_check: None,
            payload_word: None,
            payload: 26,
            padding: 0,
            cut: None,
        }
    }
}

/// The Internet checksum's sum (RFC 1071), folded.
pub fn sum(bytes: &[u8]) -> u16 {
    let mut sum = 0u64;
    for pair in bytes.chunks(2) {
        sum += u64::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

pub fn mac(text: &str) -> [u8; 6] {
    let bytes: Vec<u8> = text
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).expect("a MAC address"))
        .collect();
    bytes.try_into().expect("six bytes of a MAC address")
}

pub fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

impl Frame {
    /// From a source to somewhere of its family.
    pub fn from_source(src: IpAddr) -> Self {
        Self {
            src,
            dst: match src {
                IpAddr::V4(_) => [198, 51, 100, 2].into(),
                IpAddr::V6(_) => "2001:db8:2::2".parse().unwrap(),
            },
            ..Self::default()
        }
    }

    /// Bytes of the L3 packet, if its lengths are right.
    pub fn len_l3(&self) -> usize {
        let l3 = if self.src.is_ipv4() { 20 } else { 40 };
        l3 + self.len_l4()
    }

    fn len_l4(&self) -> usize {
        self.payload
            + match self.proto {
                6 => usize::from(self.doff.max(5)) * 4,
                1 | 17 | 47 | 50 | 58 => 8,
                _ => 0,
            }
    }

    pub fn bytes(&self) -> Vec<u8> {
        if let Some(hex) = &self.hex {
            let digits: String = hex.split_whitespace().collect();
            return (0..digits.len() / 2)
                .map(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).expect("hexadecimal"))
                .collect();
        }
        let l4 = self.l4();
        let mut frame = Vec::new();
        frame.extend(mac(&self.dst_mac));
        frame.extend(mac(&self.src_mac));
        let ethertype = if self.src.is_ipv4() { 0x0800 } else { 0x86dd };
        frame.extend(self.ethertype.unwrap_or(ethertype).to_be_bytes());
        frame.extend(if self.src.is_ipv4() {
            self.ip4(l4.len())
        } else {
            self.ip6(l4.len())
        });
        frame.extend(l4);
        // not zeros: who counts them into a checksum is found out
        frame.extend((0..self.padding).map(|i| 0xa5 ^ i as u8));
        frame.truncate(self.cut.unwrap_or(usize::MAX));
        frame
    }

    fn ip4(&self, len_l4: usize) -> Vec<u8> {
        let len = self.ip_len.unwrap_or(20 + len_l4 as u16);
        let mut ip = vec![self.version_ihl, self.tos];
        for word in [len, self.id, self.frag] {
            ip.extend(word.to_be_bytes());
        }
        ip.extend([self.ttl, self.proto, 0, 0]);
        ip.extend(octets(self.src));
        ip.extend(octets(self.dst));
        let check = self.ip_check.unwrap_or(!sum(&ip));
        ip[10..12].copy_from_slice(&check.to_be_bytes());
        ip
    }

    fn ip6(&self, len_l4: usize) -> Vec<u8> {
        let len = self.ip_len.unwrap_or(len_l4 as u16);
        let word = u32::from(self.version) << 28
            | u32::from(self.tos) << 20
            | (self.flow_label & 0xf_ffff);
        let mut ip = word.to_be_bytes().to_vec();
        ip.extend(len.to_be_bytes());
        ip.extend([self.proto, self.ttl]);
        ip.extend(octets(self.src));
        ip.extend(octets(self.dst));
        ip
    }

    fn l4(&self) -> Vec<u8> {
        let mut l4 = Vec::new();
        let len = self.len_l4();
        match self.proto {
            6 => {
                l4.extend(self.sport.to_be_bytes());
                l4.extend(self.dport.to_be_bytes());
                l4.extend(self.seq.to_be_bytes());
                l4.extend(self.ack.to_be_bytes());
                l4.extend([self.doff << 4, self.tcp_flags]);
                l4.extend(self.window.to_be_bytes());
                l4.extend([0; 4]);
                l4.resize(usize::from(self.doff.max(5)) * 4, 0);
            }
            17 => {
                l4.extend(self.sport.to_be_bytes());
                l4.extend(self.dport.to_be_bytes());
                l4.extend(self.udp_len.unwrap_or(len as u16).to_be_bytes());
                l4.extend([0; 2]);
            }
            1 | 58 => {
                l4.extend(self.dport.to_be_bytes());
                l4.extend([0; 2]);
                l4.extend(self.sport.to_be_bytes());
                l4.extend((self.seq as u16).to_be_bytes());
            }
            47 | 50 => {
                l4.extend(self.sport.to_be_bytes());
                l4.extend(self.dport.to_be_bytes());
                l4.extend(self.seq.to_be_bytes());
            }
            _ => {}
        }
        let header = l4.len();
        l4.extend((0..self.payload).map(|i| (i as u8).wrapping_mul(7) ^ 0x31));
        if let Some(word) = self.payload_word {
            l4[header..header + 2].copy_from_slice(&word.to_be_bytes());
        }
        let at = match self.proto {
            6 => 16,
            17 => 6,
            1 | 58 => 2,
            _ => return l4,
        };
        let mut pseudo = Vec::new();
        if self.proto != 1 {
            pseudo.extend(octets(self.src));
            pseudo.extend(octets(self.dst));
            pseudo.extend((l4.len() as u32).to_be_bytes());
            pseudo.extend([0, 0, 0, self.proto]);
        }
        pseudo.extend(&l4);
        let right = match !sum(&pseudo) {
            0 if self.proto == 17 => 0xffff,
            check => check,
        };
        l4[at..at + 2].copy_from_slice(&self.l4_check.unwrap_or(right).to_be_bytes());
        l4
    }
}
