// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ports polled by kernel threads of their own (threaded NAPI, Linux 5.12): what a router does for its packets is the CPU
//! time of its ports' threads, and no other CPU's.

use std::time::Duration;
use std::{fs, io};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, CpuSet, sched_setaffinity, unshare};
use nix::unistd::Pid;

use crate::error::{Context, LabError};
use crate::fanout::Fanout;
use crate::lab::Lab;
use crate::port::Port;
use crate::task_clock::TaskClock;

/// A receiver looks every so often, nanoseconds, and until nothing has come so many times: as a card holds back its
/// interrupts. A veth has room for 256 frames.
const COALESCED: [(&str, &str); 2] = [
    ("gro_flush_timeout", "150000"),
    ("napi_defer_hard_irqs", "10"),
];

/// Of a sender while it sends a burst: above that of the hosts' threads, see [`Lab::poll_receivers_first`].
pub(crate) const BURST_PRIORITY: i32 = 2;

/// The polling threads of a lab's router. They live as long as their ports.
#[derive(Debug)]
pub struct NapiThreads {
    clocks: Vec<TaskClock>,
}

impl Lab {
    /// Has all ports polled by threads: the router's on one CPU, the hosts' on another.
    pub fn poll_by_threads(
        &self,
        router_cpu: usize,
        host_cpu: usize,
    ) -> Result<NapiThreads, LabError> {
        for port in self.host_ports() {
            threads_of(port, host_cpu)?;
        }
        self.router_threads(router_cpu)
    }

    /// As [`Lab::poll_by_threads`], and the hosts' threads go ahead of the sender, with which they share a CPU: a receiver
    /// loses nothing that the router has handed over.
    pub fn poll_receivers_first(
        &self,
        router_cpu: usize,
        host_cpu: usize,
    ) -> Result<NapiThreads, LabError> {
        for port in self.host_ports() {
            poll_first(port, host_cpu)?;
        }
        self.router_threads(router_cpu)
    }

    fn router_threads(&self, cpu: usize) -> Result<NapiThreads, LabError> {
        let mut pids = threads_of(self.lan_port(), cpu)?;
        pids.extend(threads_of(self.wan_port(), cpu)?);
        NapiThreads::of(&pids)
    }
}

/// Has a port polled by threads that go ahead of all else on a CPU.
pub(crate) fn poll_first(port: &Port, cpu: usize) -> Result<(), LabError> {
    let threads = threads_of(port, cpu)?;
    threads.into_iter().try_for_each(go_ahead_of_others)
}

impl Fanout {
    /// As [`Lab::poll_by_threads`], but the receivers' threads are on the router's CPU, as a card's completions are: memory
    /// is freed where it is allocated. They go ahead of the router, and they come by themselves: it does not have to wake
    /// one for each copy. Their time is not the router's.
    pub fn poll_by_threads(
        &self,
        router_cpu: usize,
        host_cpu: usize,
    ) -> Result<NapiThreads, LabError> {
        threads_of(self.source(), host_cpu)?;
        for port in self.receivers() {
            let threads = threads_of(port, router_cpu)?;
            write_sys(port, &COALESCED)?;
            threads.into_iter().try_for_each(go_ahead_of_others)?;
        }
        let mut pids = Vec::new();
        for port in [self.input()].into_iter().chain(self.outputs()) {
            pids.extend(threads_of(port, router_cpu)?);
        }
        NapiThreads::of(&pids)
    }
}

impl NapiThreads {
    fn of(pids: &[i32]) -> Result<Self, LabError> {
        let clocks = pids.iter().map(|pid| TaskClock::of(*pid));
        Ok(Self {
            clocks: clocks.collect::<Result<_, _>>()?,
        })
    }

    /// CPU time that they have had so far.
    pub fn cpu_time(&self) -> Result<Duration, LabError> {
        self.clocks.iter().map(TaskClock::read).sum()
    }
}

/// Switches a port to threads and binds them to a CPU.
fn threads_of(port: &Port, cpu: usize) -> Result<Vec<i32>, LabError> {
    // kthreads are called napi/DEVICE-ID, cut to 15 bytes
    let prefix = format!("napi/{}-", port.name);
    let before = kernel_threads(&prefix);
    write_sys(port, &[("threaded", "1")])?;
    let mut pids = kernel_threads(&prefix);
    pids.retain(|pid| !before.contains(pid));
    if pids.is_empty() {
        let message = format!("no thread polls {}: is GRO on?", port.name);
        return Err(LabError::Incomplete(message));
    }
    let mut cpus = CpuSet::new();
    let bound = cpus.set(cpu).and_then(|()| {
        let mut pids = pids.iter();
        pids.try_for_each(|pid| sched_setaffinity(Pid::from_raw(*pid), &cpus))
    });
    bound
        .map_err(io::Error::from)
        .context(format!("bind the threads of {} to CPU {cpu}", port.name))?;
    Ok(pids)
}

/// Sets attributes of a port.
fn write_sys(port: &Port, values: &[(&str, &str)]) -> Result<(), LabError> {
    let write = |(key, value): &(&str, &str)| {
        let file = format!("/sys/class/net/{}/{key}", port.name);
        let what = format!("write {value} to {file} in {}", port.netns.name());
        fs::write(&file, value).context(what)
    };
    port.netns.enter(|| {
        own_sys().context("mount a sysfs")?;
        values.iter().try_for_each(write)
    })?
}

/// Gives a thread the lowest real-time priority.
fn go_ahead_of_others(pid: i32) -> Result<(), LabError> {
    real_time(pid, 1)
}

/// Gives a thread a real-time priority, with 0 none; thread 0 is the calling one.
pub(crate) fn real_time(pid: i32, priority: i32) -> Result<(), LabError> {
    let policy = match priority {
        0 => libc::SCHED_OTHER,
        _ => libc::SCHED_FIFO,
    };
    schedule(pid, policy, priority)
}

/// Gives a thread a scheduling policy, and a priority if that has some; thread 0 is the calling one.
pub(crate) fn schedule(pid: i32, policy: i32, priority: i32) -> Result<(), LabError> {
    let priority = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: the parameter outlives the call.
    let rc = unsafe { libc::sched_setscheduler(pid, policy, &raw const priority) };
    let result = if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    };
    let hint = match &result {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
            " (a control group whose cpu.rt_runtime_us is 0 permits none)"
        }
        _ => "",
    };
    result.context(format!("set the priority of a thread{hint}"))
}

/// A /sys that shows the calling thread's network namespace, to this thread alone.
fn own_sys() -> io::Result<()> {
    let none = None::<&str>;
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), none)?;
    Ok(())
}

fn kernel_threads(prefix: &str) -> Vec<i32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| {
            fs::read_to_string(format!("/proc/{pid}/comm"))
                .is_ok_and(|comm| comm.starts_with(prefix))
        })
        .collect()
}
