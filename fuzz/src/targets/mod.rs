// SPDX-License-Identifier: MIT OR Apache-2.0
//! The targets by name.

mod api;
mod config;
mod control;
mod engine;
mod forwarded;
mod frame;
mod input;
mod kernel;
mod pipeline;

/// What runs an input.
pub type Target = fn(&[u8]);

/// All targets.
pub const TARGETS: &[(&str, Target)] = &[
    ("frame", frame::run),
    ("pipeline", pipeline::run),
    ("netlink", kernel::netlink),
    ("events", kernel::events),
    ("ruleset", kernel::ruleset),
    ("legacy", kernel::legacy),
    ("api", api::run),
    ("config", config::run),
    ("control", control::run),
    ("engine", engine::run),
];

/// The target of a name.
#[must_use]
pub fn target(name: &str) -> Option<Target> {
    let found = TARGETS.iter().find(|(known, _)| *known == name);
    found.map(|(_, target)| *target)
}
