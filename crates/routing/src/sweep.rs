// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which routes the kernel deletes in silence, and when.

use crate::ip::Ip;
use crate::term::Term;

/// What went, and its routes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sweep<A> {
    /// A link, as far as the family goes (`fib_sync_down_dev`, `fib6_ifdown`).
    Link(u32),
    /// The nexthop objects of a link (`nexthop_flush_dev`).
    Objects(u32),
    /// A nexthop object.
    Object(u32),
    /// An address of this machine (`fib_sync_down_addr`; IPv6 keeps the routes).
    Source(A),
}

impl<A: Ip> Sweep<A> {
    /// True if a route may have gone with it.
    pub fn meets(&self, term: &Term<A>) -> bool {
        match self {
            Sweep::Link(link) => term.way.may_leave_by(*link),
            Sweep::Objects(link) => term.nexthop_id != 0 && term.way.may_leave_by(*link),
            Sweep::Object(id) => term.nexthop_id == *id,
            Sweep::Source(address) => term.prefsrc == *address,
        }
    }
}
