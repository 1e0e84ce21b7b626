// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway run`: the control server in front of the engine.

pub mod engine;
mod error;
mod request;

pub use error::DaemonError;
pub use request::{Reply, Request};
