// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the tests of the data plane share: frames and flows as data, a runner for each target.
#![allow(dead_code)]

pub mod common;
pub mod frame;
pub mod near;
pub mod random;
pub mod router;
pub mod run;
pub mod state;
pub mod target;
pub mod vectors;

pub use common::{directory, over, read};

/// Budgets, samples and limits are counted for each CPU.
pub fn stay_on_this_cpu() {
    let cpu = nix::sched::sched_getcpu().unwrap();
    let mut set = nix::sched::CpuSet::new();
    set.set(cpu).unwrap();
    nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set).unwrap();
}
