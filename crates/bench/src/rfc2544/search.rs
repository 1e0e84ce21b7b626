// SPDX-License-Identifier: MIT OR Apache-2.0
//! MLRsearch (RFC 9971): the highest loads that hold several goals, found in one search by trials of growing duration.
//!
//! Each goal is preceded by coarser ones with shorter trials, fewer of them and a larger width; the bounds that one finds are
//! where the next begins. At every level the goals come in their order, the strictest first, for a load that turns out to be
//! an upper bound is one for larger loads, too: smaller ones first.

use std::collections::BTreeMap;
use std::time::Duration;

use super::goal::{Bound, Goal, Trial};

/// What to search for, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The goals, the least loss ratio first; they differ in nothing else.
    pub goals: Vec<Goal>,
    /// Least load, frames a second, not 0.
    pub min_load: u64,
    /// Largest load.
    pub max_load: u64,
    /// Duration of the first trials, at most that of the goals'.
    pub initial_trial: Duration,
    /// Levels, the goals' own included.
    pub levels: u32,
    /// The search ends when it has had so many trials
    pub trials_max: usize,
    /// or so much time in them.
    pub time_max: Duration,
}

/// A trial that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input {
    /// Frames a second in each direction.
    pub load: u64,
    /// How long.
    pub time: Duration,
}

/// What is known of a goal.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Found {
    /// The largest load that holds, below the upper bound if there is one (relevant lower bound).
    pub lower: Option<u64>,
    /// The smallest that does not (relevant upper bound).
    pub upper: Option<u64>,
    /// What is forwarded at the lower bound, frames a second.
    pub conditional_throughput: Option<f64>,
    /// The bounds are there and no farther apart than asked for.
    pub regular: bool,
    /// What the sender left out made the upper bound one, or there is none because it cannot send more.
    pub limited: bool,
}

/// A search under way.
#[derive(Clone, Debug)]
pub struct Search {
    plan: Plan,
    /// By level, the goals.
    levels: Vec<Vec<Goal>>,
    trials: BTreeMap<u64, Vec<Trial>>,
    count: usize,
    time: Duration,
    level: usize,
    /// First loads of which none has been tried.
    first: Vec<u64>,
    /// The last load that was asked for.
    load: u64,
    /// How often in a row a bound was looked for ever farther away, and for which goal.
    extended: (usize, u32),
    /// Bounds of the level before, by goal.
    hints: Vec<[Option<u64>; 2]>,
    complete: bool,
}

impl Search {
    /// Begins.
    pub fn new(plan: Plan) -> Self {
        let levels = (0..plan.levels.max(1)).map(|level| {
            let goals = plan.goals.iter();
            goals.map(|goal| coarser(goal, &plan, level)).collect()
        });
        Self {
            levels: levels.collect(),
            trials: BTreeMap::new(),
            count: 0,
            time: Duration::ZERO,
            level: 0,
            first: vec![plan.max_load],
            load: plan.max_load,
            extended: (0, 0),
            hints: vec![[None; 2]; plan.goals.len()],
            complete: false,
            plan,
        }
    }

    /// The next trial; nothing when it is over.
    pub fn next(&mut self) -> Option<Input> {
        if self.complete
            || self.count >= self.plan.trials_max
            || self.time >= self.plan.time_max
            || self.plan.goals.is_empty()
        {
            return None;
        }
        if let Some(load) = self.first.last() {
            let (load, time) = (*load, self.plan.initial_trial);
            return Some(Input { load, time });
        }
        while let Some(goals) = self.levels.get(self.level).cloned() {
            for (number, goal) in goals.iter().enumerate() {
                if let Some(load) = self.step(number, goal) {
                    self.load = load;
                    let time = goal.trial;
                    return Some(Input { load, time });
                }
            }
            for (hint, goal) in self.hints.iter_mut().zip(&goals) {
                *hint = bounds(&self.trials, goal);
            }
            self.extended = (0, 0);
            self.level += 1;
        }
        self.complete = true;
        None
    }

    /// What came of it.
    pub fn add(&mut self, trial: Trial) {
        self.count += 1;
        self.time += trial.time;
        self.trials.entry(trial.load).or_default().push(trial);
        if let Some(load) = self.first.pop() {
            // what is forwarded at the largest load, and again what is at that one
            let forwarded = load as f64 * (1.0 - trial.loss_ratio);
            let forwarded = (forwarded as u64).clamp(self.plan.min_load, load);
            self.load = forwarded;
            if trial.loss_ratio > 0.0 && self.count < 3 && forwarded < load {
                self.first.push(forwarded);
            }
        }
    }

    /// Trials so far.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether all bounds were found, or were found not to be there.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// What is known of each goal. If it did not come to its end, of the finest level at which all have a lower bound.
    pub fn found(&self) -> Vec<Found> {
        let all_lower = |goals: &&Vec<Goal>| {
            let lower = |goal| bounds(&self.trials, goal)[0].is_some();
            goals.iter().all(lower)
        };
        let last = self.levels.last().filter(|_| self.complete);
        let goals = last.or_else(|| self.levels.iter().rev().find(all_lower));
        let goals = goals.or(self.levels.first());
        let goals = goals.into_iter().flatten();
        goals.map(|goal| self.found_of(goal)).collect()
    }

    fn found_of(&self, goal: &Goal) -> Found {
        let [lower, upper] = bounds(&self.trials, goal);
        let of = |load: u64| self.trials.get(&load).map_or(&[][..], Vec::as_slice);
        let narrow = lower.zip(upper).is_some_and(|(lower, upper)| {
            let width = (upper - lower) as f64 / upper as f64;
            width <= goal.width || upper - lower <= 1
        });
        Found {
            lower,
            upper,
            conditional_throughput: lower.map(|load| goal.conditional_throughput(load, of(load))),
            regular: self.complete && narrow,
            limited: match upper {
                Some(load) => {
                    let as_sent = of(load).iter().map(|trial| Trial {
                        loss_ratio: trial.sent_loss_ratio,
                        ..*trial
                    });
                    goal.classify(&as_sent.collect::<Vec<_>>()) != Bound::Upper
                }
                None => lower.is_some_and(|lower| lower >= self.plan.max_load),
            },
        }
    }

    /// The load that a goal needs a trial at.
    fn step(&mut self, number: usize, goal: &Goal) -> Option<u64> {
        let Plan {
            min_load, max_load, ..
        } = self.plan;
        // one load is decided before another is begun
        let of = self.trials.get(&self.load);
        let begun = |trials: &Vec<Trial>| trials.iter().any(|trial| trial.time == goal.trial);
        if of.is_some_and(|trials| begun(trials) && goal.classify(trials) == Bound::Undecided) {
            return Some(self.load);
        }
        let [hint_lower, hint_upper] = self.hints[number];
        match bounds(&self.trials, goal) {
            [None, None] => Some(hint_lower.or(hint_upper).unwrap_or(self.load)),
            [Some(lower), None] => {
                if lower >= max_load {
                    return None;
                }
                let hint = hint_upper.filter(|hint| *hint > lower);
                let farther = hint.unwrap_or_else(|| {
                    let up = lower as f64 / self.extend(number, goal);
                    (up.ceil() as u64).max(lower + 1)
                });
                Some(farther.min(max_load))
            }
            [None, Some(upper)] => {
                if upper <= min_load {
                    return None;
                }
                let hint = hint_lower.filter(|hint| *hint < upper);
                let farther = hint.unwrap_or_else(|| {
                    let down = upper as f64 * self.extend(number, goal);
                    (down.floor() as u64).min(upper - 1)
                });
                Some(farther.max(min_load))
            }
            [Some(lower), Some(upper)] => {
                let width = (upper - lower) as f64 / upper as f64;
                if width <= goal.width || upper - lower <= 1 {
                    return None;
                }
                let middle = (lower as f64 * upper as f64).sqrt().round() as u64;
                Some(middle.clamp(lower + 1, upper - 1))
            }
        }
    }

    /// How much lower, as a share: twice as many widths as before.
    fn extend(&mut self, number: usize, goal: &Goal) -> f64 {
        if self.extended.0 != number {
            self.extended = (number, 0);
        }
        let widths = 2f64.powi(self.extended.1.min(30).cast_signed());
        self.extended.1 += 1;
        (1.0 - goal.width).powf(widths)
    }
}

/// The relevant bounds: the smallest upper one, and the largest lower one below it.
fn bounds(trials: &BTreeMap<u64, Vec<Trial>>, goal: &Goal) -> [Option<u64>; 2] {
    let mut lower = None;
    for (load, trials) in trials {
        match goal.classify(trials) {
            Bound::Upper => return [lower, Some(*load)],
            Bound::Lower => lower = Some(*load),
            Bound::Undecided => {}
        }
    }
    [lower, None]
}

/// The goal of a level: at the last one itself, before it with shorter trials, fewer of them, and twice the width each.
fn coarser(goal: &Goal, plan: &Plan, level: u32) -> Goal {
    let last = plan.levels.max(1) - 1;
    if level >= last {
        return *goal;
    }
    let share = f64::from(level) / f64::from(last);
    let between = |from: Duration, to: Duration| {
        let (from, to) = (from.as_secs_f64(), to.as_secs_f64());
        Duration::from_secs_f64(from * (to / from).powf(share))
    };
    let initial = plan.initial_trial.min(goal.trial);
    Goal {
        trial: between(initial, goal.trial),
        sum: between(initial, goal.sum),
        width: (goal.width * f64::from(1u32 << (last - level).min(16))).min(0.5),
        ..*goal
    }
}

/// Searches that take turns, trial by trial, until all are over or a trial says that there is no time left.
pub fn by_turns<E>(
    searches: &mut [Search],
    mut trial: impl FnMut(usize, Input) -> Result<Option<Trial>, E>,
) -> Result<(), E> {
    loop {
        let mut wanted = false;
        for (number, search) in searches.iter_mut().enumerate() {
            let Some(input) = search.next() else {
                continue;
            };
            let Some(trial) = trial(number, input)? else {
                return Ok(());
            };
            wanted = true;
            search.add(trial);
        }
        if !wanted {
            return Ok(());
        }
    }
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
