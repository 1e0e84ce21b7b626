// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many connections a second can be new.

use freeway_console::Stop;
use serde::{Deserialize, Serialize};

use super::gateway::{Gateway, Trial};
use super::search::next_rate;
use super::spread::Spread;
use crate::rfc2544::LIMITED;

/// The Responder sends through new connections at this share of the rate at which they were made.
const BACK_SHARE: u64 = 2;

/// The maximum connection establishment rate (RFC 9693).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Establishment {
    /// Connections a second; none if the generator limited a run, or if no rate that was tried held.
    pub per_s: Option<Spread>,
    /// Set if the generator limited a run: the router's own rate is not known, and not less.
    pub at_least_per_s: Option<f64>,
    /// Connections that were all there at that rate: a frame came back through each.
    pub validated: u32,
    /// Trials of all runs.
    pub trials: u64,
    /// Connections a second of each run, in order.
    pub samples: Vec<f64>,
}

/// A run's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Found {
    /// The highest rate that held.
    pub held: Option<u64>,
    /// It is the generator's limit.
    pub limited: bool,
    /// Trials.
    pub trials: u64,
}

/// Looks for a router's rate, up to what the generator can do.
pub fn search(
    gateway: &mut Gateway,
    connections: u32,
    ceiling_pps: f64,
    width: f64,
) -> Result<Found, Stop> {
    bisect(ceiling_pps, width, |rate| {
        gateway.establish(connections, rate, (rate / BACK_SHARE).max(1))
    })
}

fn bisect(
    ceiling_pps: f64,
    width: f64,
    mut trial: impl FnMut(u64) -> Result<Trial, Stop>,
) -> Result<Found, Stop> {
    let mut found = Found::default();
    let (mut failed, mut starved) = (None, false);
    while let Some(rate) = next_rate(found.held, failed, ceiling_pps as u64, width) {
        found.trials += 1;
        match trial(rate)? {
            Trial::Held => found.held = Some(rate),
            trial => (failed, starved) = (Some(rate), trial == Trial::Starved),
        }
    }
    let near = |held: u64| held as f64 >= ceiling_pps * LIMITED;
    found.limited = starved || found.held.is_some_and(near);
    Ok(found)
}

impl Establishment {
    /// What runs come to.
    pub fn of(runs: &[Found], connections: u32) -> Self {
        let held = runs.iter().filter_map(|found| found.held);
        let samples: Vec<f64> = held.map(|rate| rate as f64).collect();
        let spread = Spread::of(&samples);
        let limited = runs.iter().any(|found| found.limited);
        Self {
            per_s: spread.filter(|_| !limited),
            // the lower bounds' median is one of the median
            at_least_per_s: spread.filter(|_| limited).map(|spread| spread.median),
            validated: spread.map_or(0, |_| connections),
            trials: runs.iter().map(|found| found.trials).sum(),
            samples,
        }
    }

    /// Connections a second that hold surely, if any do.
    pub fn lower_per_s(&self) -> Option<f64> {
        self.samples.iter().copied().reduce(f64::min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(limit: u64, reach: u64) -> Found {
        let trial = |rate| {
            Ok(if rate > reach {
                Trial::Starved
            } else if rate > limit {
                Trial::Failed
            } else {
                Trial::Held
            })
        };
        bisect(1e6, 0.01, trial).unwrap()
    }

    #[test]
    fn what_the_generator_limits_is_said() {
        let own = found(400_000, 900_000);
        let held = own.held.unwrap();
        assert!(
            (396_000..=400_000).contains(&held) && !own.limited,
            "{own:?}"
        );
        // it fell short of more
        let short = found(400_000, 300_000);
        assert!(short.limited && short.held.unwrap() <= 300_000, "{short:?}");
        // there is no more
        let all = found(2_000_000, 2_000_000);
        assert_eq!(
            (all.held, all.limited, all.trials),
            (Some(1_000_000), true, 1)
        );
        let none = found(0, 2_000_000);
        assert_eq!((none.held, none.limited), (None, false));
    }

    #[test]
    fn runs_are_summed_up() {
        let run = |held, limited| Found {
            held,
            limited,
            trials: 7,
        };
        let own = [Some(100), Some(300), Some(200)].map(|held| run(held, false));
        let of = Establishment::of(&own, 50);
        let spread = of.per_s.unwrap();
        assert_eq!(
            [spread.median, spread.least, spread.most],
            [200.0, 100.0, 300.0]
        );
        assert_eq!((of.at_least_per_s, of.validated, of.trials), (None, 50, 21));
        assert_eq!(of.lower_per_s(), Some(100.0));
        let limited = Establishment::of(&[run(Some(100), false), run(Some(300), true)], 50);
        assert_eq!((limited.per_s, limited.at_least_per_s), (None, Some(200.0)));
        let none = Establishment::of(&[run(None, false)], 50);
        assert_eq!(
            (none.per_s, none.at_least_per_s, none.validated),
            (None, None, 0)
        );
    }
}
