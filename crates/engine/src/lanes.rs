// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lanes between I/O cores and workers, one for each port and worker.

use crate::ffi::{fwe_lane, fwe_lane_free, fwe_lane_new, fwe_lane_set_polled, fwe_lane_set_wakers};
use crate::wakers::Wakers;

/// All of them, a port's after the other's; none without I/O cores.
pub(crate) struct Lanes {
    lanes: Vec<*mut fwe_lane>,
    workers: usize,
}

impl Lanes {
    /// For each port, the number of its I/O core, and whether that sends by it.
    pub fn new(
        ports: impl IntoIterator<Item = (usize, bool)>,
        workers: usize,
        wakers: &Wakers,
    ) -> Result<Self, String> {
        let mut all = Self {
            lanes: Vec::new(),
            workers,
        };
        for (io, transmits) in ports {
            for worker in 0..workers {
                // SAFETY: DPDK was started.
                let lane = unsafe { fwe_lane_new(transmits.into(), -1) };
                if lane.is_null() {
                    return Err(
                        "no memory for the rings to workers: raise memory_mib in [engine]".into(),
                    );
                }
                let (worker, io) = (wakers.of_worker(worker), wakers.of_io(io));
                // SAFETY: nobody uses it yet; the wakers outlive it.
                unsafe { fwe_lane_set_wakers(lane, worker, io) };
                all.lanes.push(lane);
            }
        }
        Ok(all)
    }

    /// Null: there are none.
    pub fn of(&self, port: usize, worker: usize) -> *mut fwe_lane {
        let lane = self.lanes.get(port * self.workers + worker);
        lane.copied().unwrap_or(std::ptr::null_mut())
    }

    /// Those of a port.
    pub fn of_port(&self, port: usize) -> &[*mut fwe_lane] {
        self.lanes
            .get(port * self.workers..(port + 1) * self.workers)
            .unwrap_or_default()
    }

    /// All.
    pub fn all(&self) -> &[*mut fwe_lane] {
        &self.lanes
    }

    /// Whether workers poll the port's queues themselves.
    pub fn set_polled(&self, port: usize, polled: bool) {
        for lane in self.of_port(port) {
            // SAFETY: it lives.
            unsafe { fwe_lane_set_polled(*lane, polled.into()) };
        }
    }
}

/// The I/O core of a port, of so many: each, in turn.
pub(crate) fn reading(port: usize, io_cores: usize) -> usize {
    port % io_cores.max(1)
}

/// The worker that sends what comes from the kernel at a port, likewise.
pub(crate) fn sourcing(port: usize, workers: usize) -> usize {
    port % workers.max(1)
}

impl Drop for Lanes {
    fn drop(&mut self) {
        for lane in &self.lanes {
            // SAFETY: workers and I/O cores have ended.
            unsafe { fwe_lane_free(*lane) };
        }
    }
}
