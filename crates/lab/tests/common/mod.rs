// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the tests with namespaces share.
#![allow(dead_code, clippy::unwrap_used, clippy::panic)]

pub mod peer;

use std::sync::{Mutex, MutexGuard, PoisonError};

use freeway_lab::{Lab, Options, Topology};

/// One test at a time: they measure, and the machine may have two cores.
static MACHINE: Mutex<()> = Mutex::new(());

/// The machine, or nothing, with the reason printed, without root.
pub fn machine() -> Option<MutexGuard<'static, ()>> {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: network namespaces need root");
        return None;
    }
    Some(MACHINE.lock().unwrap_or_else(PoisonError::into_inner))
}

pub fn build(name: &str) -> Lab {
    build_with(name, Options::default())
}

pub fn build_with(name: &str, options: Options) -> Lab {
    Lab::build(Topology::parse(name).unwrap(), options).unwrap()
}

/// Namespaces of the process `pid`.
pub fn namespaces_of(pid: u32) -> Vec<String> {
    let list = std::process::Command::new("ip")
        .args(["netns", "list"])
        .output()
        .unwrap();
    let prefix = format!("fw-{pid}-");
    let text = String::from_utf8(list.stdout).unwrap();
    text.lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| name.starts_with(&prefix))
        .map(str::to_owned)
        .collect()
}
