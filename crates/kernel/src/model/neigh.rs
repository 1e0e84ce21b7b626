// SPDX-License-Identifier: MIT OR Apache-2.0
//! Neighbours, forwarding databases and forwarding switches.

use std::net::IpAddr;

use serde::Serialize;

use super::{Family, Mac};

/// A neighbour (RTM_NEWNEIGH).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Neigh {
    /// The interface.
    pub ifindex: u32,
    /// Its IP address.
    pub ip: IpAddr,
    /// Its link address.
    pub lladdr: Option<Mac>,
    /// NUD_ state bits.
    pub state: u16,
}

impl Neigh {
    /// True if packets may be sent to it (NUD_VALID: permanent, noarp, reachable, probe, stale, delay).
    pub fn is_valid(&self) -> bool {
        self.state & 0xde != 0
    }

    /// True if `self` and `other` send packets to the same place. Reachable, stale, delay and probe are one.
    pub fn same_outcome(&self, other: &Neigh) -> bool {
        self.ifindex == other.ifindex
            && self.ip == other.ip
            && self.is_valid() == other.is_valid()
            && (!self.is_valid() || self.lladdr == other.lladdr)
    }
}

/// An entry of a forwarding database (RTM_NEWNEIGH, AF_BRIDGE).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fdb {
    /// The port that the station is behind.
    pub ifindex: u32,
    /// The bridge; `None` for entries of the device itself (vxlan).
    pub master: Option<u32>,
    /// The station.
    pub mac: Mac,
    /// VLAN of a filtering bridge.
    pub vlan: Option<u16>,
    /// Remote end of a tunnel device.
    pub remote: Option<IpAddr>,
    /// The bridge's own address (NUD_PERMANENT).
    pub local: bool,
}

/// Forwarding switches of an interface (RTM_NEWNETCONF).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Netconf {
    /// IP version.
    pub family: Family,
    /// Interface index, -1 for "all", -2 for "default".
    pub ifindex: i32,
    /// `forwarding`.
    pub forwarding: Option<bool>,
    /// `rp_filter`: 0 off, 1 strict, 2 loose.
    pub rp_filter: Option<u32>,
    /// `mc_forwarding`.
    pub mc_forwarding: Option<bool>,
    /// `proxy_arp` or `proxy_ndp`.
    pub proxy_neigh: Option<bool>,
    /// `ignore_routes_with_linkdown`.
    pub ignore_linkdown: Option<bool>,
}
