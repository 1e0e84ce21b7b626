// SPDX-License-Identifier: MIT OR Apache-2.0
//! A port whose receive path has a CPU of its own, as a network card's queue has, whoever sends.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::command;
use crate::error::{Context, LabError};
use crate::lab::Port;

/// Kernel threads appear a moment after they were asked for.
const PATIENCE: Duration = Duration::from_secs(1);

/// Has a kernel thread on one CPU do what the port receives (threaded NAPI). It ends with the port.
pub fn dedicate(port: &Port, cpu: usize) -> Result<(), LabError> {
    let before = threads(port);
    // /sys shows the devices of the namespace that mounted it
    let mut shell = Command::new("ip");
    shell.args(["netns", "exec", port.netns.name(), "sh", "-c"]);
    shell.arg(format!("echo 1 > /sys/class/net/{}/threaded", port.name));
    command::run(&mut shell)?;
    let end = Instant::now() + PATIENCE;
    let mut set = CpuSet::new();
    set.set(cpu).context(format!("CPU {cpu}"))?;
    loop {
        let new: Vec<i32> = threads(port).difference(&before).copied().collect();
        for thread in &new {
            let bound = sched_setaffinity(Pid::from_raw(*thread), &set);
            bound.context(format!("bind the receiver of {} to CPU {cpu}", port.name))?;
        }
        if !new.is_empty() {
            return Ok(());
        }
        if Instant::now() > end {
            let what = format!("{} has no receiving thread", port.name);
            return Err(LabError::Incomplete(what));
        }
    }
}

/// Receiving threads of all ports of this name, in any namespace.
fn threads(port: &Port) -> BTreeSet<i32> {
    let name = format!("napi/{}-", port.name);
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<i32>().ok();
    let ours = |pid: &i32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.starts_with(&name))
    };
    entries.filter_map(number).filter(ours).collect()
}

/// Frames that a port has received.
pub fn received(port: &Port) -> Result<u64, LabError> {
    let text = port
        .netns
        .enter(|| fs::read_to_string("/proc/thread-self/net/dev"))?
        .context("read /proc/net/dev")?;
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_prefix(&port.name)?.strip_prefix(':'));
    let packets = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    packets.ok_or_else(|| LabError::Incomplete(format!("{} is not in /proc/net/dev", port.name)))
}
