// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine that tests share.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// One test at a time: they measure, and the machine may have two cores.
static MACHINE: Mutex<()> = Mutex::new(());

/// The machine, or nothing, with the reason printed, where the test cannot run.
pub fn machine() -> Option<MutexGuard<'static, ()>> {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: network namespaces need root");
        return None;
    }
    let guard = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    freeway_lab::cleanup_on_signal().unwrap();
    Some(guard)
}

/// How long frames may go on by what was, after a change of which an event tells: in the median of several changes,
/// and at the worst. What misses the event waits for the look at each second. The long form, on a machine of
/// its own, asks for what an operator would see.
pub fn late_max() -> (Duration, Duration) {
    let ms = Duration::from_millis;
    if long() {
        (ms(10), ms(100))
    } else {
        (ms(100), ms(900))
    }
}

/// True if the tests may take minutes.
pub fn long() -> bool {
    std::env::var_os("FREEWAY_LONG").is_some_and(|value| value == "1")
}

/// Frames a second of a load that may be so high. Others use the machine, too: only the long form asks for all of it.
pub fn paced(most_pps: u64) -> u64 {
    if long() {
        most_pps
    } else {
        most_pps.min(20_000)
    }
}

/// Processor time of a process in milliseconds, by /proc/PID/stat.
pub fn cpu_ms(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    ticks * 1000
        / nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK)
            .unwrap()
            .unwrap() as u64
}
