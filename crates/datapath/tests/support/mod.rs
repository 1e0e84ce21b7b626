// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the tests of the data plane share: frames and flows as data, a runner for each target.
#![allow(dead_code)]

pub mod frame;
pub mod near;
pub mod random;
pub mod router;
pub mod state;
pub mod target;

use std::path::PathBuf;

use toml::Table;

/// Budgets, samples and limits are counted for each CPU.
pub fn stay_on_this_cpu() {
    let cpu = nix::sched::sched_getcpu().unwrap();
    let mut set = nix::sched::CpuSet::new();
    set.set(cpu).unwrap();
    nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set).unwrap();
}

pub fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors")
}

pub fn read(name: &str) -> Table {
    let path = directory().join(name);
    let text = std::fs::read_to_string(&path).unwrap();
    text.parse()
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// `base` names a table of common.toml; the rest goes over it.
pub fn over(common: &Table, kind: &str, table: &Table) -> Table {
    let mut result = match table.get("base") {
        Some(base) => {
            let name = base.as_str().unwrap();
            let named = common[kind]
                .get(name)
                .unwrap_or_else(|| panic!("no {kind} {name}"));
            over(common, kind, named.as_table().unwrap())
        }
        None => Table::new(),
    };
    result.extend(
        table
            .iter()
            .filter(|(key, _)| *key != "base")
            .map(|(k, v)| (k.clone(), v.clone())),
    );
    result
}
