// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway run`: the engine, and the control server in front of it.

mod ask;
mod bounded;
mod capture;
pub mod config;
mod door;
mod engine;
mod error;
pub mod fuzz;
mod gate;
pub mod hooked;
mod journal;
pub mod kinds;
mod listing;
mod lock;
pub mod log;
mod metrics;
mod options;
mod parts;
mod pcapng;
mod peer;
mod privilege;
mod reload;
mod request;
mod run;
mod server;
mod signals;
mod socket;
mod succession;
mod supervisor;
mod upgrade;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;

use request::{Page, PageQuery, Reply, Request};

pub use error::DaemonError;
pub use options::Options;
pub use run::run;
