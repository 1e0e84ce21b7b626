// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway bench qos`: the scheduler of the engine's outputs, which the program `freeway-engine` measures, and the kernel's
//! htb with the same tree.

mod kernel;

use std::time::Duration;

use freeway_api::measured::{Shaped, ShapedCost, ShapedPriority, ShapedRate, ShapedShares};
use freeway_console::{Page, Stop, Terminal, Tone, progress, show};
use freeway_rig::Machine;
use serde::{Deserialize, Serialize};

use crate::asked::ask;
use crate::cli::QosArgs;

/// The result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Qos {
    /// Samples.
    pub runs: u32,
    /// Seconds of each.
    pub seconds: f64,
    /// Of the clock.
    pub tsc_hz: u64,
    /// By rate.
    pub rates: Vec<ShapedRate>,
    /// The largest difference of a rate from its setting, over it.
    pub rate_error: f64,
    /// By rate.
    pub priorities: Vec<ShapedPriority>,
    /// 1:2:4.
    pub weights: ShapedShares,
    /// The largest difference of a share from its weight, over it.
    pub weight_error: f64,
    /// A tree of priorities, rates and ceilings.
    pub tree: ShapedShares,
    /// The kernel's htb with the same tree: shares; none: it cannot be measured here.
    pub kernel: Option<Vec<f64>>,
    /// The largest difference of a share from the kernel's, as part of 1.
    pub kernel_difference: Option<f64>,
    /// Of a frame.
    pub costs: Vec<ShapedCost>,
    /// What is to be minded.
    pub remarks: Vec<String>,
    /// What was measured on.
    pub machine: Machine,
}

/// Measures and prints.
pub fn qos(args: &QosArgs) -> Result<(), Stop> {
    let told = told(args)?;
    let mut remarks = Vec::new();
    progress("the kernel's htb");
    let lasts = Duration::from_secs_f64(args.seconds.max(2.0));
    let kernel = kernel::shares(lasts)
        .inspect_err(|why| remarks.push(format!("without the kernel's htb: {why}")))
        .ok();
    let set = told.rates.iter().filter_map(|rate| {
        let set = rate.set_mbit?;
        Some((rate.mbit - set).abs() / set)
    });
    let result = Qos {
        runs: args.runs,
        seconds: args.seconds,
        tsc_hz: told.tsc_hz,
        rate_error: set.fold(0.0, f64::max),
        rates: told.rates,
        priorities: told.priorities,
        weight_error: largest(&told.weights.wanted, &told.weights.shares, |wanted| wanted),
        weights: told.weights,
        kernel_difference: kernel
            .as_ref()
            .map(|kernel| largest(kernel, &told.tree.shares, |_| 1.0)),
        tree: told.tree,
        kernel,
        costs: told.costs,
        remarks,
        machine: Machine::this(),
    };
    show(args.json, &result, |terminal| table(&result, terminal))
}

/// The largest difference of two that belong together, over what `unit` makes of the first.
fn largest(wanted: &[f64], are: &[f64], unit: fn(f64) -> f64) -> f64 {
    let pairs = wanted.iter().zip(are);
    let differences = pairs.map(|(wanted, are)| (wanted - are).abs() / unit(*wanted));
    differences.fold(0.0, f64::max)
}

fn told(args: &QosArgs) -> Result<Shaped, Stop> {
    ask(|command| {
        command
            .args(["bench-qos", "--runs", &args.runs.to_string()])
            .args(["--seconds", &args.seconds.to_string()])
            .args(["--cpu", &args.cpu.to_string()]);
    })
}

fn table(result: &Qos, terminal: Terminal) -> String {
    let mut page = Page::new(terminal);
    let what = format!(
        "The engine's scheduler alone on one core; medians of {} runs, {} s each",
        result.runs, result.seconds
    );
    page.words("", &what);
    page.words("", &result.machine.to_string());
    page.gap();
    let head = |page: &Page, heads: &[&str]| -> Vec<String> {
        heads
            .iter()
            .map(|head| page.tone(Tone::Head, head))
            .collect()
    };
    let mut rows = vec![head(&page, &["set, Mb/s", "octets", "Mb/s", "off, %"])];
    for rate in &result.rates {
        let off = rate.set_mbit.map(|set| (rate.mbit - set) / set * 100.0);
        rows.push(vec![
            rate.set_mbit
                .map_or("no limit".into(), |set| set.to_string()),
            rate.len.to_string(),
            format!("{:.3}", rate.mbit),
            off.map_or("-".into(), |off| format!("{off:.3}")),
        ]);
    }
    page.table(2, &[0, 1, 2, 3], &rows);
    page.gap();
    let heads = ["set, Mb/s", "p50, frames", "p99, frames", "first", "last"];
    let mut rows = vec![head(&page, &heads)];
    for of in &result.priorities {
        rows.push(vec![
            of.set_mbit.to_string(),
            format!("{:.2}", of.p50_frames),
            format!("{:.2}", of.p99_frames),
            format!("{:.3}", of.first),
            format!("{:.3}", of.last),
        ]);
    }
    page.table(2, &[0, 1, 2, 3, 4], &rows);
    page.words("", "The first priority has half of the rate, the last one is offered ten times of it. Delays of the first, in the time that a frame takes at the rate.");
    page.gap();
    let parts = |shares: &[f64]| {
        let parts = shares.iter().map(|share| format!("{:.2} %", share * 100.0));
        parts.collect::<Vec<_>>().join(", ")
    };
    page.words(
        "",
        &format!("Weights 1:2:4: {}.", parts(&result.weights.shares)),
    );
    let tree = parts(&result.tree.shares);
    page.words(
        "",
        &match &result.kernel {
            Some(kernel) => format!(
                "A tree with priorities, rates and ceilings: {tree}; the kernel's htb: {}.",
                parts(kernel)
            ),
            None => format!("A tree with priorities, rates and ceilings: {tree}."),
        },
    );
    page.gap();
    let mut rows = vec![head(&page, &["scheduler", "classes", "ns a frame"])];
    for cost in &result.costs {
        rows.push(vec![
            cost.name.clone(),
            cost.classes.to_string(),
            format!("{:.1}", cost.ns),
        ]);
    }
    page.table(2, &[1, 2], &rows);
    for words in &result.remarks {
        page.words("", &page.tone(Tone::Warn, &format!("Mind: {words}.")));
    }
    page.finish()
}
