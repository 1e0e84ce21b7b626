// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a router spent on streams while they were looked at.

use std::thread;
use std::time::{Duration, Instant};

use freeway_lab::{Lab, NapiThreads};

use super::forwarded::Forwarded;
use crate::exit::Stop;
use crate::router::RouterDaemon;

/// A look at streams that run.
#[derive(Clone, Copy, Debug)]
pub struct Streamed {
    pub forwarded: Forwarded,
    /// CPU time of the router's ports.
    pub cpu: Duration,
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

    pub fn gbit_s(&self) -> f64 {
        self.gbit() / self.elapsed.as_secs_f64()
    }

    pub fn gbyte_per_cpu_s(&self) -> f64 {
        self.forwarded.server_bytes as f64 / 1e9 / self.cpu.as_secs_f64()
    }

    pub fn cpu_ms_per_gbit(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e3 / self.gbit()
    }
}
