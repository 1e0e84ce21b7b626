// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses, routes, policy rules and nexthop objects.

use std::net::IpAddr;

use serde::Serialize;

use super::{Family, Prefix};

/// An interface address (RTM_NEWADDR).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Addr {
    /// The interface.
    pub ifindex: u32,
    /// The local address.
    pub local: IpAddr,
    /// Prefix length in bits.
    pub prefix_len: u8,
    /// The peer's address on a point-to-point link.
    pub peer: Option<IpAddr>,
    /// IPv4 broadcast address.
    pub broadcast: Option<IpAddr>,
    /// IFA_F_ flags.
    pub flags: u32,
    /// RT_SCOPE_.
    pub scope: u8,
}

/// One way out of a route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Hop {
    /// Output interface.
    pub oif: Option<u32>,
    /// Gateway.
    pub gateway: Option<IpAddr>,
    /// Weight minus one in a multipath route.
    pub weight: u8,
    /// RTNH_F_ONLINK (4) or 0. Whether a hop is dead or without carrier, its link tells.
    pub flags: u8,
}

/// A route (RTM_NEWROUTE).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Route {
    /// IP version.
    pub family: Family,
    /// Table: 254 main, 255 local.
    pub table: u32,
    /// Destination.
    pub dst: Prefix,
    /// Source prefix of a source-specific IPv6 route.
    pub src: Option<Prefix>,
    /// TOS of an IPv4 route.
    pub tos: u8,
    /// Metric, lower wins.
    pub priority: u32,
    /// RTN_: 1 unicast, 2 local, 3 broadcast, 6 blackhole, 7 unreachable, 8 prohibit.
    pub kind: u8,
    /// RTPROT_: who made it.
    pub protocol: u8,
    /// RT_SCOPE_.
    pub scope: u8,
    /// Preferred source address.
    pub prefsrc: Option<IpAddr>,
    /// Nexthop object, if it uses one.
    pub nexthop_id: Option<u32>,
    /// Path MTU metric in bytes.
    pub mtu: Option<u32>,
    /// Ways out: one, several for multipath, none for blackholes.
    pub hops: Vec<Hop>,
    /// It does more than lead out: encapsulation, realms, a locked path MTU, a time at which it ends.
    pub special: bool,
}

impl Route {
    /// The output interface of a route with one hop.
    pub fn oif(&self) -> Option<u32> {
        match self.hops.as_slice() {
            [hop] => hop.oif,
            _ => None,
        }
    }

    /// The gateway of a route with one hop.
    pub fn gateway(&self) -> Option<IpAddr> {
        match self.hops.as_slice() {
            [hop] => hop.gateway,
            _ => None,
        }
    }
}

/// A policy rule (RTM_NEWRULE, `fib_nl_fill_rule`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Rule {
    /// IP version.
    pub family: Family,
    /// Priority, lower is looked at first.
    pub priority: u32,
    /// FR_ACT_: 1 to table, 2 goto, 3 nop, 6 blackhole, 7 unreachable, 8 prohibit.
    pub action: u8,
    /// Table of a "to table" rule.
    pub table: u32,
    /// FIB_RULE_ flags: 2 inverts the selector.
    pub flags: u32,
    /// Source selector.
    pub src: Option<Prefix>,
    /// Destination selector.
    pub dst: Option<Prefix>,
    /// Input interface selector.
    pub iif: Option<String>,
    /// Output interface selector.
    pub oif: Option<String>,
    /// Mark and mask selector.
    pub fwmark: Option<(u32, u32)>,
    /// TOS selector.
    pub tos: u8,
    /// L4 protocol selector.
    pub ip_proto: Option<u8>,
    /// Source port range selector.
    pub sport: Option<(u16, u16)>,
    /// Destination port range selector.
    pub dport: Option<(u16, u16)>,
    /// Target priority of a goto rule.
    pub goto: Option<u32>,
    /// Looks into the table of the L3 master device.
    pub l3mdev: bool,
    /// User range selector: never matches forwarded packets.
    pub uid_range: Option<(u32, u32)>,
    /// suppress_prefixlength.
    pub suppress_prefix_len: Option<u32>,
    /// suppress_ifgroup.
    pub suppress_ifgroup: Option<u32>,
}

impl Rule {
    /// That of no action and table, for all packets of a family.
    #[must_use]
    pub fn any(family: Family) -> Self {
        Self {
            family,
            priority: 0,
            action: 0,
            table: 0,
            flags: 0,
            src: None,
            dst: None,
            iif: None,
            oif: None,
            fwmark: None,
            tos: 0,
            ip_proto: None,
            sport: None,
            dport: None,
            goto: None,
            l3mdev: false,
            uid_range: None,
            suppress_prefix_len: None,
            suppress_ifgroup: None,
        }
    }
}

/// A nexthop object (RTM_NEWNEXTHOP).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Nexthop {
    /// Identifier.
    pub id: u32,
    /// IP version, `None` for groups.
    pub family: Option<Family>,
    /// Output interface.
    pub oif: Option<u32>,
    /// Gateway.
    pub gateway: Option<IpAddr>,
    /// Drops.
    pub blackhole: bool,
    /// RTNH_F_ flags.
    pub flags: u32,
    /// Members and their weights (minus one), empty for single nexthops.
    pub group: Vec<(u32, u8)>,
    /// 0 hash threshold, 1 resilient.
    pub group_type: u16,
}
