// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an event says of a route.

use crate::route::Route4;

/// A change of a route.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    pub kind: Kind,
    pub route: Route4,
}

/// What happened to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It is there, beside others.
    New,
    /// It is there instead of the first of the same table, prefix, TOS and priority.
    Replaced,
    /// It is there no more.
    Gone,
}
