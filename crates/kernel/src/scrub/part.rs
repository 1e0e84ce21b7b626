// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a set is asked for.

/// Which address of a packet a set is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// Where it comes from.
    Source,
    /// Where it goes to.
    Destination,
}

/// A part of a set's key, four bytes each but for addresses of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// The address.
    Addr,
    /// The IP protocol.
    Proto,
    /// The destination port.
    Dport,
    /// The source port.
    Sport,
}
