// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program's control server.
#![allow(dead_code)]

#[path = "../../crates/freeway/src/daemon/listing.rs"]
mod listing;
#[path = "../../crates/freeway/src/daemon/metrics.rs"]
mod metrics;
#[path = "../../crates/freeway/src/daemon/request.rs"]
pub mod request;
#[path = "../../crates/freeway/src/daemon/server.rs"]
pub mod server;

// What the tests in these files need, which clippy compiles here, too.
#[cfg(test)]
#[path = "../../crates/freeway/src/daemon/fake.rs"]
pub mod fake;
