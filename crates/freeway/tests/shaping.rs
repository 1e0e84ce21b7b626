// SPDX-License-Identifier: MIT OR Apache-2.0
//! Disciplines hold Freeway's flows to rates, shares and priorities as they do the kernel's. This kernel may have few of
//! them; those in the virtual machines (tests/vm) have all. `FREEWAY_LONG` measures longer.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::*;
use serde_json::Value;

/// Slow enough for emulation.
const RATE_MBIT: f64 = 20.0;

/// One short sample of each router: shares and rates by so much of themselves and of the port's rate, latencies by so much
/// of themselves and so many milliseconds.
fn near(figure: &str, value: f64, kernel: f64) -> bool {
    let error = match figure {
        "latency_p50_ms" => 0.25 * kernel + 1.0,
        _ => 0.05 * kernel + 0.02 * RATE_MBIT,
    };
    (value - kernel).abs() <= error
}

/// `own` figures are those that the discipline decides.
fn shaped(discipline: &str, own: &[&str]) -> Option<Value> {
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
    for figure in own {
        let of = |router: &str| result[router][figure].as_f64().unwrap();
        let (freeway, kernel) = (of("freeway"), of("kernel"));
        assert!(
            near(figure, freeway, kernel),
            "{figure}: {freeway} for {kernel}"
        );
    }
    Some(result)
}

fn fast_share(result: &Value) -> f64 {
    result["freeway"]["fast_share"].as_f64().unwrap()
}

fn through(discipline: &str, own: &[&str]) {
    let Some(_machine) = machine() else { return };
    if let Some(result) = shaped(discipline, own) {
        assert!(fast_share(&result) > 0.9, "{result:#}");
    }
}

const BY_CLASS: [&str; 3] = ["marked_mbit", "dscp_mbit", "latency_p50_ms"];
const AS_ONE: [&str; 2] = ["both_mbit", "latency_p50_ms"];

#[test]
fn tbf() {
    through("tbf", &AS_ONE);
}

#[test]
fn htb() {
    through("htb", &BY_CLASS);
}

#[test]
fn cake() {
    through("cake", &BY_CLASS);
}

#[test]
fn fq_codel() {
    through("fq-codel", &BY_CLASS);
}

#[test]
fn prio() {
    through("prio", &BY_CLASS);
}

/// What a policer of the input must see stays in the kernel.
#[test]
fn police() {
    let Some(_machine) = machine() else { return };
    if let Some(result) = shaped("police", &AS_ONE) {
        assert!(fast_share(&result) < 0.01, "{result:#}");
    }
}
