// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flows and their frames: the slow and obvious model of what the generator sends.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde::Serialize;

use crate::error::LabError;
use crate::routes::Beyond;
use crate::topology::{Family, offset};

/// The client's MAC address. All are locally administered.
pub const MAC_CLIENT: [u8; 6] = [0x02, 0, 0, 0, 1, 2];
/// The MAC address of the router's LAN port.
pub const MAC_LAN: [u8; 6] = [0x02, 0, 0, 0, 1, 1];
/// The MAC address of the router's WAN port.
pub const MAC_WAN: [u8; 6] = [0x02, 0, 0, 0, 2, 1];
/// The server's MAC address.
pub const MAC_SERVER: [u8; 6] = [0x02, 0, 0, 0, 2, 2];

/// The near side's first port; flow i uses this plus i % 32768.
pub const NEAR_PORT: u16 = 16384;
/// The far side's first port; flow i uses this plus i / 32768.
pub const FAR_PORT: u16 = 9000;
/// Flows that differ in the near port alone.
pub const FLOWS_PER_BLOCK: u32 = 1 << 15;
/// The most flows of one specification.
pub const FLOWS_MAX: u32 = 1_000_000;

/// The sequence number of a client's SYN.
pub const NEAR_ISN: u32 = 0x1000_0000;
/// The sequence number of a server's SYN.
pub const FAR_ISN: u32 = 0x2000_0000;

/// TCP flag SYN.
pub const TCP_SYN: u8 = 0x02;
/// TCP flag RST.
pub const TCP_RST: u8 = 0x04;
/// TCP flag ACK.
pub const TCP_ACK: u8 = 0x10;

/// The frame check sequence, which is counted in frame sizes but not in memory.
pub const FCS_BYTES: u32 = 4;
/// The shortest Ethernet frame, FCS counted.
pub const FRAME_BYTES_MIN: u32 = 64;
/// The longest Ethernet frame without tags, FCS counted.
pub const FRAME_BYTES_MAX: u32 = 1518;
/// The longest frame that the lab sends, FCS counted: FD.io CSIT's, in links with an MTU of 9,000.
pub const FRAME_BYTES_JUMBO: u32 = 9000;
/// An IEEE 802.1Q tag.
pub const TAG_BYTES: u32 = 4;

const ETH_LEN: usize = 14;
/// Of a frame's time.
const STAMP_BYTES: usize = 8;
/// Rounds after which a flow's TCP sequence numbers start again, see `TCP_ROUND_MASK` in the generator.
const TCP_ROUNDS: u32 = 32;

/// A transport protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Proto {
    /// UDP.
    #[default]
    Udp,
    /// TCP.
    Tcp,
}

impl Proto {
    /// Its name in nft and elsewhere.
    pub fn name(self) -> &'static str {
        match self {
            Proto::Udp => "udp",
            Proto::Tcp => "tcp",
        }
    }

    fn number(self) -> u8 {
        match self {
            Proto::Udp => 17,
            Proto::Tcp => 6,
        }
    }

    fn header_len(self) -> usize {
        match self {
            Proto::Udp => 8,
            Proto::Tcp => 20,
        }
    }
}

/// Who sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// The near side, which has opened the connections.
    #[default]
    Forward,
    /// The far side.
    Reply,
}

/// Who sends: one side, or both at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Directions {
    /// The near side.
    #[default]
    Forward,
    /// The far side.
    Reply,
    /// Frames of either side by turns.
    Both,
}

impl Directions {
    /// One or two.
    pub fn each(self) -> &'static [Direction] {
        match self {
            Directions::Forward => &[Direction::Forward],
            Directions::Reply => &[Direction::Reply],
            Directions::Both => &[Direction::Forward, Direction::Reply],
        }
    }
}

/// A set of flows and the shape of their frames.
///
/// Flow i goes from near address + i / 32768, near port + i % 32768, to the far address, far port + i / 32768.
/// The payload starts with the number of the round (how many frames the flow had before) and the number of
/// the flow, 32 bits each in network byte order, as far as there is room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowSpec {
    /// The protocol.
    pub proto: Proto,
    /// How many flows, 1 to [`FLOWS_MAX`].
    pub flows: u32,
    /// They are flows `first`, `first` + 1, ... of a set of which others send the rest.
    pub first: u32,
    /// Frame size with FCS and without a tag; raised to the shortest that holds the headers, see
    /// [`FlowSpec::wire_bytes`].
    pub frame_bytes: u32,
    /// The VLAN whose tag frames have, if any.
    pub vlan: Option<u16>,
    /// Octets of memory ahead of a frame beside those that every driver leaves to XDP (XDP_PACKET_HEADROOM, 256): where
    /// the kernel adds a tag, less would be left than a veth wants for the receiver's program, and it would copy.
    pub headroom: u8,
    /// Who sends.
    pub direction: Direction,
    /// The sender's MAC address.
    pub mac_source: [u8; 6],
    /// The next hop's MAC address.
    pub mac_destination: [u8; 6],
    /// The near side's first address.
    pub near: IpAddr,
    /// All flows have the same near address, as behind a masquerade.
    pub near_fixed: bool,
    /// Each flow has one of its own, the first address + i, instead.
    pub near_each: bool,
    /// The far side's address.
    pub far: IpAddr,
    /// Instead of the far side's address: flow i goes to host i modulo their number. Forward and IPv4 only.
    pub beyond: Option<Beyond>,
    /// The near side's first port, host byte order.
    pub near_port: u16,
    /// The far side's first port, host byte order.
    pub far_port: u16,
    /// TTL or hop limit.
    pub ttl: u8,
    /// TOS or traffic class: DSCP and ECN.
    pub tos: u8,
    /// TCP flags.
    pub tcp_flags: u8,
    /// TCP sequence numbers advance with the round and start again after 32; else each segment repeats the last.
    pub tcp_advance: bool,
    /// Headers only, padded to the frame size: for SYN and bare ACK.
    pub bare: bool,
    /// The payload begins with the time when the frame was made or with zero, 64 bits in network byte order, instead of
    /// round and flow, see [`crate::Stream`]. Frames are long enough for it.
    pub stamped: bool,
}

impl Default for FlowSpec {
    fn default() -> Self {
        let unset = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        Self {
            proto: Proto::Udp,
            flows: 1,
            first: 0,
            frame_bytes: FRAME_BYTES_MIN,
            vlan: None,
            headroom: 0,
            direction: Direction::Forward,
            mac_source: [0; 6],
            mac_destination: [0; 6],
            near: unset,
            near_fixed: false,
            near_each: false,
            far: unset,
            beyond: None,
            near_port: NEAR_PORT,
            far_port: FAR_PORT,
            ttl: 64,
            tos: 0,
            tcp_flags: TCP_ACK,
            tcp_advance: true,
            bare: false,
            stamped: false,
        }
    }
}

/// A MAC address as tools write it.
pub fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|octet| format!("{octet:02x}")).join(":")
}

/// The MAC address of a multicast group (RFC 1112, RFC 2464).
pub fn group_mac(group: IpAddr) -> [u8; 6] {
    match group {
        IpAddr::V4(group) => {
            let [_, b, c, d] = group.octets();
            [0x01, 0, 0x5e, b & 0x7f, c, d]
        }
        IpAddr::V6(group) => {
            let [.., a, b, c, d] = group.octets();
            [0x33, 0x33, a, b, c, d]
        }
    }
}

/// The 16-bit one's complement sum (RFC 1071), folded, not complemented, host byte order.
pub fn sum16(bytes: &[u8]) -> u16 {
    let mut sum: u64 = 0;
    for pair in bytes.chunks(2) {
        sum += u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The last 32 bits of an address, host byte order.
pub(crate) fn low32(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(v4) => v4.into(),
        IpAddr::V6(v6) => u128::from(v6) as u32,
    }
}

impl FlowSpec {
    /// Says what is wrong with it, if anything.
    pub fn check(&self) -> Result<(), LabError> {
        self.check_up_to(FRAME_BYTES_MAX)
    }

    /// The same where frames may have so many bytes, FCS counted.
    pub(crate) fn check_up_to(&self, most: u32) -> Result<(), LabError> {
        let invalid = |what: String| Err(LabError::Invalid(what));
        if self.near.is_ipv4() != self.far.is_ipv4() {
            return invalid(format!(
                "{} and {} are of different families",
                self.near, self.far
            ));
        }
        let plain = self.direction == Direction::Forward && self.far.is_ipv4();
        if self.beyond.is_some() && !plain {
            return invalid("hosts beyond the far side: forward and with IPv4 only".into());
        }
        if self.flows == 0 || self.flows > FLOWS_MAX {
            return invalid(format!(
                "{} flows: there can be 1 to {FLOWS_MAX}",
                self.flows
            ));
        }
        if let Some(id) = self.vlan.filter(|id| !(1..=4094).contains(id)) {
            return invalid(format!("VLAN {id}: there can be 1 to 4094"));
        }
        if !(FRAME_BYTES_MIN..=most).contains(&self.frame_bytes) {
            return invalid(format!(
                "frames of {} bytes: there can be {FRAME_BYTES_MIN} to {most}",
                self.frame_bytes
            ));
        }
        let all = self.first.saturating_add(self.flows);
        let blocks = (all - 1) / FLOWS_PER_BLOCK;
        let ports = all.min(FLOWS_PER_BLOCK) - 1;
        if u32::from(self.near_port) + ports > 0xffff || u32::from(self.far_port) + blocks > 0xffff
        {
            return invalid(format!(
                "{} flows do not fit above the first ports",
                self.flows
            ));
        }
        Ok(())
    }

    /// The address family.
    pub fn family(&self) -> Family {
        if self.near.is_ipv4() {
            Family::Ipv4
        } else {
            Family::Ipv6
        }
    }

    fn ip_len(&self) -> usize {
        match self.family() {
            Family::Ipv4 => 20,
            Family::Ipv6 => 40,
        }
    }

    /// Octets of the tag.
    pub(crate) fn tag_len(&self) -> usize {
        self.vlan.map_or(0, |_| TAG_BYTES as usize)
    }

    fn eth_len(&self) -> usize {
        ETH_LEN + self.tag_len()
    }

    /// Where the L4 header starts in the frame.
    pub(crate) fn l4_offset(&self) -> usize {
        self.eth_len() + self.ip_len()
    }

    fn payload_offset(&self) -> usize {
        self.l4_offset() + self.proto.header_len()
    }

    /// The length of a frame in memory, without FCS.
    pub fn memory_bytes(&self) -> usize {
        let asked = self.frame_bytes.saturating_sub(FCS_BYTES) as usize + self.tag_len();
        let stamp = if self.stamped { STAMP_BYTES } else { 0 };
        asked.max(self.payload_offset() + stamp)
    }

    /// The length of a frame on the wire, with FCS: IPv6 and UDP do not fit into 64 bytes but into 66.
    pub fn wire_bytes(&self) -> u32 {
        self.memory_bytes() as u32 + FCS_BYTES
    }

    /// Bytes of L3 of a frame that is not [`FlowSpec::bare`].
    pub fn l3_bytes(&self) -> u32 {
        (self.memory_bytes() - self.eth_len()) as u32
    }

    /// Bytes of L4 payload.
    pub fn payload_len(&self) -> usize {
        if self.bare {
            0
        } else {
            self.memory_bytes() - self.payload_offset()
        }
    }

    pub(crate) fn has_round(&self) -> bool {
        !self.stamped && self.payload_len() >= 4
    }

    /// Whether frames carry round and flow, so that a sink can follow them.
    pub fn has_flow(&self) -> bool {
        !self.stamped && self.payload_len() >= 8
    }

    pub(crate) fn tcp_step(&self) -> u16 {
        if self.tcp_advance {
            self.payload_len() as u16
        } else {
            0
        }
    }

    /// The first sequence number this side sends.
    pub(crate) fn tcp_seq(&self) -> u32 {
        let isn = match self.direction {
            Direction::Forward => NEAR_ISN,
            Direction::Reply => FAR_ISN,
        };
        if self.tcp_flags & TCP_SYN == 0 {
            isn + 1
        } else {
            isn
        }
    }

    fn tcp_ack(&self) -> u32 {
        let other = match self.direction {
            Direction::Forward => FAR_ISN,
            Direction::Reply => NEAR_ISN,
        };
        if self.tcp_flags & TCP_ACK == 0 {
            0
        } else {
            other + 1
        }
    }

    /// Source and destination of flow `flow`, as this side sends it.
    pub fn tuple(&self, flow: u32) -> (SocketAddr, SocketAddr) {
        let number = self.first + flow;
        let (block, port) = (number / FLOWS_PER_BLOCK, (number % FLOWS_PER_BLOCK) as u16);
        let near = match (self.near_each, self.near_fixed) {
            (true, _) => offset(self.near, number),
            (false, true) => self.near,
            (false, false) => offset(self.near, block),
        };
        let near = SocketAddr::new(near, self.near_port.wrapping_add(port));
        let far = match self.beyond {
            None => self.far,
            Some(beyond) => {
                let hosts = beyond.addresses();
                hosts[flow as usize % hosts.len()].into()
            }
        };
        let far = SocketAddr::new(far, self.far_port.wrapping_add(block as u16));
        match self.direction {
            Direction::Forward => (near, far),
            Direction::Reply => (far, near),
        }
    }

    /// The frame of flow `flow` in round `round`, complete but for the FCS.
    pub fn frame(&self, flow: u32, round: u32) -> Vec<u8> {
        let (source, destination) = self.tuple(flow);
        let l4_len = self.proto.header_len() + self.payload_len();
        let mut frame = Vec::with_capacity(self.memory_bytes());
        frame.extend(self.mac_destination);
        frame.extend(self.mac_source);
        if let Some(id) = self.vlan {
            frame.extend(0x8100u16.to_be_bytes());
            frame.extend(id.to_be_bytes());
        }
        match (source.ip(), destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                frame.extend(0x0800u16.to_be_bytes());
                let start = frame.len();
                frame.extend([0x45, self.tos]);
                frame.extend((20 + l4_len as u16).to_be_bytes());
                // Identification 0, do not fragment.
                frame.extend([0, 0, 0x40, 0, self.ttl, self.proto.number(), 0, 0]);
                frame.extend(source.octets());
                frame.extend(destination.octets());
                let checksum = !sum16(&frame[start..]);
                frame[start + 10..start + 12].copy_from_slice(&checksum.to_be_bytes());
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                frame.extend(0x86ddu16.to_be_bytes());
                frame.extend((6u32 << 28 | u32::from(self.tos) << 20).to_be_bytes());
                frame.extend((l4_len as u16).to_be_bytes());
                frame.extend([self.proto.number(), self.ttl]);
                frame.extend(source.octets());
                frame.extend(destination.octets());
            }
            // `check` refuses this.
            _ => {}
        }
        let l4 = frame.len();
        frame.extend(source.port().to_be_bytes());
        frame.extend(destination.port().to_be_bytes());
        let checksum_at = match self.proto {
            Proto::Udp => {
                frame.extend((l4_len as u16).to_be_bytes());
                frame.extend([0, 0]);
                l4 + 6
            }
            Proto::Tcp => {
                let step = u32::from(self.tcp_step());
                let seq = self.tcp_seq().wrapping_add(round % TCP_ROUNDS * step);
                frame.extend(seq.to_be_bytes());
                frame.extend(self.tcp_ack().to_be_bytes());
                frame.extend([0x50, self.tcp_flags, 0xff, 0xff, 0, 0, 0, 0]);
                l4 + 16
            }
        };
        let payload = frame.len();
        frame.extend((0..self.payload_len()).map(|i| (i * 7 + 3) as u8));
        if self.stamped {
            frame[payload..payload + STAMP_BYTES].fill(0);
        }
        if self.has_round() {
            frame[payload..payload + 4].copy_from_slice(&round.to_be_bytes());
        }
        if self.has_flow() {
            frame[payload + 4..payload + 8].copy_from_slice(&flow.to_be_bytes());
        }
        let checksum = match !self.l4_sum(&frame, l4) {
            0 if self.proto == Proto::Udp => 0xffff,
            checksum => checksum,
        };
        frame[checksum_at..checksum_at + 2].copy_from_slice(&checksum.to_be_bytes());
        frame.resize(self.memory_bytes(), 0);
        frame
    }

    /// The sum of pseudo header and segment as they are in `frame`, which ends with the segment.
    fn l4_sum(&self, frame: &[u8], l4: usize) -> u16 {
        let addresses = match self.family() {
            Family::Ipv4 => 8,
            Family::Ipv6 => 32,
        };
        let mut pseudo = frame[l4 - addresses..].to_vec();
        if !pseudo.len().is_multiple_of(2) {
            pseudo.push(0);
        }
        pseudo.extend([0, self.proto.number()]);
        pseudo.extend(((frame.len() - l4) as u16).to_be_bytes());
        sum16(&pseudo)
    }

    /// What the generator fills in and adds to for each frame: frame 0 of flow 0 and the sums of what does
    /// not vary. The second is of the IPv4 header, the third of pseudo header and segment.
    pub(crate) fn template(&self) -> (Vec<u8>, u16, u16) {
        let frame = self.frame(0, 0);
        let l4 = self.l4_offset();
        let mut fixed = frame[..self.payload_offset() + self.payload_len()].to_vec();
        let near_at = match (self.family(), self.direction) {
            (Family::Ipv4, Direction::Forward) => l4 - 8,
            (Family::Ipv4, Direction::Reply) => l4 - 4,
            (Family::Ipv6, Direction::Forward) => l4 - 20,
            (Family::Ipv6, Direction::Reply) => l4 - 4,
        };
        fixed[near_at..near_at + 4].fill(0);
        if self.beyond.is_some() {
            fixed[l4 - 4..l4].fill(0);
        }
        fixed[l4..l4 + 4].fill(0);
        let ip_sum = match self.family() {
            Family::Ipv4 => {
                fixed[l4 - 10..l4 - 8].fill(0);
                sum16(&fixed[self.eth_len()..l4])
            }
            Family::Ipv6 => 0,
        };
        match self.proto {
            Proto::Udp => fixed[l4 + 6..l4 + 8].fill(0),
            Proto::Tcp => {
                fixed[l4 + 4..l4 + 8].fill(0);
                fixed[l4 + 16..l4 + 18].fill(0);
            }
        }
        // Round and flow are 0 in this frame.
        let l4_sum = self.l4_sum(&fixed, l4);
        (frame, ip_sum, l4_sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(proto: Proto, v6: bool, frame_bytes: u32) -> FlowSpec {
        let plan = if v6 { Family::Ipv6 } else { Family::Ipv4 }.plan();
        let flows = FLOWS_MAX;
        FlowSpec {
            proto,
            flows,
            frame_bytes,
            near: plan.client,
            far: plan.server,
            ..FlowSpec::default()
        }
    }

    #[test]
    fn a_known_frame() {
        let frame = spec(Proto::Udp, false, 64).frame(32768, 1);
        assert_eq!(frame.len(), 60);
        // 192.0.2.3:16384 to 198.51.100.2:9001
        let ip = [
            69, 0, 0, 46, 0, 0, 64, 0, 64, 17, 0x8a, 0x8a, 192, 0, 2, 3, 198, 51, 100, 2,
        ];
        assert_eq!(sum16(&frame[14..34]), 0xffff);
        assert_eq!(frame[14..24], ip[..10]);
        assert_eq!(frame[26..34], ip[12..]);
        assert_eq!(frame[34..40], [0x40, 0, 0x23, 0x29, 0, 26]);
        assert_eq!(frame[42..51], [0, 0, 0, 1, 0, 0, 0x80, 0, 59]);
    }

    #[test]
    fn checksums_close() {
        for proto in [Proto::Udp, Proto::Tcp] {
            for v6 in [false, true] {
                for size in [64, 65, 128, 1517, 1518] {
                    let spec = spec(proto, v6, size);
                    for flow in [0, 1, 32767, 32768, 999_999] {
                        let frame = spec.frame(flow, 77);
                        assert_eq!(frame.len(), spec.memory_bytes());
                        assert_eq!(
                            spec.l4_sum(&frame, spec.l4_offset()),
                            0xffff,
                            "{spec:?} {flow}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn sizes_hold_the_headers() {
        assert_eq!(spec(Proto::Udp, false, 64).wire_bytes(), 64);
        assert_eq!(spec(Proto::Udp, true, 64).wire_bytes(), 66);
        assert_eq!(spec(Proto::Tcp, true, 64).wire_bytes(), 78);
        assert!(spec(Proto::Udp, false, 63).check().is_err());
        assert!(spec(Proto::Udp, false, 1519).check().is_err());
        assert!(
            FlowSpec {
                flows: 0,
                ..spec(Proto::Udp, false, 64)
            }
            .check()
            .is_err()
        );
        assert!(spec(Proto::Udp, false, 1518).check().is_ok());
        let jumbo =
            |frame_bytes| spec(Proto::Udp, false, frame_bytes).check_up_to(FRAME_BYTES_JUMBO);
        assert!(jumbo(9000).is_ok() && jumbo(9001).is_err());
    }

    #[test]
    fn stamped_frames_have_room_for_the_time() {
        for (v6, shortest) in [(false, 64), (true, 74)] {
            let stamped = FlowSpec {
                stamped: true,
                ..spec(Proto::Udp, v6, 64)
            };
            assert_eq!(stamped.wire_bytes(), shortest);
            assert!(!stamped.has_flow());
            let frame = stamped.frame(7, 1);
            assert_eq!(frame, stamped.frame(7, 2));
            let payload = stamped.payload_offset();
            assert_eq!(frame[payload..payload + 8], [0; 8]);
            assert_eq!(stamped.l4_sum(&frame, stamped.l4_offset()), 0xffff);
        }
    }

    #[test]
    fn a_tag_is_all_that_differs() {
        for proto in [Proto::Udp, Proto::Tcp] {
            for v6 in [false, true] {
                let plain = spec(proto, v6, FRAME_BYTES_MAX);
                let tagged = FlowSpec {
                    vlan: Some(5),
                    ..plain
                };
                assert_eq!(tagged.wire_bytes(), 1522);
                assert_eq!(tagged.payload_len(), plain.payload_len());
                assert_eq!([tagged.l3_bytes(), plain.l3_bytes()], [1500; 2]);
                let (bare, mut frame) = (plain.frame(7, 1), tagged.frame(7, 1));
                let tag: Vec<u8> = frame.drain(12..16).collect();
                assert_eq!(tag, [0x81, 0, 0, 5]);
                assert_eq!(frame, bare);
                let (plain, tagged) = (plain.template(), tagged.template());
                assert_eq!((plain.1, plain.2), (tagged.1, tagged.2));
            }
        }
        let none = FlowSpec {
            vlan: Some(4095),
            ..spec(Proto::Udp, false, 64)
        };
        assert!(none.check().is_err());
    }

    #[test]
    fn tuples_are_distinct() {
        let spec = spec(Proto::Udp, false, 64);
        let mut seen = std::collections::HashSet::new();
        for flow in (0..FLOWS_MAX).step_by(997) {
            assert!(seen.insert(spec.tuple(flow)));
        }
        assert_eq!(spec.tuple(999_999).0.ip().to_string(), "192.0.2.32");
    }
}
