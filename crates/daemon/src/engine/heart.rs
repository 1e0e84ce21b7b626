// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon's life, as the data plane knows of it: a deadline that is renewed.

mod beat;

use std::time::{Duration, Instant};

use freeway_datapath::Datapath;

/// The data plane stops so long after the daemon last said that it lives.
const DEADLINE: Duration = Duration::from_secs(2);
/// How often it says so.
pub(super) const HEARTBEAT: Duration = Duration::from_millis(250);

pub(super) struct Heart {
    started: Instant,
    renewed: Instant,
}

impl Heart {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self {
            started: now,
            renewed: now,
        }
    }

    pub(super) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// True if a heartbeat is overdue.
    pub(super) fn is_late(&self) -> bool {
        self.renewed.elapsed() >= 2 * HEARTBEAT
    }

    /// The data plane goes on for another `DEADLINE`.
    pub(super) fn renew(&mut self, datapath: &Datapath, now_tick: u32) {
        let deadline = now_tick.wrapping_add(datapath.clock.ticks(DEADLINE));
        datapath.control.set_deadline(deadline);
        self.renewed = Instant::now();
    }
}
