// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lanes between I/O cores and workers, one for each port and worker.

use crate::ffi::{fwe_lane, fwe_lane_free, fwe_lane_new, fwe_lane_set_polled};

/// All of them, a port's after the other's; none without I/O cores.
pub(crate) struct Lanes {
    lanes: Vec<*mut fwe_lane>,
    workers: usize,
}

impl Lanes {
    /// For each port, whether the I/O core sends by it.
    pub fn new(transmits: impl IntoIterator<Item = bool>, workers: usize) -> Result<Self, String> {
        let mut all = Self {
            lanes: Vec::new(),
            workers,
        };
        for transmits in transmits {
            for _ in 0..workers {
                // SAFETY: DPDK was started.
                let lane = unsafe { fwe_lane_new(transmits.into(), -1) };
                if lane.is_null() {
                    return Err(
                        "no memory for the rings to workers: raise memory_mib in [engine]".into(),
                    );
                }
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

impl Drop for Lanes {
    fn drop(&mut self) {
        for lane in &self.lanes {
            // SAFETY: workers and I/O cores have ended.
            unsafe { fwe_lane_free(*lane) };
        }
    }
}
