// SPDX-License-Identifier: MIT OR Apache-2.0
//! The multicast forwarding caches.

use std::net::IpAddr;

use serde::Serialize;

/// An entry of a multicast forwarding cache (RTM_NEWROUTE, `mr_fill_mroute` in net/ipv4/ipmr_base.c).
///
/// One whose source is unspecified is for every source that has no entry of its own, and only for packets that come in
/// by one of `oifs`, or by that of an upstream entry, whose group is unspecified too (`mr_mfc_find_any`). It does not
/// send them back where they came from; one with a source sends to all of `oifs` (`ip_mr_forward`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Mroute {
    /// Sender; unspecified: any.
    pub src: IpAddr,
    /// Destination; unspecified: any.
    pub group: IpAddr,
    /// The interface that packets are forwarded from; 0: not resolved, or without its interface, or several entries
    /// with this source, group and table (MRT_ADD_MFC_PROXY), which are not told apart.
    pub iif: u32,
    /// Where copies leave, in the order of the kernel's virtual interfaces. None where `iif` is 0.
    pub oifs: Vec<Oif>,
    /// Table: 253 is the default one of IPv4, 254 that of IPv6.
    pub table: u32,
}

/// An interface by which copies leave (`struct rtnexthop`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Oif {
    /// The interface.
    pub ifindex: u32,
    /// Threshold: packets leave whose TTL or hop limit, before it is lowered, is above it.
    pub ttl: u8,
}
