// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whom a candidate's frames come from, and whom they go to.

use freeway_abi::fw_candidate;

pub(crate) type Mac = [u8; 6];

/// Whom a frame came from.
pub(crate) fn sender(c: &fw_candidate) -> Mac {
    let mut mac = [0; 6];
    mac.copy_from_slice(&c.l2_in[6..12]);
    mac
}

/// Whom it goes to.
pub(crate) fn receiver(c: &fw_candidate) -> Mac {
    let mut mac = [0; 6];
    mac.copy_from_slice(&c.l2_out[..6]);
    mac
}
