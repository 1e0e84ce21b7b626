// SPDX-License-Identifier: MIT OR Apache-2.0
//! Disciplines hold Freeway's flows to rates, shares and priorities as they do the kernel's. This kernel may have few of
//! them; those in the virtual machines (tests/vm) have all. `FREEWAY_LONG` measures longer.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::ops::Range;

use freeway_testkit::*;
use serde_json::Value;

/// Slow enough for emulation.
const RATE_MBIT: f64 = 20.0;

/// Shares and rates by so much of themselves and of the port's rate, latencies by so much of themselves and so many
/// milliseconds. One short sample of a machine on which others work tells a port whose discipline is passed by, which
/// sends many times as much; no more. The kernel is asked twice: what it does not agree with itself about is the machine's.
fn near(figure: &str, value: f64, kernel: [f64; 2]) -> bool {
    let error = |kernel: f64| match (figure, long()) {
        ("latency_p50_ms", true) => 0.25 * kernel + 1.0,
        ("latency_p50_ms", false) => f64::INFINITY,
        (_, true) => 0.05 * kernel + 0.02 * RATE_MBIT,
        (_, false) => 0.4 * kernel + 0.1 * RATE_MBIT,
    };
    let [low, high] = [kernel[0].min(kernel[1]), kernel[0].max(kernel[1])];
    (low - error(low)..=high + error(high)).contains(&value)
}

/// A case is tried so often: what is wrong is so each time.
const ATTEMPTS: usize = 5;

/// One sample of each router, if this kernel has the discipline.
fn sample(discipline: &str) -> Option<Value> {
    let (runs, seconds) = match std::env::var_os("FREEWAY_LONG") {
        Some(_) => ("5", "10"),
        None => ("1", "5"),
    };
    let rate = RATE_MBIT.to_string();
    let mut bench = freeway();
    bench.args(["bench", "shaper", "--json", "--discipline", discipline]);
    bench.args(["--rate", &rate, "--runs", runs, "--seconds", seconds]);
    let output = bench.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if ["qdisc kind is unknown", "classifier not found"]
        .iter()
        .any(|why| said.contains(why))
    {
        println!("skipped: this kernel has no {discipline}");
        return None;
    }
    assert!(output.status.success(), "{said}");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    println!("{result:#}");
    Some(result)
}

fn faults(result: &Value, own: &[&str], fast: Range<f64>) -> Vec<String> {
    let mut faults = Vec::new();
    for figure in own {
        let of = |router: &str| result[router][figure].as_f64();
        match [of("freeway"), of("kernel"), of("kernel_again")] {
            [Some(freeway), Some(kernel), Some(again)]
                if near(figure, freeway, [kernel, again]) => {}
            // one may be missing: no answer came, where a late machine sent hardly anything
            [freeway, kernel, again] => {
                faults.push(format!(
                    "{figure}: {freeway:?} for {kernel:?} and {again:?}"
                ));
            }
        }
    }
    let share = result["freeway"]["fast_share"].as_f64().unwrap();
    if !fast.contains(&share) {
        faults.push(format!("{share} of the packets were fast"));
    }
    faults
}

/// `own` figures are those that the discipline decides, `fast` the share of packets that Freeway forwards.
fn shaped(discipline: &str, own: &[&str], fast: Range<f64>) {
    let Some(_machine) = machine() else { return };
    let mut tried = Vec::new();
    for _ in 0..ATTEMPTS {
        let Some(result) = sample(discipline) else {
            return;
        };
        let faults = faults(&result, own, fast.clone());
        if faults.is_empty() {
            return;
        }
        tried.push(faults);
    }
    panic!("{tried:#?}");
}

/// All but the first packets.
const MOST: Range<f64> = 0.9..1.1;
const BY_CLASS: [&str; 3] = ["marked_mbit", "dscp_mbit", "latency_p50_ms"];
const AS_ONE: [&str; 2] = ["both_mbit", "latency_p50_ms"];

#[test]
fn tbf() {
    shaped("tbf", &AS_ONE, MOST);
}

#[test]
fn htb() {
    shaped("htb", &BY_CLASS, MOST);
}

#[test]
fn cake() {
    shaped("cake", &BY_CLASS, MOST);
}

#[test]
fn fq_codel() {
    shaped("fq-codel", &BY_CLASS, MOST);
}

#[test]
fn prio() {
    shaped("prio", &BY_CLASS, MOST);
}

/// Nothing shapes, but the ring behind the queue fills: packets go through the queue then.
#[test]
fn ring() {
    shaped("ring", &AS_ONE, MOST);
}

/// What a policer of the input must see stays in the kernel.
#[test]
fn police() {
    shaped("police", &AS_ONE, 0.0..0.01);
}
