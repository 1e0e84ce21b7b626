// SPDX-License-Identifier: MIT OR Apache-2.0
//! Network-namespace topologies and traffic for the demo, the tests and the bench.
pub mod error;
pub mod frame;
pub mod generator;
pub mod lab;
pub mod netns;
pub mod topology;
mod attach;
pub mod clock;
mod command;
pub mod prime;
pub mod measure;
pub mod reference;
pub mod reflector;
pub mod sink;
mod ruleset;
pub mod signal;
mod skel;
pub mod sweep;
