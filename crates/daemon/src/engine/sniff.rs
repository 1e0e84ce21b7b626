// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flows whose frames a packet socket takes go to tc, where it sees them, and back when it no longer does; in pieces.

mod walk;

/// Flows looked at in one piece: for each, two frames are built and the sockets' filters run.
const PIECE: u32 = 256;

/// The walk over the flows, if one is under way.
#[derive(Debug, Default)]
pub(super) struct Sniff {
    cursor: Option<u32>,
}

impl Sniff {
    /// Looks at every flow anew.
    pub(super) fn begin(&mut self) {
        self.cursor = Some(0);
    }

    pub(super) fn running(&self) -> bool {
        self.cursor.is_some()
    }
}
