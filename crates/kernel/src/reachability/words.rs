// SPDX-License-Identifier: MIT OR Apache-2.0
//! A finding in words: where, what, why, and which flows it concerns.

use std::fmt;
use std::net::IpAddr;

use super::finding::{AddrRange, Finding, IfMatch, PortRange};
use crate::model::Family;

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.family, self.table)?;
        if !self.chain.is_empty() {
            write!(f, " {}, rule {}", self.chain, self.rule_index + 1)?;
        }
        if self.handle != 0 {
            write!(f, " (handle {})", self.handle)?;
        }
        write!(f, ": {}: {}", self.expression, self.reason)?;
        let concerned = self.concerned();
        if !concerned.is_empty() {
            write!(f, " [{}]", concerned.join(", "))?;
        }
        Ok(())
    }
}

impl Finding {
    /// What the flows that it concerns have in common; empty: it concerns all.
    fn concerned(&self) -> Vec<String> {
        let mut words = Vec::new();
        let own = |protocol: &u8| match i32::from(*protocol) {
            libc::IPPROTO_TCP => "TCP",
            libc::IPPROTO_UDP => "UDP",
            libc::IPPROTO_GRE => "GRE",
            libc::IPPROTO_ESP => "ESP",
            libc::IPPROTO_ICMP => "ICMP",
            _ => "ICMPv6",
        };
        let mut all = std::collections::BTreeSet::new();
        all.extend(self.ip.iter().copied().flat_map(super::packet::protocols));
        if let [ip] = self.ip.as_slice() {
            words.push(match ip {
                Family::Ipv4 => "IPv4".to_owned(),
                Family::Ipv6 => "IPv6".to_owned(),
            });
        }
        if self.protocols.len() < all.len() {
            let names: Vec<&str> = self.protocols.iter().map(own).collect();
            words.extend((!names.is_empty()).then(|| names.join(" or ")));
        }
        let mut list = |what: &str, items: Vec<String>| {
            if !items.is_empty() {
                words.push(format!("{what} {}", items.join(" or ")));
            }
        };
        list("in at", self.iif.iter().map(interface).collect());
        list("out at", self.oif.iter().map(interface).collect());
        list("from", self.src.iter().map(addresses).collect());
        list("to", self.dst.iter().map(addresses).collect());
        list("from port", self.sport.iter().map(ports).collect());
        list("to port", self.dport.iter().map(ports).collect());
        words
    }
}

fn interface(wanted: &IfMatch) -> String {
    match wanted {
        IfMatch::Name(name) => name.clone(),
        IfMatch::Prefix(prefix) => format!("{prefix}*"),
        IfMatch::Index(index) => format!("interface {index}"),
    }
}

fn ports(&(from, to): &PortRange) -> String {
    match from == to {
        true => from.to_string(),
        false => format!("{from}-{to}"),
    }
}

/// As a prefix where it is one.
fn addresses(&(from, to): &AddrRange) -> String {
    let (bits, first, last) = match (from, to) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (32, u32::from(a).into(), u32::from(b).into()),
        (IpAddr::V6(a), IpAddr::V6(b)) => (128, u128::from(a), u128::from(b)),
        _ => return format!("{from}-{to}"),
    };
    let differs: u128 = first ^ last;
    let free = 128 - differs.leading_zeros();
    let prefix = differs.count_ones() == free && first & differs == 0;
    match (from == to, prefix) {
        (true, _) => from.to_string(),
        (_, true) => format!("{from}/{}", bits - free),
        _ => format!("{from}-{to}"),
    }
}

/// Why an expression must see every packet, in words.
pub(super) fn reason(name: &str) -> &'static str {
    match name {
        "limit" => "matches at a rate, so it must count every packet",
        "quota" => "counts the bytes of every packet",
        "log" => "reports packets",
        "queue" => "hands packets to user space",
        "numgen" => "picks packets at random or in turn",
        "dynset" => "changes a set by packets",
        "connlimit" => "depends on the number of other connections",
        "hash" => "spreads packets by a hash",
        "socket" | "tproxy" => "looks for a local socket",
        "synproxy" => "answers and rewrites TCP packets itself",
        "dup" | "fwd" => "copies or diverts packets",
        "flow_offload" => "hands the flow to the kernel's own flow table",
        "secmark" => "sets what no frame shows",
        _ => "is not known to depend on the flow alone",
    }
}
