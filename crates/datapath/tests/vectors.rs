// SPDX-License-Identifier: MIT OR Apache-2.0
//! The vectors of tests/vectors on each target of this crate; on the engine's worker they run in crates/engine.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use freeway_datapath::Hook;
use support::target::{Loaded, Native};
use support::vectors::run_all;

fn loaded(hook: Hook, straight: bool) {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: loading BPF programs needs root");
        return;
    }
    support::stay_on_this_cpu();
    run_all(&mut Loaded::new(hook, straight));
}

#[test]
fn native() {
    run_all(&mut Native::new(true));
}

#[test]
fn native_step_by_step() {
    run_all(&mut Native::new(false));
}

#[test]
fn xdp() {
    loaded(Hook::Xdp, true);
}

#[test]
fn xdp_step_by_step() {
    loaded(Hook::Xdp, false);
}

#[test]
fn tc() {
    loaded(Hook::IngressAlone, true);
}
