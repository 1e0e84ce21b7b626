// SPDX-License-Identifier: MIT OR Apache-2.0
//! Freeway: a fast path for Linux routers.
mod api;
mod config;
mod daemon;
mod exit;
fn main() {}
