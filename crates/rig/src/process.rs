// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon's process: where it runs, and what CPU time it takes.

use std::fs;
use std::time::Duration;

use freeway_console::Stop;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// Binds a process to a CPU.
pub fn pin(pid: u32, cpu: usize) -> Result<(), Stop> {
    let failed = |error: &dyn std::fmt::Display| {
        Stop::failure(format!("cannot bind Freeway to CPU {cpu}: {error}"))
    };
    let mut set = CpuSet::new();
    set.set(cpu).map_err(|error| failed(&error))?;
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).map_err(|error| failed(&error))?;
    for task in tasks.flatten() {
        if let Ok(tid) = task.file_name().to_string_lossy().parse() {
            sched_setaffinity(Pid::from_raw(tid), &set).map_err(|error| failed(&error))?;
        }
    }
    Ok(())
}

/// USER_HZ: what /proc counts CPU time in.
fn ticks(count: u64) -> Duration {
    Duration::from_millis(count * 10)
}

/// CPU time of a process.
pub fn cpu_time(pid: u32) -> Result<Duration, Stop> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path)
        .map_err(|error| Stop::failure(format!("cannot read {path}: {error}")))?;
    Ok(ticks(process_ticks(&text)))
}

fn process_ticks(stat: &str) -> u64 {
    // The command name may hold spaces and brackets; fields count from its last bracket.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let times = fields.split_whitespace().skip(11).take(2);
    times.filter_map(|field| field.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_times() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 1 2 3 4 120 34 0 0 20 0 1 0";
        assert_eq!(process_ticks(stat), 154);
    }
}
