// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long everything takes.

use std::time::{Duration, Instant};

use super::Size;
use super::goal::Goal;
use super::search::Plan;
use crate::cli::Rfc2544Args;

/// so many frames a second.
pub const NO_LOAD_PPS: u64 = 100;

/// Loss ratios of NDR and PDR.
pub const LOSS_RATIOS: [f64; 2] = [0.0, 0.005];
/// All of the short form: the routers of each MTU, and each size.
const QUICK: Duration = Duration::from_secs(8);
const QUICK_SIZE: Duration = Duration::from_secs(6);
/// Its searches have what the parts of fixed length leave for a size, but at least so much.
const SEARCH_MIN: Duration = Duration::from_millis(1000);
/// The least load, as a part of the largest, and at least so many frames a second.
const LOAD_RANGE: u64 = 2000;
const LOAD_MIN: u64 = 500;
/// A search has so many trials at most,
const TRIALS_MAX: usize = 400;
/// and so many times the duration of its longest.
const TRIAL_TIMES_MAX: u32 = 120;

/// Durations and numbers.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The search's last trials.
    pub trial: Duration,
    /// How many of them decide.
    pub trials: u32,
    /// Its first trials.
    pub initial_trial: Duration,
    /// Its levels.
    pub levels: u32,
    /// Its width.
    pub width: f64,
    /// Of the generator alone, each of three.
    pub ceiling: Duration,
    /// At a load above the NDR.
    pub loss: Duration,
    /// Such loads.
    pub losses_max: usize,
    /// Of latencies at a load.
    pub latency: Duration,
    /// Of the CPU at a load, by an idle loop.
    pub cpu: Duration,
    /// Bursts of a length are looked for so often.
    pub bursts: u32,
    /// When it has to be over.
    pub until: Option<Instant>,
}

impl Pace {
    /// As asked for.
    pub fn of(args: &Rfc2544Args) -> Self {
        Self::new(args.quick, args.seconds, args.trials, &args.sizes)
    }

    /// The short form, or last trials of so many seconds, of which so many decide.
    pub fn new(quick: bool, seconds: f64, trials: u32, sizes: &[Size]) -> Self {
        if quick {
            let routers = Size::alike(sizes).count();
            let all = QUICK * routers as u32 + QUICK_SIZE * sizes.len() as u32;
            return Self {
                trial: Duration::from_millis(40),
                trials: 3,
                initial_trial: Duration::from_millis(20),
                levels: 2,
                width: 0.05,
                ceiling: Duration::from_millis(100),
                loss: Duration::from_millis(60),
                losses_max: 3,
                latency: Duration::from_millis(200),
                cpu: Duration::from_millis(100),
                bursts: 2,
                until: Some(Instant::now() + all),
            };
        }
        let trial = Duration::from_secs_f64(seconds);
        Self {
            trial,
            trials,
            initial_trial: trial.mul_f64(0.1).max(Duration::from_millis(20)).min(trial),
            levels: 3,
            width: 0.01,
            ceiling: trial,
            loss: trial,
            losses_max: 11,
            latency: trial.mul_f64(5.0),
            cpu: trial,
            bursts: 10,
            until: None,
        }
    }

    /// Share of a load's time in which a goal's loss ratio may be exceeded.
    pub fn exceed_ratio(&self) -> f64 {
        // with a single trial there is nothing to exceed
        if self.trials > 1 { 0.5 } else { 0.0 }
    }

    /// The search for a router's rates.
    pub fn plan(&self, ceiling_pps: f64) -> Plan {
        let max_load = (ceiling_pps as u64).max(LOAD_MIN + 1);
        let goal = |loss_ratio| Goal {
            loss_ratio,
            exceed_ratio: self.exceed_ratio(),
            trial: self.trial,
            sum: self.trial * self.trials,
            width: self.width,
        };
        Plan {
            goals: LOSS_RATIOS.map(goal).to_vec(),
            min_load: (max_load / LOAD_RANGE).max(LOAD_MIN),
            max_load,
            initial_trial: self.initial_trial,
            levels: self.levels,
            trials_max: TRIALS_MAX,
            time_max: self.trial * TRIAL_TIMES_MAX,
        }
    }

    /// When the searches of a size have to be over, if these sizes are left, this one, the first, included.
    pub fn search_until(&self, left: &[Size]) -> Option<Instant> {
        let until = self.until?;
        let now = Instant::now();
        let builds = Size::alike(left).count().saturating_sub(1) as u32;
        let share = until.saturating_duration_since(now + QUICK * builds);
        let share = share / left.len().max(1) as u32;
        Some(
            now + share
                .saturating_sub(self.fixed())
                .max(SEARCH_MIN)
                .min(share),
        )
    }

    /// Whether there is no time left for what is not the search.
    pub fn is_over(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// What a size takes beside the search, for two routers.
    fn fixed(&self) -> Duration {
        let latencies = self.latency * 4;
        let losses = self.loss * (self.losses_max as u32 + 1);
        let cpus = self.cpu * 5;
        2 * (latencies + losses + cpus) + Duration::from_millis(600)
    }
}
