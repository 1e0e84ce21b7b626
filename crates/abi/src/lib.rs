// SPDX-License-Identifier: MIT OR Apache-2.0
//! The binary interface to the data plane, generated from `dataplane/abi.h`,
//! and the list of reasons, from `dataplane/reasons.def`.
//!
//! Shapes, units and byte order are documented in those files: names that end
//! in `_be` are in network byte order, names that end in `_tick` count jiffies.

#[allow(non_camel_case_types, non_upper_case_globals, dead_code, clippy::all)]
mod raw {
    include!(concat!(env!("OUT_DIR"), "/abi.rs"));
}
pub use raw::*;

mod reason;
pub use reason::{REASONS, Reason, Stage};

mod pod;
pub use pod::Pod;
