// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway on`, `off` and `flush`.

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
