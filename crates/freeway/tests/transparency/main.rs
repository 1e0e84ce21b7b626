// SPDX-License-Identifier: MIT OR Apache-2.0
//! The same frames through the same router, by the kernel and by Freeway: what leaves is compared byte for byte.
//!
//! ```text
//!                       frames of a case, from its seed
//!                  |                                      |
//!   +--------------v-------------+         +--------------v-------------+
//!   | lan0    the kernel    wan0 |         | lan0     Freeway      wan0 |
//!   |         alone         wan1 |         |                       wan1 |
//!   +--------------|-------------+         +--------------|-------------+
//!             what leaves     ==, at each port and flow     what leaves
//! ```
//!
//! Twins of one router, one of them with a Freeway daemon, get the same configuration and the same frames; GRO is off.
//! Setup, ruleset and frames of a case follow from its seed, and the cases from the first seed, by counting up.
//! `FREEWAY_SEED` is the first seed, `FREEWAY_LONG=1` runs 500 setups with 1,000,000 frames. The daemon
//! stays while setups come and go. VRFs and bonds need modules that this kernel may not have.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bench;
mod case;
#[path = "../common/mod.rs"]
mod common;
mod compare;
mod flow;
mod frame;
mod record;
mod ruleset;
mod setup;
mod shrink;
mod tally;
mod traffic;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bench::{Bench, Outcome};
use case::Case;
use compare::{Comparison, compare};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use setup::Pace;
use tally::Tally;

/// Of frames that leave, in setups that let the fast path have them.
const SHARE_MIN: f64 = 0.6;
/// What one poll of a port takes: more cannot overtake.
const EXTENT_MAX: usize = 64;
/// Cases that follow each other in one lab.
const BLOCK: u64 = 4;
/// A machine under load may learn late, or merge gaps.
const ATTEMPTS: usize = 3;

/// How much is run.
struct Extent {
    workers: usize,
    frames: usize,
    cases: u64,
    time: Duration,
}

fn extent() -> Extent {
    let long = common::long();
    Extent {
        workers: if long { 6 } else { 3 },
        frames: if long { 2000 } else { 1000 },
        cases: if long { 500 } else { 20 },
        time: Duration::from_secs(if long { 0 } else { 60 }),
    }
}

#[test]
fn freeway_sends_what_the_kernel_sends() {
    let Some(_machine) = common::machine() else {
        return;
    };
    let extent = extent();
    let seed = seed();
    println!("FREEWAY_SEED={seed:#x}");
    let start = Instant::now();
    let next = AtomicU64::new(0);
    let tally = Mutex::new(Tally::default());
    let more = |count: u64| count < extent.cases || start.elapsed() < extent.time;
    thread::scope(|scope| {
        for worker in 0..extent.workers {
            let (extent, next, tally, more) = (&extent, &next, &tally, &more);
            scope.spawn(move || {
                let mut bench = Bench::build();
                // Frames come out in the order in which they were sent; the daemon is not bound.
                bind(worker);
                loop {
                    let first = next.fetch_add(BLOCK, Ordering::Relaxed);
                    if !more(first) {
                        break;
                    }
                    for count in first..first + BLOCK {
                        if !more(count) || tally.lock().unwrap().faults.len() > 2 {
                            break;
                        }
                        let case = Case::random(seed.wrapping_add(count), extent.frames);
                        examine(&mut bench, &case, tally);
                    }
                }
                bench.stop();
            });
        }
    });
    let tally = tally.into_inner().unwrap();
    println!("{tally}\nin {:.0} s", start.elapsed().as_secs_f64());
    assert!(tally.faults.is_empty(), "{}", tally.faults.join("\n\n"));
    assert!(tally.setups >= extent.cases as usize);
    assert!(
        tally.fast_setups * 2 > tally.setups,
        "too few setups say something"
    );
}

fn bind(worker: usize) {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let mut set = CpuSet::new();
    set.set(worker % cpus).unwrap();
    sched_setaffinity(Pid::from_raw(0), &set).unwrap();
}

/// Runs a case; what depends on time may be tried again, what leaves may not.
fn examine(bench: &mut Bench, case: &Case, tally: &Mutex<Tally>) {
    let mut excuses = Vec::new();
    loop {
        let outcome = bench.run(case);
        let comparison = compare(case, &outcome);
        if comparison.different > 0 && outcome.stalled && excuses.len() + 1 < ATTEMPTS {
            excuses.push("connections timed out".into());
            continue;
        }
        if comparison.different > 0 {
            let fault = explain(bench, case, &comparison);
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
                    bench::describe(&case.setup),
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

/// What is wrong about speed and order.
fn late(case: &Case, outcome: &Outcome, comparison: &Comparison) -> Option<String> {
    if comparison.extent > EXTENT_MAX {
        return Some(format!("a frame came {} places late", comparison.extent));
    }
    if case.setup.pace == Pace::Gaps && comparison.overtaken > 0 {
        return Some(format!(
            "{} frames were overtaken in spite of gaps",
            comparison.overtaken
        ));
    }
    if outcome.last_fast && comparison.displaced_last > 0 {
        return Some(format!(
            "{} frames changed places within the fast path",
            comparison.displaced_last
        ));
    }
    let share = tally::share(outcome);
    if share < SHARE_MIN && case.setup.explains().is_empty() {
        return Some(format!("only {:.1} % were fast", 100.0 * share));
    }
    None
}

/// The mismatch, and the smallest case that shows it.
fn explain(bench: &mut Bench, case: &Case, comparison: &Comparison) -> String {
    let mut text = format!(
        "MISMATCH: {} frames differ; FREEWAY_SEED={:#x} repeats it (with the case before: {:#x})\n{}\n{}\n",
        comparison.different,
        case.seed,
        case.seed.wrapping_sub(1),
        bench::describe(&case.setup),
        comparison.differences.join("\n")
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
            bench::describe(&case.setup),
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

fn seed() -> u64 {
    match std::env::var("FREEWAY_SEED") {
        Ok(text) => {
            let digits = text.trim_start_matches("0x");
            u64::from_str_radix(digits, 16).expect("FREEWAY_SEED is hexadecimal")
        }
        Err(_) => freeway_lab::clock::monotonic_ns() ^ u64::from(std::process::id()) << 40,
    }
}
