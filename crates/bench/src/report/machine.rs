// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine of a report, described well enough to find one like it.

use std::fs;

use freeway_rig::Machine;
use serde::{Deserialize, Serialize};

const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// What a report was measured on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// As in every result.
    #[serde(flatten)]
    pub machine: Machine,
    /// The kernel's clock, `tsc` or `kvm-clock`; none if it does not say.
    pub clock_source: Option<String>,
    /// It is a virtual one, as its CPU tells.
    pub virtual_machine: bool,
    /// Processes that ran or waited on average in the minute before; none if the kernel does not say.
    pub load_average: Option<f64>,
}

impl Description {
    /// Of this machine, now.
    pub fn this() -> Self {
        let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let clock = fs::read_to_string(CLOCK_SOURCE).ok();
        Self {
            machine: Machine::this(),
            clock_source: clock.map(|text| text.trim().to_owned()),
            virtual_machine: has_hypervisor(&cpu),
            load_average: load.split(' ').next().and_then(|load| load.parse().ok()),
        }
    }
}

fn has_hypervisor(cpuinfo: &str) -> bool {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|line| line.split_whitespace().any(|flag| flag == "hypervisor"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_machines_say_so() {
        assert!(has_hypervisor("flags\t\t: fpu hypervisor lahf_lm\n"));
        assert!(!has_hypervisor("flags\t\t: fpu nohypervisor\n"));
        assert!(!has_hypervisor("CPU part : 0xd08\n"));
    }
}
