// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway run`: the control server in front of the engine.

pub mod engine;
mod error;
mod listing;
mod lock;
mod metrics;
mod privilege;
mod request;
mod run;
mod server;
mod signals;
mod socket;

#[cfg(test)]
pub mod fake;

pub use error::DaemonError;
pub use request::{Page, PageQuery, Reply, Request};
pub use run::run;
