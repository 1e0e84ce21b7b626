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
use crate::lab::{Lab, Port};

/// The polling threads of a lab's router. They live as long as their ports.
#[derive(Debug)]
pub struct NapiThreads {
    pids: Vec<i32>,
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
        let mut pids = threads_of(self.lan_port(), router_cpu)?;
        pids.extend(threads_of(self.wan_port(), router_cpu)?);
        Ok(NapiThreads { pids })
    }
}

impl Fanout {
    /// As [`Lab::poll_by_threads`]. The receivers' threads go ahead of all else on their CPU: what the router sends is
    /// taken at once, whatever the generator does there.
    pub fn poll_by_threads(
        &self,
        router_cpu: usize,
        host_cpu: usize,
    ) -> Result<NapiThreads, LabError> {
        threads_of(self.source(), host_cpu)?;
        for port in self.receivers() {
            let threads = threads_of(port, host_cpu)?;
            threads.into_iter().try_for_each(go_ahead_of_others)?;
        }
        let mut pids = Vec::new();
        for port in [self.input()].into_iter().chain(self.outputs()) {
            pids.extend(threads_of(port, router_cpu)?);
        }
        Ok(NapiThreads { pids })
    }
}

impl NapiThreads {
    /// CPU time that they have had so far.
    pub fn cpu_time(&self) -> Result<Duration, LabError> {
        let mut sum_ns = 0;
        for pid in &self.pids {
            let path = format!("/proc/{pid}/schedstat");
            let text = fs::read_to_string(&path).context(format!("read {path}"))?;
            let on_cpu = text.split_whitespace().next();
            sum_ns += on_cpu
                .and_then(|ns| ns.parse::<u64>().ok())
                .ok_or_else(|| LabError::Invalid(format!("{path} holds {text:?}")))?;
        }
        Ok(Duration::from_nanos(sum_ns))
    }
}

/// Switches a port to threads and binds them to a CPU.
fn threads_of(port: &Port, cpu: usize) -> Result<Vec<i32>, LabError> {
    // kthreads are called napi/DEVICE-ID, cut to 15 bytes
    let prefix = format!("napi/{}-", port.name);
    let before = kernel_threads(&prefix);
    let file = format!("/sys/class/net/{}/threaded", port.name);
    let what = format!("write 1 to {file} in {}", port.netns.name());
    port.netns
        .enter(|| own_sys().and_then(|()| fs::write(&file, "1")))?
        .context(what)?;
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

/// Gives a thread the lowest real-time priority.
fn go_ahead_of_others(pid: i32) -> Result<(), LabError> {
    let priority = libc::sched_param { sched_priority: 1 };
    // SAFETY: the parameter outlives the call.
    let rc = unsafe { libc::sched_setscheduler(pid, libc::SCHED_FIFO, &raw const priority) };
    let result = if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    };
    result.context("raise the priority of a port's thread")
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
