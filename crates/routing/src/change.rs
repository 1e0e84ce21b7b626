// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an event says of a route.

use crate::ip::Ip;
use crate::route::Told;

/// A change of a route.
#[derive(Clone, Copy, Debug)]
pub struct Change<A: Ip> {
    pub kind: Kind,
    pub route: Told<A>,
}

/// What happened to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It is there, beside others.
    New,
    /// It is there instead of the first of the same table, prefix and rank.
    Replaced,
    /// It is there no more.
    Gone,
}
