// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tuple of `explain` as people write it.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use super::ends::halves;
use super::explain::ExplainQuery;
use super::select::Proto;

/// One end of a flow, as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The address.
    pub ip: IpAddr,
    /// The port, if there is one.
    pub port: Option<u16>,
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let alone = |ip| Endpoint { ip, port: None };
        let with_port = |address: SocketAddr| Endpoint {
            ip: address.ip(),
            port: Some(address.port()),
        };
        text.parse()
            .map(with_port)
            .or_else(|_| text.parse().map(alone))
            .map_err(|_| "write 192.0.2.1:80 or [2001:db8::1]:80".to_owned())
    }
}

/// What tells flows of a protocol without ports: decimal, or hexadecimal with `0x`.
///
/// # Errors
/// What to write.
pub fn identifier(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "write a number of 32 bits, such as 4711 or 0xc0de0001".to_owned())
}

impl ExplainQuery {
    /// Of ends with ports, or with what tells flows of other protocols in their place.
    ///
    /// # Errors
    /// What is wrong with it, or missing.
    pub fn of(
        proto: Proto,
        src: Endpoint,
        dst: Endpoint,
        id: Option<u32>,
        watch_ms: u32,
    ) -> Result<ExplainQuery, String> {
        if src.ip.is_ipv4() != dst.ip.is_ipv4() {
            return Err("source and destination are of different families".into());
        }
        let (sport, dport) = ports_of(proto, src, dst, id)?;
        Ok(ExplainQuery {
            proto,
            src: SocketAddr::new(src.ip, sport),
            dst: SocketAddr::new(dst.ip, dport),
            watch_ms,
        })
    }
}

fn ports_of(
    proto: Proto,
    src: Endpoint,
    dst: Endpoint,
    id: Option<u32>,
) -> Result<(u16, u16), String> {
    if proto.has_id() {
        if src.port.is_some() || dst.port.is_some() {
            return Err(format!("{proto} has no ports: write the addresses alone"));
        }
        let other = match src.ip {
            IpAddr::V4(_) => Proto::ICMP6,
            IpAddr::V6(_) => Proto::ICMP,
        };
        if proto == other {
            return Err(format!("{proto} is not of this family of addresses"));
        }
        return halves(proto, id);
    }
    if id.is_some() {
        return Err(format!(
            "{proto} takes no ID: write ports with the addresses"
        ));
    }
    match (src.port, dst.port) {
        (Some(sport), Some(dport)) => Ok((sport, dport)),
        _ => Err("a port is missing: write 192.0.2.1:80 or [2001:db8::1]:80".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_are_named_by_ports_or_otherwise() {
        let ends = |words: &str| {
            let mut words = words.split(' ');
            let proto = words.next().unwrap().parse()?;
            let [src, dst] = [words.next(), words.next()].map(|end| end.unwrap().parse());
            let id = words.next().map(identifier).transpose()?;
            let query = ExplainQuery::of(proto, src?, dst?, id, 0);
            query.map(|query| (query.src.port(), query.dst.port()))
        };
        assert_eq!(ends("udp 192.0.2.1:7 192.0.2.2:8"), Ok((7, 8)));
        assert_eq!(ends("icmp 192.0.2.1 192.0.2.2 7"), Ok((7, 0x0800)));
        assert_eq!(ends("esp 2001:db8::1 2001:db8::2 0x10002"), Ok((1, 2)));
        for wrong in [
            "udp 192.0.2.1 192.0.2.2:8",
            "udp 2001:db8::1:7 [2001:db8::2]:8",
            "udp 192.0.2.1:7 [2001:db8::2]:8",
            "udp 192.0.2.1:7 192.0.2.2:8 9",
            "icmp 192.0.2.1:7 192.0.2.2 9",
            "icmp 192.0.2.1 192.0.2.2",
            "icmp 192.0.2.1 192.0.2.2 x",
            "icmpv6 192.0.2.1 192.0.2.2 7",
        ] {
            assert!(ends(wrong).is_err(), "{wrong}");
        }
    }
}
