// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames of a flow, as a packet socket's filter would see them.

use std::net::IpAddr;

use freeway_cmm::{Session, Tag};
use freeway_kernel::cbpf::Sketch;
use freeway_kernel::model::Tuple;

/// What is known of frames that come in, and of those that leave.
pub(super) struct Frames {
    pub incoming: Sketch,
    pub outgoing: Sketch,
}

impl Frames {
    pub(super) fn of(tuple: &Tuple, out: &Tuple) -> Self {
        Self {
            incoming: frame(tuple),
            outgoing: frame(out),
        }
    }
}

/// Where the EtherType is.
const ETHERTYPE: usize = 12;

/// The frame with tags, of whatever priority.
pub(super) fn tagged(frame: &Sketch, tags: &[Tag]) -> Sketch {
    let mut all = Sketch::default();
    for tag in tags.iter().filter(|tag| tag.protocol != 0) {
        let [upper, lower] = tag.vlan.to_be_bytes();
        all.put(&tag.protocol.to_be_bytes());
        all.put_bits(upper, 0x0f);
        all.put(&[lower]);
    }
    frame.with(ETHERTYPE..ETHERTYPE, &all)
}

/// The frame as one of a session, if there is one.
pub(super) fn in_session(frame: &Sketch, session: Option<&Session>) -> Sketch {
    let (Some(session), Some(ethertype)) = (session, frame.word_at(ETHERTYPE)) else {
        return frame.clone();
    };
    let proto: u16 = if ethertype == 0x86dd { 0x57 } else { 0x21 };
    let mut header = Sketch::default();
    header.put(
        [0x8864, 0x1100, session.id]
            .map(u16::to_be_bytes)
            .as_flattened(),
    );
    // its length
    header.skip(2);
    header.put(&proto.to_be_bytes());
    frame.with(ETHERTYPE..ETHERTYPE + 2, &header)
}

/// What is the same in all fast frames of a flow: no fragments, no SYN, no end of a connection.
fn frame(t: &Tuple) -> Sketch {
    let mut f = Sketch::default();
    let group = u8::from(t.dst.is_multicast());
    // addresses of which is known whether they are a group's
    for group in [group, 0] {
        f.put_bits(group, 1);
        f.skip(5);
    }
    match (t.src, t.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            f.put(&[0x08, 0x00, 0x45]);
            // TOS, length, identification
            f.skip(5);
            // Don't Fragment or not
            f.put_bits(0, 0x3f);
            f.put(&[0]);
            f.skip(1);
            f.put(&[t.proto]);
            f.skip(2);
            f.put(&src.octets());
            f.put(&dst.octets());
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            f.put(&[0x86, 0xdd]);
            f.put_bits(0x60, 0xf0);
            f.skip(5);
            f.put(&[t.proto]);
            f.skip(1);
            f.put(&src.octets());
            f.put(&dst.octets());
        }
        _ => return Sketch::default(),
    }
    put_l4_header(&mut f, t);
    f
}

/// Ports, or what a flow of the protocol has in their place.
fn put_l4_header(f: &mut Sketch, t: &Tuple) {
    /// FIN, SYN, RST and ACK.
    const FLAGS: u8 = 0x17;
    const ACK: u8 = 0x10;
    let (upper, lower) = (t.sport.to_be_bytes(), t.dport.to_be_bytes());
    match i32::from(t.proto) {
        libc::IPPROTO_TCP => {
            f.put(&upper);
            f.put(&lower);
            // numbers, the header's length
            f.skip(9);
            f.put_bits(ACK, FLAGS);
        }
        // type and code, checksum, identifier
        libc::IPPROTO_ICMP | libc::IPPROTO_ICMPV6 => {
            f.put(&lower);
            f.skip(2);
            f.put(&upper);
        }
        libc::IPPROTO_UDP => {
            f.put(&upper);
            f.put(&lower);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(octets: &[u8]) -> Sketch {
        let mut all = Sketch::default();
        all.put(octets);
        all
    }

    #[test]
    fn what_flows_frames_have_in_common_is_known() {
        let tuple = |src: &str, dst: &str, proto| Tuple {
            src: src.parse().unwrap(),
            dst: dst.parse().unwrap(),
            proto,
            sport: 0x1234,
            dport: 0x50,
        };
        let v4 = frame(&tuple("192.0.2.1", "198.51.100.1", 17));
        let v6 = frame(&tuple("2001:db8::1", "2001:db8::2", 6));
        for (frame, ethertype, length_at, ports_at) in [(v4, 0x800, 16, 34), (v6, 0x86dd, 18, 54)] {
            assert_eq!(frame.word_at(ETHERTYPE), Some(ethertype));
            assert_eq!(frame.word_at(ports_at), Some(0x1234));
            assert_eq!(frame.word_at(ports_at + 2), Some(0x50));
            for unknown in [0, 6, length_at, ports_at + 4] {
                assert_eq!(frame.word_at(unknown), None, "{unknown}");
            }
        }
    }

    #[test]
    fn a_session_is_between_addresses_and_packet() {
        let session = Session {
            id: 0x102,
            remote: [0; 6],
            own: [0; 6],
        };
        let mut plain: Vec<u8> = (0..20).collect();
        for (ethertype, proto) in [([8, 0], 0x21), ([0x86, 0xdd], 0x57)] {
            plain[12..14].copy_from_slice(&ethertype);
            let frame = known(&plain);
            assert_eq!(in_session(&frame, None), frame);
            let mut framed = known(&plain[..12]);
            framed.put(&[0x88, 0x64, 0x11, 0, 1, 2]);
            framed.skip(2);
            framed.put(&[0, proto]);
            framed.put(&plain[14..]);
            assert_eq!(in_session(&frame, Some(&session)), framed);
        }
    }

    #[test]
    fn tags_are_between_addresses_and_type() {
        let tag = |vlan| Tag {
            protocol: 0x8100,
            vlan,
        };
        let plain: Vec<u8> = (0..20).collect();
        let frame = known(&plain);
        assert_eq!(tagged(&frame, &[Tag::default()]), frame);
        let mut two = known(&plain[..12]);
        for vlan in [[0, 5], [1, 0x23]] {
            two.put(&[0x81, 0]);
            two.put_bits(vlan[0], 0x0f);
            two.put(&[vlan[1]]);
        }
        two.put(&plain[12..]);
        assert_eq!(tagged(&frame, &[tag(5), tag(0x123)]), two);
    }
}
