// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a capture says of a packet: its flow, as `freeway explain` and `freeway flows` name it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use freeway_api::{Proto, ends};

const MACS: usize = 12;
const IP4: u16 = 0x0800;
const IP6: u16 = 0x86dd;
const VLANS: [u16; 2] = [0x8100, 0x88a8];
/// PPPoE's header, at whose end is the protocol's number in PPP.
const SESSION: u16 = 0x8864;
const SESSION_LEN: usize = 8;
const PPP_IP4: u16 = 0x0021;
const PPP_IP6: u16 = 0x0057;

/// The flow of a frame that came in; none where it was cut before all of that. Fast packets have neither IPv4 options nor
/// IPv6 extension headers.
pub fn flow(frame: &[u8]) -> Option<String> {
    let half = |at: usize| Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
    let mut at = MACS;
    while VLANS.contains(&half(at)?) {
        at += 4;
    }
    let mut kind = half(at)?;
    at += 2;
    if kind == SESSION {
        at += SESSION_LEN;
        kind = match half(at - 2)? {
            PPP_IP4 => IP4,
            PPP_IP6 => IP6,
            _ => return None,
        };
    }
    let packet = frame.get(at..)?;
    let (proto, src, dst, l4): (u8, IpAddr, IpAddr, usize) = match kind {
        IP4 => {
            let ends = packet.get(12..20)?.as_chunks::<4>().0;
            let end = |i: usize| Ipv4Addr::from(ends[i]).into();
            (packet[9], end(0), end(1), 20)
        }
        IP6 => {
            let ends = packet.get(8..40)?.as_chunks::<16>().0;
            let end = |i: usize| Ipv6Addr::from(ends[i]).into();
            (packet[6], end(0), end(1), 40)
        }
        _ => return None,
    };
    let proto = Proto(proto);
    // the halves by which the flow table tells flows of a protocol
    let l4 = at + l4;
    let halves = match proto {
        Proto::ICMP | Proto::ICMP6 => (half(l4 + 4)?, half(l4)?),
        _ => (half(l4)?, half(l4 + 2)?),
    };
    let words = ends(proto, (src, halves.0), (dst, halves.1));
    Some(format!("{proto} {words}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(hex: &str) -> Option<String> {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        let octet = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16);
        let frame: Vec<u8> = digits.chunks(2).map(|pair| octet(pair).unwrap()).collect();
        flow(&frame)
    }

    const MACS: &str = "020000000101 020000000102";
    const UDP4: &str = "4500001c00000000401100000a0000010a000002 1f900035 00080000";
    const TCP6: &str = "60000000 0014 06 40 20010db8000000000000000000000001 20010db8000000000000000000000002 \
         01bb8000";

    #[test]
    fn a_flow_is_told_whatever_frames_it() {
        let udp = Some("udp 10.0.0.1:8080 > 10.0.0.2:53".to_owned());
        let tcp = Some("tcp [2001:db8::1]:443 > [2001:db8::2]:32768".to_owned());
        for (frame, flow) in [
            (format!("{MACS} 0800 {UDP4}"), &udp),
            (format!("{MACS} 86dd {TCP6}"), &tcp),
            (format!("{MACS} 8100 0005 0800 {UDP4}"), &udp),
            (format!("{MACS} 88a8 0005 8100 0006 86dd {TCP6}"), &tcp),
            (format!("{MACS} 8864 1100 0007 001e 0021 {UDP4}"), &udp),
            (
                format!("{MACS} 8100 0005 8864 1100 0007 003e 0057 {TCP6}"),
                &tcp,
            ),
            (format!("{MACS} 0806 {UDP4}"), &None),
            (format!("{MACS} 8864 1100 0007 001e c021 {UDP4}"), &None),
        ] {
            assert_eq!(words(&frame), *flow, "{frame}");
        }
    }

    #[test]
    fn what_is_cut_has_no_flow_and_does_no_harm() {
        let whole = format!("{MACS} 8100 0005 8864 1100 0007 001e 0021 {UDP4}").replace(' ', "");
        // up to the ports
        for digits in (0..2 * (12 + 4 + 2 + 8 + 20 + 4)).step_by(2) {
            assert_eq!(words(&whole[..digits]), None, "{digits}");
        }
    }

    #[test]
    fn what_has_no_ports_is_told_by_what_it_has() {
        let of = |proto: &str, l4: &str| {
            words(&format!(
                "{MACS} 0800 4500001c0000000040{proto}0000 0a000001 0a000002 {l4}"
            ))
        };
        let ends = "10.0.0.1 > 10.0.0.2";
        assert_eq!(
            of("01", "0800ffff 00070001"),
            Some(format!("icmp {ends} echo request id 7"))
        );
        assert_eq!(
            of("32", "c0de0001 00000001"),
            Some(format!("esp {ends} spi 0xc0de0001"))
        );
        assert_eq!(
            of("2f", "20006558 00000001"),
            Some(format!("gre {ends} id 0x20006558"))
        );
    }
}
