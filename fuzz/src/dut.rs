// SPDX-License-Identifier: MIT OR Apache-2.0
//! What generator and sink of a measurement say to each other.
#![allow(dead_code)]

#[path = "../../crates/freeway/src/bench/dut/control.rs"]
pub mod control;
#[path = "../../crates/freeway/src/bench/dut/message.rs"]
pub mod message;
