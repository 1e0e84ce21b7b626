// SPDX-License-Identifier: MIT OR Apache-2.0
//! A route as it is told.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr};

use freeway_kernel::model::{Family, Route};
use freeway_prefix::Prefix4;

/// RTN_UNICAST.
const UNICAST: u8 = 1;

/// What an IPv4 route says, in few bytes. Addresses are in host order, 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Route4 {
    /// Its table: 255 local, 254 main, 253 default.
    pub table: u32,
    /// Its destinations.
    pub prefix: Prefix4,
    /// The TOS that it is for; 0: any.
    pub tos: u8,
    /// Metric, lower wins.
    pub priority: u32,
    /// Where it leads.
    pub way: Way,
    /// Preferred source address.
    pub prefsrc: u32,
    /// Nexthop object.
    pub nexthop_id: u32,
    /// Differs, as good as always, if anything else does. So routes of one prefix, TOS and priority are told apart.
    pub rest: u32,
}

/// Where a route leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// One way out, and nothing else happens.
    Via {
        /// The interface.
        oif: u32,
        /// The next router; 0: each destination is on the link.
        gateway: u32,
        /// Path MTU metric; 0: none.
        mtu: u16,
    },
    /// Packets are forwarded, in a way that is the kernel's: several hops, encapsulation, an IPv6 gateway, realms, a locked
    /// path MTU.
    Unicast {
        /// The interfaces: of each, the bit of its index modulo 32.
        links: u32,
    },
    /// Local, broadcast, blackhole, throw and others: nothing is forwarded.
    Kernel,
}

impl Way {
    /// True if it may be by a link.
    pub(crate) fn may_leave_by(&self, ifindex: u32) -> bool {
        match self {
            Way::Via { oif, .. } => *oif == ifindex,
            Way::Unicast { links } => links & bit(ifindex) != 0,
            Way::Kernel => false,
        }
    }
}

fn bit(ifindex: u32) -> u32 {
    1 << (ifindex % 32)
}

fn bits(ip: IpAddr) -> Option<u32> {
    match ip {
        IpAddr::V4(ip) => Some(ip.to_bits()),
        IpAddr::V6(_) => None,
    }
}

impl Route4 {
    /// `None` if it is not of IPv4.
    #[must_use]
    pub fn of(route: &Route) -> Option<Self> {
        let prefix = match (route.family, route.dst.addr) {
            (Family::Ipv4, IpAddr::V4(address)) => Prefix4::new(address.to_bits(), route.dst.len)?,
            _ => return None,
        };
        let mut hasher = DefaultHasher::new();
        (route.kind, route.protocol, route.scope, route.mtu).hash(&mut hasher);
        (route.special, &route.hops).hash(&mut hasher);
        Some(Self {
            table: route.table,
            prefix,
            tos: route.tos,
            priority: route.priority,
            way: way(route),
            prefsrc: route.prefsrc.and_then(bits).unwrap_or(0),
            nexthop_id: route.nexthop_id.unwrap_or(0),
            rest: hasher.finish() as u32,
        })
    }
}

fn way(route: &Route) -> Way {
    if route.kind != UNICAST {
        return Way::Kernel;
    }
    if let [hop] = route.hops.as_slice()
        && let (Some(oif), false) = (hop.oif, route.special)
        && let Some(gateway) = bits(hop.gateway.unwrap_or(Ipv4Addr::UNSPECIFIED.into()))
    {
        let mtu = route.mtu.unwrap_or(0);
        let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
        return Way::Via { oif, gateway, mtu };
    }
    let links = route.hops.iter().filter_map(|hop| hop.oif);
    let links = links.fold(0, |links, oif| links | bit(oif));
    // Nexthop objects hide their interfaces where nexthop_compat_mode is off.
    let links = if links == 0 { u32::MAX } else { links };
    Way::Unicast { links }
}
