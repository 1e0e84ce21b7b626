// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happened.

use serde::Serialize;

use super::*;
use crate::nft::SetChanges;

/// The event socket that lost messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Links, addresses, netconf, rules, nexthops, qdiscs, filters.
    Link,
    /// Neighbours, FDB and MDB.
    Neigh,
    /// Routes and multicast forwarding.
    Route,
    /// nftables.
    Nft,
    /// Connection tracking.
    Conntrack,
    /// IPsec policies and states.
    Xfrm,
}

/// Something changed in the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(clippy::large_enum_variant)]
pub enum Event {
    /// A link is new or changed.
    LinkChanged(Link),
    /// A link is gone (deleted, or moved to another namespace).
    LinkGone {
        /// Its index.
        ifindex: u32,
    },
    /// An address is new or changed.
    AddrChanged(Addr),
    /// An address is gone.
    AddrGone(Addr),
    /// A route is new or changed; true: it took the place of the first of the same table, prefix, TOS and priority
    /// (NLM_F_REPLACE).
    RouteChanged(Route, bool),
    /// A route is gone.
    RouteGone(Route),
    /// Routes changed, and it is not known which.
    RoutesUnknown,
    /// An entry of a multicast forwarding cache is new or changed.
    MrouteChanged(Mroute),
    /// An entry of a multicast forwarding cache is gone.
    MrouteGone(Mroute),
    /// A rule that chooses among multicast forwarding caches (`ip mrule`) is new or gone.
    MruleChanged,
    /// A policy rule is new or gone.
    RuleChanged(Rule),
    /// A nexthop object (or a bucket of it) is new, changed or gone.
    NexthopChanged {
        /// Its identifier.
        id: u32,
    },
    /// A neighbour is new, or its address or validity changed.
    NeighChanged(Neigh),
    /// A neighbour is gone.
    NeighGone(Neigh),
    /// An FDB entry is new or its station moved.
    FdbChanged(Fdb),
    /// An FDB entry is gone.
    FdbGone(Fdb),
    /// Somebody listens to a group behind a bridge's port, or in another way than before.
    MdbChanged(Mdb),
    /// Nobody does any more.
    MdbGone(Mdb),
    /// A multicast router is behind a bridge's port.
    RouterPortNew(RouterPort),
    /// It is there no longer.
    RouterPortGone(RouterPort),
    /// Qdiscs of a link changed.
    QdiscChanged {
        /// The link.
        ifindex: u32,
    },
    /// tc filters of a link changed.
    FilterChanged {
        /// The link.
        ifindex: u32,
    },
    /// Forwarding switches of an interface changed.
    NetconfChanged {
        /// The interface, -1 for "all", -2 for "default".
        ifindex: i32,
        /// IP version.
        family: Family,
    },
    /// The nftables ruleset changed in more than set elements.
    RulesetChanged {
        /// Its generation.
        generation: u32,
    },
    /// Elements of one nftables set changed, and nothing else if [`Event::RulesetChanged`] does not say so.
    SetElementsChanged {
        /// NFPROTO_ number of the table.
        family: u8,
        /// The table.
        table: String,
        /// The set.
        set: String,
        /// The elements.
        #[serde(skip)]
        changes: SetChanges,
    },
    /// An IPsec policy or state is new, changed or gone.
    XfrmChanged,
    /// A connection is gone.
    ConnectionDestroyed(Connection),
    /// A connection changed (state, status, mark, helper, labels).
    ConnectionUpdated(Connection),
    /// The kernel dropped messages: resynchronise.
    Overrun {
        /// The socket that lost them.
        source: Source,
    },
}
