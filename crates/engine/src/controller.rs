// SPDX-License-Identifier: MIT OR Apache-2.0
//! The controller: looks at workers and buckets now and then, and says whose each bucket is to be.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::balance::{Balancer, Decision, Round};
use crate::ffi::{fwe_stats, fwe_tsc_hz};
use crate::worker::BUCKETS;

/// How often it looks.
pub(crate) const ROUND: Duration = Duration::from_millis(200);
/// Decisions that are told.
const TOLD_MAX: usize = 8;
/// By no more than this do a worker's measured cycles differ from the model's.
const SCALE_MAX: f64 = 4.0;

/// Whose each bucket is.
pub(crate) type Owner = [u8; BUCKETS];

/// Unless somebody moves it.
pub(crate) fn in_turn(workers: usize) -> Owner {
    std::array::from_fn(|bucket| (bucket % workers.max(1)) as u8)
}

/// What workers had done at a moment.
pub(crate) struct Seen {
    at: Instant,
    cycles: Vec<u64>,
    charged: Vec<u64>,
    loads: Vec<[u64; BUCKETS]>,
}

impl Seen {
    /// `loads`: what buckets were charged with at each worker.
    pub fn now(stats: &[fwe_stats], loads: Vec<[u64; BUCKETS]>) -> Self {
        Self {
            at: Instant::now(),
            cycles: stats.iter().map(|stats| stats.cycles).collect(),
            charged: stats.iter().map(|stats| stats.charged).collect(),
            loads,
        }
    }

    /// What each worker was charged with since then, cycles.
    pub fn charged_since(&self, before: &Seen) -> Vec<f64> {
        let each = self.charged.iter().zip(&before.charged);
        each.map(|(now, before)| now.wrapping_sub(*before) as f64 / 16.0)
            .collect()
    }
}

fn since(now: &[u64], before: &[u64], at: usize) -> f64 {
    let (now, before) = (now.get(at), before.get(at));
    now.zip(before)
        .map_or(0, |(now, before)| now.wrapping_sub(*before)) as f64
}

/// Of all ports that are balanced.
pub(crate) struct Controller {
    owner: Owner,
    workers: usize,
    /// Two workers, or more, share a CPU: what they measure is each other's, too, so the model counts alone.
    crowded: bool,
    balancer: Balancer,
    seen: Option<Seen>,
    told: VecDeque<String>,
}

impl Controller {
    pub fn new(workers: usize, crowded: bool) -> Self {
        Self {
            owner: in_turn(workers),
            workers,
            crowded,
            balancer: Balancer::default(),
            seen: None,
            told: VecDeque::new(),
        }
    }

    /// Whose each bucket is to be.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Buckets of a worker's.
    pub fn buckets(&self, worker: usize) -> u32 {
        let own = self.owner.iter().filter(|o| usize::from(**o) == worker);
        own.count() as u32
    }

    /// The last decisions.
    pub fn told(&self) -> impl Iterator<Item = &String> {
        self.told.iter()
    }

    /// Begins anew to look; `known`: with what it knows of buckets.
    pub fn pause(&mut self, known: bool) {
        self.seen = None;
        if !known {
            self.balancer = Balancer::default();
        }
    }

    /// True if it is time to look.
    pub fn is_due(&self) -> bool {
        let seen = self.seen.as_ref();
        seen.is_none_or(|seen| seen.at.elapsed() >= ROUND)
    }

    /// Looks; `settled`: each bucket is whose it is to be. A line if buckets are to move, and [`Controller::owner`] says
    /// where to.
    pub fn look(&mut self, now: Seen, settled: bool) -> Option<&str> {
        let decision = self.seen.as_ref().filter(|_| settled).map(|before| {
            let elapsed = now.at.duration_since(before.at);
            let (loads, costs) = self.measured(&now, before);
            (elapsed, loads, costs)
        });
        self.seen = Some(now);
        let (elapsed, loads, costs) = decision?;
        // SAFETY: DPDK has been started.
        let tsc_hz = unsafe { fwe_tsc_hz() } as f64;
        // of a CPU that is shared nobody knows how much of it a worker could have
        let elapsed = match self.crowded {
            true => 0.0,
            false => elapsed.as_secs_f64() * tsc_hz,
        };
        let decision = self.balancer.decide(&Round {
            loads: &loads,
            costs: &costs,
            owner: &self.owner,
            elapsed,
        });
        if decision.moves.is_empty() {
            return None;
        }
        for one in &decision.moves {
            if let Some(owner) = self.owner.get_mut(one.bucket) {
                *owner = one.to;
            }
        }
        while self.told.len() >= TOLD_MAX {
            self.told.pop_front();
        }
        self.told.push_back(words(&decision));
        self.told.back().map(String::as_str)
    }

    /// Cycles of each worker, and of each bucket at the worker that has it.
    fn measured(&self, now: &Seen, before: &Seen) -> (Vec<f64>, Vec<f64>) {
        let charged = now.charged_since(before);
        let mut loads = Vec::new();
        let mut scales = Vec::new();
        for (worker, charged) in charged.iter().enumerate().take(self.workers) {
            let cycles = since(&now.cycles, &before.cycles, worker);
            let load = if self.crowded || *charged <= 0.0 {
                *charged
            } else {
                cycles.clamp(charged / SCALE_MAX, charged * SCALE_MAX)
            };
            loads.push(load);
            scales.push(if *charged > 0.0 { load / charged } else { 1.0 });
        }
        let cost = |(bucket, owner): (usize, &u8)| {
            let owner = usize::from(*owner);
            let all = now.loads.get(owner).zip(before.loads.get(owner));
            let cost = all.map_or(0.0, |(now, before)| since(now, before, bucket) / 16.0);
            cost * scales.get(owner).copied().unwrap_or(1.0)
        };
        let costs = self.owner.iter().enumerate().map(cost).collect();
        (loads, costs)
    }
}

/// A decision in a line.
fn words(decision: &Decision) -> String {
    const NAMED: usize = 4;
    let named = decision.moves.iter().take(NAMED).map(|one| {
        format!(
            "{} of worker {} to {} ({:.1} % of all)",
            one.bucket,
            one.from,
            one.to,
            one.share * 100.0
        )
    });
    let named: Vec<_> = named.collect();
    let more = match decision.moves.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    format!(
        "balance: the fullest worker has {:.2} of the mean, to be {:.2}: buckets {}{more}",
        decision.over_mean,
        decision.expected,
        named.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balance::Move;

    #[test]
    fn a_decision_is_a_line() {
        let one = |bucket| Move {
            bucket,
            from: 1,
            to: 0,
            share: 0.031,
        };
        let decision = Decision {
            over_mean: 1.6,
            expected: 1.02,
            moves: (1..7).map(one).collect(),
        };
        let line = words(&decision);
        assert!(line.contains("1.60 of the mean, to be 1.02"), "{line}");
        assert!(
            line.contains("1 of worker 1 to 0 (3.1 % of all), 2 of"),
            "{line}"
        );
        assert!(
            line.ends_with(", and 2 more") && !line.contains('\n'),
            "{line}"
        );
    }

    #[test]
    fn buckets_are_spread_in_turn() {
        let owner = in_turn(3);
        assert_eq!(&owner[..5], &[0, 1, 2, 0, 1]);
        assert_eq!(in_turn(1), [0; BUCKETS]);
    }

    fn seen(cycles: [u64; 2], charged: [u64; 2]) -> Seen {
        let loads = |worker: usize| {
            let mut load = [0; BUCKETS];
            load[worker] = charged[worker] * 16;
            load
        };
        Seen {
            at: Instant::now(),
            cycles: cycles.to_vec(),
            charged: charged.map(|charged| charged * 16).to_vec(),
            loads: vec![loads(0), loads(1)],
        }
    }

    /// Measured cycles go to buckets by the model's shares, unless a CPU is shared.
    #[test]
    fn buckets_cost_what_was_measured() {
        let measured = |crowded: bool| {
            let controller = Controller::new(2, crowded);
            controller.measured(&seen([3000, 8000], [1000, 1000]), &seen([0; 2], [0; 2]))
        };
        let (loads, costs) = measured(false);
        // no more than four times the model
        assert_eq!(loads, [3000.0, 4000.0]);
        assert_eq!((costs[0], costs[1], costs[2]), (3000.0, 4000.0, 0.0));
        let (loads, costs) = measured(true);
        assert_eq!(loads, [1000.0, 1000.0]);
        assert_eq!((costs[0], costs[1]), (1000.0, 1000.0));
    }
}
