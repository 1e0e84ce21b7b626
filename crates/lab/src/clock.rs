// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clocks and CPUs.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

use crate::error::{Context, LabError};

/// CLOCK_MONOTONIC in nanoseconds, the clock of `bpf_ktime_get_ns`.
pub fn monotonic_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map(|time| Duration::from(time).as_nanos() as u64)
        .unwrap_or(0)
}

/// CPU time of the calling thread in nanoseconds.
pub(crate) fn thread_cpu_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .map(|time| Duration::from(time).as_nanos() as u64)
        .unwrap_or(0)
}

/// CLOCK_REALTIME in nanoseconds, the clock of packet timestamps.
pub fn realtime_ns() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_nanos() as u64)
}

/// Gives the calling thread the highest priority (nice -20).
pub(crate) fn go_ahead() -> Result<(), LabError> {
    // SAFETY: takes numbers; 0 is the calling thread.
    let rc = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) };
    let result = if rc == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    };
    result.context("raise the generator's priority")
}

/// Binds the calling thread to one CPU.
pub(crate) fn pin(cpu: usize) -> Result<(), LabError> {
    let mut set = CpuSet::new();
    set.set(cpu).context(format!("CPU {cpu}"))?;
    sched_setaffinity(Pid::from_raw(0), &set).context(format!("bind a thread to CPU {cpu}"))
}
