// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway bench engine --workers N`: how even the workers' loads are, and whether frames keep their order.

use freeway_api::measured::{CrewRun, CrewRuns};
use freeway_console::{Page, Stop, Terminal, Tone, count, show};
use freeway_rig::Machine;
use serde::{Deserialize, Serialize};

use crate::asked::ask;
use crate::cli::EngineArgs;

/// The result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Crew {
    /// Workers.
    pub workers: u32,
    /// Flows.
    pub flows: u32,
    /// Exponent of Zipf's law.
    pub skew: f64,
    /// `none`, `traffic` or `depth`.
    pub heavy: String,
    /// Milliseconds of a window.
    pub window_ms: u64,
    /// By mode.
    pub modes: Vec<CrewRun>,
    /// What is to be minded.
    pub remarks: Vec<String>,
    /// What was measured on.
    pub machine: Machine,
}

/// Measures and prints.
pub(super) fn crew(args: &EngineArgs) -> Result<(), Stop> {
    let flows = args
        .flows
        .last()
        .copied()
        .unwrap_or(10_000)
        .clamp(64, 32_768);
    let modes: Vec<_> = args.mode.iter().map(|mode| mode.name()).collect();
    let told: CrewRuns = ask(|command| {
        command
            .args(["bench-crew", "--mode", &modes.join(",")])
            .args(["--workers", &args.workers.to_string()])
            .args(["--flows", &flows.to_string()])
            .args(["--skew", &args.skew.to_string()])
            .args(["--heavy", args.heavy.name()])
            .args(["--frames", &args.frames.to_string()])
            .args(["--seconds", &args.seconds.to_string()])
            .args(["--cpu", &args.cpu.to_string()])
            .args(["--worker-cpus", &args.worker_cpu.to_string()]);
    })?;
    let result = Crew {
        workers: args.workers,
        flows,
        skew: args.skew,
        heavy: args.heavy.name().into(),
        window_ms: told.window_ms,
        modes: told.runs,
        remarks: told.remarks,
        machine: Machine::this(),
    };
    show(args.json, &result, |terminal| table(&result, terminal))
}

fn table(result: &Crew, terminal: Terminal) -> String {
    let mut page = Page::new(terminal);
    let what = format!(
        "{} workers, {} flows, Zipf {}, heavy: {}; the fullest worker over the mean, by accounted cycles in windows of {} ms",
        result.workers,
        count(result.flows.into()),
        result.skew,
        result.heavy,
        result.window_ms
    );
    page.words("", &what);
    page.words("", &result.machine.to_string());
    page.gap();
    let heads = [
        "mode",
        "first",
        "after 2 s",
        "worst",
        "frames",
        "lost",
        "overtaken",
        "moves",
        "parked",
    ];
    let share = |over: Option<f64>| over.map_or_else(|| "-".into(), |over| format!("{over:.2}"));
    let mut rows = vec![heads.map(|head| page.tone(Tone::Head, head)).to_vec()];
    for run in &result.modes {
        rows.push(vec![
            run.mode.name().into(),
            format!("{:.2}", run.first),
            page.tone(Tone::Good, &share(run.settled)),
            share(run.worst),
            count(run.sent),
            count(run.lost),
            count(run.reordered),
            count(run.moves),
            count(run.parked),
        ]);
    }
    page.table(2, &[1, 2, 3, 4, 5, 6, 7, 8], &rows);
    for words in &result.remarks {
        page.words("", &page.tone(Tone::Warn, &format!("Mind: {words}.")));
    }
    page.finish()
}
