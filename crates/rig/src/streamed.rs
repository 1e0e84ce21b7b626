// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a router spent on streams while they were looked at.

use std::thread;
use std::time::{Duration, Instant};

use freeway_console::Stop;
use freeway_lab::{Lab, LabError, NapiThreads};

use crate::{Forwarded, RouterDaemon};

/// The router's ports are polled by threads on the first CPU. Returns them and the CPU of the hosts: another, if there is.
pub fn poll_by_threads(lab: &Lab) -> Result<(NapiThreads, usize), LabError> {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let host_cpu = 1.min(cpus - 1);
    Ok((lab.poll_by_threads(0, host_cpu)?, host_cpu))
}

/// A look at streams that run.
#[derive(Clone, Copy, Debug)]
pub struct Streamed {
    /// What the router forwarded.
    pub forwarded: Forwarded,
    /// CPU time of the router's ports.
    pub cpu: Duration,
    /// How long it lasted.
    pub elapsed: Duration,
}

impl Streamed {
    /// Looks for so long.
    pub fn watch(
        lab: &Lab,
        threads: &NapiThreads,
        daemon: Option<&RouterDaemon>,
        time: Duration,
    ) -> Result<Self, Stop> {
        let began = Instant::now();
        let (cpu, forwarded) = (threads.cpu_time()?, Forwarded::now(lab, daemon)?);
        thread::sleep(time);
        Ok(Self {
            elapsed: began.elapsed(),
            cpu: threads.cpu_time()?.saturating_sub(cpu),
            forwarded: Forwarded::now(lab, daemon)?.since(&forwarded),
        })
    }

    /// Gigabits that reached the server.
    fn gbit(&self) -> f64 {
        self.forwarded.server_bytes as f64 * 8e-9
    }

    /// Rate at which they reached it.
    pub fn gbit_s(&self) -> f64 {
        self.gbit() / self.elapsed.as_secs_f64()
    }

    /// Gigabytes that reached it for each second of the ports' CPU time.
    pub fn gbyte_per_cpu_s(&self) -> f64 {
        self.forwarded.server_bytes as f64 / 1e9 / self.cpu.as_secs_f64()
    }

    /// The ports' CPU time for a gigabit of it.
    pub fn cpu_ms_per_gbit(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e3 / self.gbit()
    }
}
