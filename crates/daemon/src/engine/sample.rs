// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames of a flow, as a packet socket's filter would see them.

use std::net::IpAddr;

use freeway_cmm::{Session, Tag};
use freeway_kernel::model::Tuple;

/// One frame that comes in and one that leaves.
pub(super) struct Frames {
    pub incoming: Vec<u8>,
    pub outgoing: Vec<u8>,
}

impl Frames {
    pub(super) fn of(tuple: &Tuple, out: &Tuple) -> Self {
        Self {
            incoming: frame(tuple),
            outgoing: frame(out),
        }
    }
}

/// The frame with tags.
pub(super) fn tagged(frame: &[u8], tags: &[Tag]) -> Vec<u8> {
    let (macs, rest) = frame.split_at(frame.len().min(12));
    let tags = tags.iter().filter(|tag| tag.protocol != 0);
    let tags = tags.flat_map(|tag| [tag.protocol.to_be_bytes(), tag.vlan.to_be_bytes()]);
    [macs, &tags.flatten().collect::<Vec<u8>>(), rest].concat()
}

/// The frame as one of a session, if there is one.
pub(super) fn in_session(frame: &[u8], session: Option<&Session>) -> Vec<u8> {
    let (Some(session), Some((macs, rest))) = (session, frame.split_at_checked(12)) else {
        return frame.to_vec();
    };
    let Some((ethertype, packet)) = rest.split_at_checked(2) else {
        return frame.to_vec();
    };
    let proto: u16 = if ethertype == [0x86, 0xdd] {
        0x57
    } else {
        0x21
    };
    let len = packet.len() as u16 + 2;
    let header = [0x8864, 0x1100, session.id, len, proto].map(u16::to_be_bytes);
    [macs, header.as_flattened(), packet].concat()
}

/// A frame of plausible size; MAC addresses are left 0.
const PAYLOAD: u16 = 512;

fn frame(t: &Tuple) -> Vec<u8> {
    let l4 = l4_header(t);
    let l4_len = l4.len() as u16 + PAYLOAD;
    let mut f = vec![0u8; 12];
    match (t.src, t.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            f.extend([0x08, 0x00, 0x45, 0]);
            f.extend((20 + l4_len).to_be_bytes());
            f.extend([0, 0, 0x40, 0, 64, t.proto, 0, 0]);
            f.extend(src.octets());
            f.extend(dst.octets());
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            f.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            f.extend(l4_len.to_be_bytes());
            f.extend([t.proto, 64]);
            f.extend(src.octets());
            f.extend(dst.octets());
        }
        _ => return Vec::new(),
    }
    f.extend(l4);
    f.resize(f.len() + usize::from(PAYLOAD), 0);
    f
}

/// Ports, or what a flow of the protocol has in their place, then a plausible rest.
fn l4_header(t: &Tuple) -> Vec<u8> {
    let (upper, lower) = (t.sport.to_be_bytes(), t.dport.to_be_bytes());
    let parts: [&[u8]; 3] = match i32::from(t.proto) {
        libc::IPPROTO_TCP => [
            &upper,
            &lower,
            &[0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0],
        ],
        libc::IPPROTO_UDP => {
            let len = (8 + PAYLOAD).to_be_bytes();
            return [upper, lower, len, [0, 0]].concat();
        }
        // type and code, checksum, identifier, number
        libc::IPPROTO_ICMP | libc::IPPROTO_ICMPV6 => {
            return [lower, [0, 0], upper, [0, 1]].concat();
        }
        _ => [&upper, &lower, &[0, 0, 0, 1]],
    };
    parts.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_agree() {
        let tuple = |src: &str, dst: &str, proto| Tuple {
            src: src.parse().unwrap(),
            dst: dst.parse().unwrap(),
            proto,
            sport: 1,
            dport: 2,
        };
        let v4 = frame(&tuple("192.0.2.1", "198.51.100.1", 17));
        assert_eq!(
            v4.len(),
            14 + usize::from(u16::from_be_bytes([v4[16], v4[17]]))
        );
        let v6 = frame(&tuple("2001:db8::1", "2001:db8::2", 6));
        assert_eq!(
            v6.len(),
            54 + usize::from(u16::from_be_bytes([v6[18], v6[19]]))
        );
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
            assert_eq!(in_session(&plain, None), plain);
            let framed = in_session(&plain, Some(&session));
            assert_eq!(framed[..12], plain[..12]);
            assert_eq!(framed[12..22], [0x88, 0x64, 0x11, 0, 1, 2, 0, 8, 0, proto]);
            assert_eq!(framed[22..], plain[14..]);
        }
    }

    #[test]
    fn tags_are_between_addresses_and_type() {
        let tag = |vlan| Tag {
            protocol: 0x8100,
            vlan,
        };
        let frame: Vec<u8> = (0..20).collect();
        assert_eq!(tagged(&frame, &[Tag::default()]), frame);
        let two = tagged(&frame, &[tag(5), tag(0x123)]);
        assert_eq!(two[..12], frame[..12]);
        assert_eq!(two[12..20], [0x81, 0, 0, 5, 0x81, 0, 1, 0x23]);
        assert_eq!(two[20..], frame[12..]);
    }
}
