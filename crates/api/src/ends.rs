// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two ends of one direction, and what tells it from others between them.

use std::net::{IpAddr, SocketAddr};

use super::select::Proto;

/// An echo's question: type and code.
const QUESTION: u16 = 8 << 8;
/// The same of ICMPv6.
const QUESTION6: u16 = 128 << 8;
/// A GRE header of no options that carries IPv4.
const GRE_IP4: u32 = 0x0800;

/// An address, and a half of what tells a flow.
pub type End = (IpAddr, u16);

/// One direction in words: with ports, an echo's identifier, an SPI, or what GRE carries.
pub fn ends(proto: Proto, src: End, dst: End) -> String {
    let id = u32::from(src.1) << 16 | u32::from(dst.1);
    let named = |what: String| format!("{} > {} {what}", src.0, dst.0);
    match proto {
        Proto::ICMP | Proto::ICMP6 => {
            let way = match dst.1 {
                QUESTION | QUESTION6 => "request",
                _ => "reply",
            };
            named(format!("echo {way} id {}", src.1))
        }
        Proto::ESP => named(format!("spi {id:#010x}")),
        Proto::GRE => named(format!("id {id:#010x}")),
        _ => format!("{} > {}", SocketAddr::from(src), SocketAddr::from(dst)),
    }
}

/// The halves by which flows of a protocol without ports are told, of an identifier that a user writes.
///
/// # Errors
/// What is wrong with it, or missing.
pub fn halves(proto: Proto, id: Option<u32>) -> Result<(u16, u16), String> {
    let split = |id: u32| ((id >> 16) as u16, id as u16);
    let echo = |kind: u16| match id.map(u16::try_from) {
        Some(Ok(id)) => Ok((id, kind)),
        Some(Err(_)) => Err("an echo's identifier is at most 65535".to_owned()),
        None => Err("ID is missing: the identifier of the echo requests".to_owned()),
    };
    match proto {
        Proto::ICMP => echo(QUESTION),
        Proto::ICMP6 => echo(QUESTION6),
        Proto::ESP => id.map(split).ok_or_else(|| {
            "ID is missing: the SPI of this direction, as `ip xfrm state` shows it".to_owned()
        }),
        _ => Ok(split(id.unwrap_or(GRE_IP4))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(text: &str, half: u16) -> End {
        (text.parse().unwrap(), half)
    }

    #[test]
    fn in_words() {
        let (src, dst) = ("192.0.2.2", "198.51.100.2");
        let of = |proto, a, b| ends(proto, end(src, a), end(dst, b));
        assert_eq!(of(Proto::TCP, 1, 2), "192.0.2.2:1 > 198.51.100.2:2");
        assert_eq!(
            of(Proto::ICMP, 7, 0x0800),
            "192.0.2.2 > 198.51.100.2 echo request id 7"
        );
        assert_eq!(
            of(Proto::ICMP6, 7, 0x8100),
            "192.0.2.2 > 198.51.100.2 echo reply id 7"
        );
        assert_eq!(
            of(Proto::ESP, 0xc0de, 1),
            "192.0.2.2 > 198.51.100.2 spi 0xc0de0001"
        );
        let v6 = ends(Proto::UDP, end("2001:db8::1", 1), end("2001:db8::2", 2));
        assert_eq!(v6, "[2001:db8::1]:1 > [2001:db8::2]:2");
    }

    #[test]
    fn what_a_user_writes() {
        assert_eq!(halves(Proto::ESP, Some(0xc0de_0001)), Ok((0xc0de, 1)));
        assert_eq!(halves(Proto::ICMP, Some(7)), Ok((7, 0x0800)));
        assert_eq!(halves(Proto::ICMP6, Some(7)), Ok((7, 0x8000)));
        assert_eq!(halves(Proto::GRE, None), Ok((0, 0x0800)));
        assert_eq!(halves(Proto::GRE, Some(0x2000_6558)), Ok((0x2000, 0x6558)));
        assert!(halves(Proto::ICMP, Some(65_536)).is_err());
        assert!(halves(Proto::ESP, None).is_err());
    }
}
