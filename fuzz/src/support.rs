// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pieces of the data plane's tests.
#![allow(dead_code, clippy::expect_used, clippy::panic, clippy::unwrap_used)]

#[path = "../../crates/datapath/tests/support/frame.rs"]
pub mod frame;
#[path = "../../crates/datapath/tests/support/router.rs"]
pub mod router;
