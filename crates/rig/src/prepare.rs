// SPDX-License-Identifier: MIT OR Apache-2.0
//! Before the first lab.

use freeway_console::Stop;
use freeway_lab::{LabError, cleanup_on_signal};

/// Prepares for labs: checks that they can be built, and sees to Ctrl-C.
pub fn prepare() -> Result<(), Stop> {
    if !nix::unistd::geteuid().is_root() {
        return Err(LabError::NotRoot.into());
    }
    Ok(cleanup_on_signal()?)
}
