// SPDX-License-Identifier: MIT OR Apache-2.0
//! The topologies, as data.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use crate::error::LabError;

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

/// What the router filters in its forward chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Filter {
    /// No nft table for it. Without NAT there is no conntrack either.
    None,
    /// Conntrack follows every connection; nothing is dropped.
    Tracked,
    /// Stateful, policy drop: established and related pass, invalid is dropped, new passes from LAN to WAN.
    Stateful,
}

/// One topology: who is there, and what the router does.
#[derive(Debug, Serialize)]
pub struct Topology {
    /// What it is called on the command line.
    pub name: &'static str,
    /// One line about it.
    pub summary: &'static str,
    /// A drawing of it.
    pub picture: &'static str,
    /// The only address family in it.
    pub family: Family,
    /// Whether the router masquerades on the WAN.
    pub masquerade: bool,
    /// The router's filter, unless the options say otherwise.
    pub filter: Filter,
}

/// All topologies.
pub static TOPOLOGIES: &[Topology] = &[
    Topology {
        name: "routed",
        summary: "IPv4 routing, no nftables, no conntrack",
        picture: r"
      client                     router                     server
  +------------+         +---------------------+         +------------+
  |       eth0 |---------| lan0           wan0 |---------| eth0       |
  +------------+         +---------------------+         +------------+
   192.0.2.2/24      192.0.2.1/24      198.51.100.1/24   198.51.100.2/24
   (to .33)",
        family: Family::Ipv4,
        masquerade: false,
        filter: Filter::None,
    },
    Topology {
        name: "nat",
        summary: "IPv4 masquerade on the WAN and a stateful three-rule nftables firewall",
        picture: r"
      client                     router                     server
  +------------+         +---------------------+         +------------+
  |       eth0 |---------| lan0           wan0 |---------| eth0       |
  +------------+         +---------------------+         +------------+
   192.0.2.2/24      192.0.2.1/24      198.51.100.1/24   198.51.100.2/24
   (to .33)            forward: established,related accept
                                invalid drop
                                new from lan0 to wan0 accept, else drop
                       postrouting: masquerade on wan0",
        family: Family::Ipv4,
        masquerade: true,
        filter: Filter::Stateful,
    },
    Topology {
        name: "routed6",
        summary: "IPv6 routing, no IPv4, no nftables, no conntrack",
        picture: r"
      client                     router                     server
  +------------+         +---------------------+         +------------+
  |       eth0 |---------| lan0           wan0 |---------| eth0       |
  +------------+         +---------------------+         +------------+
   2001:db8:1::2/64  2001:db8:1::1/64  2001:db8:2::1/64  2001:db8:2::2/64
   (to ::21)",
        family: Family::Ipv6,
        masquerade: false,
        filter: Filter::None,
    },
    Topology {
        name: "nat6",
        summary: "IPv6 masquerade on the WAN and a stateful three-rule nftables firewall",
        picture: r"
      client                     router                     server
  +------------+         +---------------------+         +------------+
  |       eth0 |---------| lan0           wan0 |---------| eth0       |
  +------------+         +---------------------+         +------------+
   2001:db8:1::2/64  2001:db8:1::1/64  2001:db8:2::1/64  2001:db8:2::2/64
   (to ::21)           forward: established,related accept
                                invalid drop
                                new from lan0 to wan0 accept, else drop
                       postrouting: masquerade on wan0",
        family: Family::Ipv6,
        masquerade: true,
        filter: Filter::Stateful,
    },
];

impl Topology {
    /// The topology called `name`.
    pub fn parse(name: &str) -> Result<&'static Topology, LabError> {
        TOPOLOGIES
            .iter()
            .find(|topology| topology.name == name)
            .ok_or_else(|| {
                let known: Vec<_> = TOPOLOGIES.iter().map(|topology| topology.name).collect();
                LabError::UnknownTopology {
                    name: name.into(),
                    known: known.join(", "),
                }
            })
    }
}

/// The addresses of a family's topologies.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The client's first address; flow blocks use the following ones.
    pub client: IpAddr,
    /// The router's address on the LAN.
    pub lan: IpAddr,
    /// The router's address on the WAN.
    pub wan: IpAddr,
    /// The server's address.
    pub server: IpAddr,
    /// Prefix length of both networks.
    pub prefix_len: u8,
}

impl Family {
    /// The addresses that topologies of this family use (RFC 5737, RFC 3849).
    pub fn plan(self) -> Plan {
        match self {
            Family::Ipv4 => Plan {
                client: Ipv4Addr::new(192, 0, 2, 2).into(),
                lan: Ipv4Addr::new(192, 0, 2, 1).into(),
                wan: Ipv4Addr::new(198, 51, 100, 1).into(),
                server: Ipv4Addr::new(198, 51, 100, 2).into(),
                prefix_len: 24,
            },
            Family::Ipv6 => Plan {
                client: Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 2).into(),
                lan: Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1).into(),
                wan: Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 1).into(),
                server: Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 2).into(),
                prefix_len: 64,
            },
        }
    }
}

/// `address` plus `offset`, within the last 32 bits.
pub fn offset(address: IpAddr, offset: u32) -> IpAddr {
    match address {
        IpAddr::V4(v4) => Ipv4Addr::from(u32::from(v4).wrapping_add(offset)).into(),
        IpAddr::V6(v6) => {
            let bits = u128::from(v6);
            let low = (bits as u32).wrapping_add(offset);
            Ipv6Addr::from(bits & !u128::from(u32::MAX) | u128::from(low)).into()
        }
    }
}
