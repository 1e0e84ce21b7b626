// SPDX-License-Identifier: MIT OR Apache-2.0
//! Longest prefix match in flat arrays that BPF reads: built and changed here, looked up by the C of `dataplane/prefix4.h` and `prefix6.h`.
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

mod chunk4;
mod chunk6;
mod family;
mod prefix;
mod ranges;
mod room;
mod table;
mod trie;

pub use family::Family;
pub use prefix::{Address, NextHop, Prefix, Prefix4, Prefix6};
pub use ranges::{Range, ranges};
pub use raw::{fw_prefix4, fw_prefix6};
pub use table::{Full, NEXT_HOP_MAX, Table, Table4, Table6};
pub use trie::Trie;
