// SPDX-License-Identifier: MIT OR Apache-2.0
//! What generator and sink of a measurement say to each other, compiled once more: of the bench nothing else reads what
//! others write.
#![allow(dead_code)]

#[path = "../../crates/bench/src/dut/control.rs"]
pub mod control;
#[path = "../../crates/bench/src/dut/message.rs"]
pub mod message;
