// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the daemon knows of a candidate beside it.

/// What the daemon knows of a candidate beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Around {
    /// Frames that left for the one that came in.
    pub copies: u32,
    /// A packet socket takes its frames.
    pub sniffed: bool,
    /// A socket of the router itself takes its packets, which are to a group.
    pub local: bool,
}

impl Around {
    /// One frame for one, and nobody who takes it.
    pub const PLAIN: Around = Around {
        copies: 1,
        sniffed: false,
        local: false,
    };
}
