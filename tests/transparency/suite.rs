// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cases one after the other, in several labs at once, and what is asked of them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use freeway_kernel::probe::kernel_version;
use freeway_lab::twins::Kind;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::bench::{Bench, By, Outcome, describe};
use crate::case::Case;
use crate::compare::{Comparison, compare};
use crate::flow::{TCP, UDP};
use crate::record;
use crate::setup::{Pace, Tracking};
use crate::shrink;
use crate::tally::{self, Tally};

/// Of frames that leave, in setups that let the fast path have them.
pub const SHARE_MIN: f64 = 0.6;
/// Where flows are revalidated every two seconds: how many frames that are depends on the machine. Where there are so few that
/// learning takes most of them. And where routes are meant to be gone by, but flows are, some of which are refused.
const SHARE_MIN_BRIEF: f64 = 0.3;
const FRAMES_FEW: usize = 900;
/// What one poll of a port takes: more cannot overtake.
const EXTENT_MAX: usize = 64;
/// Cases that follow each other in one lab.
const BLOCK: u64 = 4;
/// The first seeds of the default cases: some that found something once, and any.
const BLOCKS: [u64; 12] = [
    0x2_0010,
    0x2_0014,
    0x2_002c,
    0x5eed_0010,
    0x5eed_00ec,
    0x1000,
    0x1004,
    0x1008,
    0x100c,
    0x1010,
    0x1014,
    0x1018,
];
/// A machine under load may learn late, or merge gaps.
const ATTEMPTS: usize = 3;

/// What is run.
pub struct Extent {
    workers: usize,
    /// Of each case.
    pub frames: usize,
    /// The seeds, in blocks that follow each other in one lab.
    pub blocks: Vec<Vec<u64>>,
}

impl Extent {
    pub fn read() -> Self {
        let long = freeway_testkit::long();
        let cases = match std::env::var("FREEWAY_CASES") {
            Ok(text) => text.parse().expect("FREEWAY_CASES is a number"),
            Err(_) if long => 520,
            Err(_) => BLOCKS.len() as u64 * BLOCK,
        };
        let seed = match std::env::var("FREEWAY_SEED") {
            Ok(text) if text == "random" => Some(any_seed()),
            Ok(text) => {
                let digits = text.trim_start_matches("0x");
                let seed = u64::from_str_radix(digits, 16);
                Some(seed.expect("FREEWAY_SEED is hexadecimal, or \"random\""))
            }
            Err(_) => long.then(any_seed),
        };
        let seeds: Vec<u64> = match seed {
            Some(seed) => {
                println!("FREEWAY_SEED={seed:#x}");
                (0..cases).map(|count| seed.wrapping_add(count)).collect()
            }
            None => {
                println!("the default seeds, in blocks of {BLOCK}: {BLOCKS:#x?}");
                let blocks = BLOCKS.into_iter();
                let seeds = blocks.flat_map(|first| (0..BLOCK).map(move |count| first + count));
                seeds.take(cases as usize).collect()
            }
        };
        let frames = match std::env::var("FREEWAY_FRAMES") {
            Ok(text) => text.parse().expect("FREEWAY_FRAMES is a number"),
            Err(_) => {
                if long {
                    2000
                } else {
                    1000
                }
            }
        };
        Self {
            workers: if long { 6 } else { 3 },
            frames,
            blocks: seeds.chunks(BLOCK as usize).map(<[u64]>::to_vec).collect(),
        }
    }
}

fn any_seed() -> u64 {
    freeway_lab::clock::monotonic_ns() ^ u64::from(std::process::id()) << 40
}

/// What it came to, where it can run.
pub fn same(by: By, extent: Extent) -> Option<Tally> {
    let _machine = freeway_testkit::machine()?;
    let start = Instant::now();
    let tally = Mutex::new(Tally::of(by.whose()));
    let routed = AtomicU64::new(0);
    thread::scope(|scope| {
        for worker in 0..extent.workers {
            let (extent, tally, routed) = (&extent, &tally, &routed);
            scope.spawn(move || {
                let mut bench = Bench::build(by, worker, [Kind::Wire; 3]);
                // Frames come out in the order in which they were sent; the daemon is not bound.
                bind(worker);
                // Which cases follow each other in a lab does not depend on time.
                let blocks = extent.blocks.iter().skip(worker).step_by(extent.workers);
                for seed in blocks.flatten() {
                    if tally.lock().unwrap().faults.len() > 2 {
                        break;
                    }
                    let case = match by {
                        By::Routes(_) | By::EngineRoutes => Case::routed(*seed, extent.frames),
                        _ => Case::random(*seed, extent.frames),
                    };
                    examine(&mut bench, &case, tally);
                }
                let by_routes = bench.stop();
                routed.fetch_add(by_routes, Ordering::Relaxed);
            });
        }
    });
    let cases = extent.blocks.iter().flatten().count();
    let tally = conclude(tally, start, cases);
    if by.is_routes() {
        let routed = routed.into_inner();
        println!("row: {routed} frames by routes");
        // one alone may have none
        let least = (extent.frames * cases) as u64 / 5;
        assert!(routed > least || cases < 10, "{routed}");
    }
    Some(tally)
}

/// So many cases were wanted.
pub fn conclude(tally: Mutex<Tally>, start: Instant, cases: usize) -> Tally {
    let tally = tally.into_inner().unwrap();
    println!("{tally}\nin {:.0} s", start.elapsed().as_secs_f64());
    assert!(tally.faults.is_empty(), "{}", tally.faults.join("\n\n"));
    assert_eq!(tally.setups, cases);
    assert!(
        tally.fast_setups * 2 > tally.setups || tally.setups < 20,
        "too few setups say something"
    );
    let share = tally.learnable_share();
    assert!(
        share >= SHARE_MIN || tally.setups < 20,
        "{:.1} % were fast",
        100.0 * share
    );
    tally
}

fn bind(worker: usize) {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let mut set = CpuSet::new();
    set.set(worker % cpus).unwrap();
    sched_setaffinity(Pid::from_raw(0), &set).unwrap();
}

/// Runs a case; what depends on time may be tried again, what leaves may not.
pub fn examine(bench: &mut Bench, case: &Case, tally: &Mutex<Tally>) {
    let mut excuses = Vec::new();
    loop {
        let outcome = bench.run(case);
        let comparison = compare(case, &outcome);
        if comparison.different > 0 && outcome.stalled && excuses.len() + 1 < ATTEMPTS {
            excuses.push("connections timed out".into());
            continue;
        }
        if comparison.different > 0 {
            let fault = explain(bench, case, &outcome, &comparison);
            println!("{fault}");
            tally.lock().unwrap().faults.push(fault);
            return;
        }
        match late(case, &outcome, &comparison) {
            Some(excuse) if excuses.len() + 1 < ATTEMPTS => excuses.push(excuse),
            Some(excuse) => {
                excuses.push(excuse);
                let text = format!(
                    "seed {:#x}: {}\n{}{:?}\n{}",
                    case.seed,
                    excuses.join("; then "),
                    describe(&case.setup),
                    outcome.reasons,
                    bench.ports(),
                );
                println!("{text}");
                tally.lock().unwrap().faults.push(text);
                return;
            }
            None => {
                let mut tally = tally.lock().unwrap();
                tally.add(case, &outcome, &comparison);
                if let Some(path) = std::env::var_os("FREEWAY_RECORD") {
                    record::record(path.as_ref(), case, &outcome);
                }
                tally.retried += excuses.len();
                if tally.setups.is_multiple_of(50) {
                    println!("{} setups", tally.setups);
                }
                return;
            }
        }
    }
}

/// The share that is enough of one case; of all it is [`SHARE_MIN`].
pub fn share_min(case: &Case, outcome: &Outcome) -> f64 {
    let has = |start| {
        outcome
            .reasons
            .iter()
            .any(|(name, _)| name.starts_with(start))
    };
    let by_flows = case.routed && !has("routed") && has("refused: ");
    let share = if by_flows || case.setup.brief || case.traffic.len() < FRAMES_FEW {
        SHARE_MIN_BRIEF
    } else {
        SHARE_MIN
    };
    share * learnable(case)
}

/// The share of the frames whose flows this kernel's programs can learn: before Linux 6.2 they see no connections of
/// other protocols than TCP and UDP.
fn learnable(case: &Case) -> f64 {
    if !case.setup.tracked() || kernel_version() >= Some((6, 2)) {
        return 1.0;
    }
    let plans = case.traffic.parts().into_iter().flatten();
    let seen = plans.filter(|plan| [TCP, UDP].contains(&plan.proto));
    seen.count() as f64 / case.traffic.len() as f64
}

/// What is wrong about speed and order.
fn late(case: &Case, outcome: &Outcome, comparison: &Comparison) -> Option<String> {
    if comparison.extent > EXTENT_MAX {
        return Some(format!("a frame came {} places late", comparison.extent));
    }
    if case.setup.pace == Pace::Gaps && comparison.displaced > 0 {
        return Some(format!(
            "{} frames were overtaken in spite of gaps:\n{}\n",
            comparison.displaced,
            comparison.overtakings.join("\n")
        ));
    }
    if outcome.last_fast && comparison.displaced_last > 0 {
        return Some(format!(
            "{} frames changed places within the fast path",
            comparison.displaced_last
        ));
    }
    let share = tally::share(outcome);
    // before Linux 6.2 what a rule exempts from conntrack is the kernel's
    let exempt = case.setup.tracking == Tracking::Notrack && kernel_version() < Some((6, 2));
    if share < share_min(case, outcome) && case.setup.explains().is_empty() && !exempt {
        return Some(format!("only {:.1} % were fast", 100.0 * share));
    }
    None
}

/// The mismatch, and the smallest case that shows it.
fn explain(bench: &mut Bench, case: &Case, outcome: &Outcome, comparison: &Comparison) -> String {
    let mut text = format!(
        "MISMATCH: {} frames differ; {}FREEWAY_CASES=1 FREEWAY_SEED={:#x} FREEWAY_FRAMES={} repeats it (with the case before: 2, {:#x})\n{}\n{}\n{}{:?}\n{}\n",
        comparison.different,
        if freeway_testkit::long() {
            "FREEWAY_LONG=1 "
        } else {
            ""
        },
        case.seed,
        case.traffic.len(),
        case.seed.wrapping_sub(1),
        describe(&case.setup),
        comparison.differences.join("\n"),
        comparison.alone(),
        outcome.reasons,
        bench.ports(),
    );
    println!("{text}");
    let flows: Vec<usize> = comparison.flows.iter().copied().collect();
    let mut seen = Vec::new();
    let smallest = shrink::shrink(case, &flows, |case| {
        let comparison = compare(case, &bench.run(case));
        if comparison.different > 0 {
            seen = comparison.differences;
        }
        comparison.different > 0
    });
    text += &match smallest {
        None => "A second run did not show it.\n".to_string(),
        Some(case) => format!(
            "The smallest case, with {} frames:\n{}\n{}\n{}\n{}\n",
            case.traffic.len(),
            describe(&case.setup),
            flows
                .iter()
                .map(|flow| format!("flow {flow}: {:?}", case.flows[*flow]))
                .collect::<Vec<_>>()
                .join("\n"),
            case.traffic
                .parts()
                .into_iter()
                .flatten()
                .map(|plan| format!("{plan:?}"))
                .collect::<Vec<_>>()
                .join("\n"),
            seen.join("\n")
        ),
    };
    text
}
