// SPDX-License-Identifier: MIT OR Apache-2.0
//! All tests against the kernel in one binary, for the virtual machines: older kernels answer differently.
#![allow(clippy::unwrap_used, clippy::panic, clippy::duplicate_mod)]

#[path = "conntrack.rs"]
mod conntrack;
#[path = "mirror.rs"]
mod mirror;
#[path = "multicast.rs"]
mod multicast;
#[path = "observers.rs"]
mod observers;
#[path = "reachability.rs"]
mod reachability;
