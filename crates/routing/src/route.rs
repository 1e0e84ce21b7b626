// SPDX-License-Identifier: MIT OR Apache-2.0
//! A route as it is told.

use std::hash::{DefaultHasher, Hash, Hasher};

use freeway_kernel::model::Route;
use freeway_prefix::Prefix;

use crate::ip::Ip;

/// RTN_UNICAST, RTN_LOCAL.
const UNICAST: u8 = 1;
const LOCAL: u8 = 2;
/// RTPROT_KERNEL.
const BY_KERNEL: u8 = 2;

/// What a route says, in few bytes. Addresses are in host order, 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Told<A> {
    /// Its table: 255 local, 254 main, 253 default.
    pub table: u32,
    /// Its destinations.
    pub prefix: Prefix<A>,
    /// Not 0: it is for some packets alone, those of one TOS, or of some sources (RTA_SRC).
    pub only: u8,
    /// Metric, lower wins.
    pub priority: u32,
    /// Where it leads.
    pub way: Way<A>,
    /// Preferred source address.
    pub prefsrc: A,
    /// Nexthop object.
    pub nexthop_id: u32,
    /// Of type local, and not the kernel's own.
    pub added_local: bool,
    /// Differs, as good as always, if anything else does. So routes of one prefix and rank are told apart.
    pub rest: u32,
}

/// Where a route leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way<A> {
    /// One way out, and nothing else happens.
    Via {
        /// The interface.
        oif: u32,
        /// The next router; 0: each destination is on the link.
        gateway: A,
        /// Path MTU metric; 0: none.
        mtu: u16,
    },
    /// Packets are forwarded, in a way that is the kernel's: several hops, encapsulation, a gateway of the other family,
    /// realms, a locked path MTU, a time at which it ends.
    Unicast {
        /// The interfaces: of each, the bit of its index modulo 32.
        links: u32,
    },
    /// Local, broadcast, blackhole, throw and others: nothing is forwarded.
    Kernel,
}

impl<A: Ip> Way<A> {
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

impl<A: Ip> Told<A> {
    /// `None` if it is not of the family.
    #[must_use]
    pub fn of(route: &Route) -> Option<Self> {
        let prefix = Prefix::new(A::of(route.dst.addr)?, route.dst.len)?;
        let mut hasher = DefaultHasher::new();
        (route.kind, route.protocol, route.scope, route.mtu).hash(&mut hasher);
        (route.special, &route.hops, route.src).hash(&mut hasher);
        Some(Self {
            table: route.table,
            prefix,
            only: route.tos | u8::from(route.src.is_some()),
            priority: route.priority,
            way: way(route),
            prefsrc: route.prefsrc.and_then(A::of).unwrap_or_default(),
            nexthop_id: route.nexthop_id.unwrap_or(0),
            added_local: route.kind == LOCAL && route.protocol != BY_KERNEL,
            rest: hasher.finish() as u32,
        })
    }
}

fn way<A: Ip>(route: &Route) -> Way<A> {
    if route.kind != UNICAST {
        return Way::Kernel;
    }
    if let [hop] = route.hops.as_slice()
        && let (Some(oif), false) = (hop.oif, route.special)
        && let Some(gateway) = hop.gateway.map_or(Some(A::default()), A::of)
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
