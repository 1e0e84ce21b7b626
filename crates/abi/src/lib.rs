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

mod address;
pub use address::{addr_of, words_of};

mod reason;
pub use reason::{REASONS, Reason, Stage};

mod pod;
pub use pod::Pod;

/// Tells builds apart whose binary interface differs: FNV-1a of `dataplane/abi.h` and `reasons.def`.
pub const DIGEST: u64 = digest(
    include_bytes!("../../../dataplane/abi.h"),
    digest(
        include_bytes!("../../../dataplane/reasons.def"),
        0xcbf2_9ce4_8422_2325,
    ),
);

const fn digest(text: &[u8], mut hash: u64) -> u64 {
    let mut rest = text;
    while let [byte, after @ ..] = rest {
        hash = (hash ^ *byte as u64).wrapping_mul(0x0000_0100_0000_01b3);
        rest = after;
    }
    hash
}
