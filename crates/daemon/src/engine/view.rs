// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the data plane says of flows' states.

use std::ops::Range;

use freeway_abi::fw_state;
use freeway_cmm::StateView;
use freeway_datapath::Datapath;

/// The manager's view of the shared states.
pub(super) struct View<'a>(pub &'a Datapath);

impl StateView for View<'_> {
    fn state(&self, index: u32) -> fw_state {
        self.0.flows.state(index)
    }

    fn take_seen(&self, indices: Range<u32>, most: usize, seen: &mut Vec<u32>) -> u32 {
        self.0.seen.take(indices, most, seen)
    }
}
