// SPDX-License-Identifier: MIT OR Apache-2.0
//! A scheduler alone (`engine/trial.c`), for tests and the bench.

use std::ptr::NonNull;

use crate::ffi::{
    fwe_trial, fwe_trial_cost, fwe_trial_free, fwe_trial_missing, fwe_trial_new,
    fwe_trial_rte_sched_cost, fwe_trial_run as run, fwe_trial_source,
};
use crate::schedule::Schedule;

/// Delays that are kept of a source.
const DELAYS_MAX: usize = 1 << 18;

/// What fills a leaf.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// Number of the leaf, from 0 on.
    pub leaf: u16,
    /// Octets of each frame.
    pub len: u16,
    /// Octets a second; 0: frames always wait.
    pub rate: u64,
}

/// What has left of a source.
#[derive(Clone, Debug)]
pub struct Left {
    /// Frames that came.
    pub offered: u64,
    /// Frames that left.
    pub frames: u64,
    /// Their octets.
    pub bytes: u64,
    /// What each has waited, nanoseconds, in order.
    pub delays: Vec<u32>,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// By source.
    pub left: Vec<Left>,
    /// Nanoseconds.
    pub took_ns: u64,
    /// Octets that left at one time, at most.
    pub at_once_max: u64,
    /// Of the time, what somebody else had the core.
    pub pauses_ns: u64,
}

/// The clock of a trial.
#[derive(Clone, Copy, Debug)]
pub enum Clock {
    /// The trial's own, which goes by so many nanoseconds.
    Steps(u64),
    /// The TSC.
    Tsc,
}

/// The frames of trials.
#[derive(Debug)]
pub struct Trial {
    trial: NonNull<fwe_trial>,
}

impl Trial {
    /// DPDK has been started.
    pub fn new() -> Result<Self, String> {
        // SAFETY: the caller has started DPDK.
        let trial = NonNull::new(unsafe { fwe_trial_new() });
        let trial = trial.ok_or("no memory for the frames of a trial")?;
        Ok(Self { trial })
    }

    /// Runs the sources for that long, behind a part that is not counted.
    pub fn run(
        &self,
        schedule: &mut Schedule,
        sources: &[Source],
        (warm_ns, lasts_ns): (u64, u64),
        clock: Clock,
    ) -> Outcome {
        let mut delays: Vec<Vec<u32>> = sources.iter().map(|_| vec![0; DELAYS_MAX]).collect();
        let gap = |source: &Source| match source.rate {
            0 => 0,
            rate => (u64::from(source.len) * 1_000_000_000 / rate).max(1),
        };
        let filled = sources.iter().zip(&mut delays);
        let mut records: Vec<_> = filled
            .map(|(source, delays)| fwe_trial_source {
                leaf: source.leaf + 1,
                len: source.len,
                pad: 0,
                gap_ns: gap(source),
                offered: 0,
                frames: 0,
                bytes: 0,
                delays_count: 0,
                delays_max: DELAYS_MAX as u32,
                delays: delays.as_mut_ptr(),
            })
            .collect();
        let mut record = crate::ffi::fwe_trial_run {
            sources: records.as_mut_ptr(),
            sources_count: records.len() as u32,
            pad: 0,
            lasts_ns,
            warm_ns,
            step_ns: match clock {
                Clock::Steps(step) => step.max(1),
                Clock::Tsc => 0,
            },
            took_ns: 0,
            at_once_max: 0,
            pauses_ns: 0,
        };
        // SAFETY: what is pointed to outlives the call, and is as large as said.
        unsafe { run(self.trial.as_ptr(), schedule.as_ptr(), &raw mut record) };
        let left = records.iter().zip(delays).map(|(record, mut delays)| {
            delays.truncate(record.delays_count as usize);
            delays.sort_unstable();
            Left {
                offered: record.offered,
                frames: record.frames,
                bytes: record.bytes,
                delays,
            }
        });
        Outcome {
            left: left.collect(),
            took_ns: record.took_ns,
            at_once_max: record.at_once_max,
            pauses_ns: record.pauses_ns,
        }
    }

    /// Cycles of a frame to be put and taken, over all leaves in turn.
    pub fn cost(&self, schedule: &mut Schedule, len: u16, rounds: u32) -> Option<f64> {
        let leaves = schedule.described().leaves();
        let leaves: Vec<u16> = leaves.map(|(number, _)| number as u16 + 1).collect();
        // SAFETY: so many leaves.
        let cost = unsafe {
            fwe_trial_cost(
                self.trial.as_ptr(),
                schedule.as_ptr(),
                leaves.as_ptr(),
                leaves.len() as u32,
                len,
                rounds,
            )
        };
        (cost > 0.0).then_some(cost)
    }

    /// The same of `rte_sched`; `by_weight`: classes share by weight, else the first goes first.
    #[must_use]
    pub fn rte_sched_cost(
        &self,
        classes: u32,
        by_weight: bool,
        len: u16,
        rounds: u32,
    ) -> Option<f64> {
        // SAFETY: numbers.
        let cost = unsafe {
            fwe_trial_rte_sched_cost(self.trial.as_ptr(), classes, by_weight.into(), len, rounds)
        };
        (cost > 0.0).then_some(cost)
    }

    /// Frames that are not the pool's.
    #[must_use]
    pub fn missing(&self) -> u32 {
        // SAFETY: it lives.
        unsafe { fwe_trial_missing(self.trial.as_ptr()) }
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        // SAFETY: it lives, and its frames have come back.
        unsafe { fwe_trial_free(self.trial.as_ptr()) };
    }
}
