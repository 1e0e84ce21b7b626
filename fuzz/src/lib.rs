// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzz targets: each takes any bytes, and panics where something is wrong. scripts/fuzz runs them under libFuzzer
//! with sanitizers; the tests run them over the corpus.

mod targets;

pub use targets::{TARGETS, Target, target};

mod support;

// The program has no library: its parts that read what others write are compiled once more.
#[path = "../../crates/freeway/src/api/mod.rs"]
#[allow(dead_code, unused_imports)]
mod api;
#[path = "../../crates/freeway/src/config.rs"]
#[allow(dead_code)]
mod config;
#[path = "../../crates/freeway/src/exit.rs"]
#[allow(dead_code)]
mod exit;
#[path = "../../crates/freeway/src/filter.rs"]
mod filter;

mod daemon;
mod dut;
#[cfg(test)]
#[path = "../../crates/freeway/src/testing.rs"]
mod testing;
