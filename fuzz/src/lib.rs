// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzz targets: each takes any bytes, and panics where something is wrong. scripts/fuzz runs them under libFuzzer
//! with sanitizers; the tests run them over the corpus.

mod targets;

pub use targets::{TARGETS, Target, target};

mod support;

mod dut;
