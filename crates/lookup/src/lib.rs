// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `bench lookup` measures: tables of prefixes, the structures that could hold them, and the loops. `freeway-bench` has
//! it, and `freeway-engine`, which adds DPDK's structures in the same process.

mod candidates;
mod contender;
mod job;
mod measure;
mod pages;
mod random;
mod result;
mod routes;

pub use candidates::{Slots, slots};
pub use contender::{Contender, Kind, Loop, Loops, XDP};
pub use job::{Job, Progress};
pub use measure::{Others, measure, pages};
pub use pages::{Memory, Pages};
pub use result::{Candidate, Rates, Table};
pub use routes::{NEXT_HOPS, Routes, addresses, of_ranges, resized, synthetic};
