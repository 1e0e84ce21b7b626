// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway-engine bench-qos`: the scheduler by the TSC, on one core, without ports.

use freeway_api::measured::{Shaped, ShapedCost, ShapedPriority, ShapedRate, ShapedShares};
use freeway_api::schedule::{Class, RATE_ANY, Schedule as Described};

use crate::eal::Eal;
use crate::schedule::Schedule;
use crate::trial::{Clock, Outcome, Source, Trial};

const SECOND_NS: u64 = 1_000_000_000;
/// Octets a second of 1 Mb/s.
const MBIT: u64 = 125_000;
/// Of an MTU of 1500, as the kernel counts it.
const LONG: u16 = 1514;
const SHORT: u16 = 60;
/// Frames that may wait.
const ROOM: u32 = 8192;
/// How late the loop may look, and the rate is still kept: as a class's burst.
const LATE_NS: u64 = 500_000;
/// Of costs, medians of so many rounds.
const ROUNDS: u32 = 301;

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct Options {
    /// Seconds of each sample.
    pub seconds: f64,
    /// Samples of each, of which the medians are told.
    pub runs: u32,
    /// CPU to measure on.
    pub cpu: u32,
}

fn class(name: &str, above: Option<u16>, rate: u64, ceiling: u64) -> Class {
    let burst = |rate: u64| match rate {
        0 | RATE_ANY => 0,
        rate => LATE_NS + 1600 * SECOND_NS / rate,
    };
    Class {
        name: name.into(),
        above,
        quantum: 1600,
        limit: 1000,
        limit_bytes: u64::MAX,
        rate,
        ceiling,
        burst_ns: burst(rate),
        ceiling_burst_ns: burst(ceiling),
        ..Class::default()
    }
}

fn schedule(classes: Vec<Class>) -> Result<Schedule, String> {
    let described = Described {
        classes,
        ..Described::default()
    };
    Schedule::new(described, ROOM)
}

struct Bench<'a> {
    options: &'a Options,
    trial: Trial,
}

impl Bench<'_> {
    fn run(&self, schedule: &mut Schedule, sources: &[Source]) -> Outcome {
        let lasts = (self.options.seconds * 1e9) as u64;
        let times = (lasts / 10, lasts);
        self.trial.run(schedule, sources, times, Clock::Tsc)
    }

    /// The median by `figure` of all runs.
    fn median<T>(
        &self,
        mut once: impl FnMut() -> Result<T, String>,
        figure: fn(&T) -> f64,
    ) -> Result<T, String> {
        let mut all = Vec::new();
        for _ in 0..self.options.runs.max(1) {
            all.push(once()?);
        }
        all.sort_by(|one, other| figure(one).total_cmp(&figure(other)));
        let middle = all.len() / 2;
        Ok(all.swap_remove(middle))
    }

    fn rate(&self, rate: u64, len: u16) -> Result<ShapedRate, String> {
        let set_mbit = (rate != RATE_ANY).then_some(rate as f64 / MBIT as f64);
        self.median(
            || {
                let mut schedule = schedule(vec![class("1:1", None, rate, rate)])?;
                let source = Source {
                    leaf: 0,
                    len,
                    rate: 0,
                };
                let outcome = self.run(&mut schedule, &[source]);
                let bytes: u64 = outcome.left.iter().map(|left| left.bytes).sum();
                Ok(ShapedRate {
                    set_mbit,
                    len,
                    mbit: bytes as f64 * 8e3 / outcome.took_ns as f64,
                    paused: paused(&outcome),
                })
            },
            |rate| rate.mbit,
        )
    }

    fn priority(&self, rate: u64) -> Result<ShapedPriority, String> {
        let leaf = |name, priority| Class {
            priority,
            ..class(name, Some(0), 0, rate)
        };
        let frame_ns = f64::from(LONG) * 1e9 / rate as f64;
        let once = || {
            let mut root = class("1:1", None, rate, rate);
            // no more at once than a frame: what is behind it has yet to be decided
            root.burst_ns = frame_ns as u64;
            root.ceiling_burst_ns = root.burst_ns;
            let classes = vec![root, leaf("1:10", 0), leaf("1:20", 7)];
            let mut schedule = schedule(classes)?;
            let source = |leaf, rate| Source {
                leaf,
                len: LONG,
                rate,
            };
            // of no common measure with the rate: frames come at any time of another's
            let sources = [source(1, rate / 2 - rate / 97), source(2, 10 * rate)];
            let outcome = self.run(&mut schedule, &sources);
            let [first, last] = &outcome.left[..] else {
                return Err("a source is missing".into());
            };
            let at = |share: f64| {
                let place = (first.delays.len() as f64 * share) as usize;
                let delay = first.delays.get(place).copied().unwrap_or(u32::MAX);
                f64::from(delay) / frame_ns
            };
            let share = |bytes: u64| bytes as f64 * 1e9 / outcome.took_ns as f64 / rate as f64;
            Ok(ShapedPriority {
                set_mbit: rate as f64 / MBIT as f64,
                p50_frames: at(0.5),
                p99_frames: at(0.99),
                first: share(first.bytes),
                last: share(last.bytes),
                paused: paused(&outcome),
            })
        };
        self.median(once, |priority| priority.p99_frames)
    }

    fn shares(
        &self,
        classes: &[Class],
        sources: &[Source],
        wanted: &[f64],
    ) -> Result<ShapedShares, String> {
        let mut schedule = schedule(classes.to_vec())?;
        let outcome = self.run(&mut schedule, sources);
        let all: u64 = outcome.left.iter().map(|left| left.bytes).sum();
        let shares = outcome.left.iter();
        Ok(ShapedShares {
            wanted: wanted.to_vec(),
            shares: shares.map(|left| left.bytes as f64 / all as f64).collect(),
        })
    }

    fn weights(&self) -> Result<ShapedShares, String> {
        let rate = 1000 * MBIT;
        let leaf = |weight: u32| Class {
            quantum: weight * 1600,
            ..class("leaf", Some(0), 0, rate)
        };
        let root = class("root", None, rate, rate);
        let classes = [root, leaf(1), leaf(2), leaf(4)];
        let sources = [always(1, LONG), always(2, LONG), always(3, LONG)];
        self.shares(&classes, &sources, &[1.0 / 7.0, 2.0 / 7.0, 4.0 / 7.0])
    }

    /// As `freeway bench qos` sets the kernel's htb up: 50 Mb/s, of which 10, 20 and 5 with ceilings of 20, 50 and 50.
    fn tree(&self) -> Result<ShapedShares, String> {
        let leaf = |name, priority, own, ceiling| Class {
            priority,
            ..class(name, Some(0), own * MBIT, ceiling * MBIT)
        };
        let root = class("1:1", None, 50 * MBIT, 50 * MBIT);
        let classes = [
            root,
            leaf("1:10", 0, 10, 20),
            leaf("1:20", 1, 20, 50),
            leaf("1:30", 2, 5, 50),
        ];
        let sources = [always(1, LONG), always(2, LONG), always(3, LONG)];
        self.shares(&classes, &sources, &[0.4, 0.5, 0.1])
    }

    fn costs(&self, tsc_hz: f64) -> Result<Vec<ShapedCost>, String> {
        let mut costs = Vec::new();
        // more than one core can send, so that all that is asked for leaves; tokens are counted
        let rate = 1_000_000 * MBIT;
        let cost = |name: &str, classes, cycles: f64| ShapedCost {
            name: name.into(),
            classes,
            ns: cycles * 1e9 / tsc_hz,
        };
        for leaves in [1, 4, 8, 32] {
            let by_turns = |_| class("leaf", Some(0), rate / leaves, rate);
            let mut all = vec![class("root", None, rate, rate)];
            all.extend((0..leaves).map(by_turns));
            let mut schedule = schedule(all)?;
            let cycles = self.trial.cost(&mut schedule, SHORT, ROUNDS);
            costs.extend(cycles.map(|cycles| cost("freeway", leaves as u32, cycles)));
        }
        for (name, classes, by_weight) in [
            ("rte_sched, strict priority", 4, false),
            ("rte_sched, strict priority", 8, false),
            ("rte_sched, weights", 4, true),
        ] {
            let cycles = self.trial.rte_sched_cost(classes, by_weight, SHORT, ROUNDS);
            costs.extend(cycles.map(|cycles| cost(name, classes, cycles)));
        }
        Ok(costs)
    }
}

fn always(leaf: u16, len: u16) -> Source {
    Source { leaf, len, rate: 0 }
}

fn paused(outcome: &Outcome) -> f64 {
    outcome.pauses_ns as f64 / (outcome.took_ns + outcome.pauses_ns).max(1) as f64
}

/// Measures; `progress` is told what is under way. DPDK starts and ends within, so it is once in a process.
pub fn measure(options: &Options, progress: impl Fn(&str)) -> Result<Shaped, String> {
    let arguments = [
        "--lcores",
        &format!("0@{}", options.cpu),
        "--no-pci",
        "--no-telemetry",
        "--no-huge",
        "--no-shconf",
        "-m",
        "96",
        "--log-level=error",
    ];
    let arguments = arguments.map(str::to_owned);
    // SAFETY: of this thread and those that it starts, if it may.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) };
    let eal = Eal::start(&arguments).map_err(|error| format!("DPDK does not start: {error}"))?;
    // SAFETY: DPDK was started.
    let tsc_hz = unsafe { crate::ffi::fwe_tsc_hz() };
    let bench = Bench {
        options,
        trial: Trial::new()?,
    };
    let mut rates = Vec::new();
    // short frames, or few would make a sample
    for (mbit, len) in [
        (1, SHORT),
        (10, SHORT),
        (100, LONG),
        (1000, LONG),
        (10_000, LONG),
        (40_000, LONG),
    ] {
        progress(&format!("{mbit} Mb/s"));
        rates.push(bench.rate(mbit * MBIT, len)?);
    }
    progress("as much as goes");
    rates.push(bench.rate(RATE_ANY, LONG)?);
    rates.push(bench.rate(RATE_ANY, SHORT)?);
    let mut priorities = Vec::new();
    for mbit in [10, 100, 1000] {
        progress(&format!("priorities at {mbit} Mb/s"));
        priorities.push(bench.priority(mbit * MBIT)?);
    }
    progress("weights");
    let weights = bench.weights()?;
    progress("a tree with ceilings");
    let tree = bench.tree()?;
    progress("costs");
    let costs = bench.costs(tsc_hz as f64)?;
    drop(bench);
    drop(eal);
    Ok(Shaped {
        tsc_hz,
        rates,
        priorities,
        weights,
        tree,
        costs,
    })
}
