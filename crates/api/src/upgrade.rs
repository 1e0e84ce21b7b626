// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway upgrade`.

use serde::{Deserialize, Serialize};

/// Has the daemon hand over to the program that is installed now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Upgrade {
    /// How long that may take to load its programs.
    pub timeout_s: u32,
}

/// It has taken over.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Upgraded {
    /// The daemon before.
    pub from: Process,
    /// The one that runs now.
    pub to: Process,
    /// Their data planes have the same binary interface.
    pub same_abi: bool,
    /// How long everything was the kernel's before the new one learned, milliseconds.
    pub in_kernel_ms: f64,
}

/// A daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its version.
    pub version: String,
    /// Its process.
    pub pid: u32,
}

/// The daemon that handed over to the one that runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenOver {
    /// Its version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Its data plane had the same binary interface.
    pub same_abi: bool,
    /// Flows of its table that were fast at once.
    #[serde(default)]
    pub flows: u64,
}
