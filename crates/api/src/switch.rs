// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway on`, `off`, `flush` and `resync`.

use serde::{Deserialize, Serialize};

/// Switches the fast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Switch {
    /// True: on.
    pub on: bool,
}

/// How the fast path is switched now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switched {
    /// True: on.
    pub on: bool,
    /// How it was before.
    pub was_on: bool,
}

/// The table was emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flushed {
    /// Flows that were removed.
    pub flows: u64,
}

/// Everything was read from the kernel again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resynced {
    /// What differed from what the daemon knew, and flows that left or wait for that; 0 if it was in step.
    pub changes: u64,
}
