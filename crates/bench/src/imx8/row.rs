// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows of the measurement, and what fills a link with their frames.

use std::str::FromStr;

use freeway_lab::frame::{FCS_BYTES, FRAME_BYTES_MAX, TAG_BYTES};
use freeway_lab::{Directions, Family, Proto};

use crate::line::line_pps;

/// An Ethernet header without a tag.
const ETHERNET: u32 = 14;

/// One combination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The address family.
    pub family: Family,
    /// The protocol.
    pub proto: Proto,
    /// Forward is from LAN to WAN.
    pub directions: Directions,
    /// The LAN is a VLAN, and the router masquerades on the WAN.
    pub vlan_nat: bool,
}

impl Row {
    /// The 16 of one direction, and after each pair of them the one of both: in the order of the table.
    pub fn all() -> Vec<Row> {
        let mut rows = Vec::new();
        for vlan_nat in [false, true] {
            for family in [Family::Ipv4, Family::Ipv6] {
                for proto in [Proto::Tcp, Proto::Udp] {
                    for directions in [Directions::Forward, Directions::Reply, Directions::Both] {
                        rows.push(Row {
                            family,
                            proto,
                            directions,
                            vlan_nat,
                        });
                    }
                }
            }
        }
        rows
    }

    /// Those that are named, or the 16, in order; with `duplex` that of both directions of each pair among them, too.
    pub fn asked(named: &[Row], duplex: bool) -> Vec<Row> {
        let mut rows = Row::all();
        rows.retain(|row| {
            let named_or_all = match named {
                [] => !row.is_duplex(),
                named => named.contains(row),
            };
            let of_pair = |other: &Row| other.both() == *row;
            let added = duplex && row.is_duplex();
            named_or_all || added && (named.is_empty() || named.iter().any(of_pair))
        });
        rows
    }

    /// Whether frames of both directions alternate.
    pub fn is_duplex(&self) -> bool {
        self.directions == Directions::Both
    }

    /// The one of both directions.
    fn both(self) -> Row {
        Row {
            directions: Directions::Both,
            ..self
        }
    }

    /// Its name on the command line and in JSON: `ipv4-tcp-lan-wan`, `ipv4-tcp-duplex-vlan-nat`.
    pub fn name(&self) -> String {
        let family = match self.family {
            Family::Ipv4 => "ipv4",
            Family::Ipv6 => "ipv6",
        };
        let directions = match self.directions {
            Directions::Forward => "lan-wan",
            Directions::Reply => "wan-lan",
            Directions::Both => "duplex",
        };
        let shape = if self.vlan_nat { "-vlan-nat" } else { "" };
        format!("{family}-{}-{directions}{shape}", self.proto.name())
    }

    /// Its name in the table, `IPv4 TCP LAN>WAN`.
    pub fn label(&self) -> String {
        let family = match self.family {
            Family::Ipv4 => "IPv4",
            Family::Ipv6 => "IPv6",
        };
        let proto = self.proto.name().to_uppercase();
        let directions = match self.directions {
            Directions::Forward => "LAN>WAN",
            Directions::Reply => "WAN>LAN",
            Directions::Both => "duplex",
        };
        format!("{family} {proto} {directions}")
    }

    /// The frame on the LAN or the WAN, whichever is longer; FCS counted.
    pub fn frame_bytes(&self) -> u32 {
        let tag = if self.vlan_nat { TAG_BYTES } else { 0 };
        FRAME_BYTES_MAX + tag
    }

    /// Of layer 4; there are no options.
    pub fn payload_bytes(&self) -> u32 {
        let ip = match self.family {
            Family::Ipv4 => 20,
            Family::Ipv6 => 40,
        };
        let l4 = match self.proto {
            Proto::Udp => 8,
            Proto::Tcp => 20,
        };
        FRAME_BYTES_MAX - FCS_BYTES - ETHERNET - ip - l4
    }

    /// Frames a second that fill the link; in a row of both directions, both ways.
    pub fn line_pps(&self) -> f64 {
        line_pps(f64::from(self.frame_bytes())) * self.directions.each().len() as f64
    }

    /// Megabits of payload a second at a rate of frames.
    pub fn mbit_s(&self, pps: f64) -> f64 {
        f64::from(8 * self.payload_bytes()) * pps / 1e6
    }
}

impl FromStr for Row {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let rows = Row::all();
        let row = rows.iter().find(|row| row.name() == name);
        row.copied().ok_or_else(|| {
            let names: Vec<String> = rows.iter().map(Row::name).collect();
            format!("there are: {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use freeway_lab::FlowSpec;

    use super::*;

    fn row(name: &str) -> Row {
        name.parse().unwrap()
    }

    #[test]
    fn there_are_sixteen_and_eight_of_both_directions() {
        let rows = Row::all();
        assert_eq!(Row::asked(&[], false).len(), 16);
        assert_eq!(Row::asked(&[], true), rows);
        assert_eq!(rows.len(), 24);
        for wanted in &rows {
            assert_eq!(row(&wanted.name()), *wanted);
        }
        let error = Row::from_str("ipv5-tcp-lan-wan").unwrap_err();
        assert!(error.contains("ipv6-udp-wan-lan-vlan-nat"), "{error}");
        assert_eq!(row("ipv6-udp-wan-lan-vlan-nat").label(), "IPv6 UDP WAN>LAN");
    }

    #[test]
    fn rows_of_both_directions_are_those_of_pairs() {
        let asked = |names: &[&str], duplex| {
            let named: Vec<Row> = names.iter().map(|name| row(name)).collect();
            let rows = Row::asked(&named, duplex);
            rows.iter().map(Row::name).collect::<Vec<_>>()
        };
        let reply = "ipv4-udp-wan-lan-vlan-nat";
        let both = "ipv4-udp-duplex-vlan-nat";
        assert_eq!(asked(&[reply], false), [reply]);
        assert_eq!(asked(&[reply], true), [reply, both]);
        assert_eq!(asked(&[both, both], false), [both]);
        assert_eq!(asked(&[both], true), [both]);
        assert_eq!(row(both).label(), "IPv4 UDP duplex");
    }

    #[test]
    fn payload_of_a_full_link() {
        let near = |name, pps: f64, mbit_s: f64| {
            let row: Row = row(name);
            assert!((row.line_pps() - pps).abs() < 0.5, "{name}");
            let rate = row.mbit_s(row.line_pps());
            assert!((rate - mbit_s).abs() < 0.06, "{name}: {rate}");
        };
        near("ipv4-udp-lan-wan", 81_274.0, 957.1);
        near("ipv4-tcp-lan-wan", 81_274.0, 949.3);
        near("ipv6-udp-wan-lan", 81_274.0, 944.1);
        near("ipv6-tcp-wan-lan", 81_274.0, 936.3);
        near("ipv4-udp-lan-wan-vlan-nat", 81_064.0, 957.1 - 2.5);
        near("ipv6-tcp-wan-lan-vlan-nat", 81_064.0, 936.3 - 2.4);
        near("ipv4-udp-duplex", 2.0 * 81_274.4, 2.0 * 957.1);
    }

    #[test]
    fn payloads_are_the_generators() {
        for row in Row::all() {
            let plan = row.family.plan();
            let spec = FlowSpec {
                proto: row.proto,
                frame_bytes: FRAME_BYTES_MAX,
                near: plan.client,
                far: plan.server,
                vlan: row.vlan_nat.then_some(5),
                ..FlowSpec::default()
            };
            assert_eq!(spec.payload_len(), row.payload_bytes() as usize);
            assert_eq!(spec.wire_bytes(), row.frame_bytes());
        }
    }
}
