// SPDX-License-Identifier: MIT OR Apache-2.0
//! What all cases came to.

use std::fmt;

use crate::bench::{KERNEL, Outcome};
use crate::case::Case;
use crate::compare::Comparison;
use crate::setup::Pace;

#[derive(Debug, Default)]
pub struct Tally {
    /// Whose the fast frames are, in words.
    whose: &'static str,
    pub setups: usize,
    /// Setups with enough fast frames.
    pub fast_setups: usize,
    /// That were sent.
    pub frames: usize,
    left: usize,
    fast: u64,
    /// Fast and all frames of setups that explain no less.
    learnable: (u64, usize, usize),
    displaced: usize,
    extent: usize,
    paced: usize,
    wrong_sums: usize,
    translated: usize,
    withheld: u64,
    repacked: usize,
    pub retried: usize,
    /// Setups below the share, and why.
    slow: Vec<String>,
    pub faults: Vec<String>,
}

/// The fast path's share of what left.
pub fn share(outcome: &Outcome) -> f64 {
    outcome.fast as f64 / outcome.left[KERNEL].len().max(1) as f64
}

impl Tally {
    pub fn of(whose: &'static str) -> Self {
        Self {
            whose,
            ..Self::default()
        }
    }

    /// The fast path's share of what left in setups that let it have all.
    pub fn learnable_share(&self) -> f64 {
        self.learnable.0 as f64 / self.learnable.1.max(1) as f64
    }

    pub fn add(&mut self, case: &Case, outcome: &Outcome, comparison: &Comparison) {
        self.setups += 1;
        self.frames += outcome.frames;
        self.left += outcome.left[KERNEL].len();
        self.fast += outcome.fast;
        if case.setup.explains().is_empty() {
            self.learnable.0 += outcome.fast;
            self.learnable.1 += outcome.left[KERNEL].len();
            self.learnable.2 += 1;
        }
        self.displaced += comparison.displaced;
        self.extent = self.extent.max(comparison.extent);
        self.paced += usize::from(case.setup.pace == Pace::Gaps);
        self.wrong_sums += comparison.wrong_sums;
        self.translated += comparison.translated;
        self.withheld += comparison.withheld;
        self.repacked += comparison.repacked;
        let share = share(outcome);
        if share >= crate::suite::share_min(case, outcome) {
            self.fast_setups += 1;
            return;
        }
        let mut reasons = outcome.reasons.clone();
        reasons
            .sort_by_key(|(name, count)| (!name.starts_with("refused"), std::cmp::Reverse(*count)));
        let reasons: Vec<String> = reasons
            .iter()
            .filter(|(name, _)| !name.starts_with("learn_once"))
            .take(3)
            .map(|(name, count)| format!("{name} {count}"))
            .collect();
        self.slow.push(format!(
            "{:#x} {:4.1} %: {} <- {}",
            case.seed,
            100.0 * share,
            reasons.join(", "),
            case.setup
        ));
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for slow in &self.slow {
            writeln!(f, "row: not fast: {slow}")?;
        }
        let percent = |part: u64, whole: usize| 100.0 * part as f64 / whole.max(1) as f64;
        let (_, _, setups) = self.learnable;
        writeln!(
            f,
            "row: {} setups, {} frames sent, {} left, none differs; {:.1} % of what left was {}",
            self.setups,
            self.frames,
            self.left,
            percent(self.fast, self.left),
            self.whose
        )?;
        writeln!(
            f,
            "row: {setups} of the setups let it have its share: {:.1} %; {} setups of all have enough",
            100.0 * self.learnable_share(),
            self.fast_setups
        )?;
        writeln!(
            f,
            "row: {} frames displaced, worst extent {}; none overtaken in {} setups with gaps of 1 ms",
            self.displaced, self.extent, self.paced
        )?;
        writeln!(
            f,
            "row: {} groups of IPv6 fragments, put together by conntrack, left in other pieces; {} RSTs that are not \
             exact were dropped, for their flows were not fast",
            self.repacked, self.withheld
        )?;
        write!(
            f,
            "row: {} frames with wrong checksums under conntrack, {} of them translated by Freeway alone; {} cases run again",
            self.wrong_sums, self.translated, self.retried
        )
    }
}
