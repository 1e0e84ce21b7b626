// SPDX-License-Identifier: MIT OR Apache-2.0
//! Longest prefix match in flat arrays that BPF reads: built and changed here, looked up by the C of `dataplane/prefix4.h`.
//! No I/O. What holds is [`Trie`], slow and obvious.

#[allow(
    non_camel_case_types,
    non_upper_case_globals,
    dead_code,
    missing_docs,
    clippy::all
)]
mod raw {
    include!(concat!(env!("OUT_DIR"), "/prefix.rs"));
}

mod chunk;
mod prefix;
mod ranges;
mod room;
mod table4;
mod trie;

pub use prefix::{NextHop, Prefix, Prefix4};
pub use ranges::{Range, ranges};
pub use raw::fw_prefix4;
pub use table4::{Full, NEXT_HOP_MAX, Table4};
pub use trie::Trie;
