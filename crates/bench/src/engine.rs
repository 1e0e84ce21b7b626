// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway bench engine`: workers of the engine between rings, which the program `freeway-engine` runs.

mod crew;

use freeway_api::engine::DispatchMode;
use freeway_api::measured::{Dispatched, Flooded};
use freeway_console::{Page, Stop, Terminal, Tone, count, show};
use freeway_rig::Machine;
use serde::{Deserialize, Serialize};

use crate::asked::ask;
use crate::cli::{EngineArgs, Order};
use crate::median::{median, ratio};

/// What `freeway-engine bench` prints.
#[derive(Debug, Deserialize)]
struct Told {
    wire_bytes: u32,
    pages: String,
    tsc_hz: u64,
    counts: Vec<Measured>,
    remarks: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Measured {
    flows: u32,
    places: u32,
    runs: Vec<Run>,
}

#[derive(Debug, Deserialize)]
struct Run {
    line_ns: Option<f64>,
    macswap: Rate,
    engine: Rate,
    dispatch: Option<[Dispatched; 2]>,
    latency: Vec<Latency>,
    flood: Option<Flooded>,
}

#[derive(Debug, Deserialize)]
struct Rate {
    mpps: f64,
    cycles: f64,
    burst: f64,
    busy: f64,
    disturbed: f64,
    checked: u64,
}

/// Medians of runs.
fn dispatched(runs: &[Run], cold: usize) -> Option<Dispatched> {
    let all: Vec<&Dispatched> = runs
        .iter()
        .filter_map(|run| run.dispatch.as_ref()?.get(cold))
        .collect();
    let of = |figure: fn(&Dispatched) -> f64| median(all.iter().copied().map(figure).collect());
    (!all.is_empty()).then(|| Dispatched {
        alone_ns: of(|d| d.alone_ns),
        worker_ns: of(|d| d.worker_ns),
        receive_ns: of(|d| d.receive_ns),
        hash_ns: of(|d| d.hash_ns),
        ring_ns: of(|d| d.ring_ns),
        over_ns: of(|d| d.over_ns),
        over_io_sends_ns: of(|d| d.over_io_sends_ns),
        burst: [of(|d| d.burst[0]), of(|d| d.burst[1])],
        mpps: of(|d| d.mpps),
        disturbed: of(|d| d.disturbed),
    })
}

/// Likewise.
fn flooded(runs: &[Run]) -> Option<Flooded> {
    let all: Vec<&Flooded> = runs.iter().filter_map(|run| run.flood.as_ref()).collect();
    let of = |figure: fn(&Flooded) -> f64| median(all.iter().copied().map(figure).collect());
    (!all.is_empty()).then(|| Flooded {
        kernel_pps: of(|f| f.kernel_pps),
        misses_pps: of(|f| f.misses_pps),
        refused: of(|f| f.refused),
        hits_pps: [of(|f| f.hits_pps[0]), of(|f| f.hits_pps[1])],
        lost: [of(|f| f.lost[0]), of(|f| f.lost[1])],
        mean_us: [of(|f| f.mean_us[0]), of(|f| f.mean_us[1])],
        p99_us: [of(|f| f.p99_us[0]), of(|f| f.p99_us[1])],
        disturbed: of(|f| f.disturbed),
    })
}

fn flooded_words(of: &Flooded) -> String {
    format!(
        "{:.2} million hits a second beside {:.2} million misses, where the way to the kernel takes {:.2}: {:.3} % of the hits lost, {:.3} without the misses; mean {:.1} us, {:.1} without; p99 {:.1} us, {:.1} without.",
        of.hits_pps[1] / 1e6,
        of.misses_pps / 1e6,
        of.kernel_pps / 1e6,
        of.lost[1] * 100.0,
        of.lost[0] * 100.0,
        of.mean_us[1],
        of.mean_us[0],
        of.p99_us[1],
        of.p99_us[0]
    )
}

fn dispatched_words(of: &Dispatched, what: &str) -> String {
    format!(
        "An I/O core, headers {what}: {:.1} ns a frame over {:.1} of run to completion (receive {:.1}, bucket {:.1}, ring {:.1}, worker {:.1}); {:.1} where it sends, too; bursts of {:.0}.",
        of.over_ns,
        of.alone_ns,
        of.receive_ns,
        of.hash_ns,
        of.ring_ns,
        of.worker_ns,
        of.over_io_sends_ns,
        of.burst[1]
    )
}

/// One-way latency at a load: medians of runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Share of the rate that was found; 0: single frames.
    pub load: f64,
    /// Frames a second that arrived.
    pub pps: f64,
    /// Mean, microseconds.
    pub mean_us: f64,
    /// Half of the frames were as fast.
    pub p50_us: f64,
    /// 99 % were.
    pub p99_us: f64,
    /// Frames measured in a run.
    pub frames: f64,
    /// The share of the time that is left out, for somebody else had a core.
    pub disturbed: f64,
}

/// Of a number of flows: medians of runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ByFlows {
    /// Flows.
    pub flows: u32,
    /// Rules under which they were learned.
    pub rules: u32,
    /// Places of the table.
    pub places: u32,
    /// Million frames a second.
    pub mpps: f64,
    /// A MAC swap between the same rings.
    pub macswap_mpps: f64,
    /// `mpps` over `macswap_mpps`, within a run.
    pub over_macswap: f64,
    /// `macswap_cycles` over `cycles`, within a run: the same, whatever the generator can do.
    pub cycles_ratio: f64,
    /// Of the worker, for a frame, in turns that had frames.
    pub cycles: f64,
    /// Of the MAC swap.
    pub macswap_cycles: f64,
    /// What a cache line takes between the two CPUs; none if they are one.
    pub line_ns: Option<f64>,
    /// At 90 % of the rate; none with --rates-only.
    pub mean_us: Option<f64>,
    /// Likewise.
    pub p99_us: Option<f64>,
    /// By load.
    pub latency: Vec<Latency>,
    /// With --mode dispatch: what an I/O core costs, with headers in the generator's cache,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dispatch: Option<Dispatched>,
    /// and with headers in memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dispatch_cold: Option<Dispatched>,
    /// With --flood: what hits lose beside misses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flood: Option<Flooded>,
    /// Mean size of a burst.
    pub mean_burst: f64,
    /// Share of the time in which the worker had frames.
    pub busy: f64,
    /// Share of the time that is left out, for somebody else had a core.
    pub disturbed: f64,
    /// Frames compared with what is expected, in all runs; none differed.
    pub checked: u64,
    /// Of each run.
    pub mpps_samples: Vec<f64>,
    /// Of each run.
    pub macswap_mpps_samples: Vec<f64>,
}

/// The result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Engine {
    /// The scenario: `nat`, source NAT of UDP; or `routes`, UDP of no flow.
    pub scenario: String,
    /// With --routes: prefixes by which frames leave; flows are destinations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routes: Option<u32>,
    /// 4 or 6.
    pub family: u8,
    /// `random` or `turn`.
    pub order: String,
    /// `huge` or `small`: what the flow table was on.
    pub pages: String,
    /// Frames that the worker takes at once.
    pub burst: u32,
    /// Headers came from memory, not from the generator's cache.
    pub cold: bool,
    /// Size of a frame, FCS counted.
    pub wire_bytes: u32,
    /// Runs.
    pub runs: u32,
    /// Seconds of each sample.
    pub seconds: f64,
    /// Cycles are of this clock.
    pub tsc_hz: u64,
    /// By number of flows.
    pub counts: Vec<ByFlows>,
    /// What is to be minded.
    pub remarks: Vec<String>,
    /// What was measured on.
    pub machine: Machine,
}

/// Measures and prints.
pub fn engine(args: &EngineArgs) -> Result<(), Stop> {
    if args.workers > 1 {
        return crew::crew(args);
    }
    let told = told(args)?;
    let of = |measured| by_flows(measured, args.rules);
    let result = Engine {
        scenario: if args.routes.is_some() {
            "routes"
        } else {
            "nat"
        }
        .into(),
        routes: args.routes,
        family: if args.family == "6" { 6 } else { 4 },
        order: args.order.name().into(),
        pages: told.pages,
        burst: args.burst,
        cold: args.cold,
        wire_bytes: told.wire_bytes,
        runs: args.runs,
        seconds: args.seconds,
        tsc_hz: told.tsc_hz,
        counts: told.counts.iter().map(of).collect(),
        remarks: told.remarks,
        machine: Machine::this(),
    };
    show(args.json, &result, |terminal| table(&result, terminal))
}

fn told(args: &EngineArgs) -> Result<Told, Stop> {
    let dispatch = args.mode.iter().any(|mode| *mode != DispatchMode::Rss);
    let flows: Vec<_> = args.flows.iter().map(u32::to_string).collect();
    let routes = args.routes.map(|routes| format!("--routes={routes}"));
    ask(|command| {
        command
            .args(["bench", "--flows", &flows.join(",")])
            .args(["--family", &args.family, "--pages", args.pages.name()])
            .args(&routes)
            .args(["--burst", &args.burst.to_string()])
            .args(["--runs", &args.runs.to_string()])
            .args(["--seconds", &args.seconds.to_string()])
            .args(["--cpu", &args.cpu.to_string()])
            .args(["--worker-cpu", &args.worker_cpu.to_string()])
            .args(args.rates_only.then_some("--rates-only"))
            .args(args.cold.then_some("--cold"))
            .args(dispatch.then_some("--dispatch"))
            .args(args.flood.then_some("--flood"))
            .args((args.order == Order::Turn).then_some("--in-turn"));
    })
}

fn by_flows(measured: &Measured, rules: u32) -> ByFlows {
    let runs = &measured.runs;
    let all = |figure: fn(&Run) -> f64| runs.iter().map(figure).collect::<Vec<_>>();
    let mpps = all(|run| run.engine.mpps);
    let macswap = all(|run| run.macswap.mpps);
    let (cycles, macswap_cycles) = (all(|run| run.engine.cycles), all(|run| run.macswap.cycles));
    let lines: Vec<_> = runs.iter().filter_map(|run| run.line_ns).collect();
    let loads = runs.iter().map(|run| run.latency.len()).min().unwrap_or(0);
    let latency: Vec<_> = (0..loads).map(|load| at_load(runs, load)).collect();
    let full = latency.last();
    ByFlows {
        flows: measured.flows,
        rules,
        places: measured.places,
        mpps: median(mpps.clone()),
        macswap_mpps: median(macswap.clone()),
        over_macswap: ratio(&mpps, &macswap),
        cycles_ratio: ratio(&macswap_cycles, &cycles),
        cycles: median(cycles),
        macswap_cycles: median(macswap_cycles),
        line_ns: (!lines.is_empty()).then(|| median(lines)),
        mean_us: full.map(|of| of.mean_us),
        p99_us: full.map(|of| of.p99_us),
        mean_burst: median(all(|run| run.engine.burst)),
        busy: median(all(|run| run.engine.busy)),
        disturbed: median(all(|run| run.engine.disturbed)),
        checked: runs
            .iter()
            .map(|run| run.engine.checked + run.macswap.checked)
            .sum(),
        latency,
        dispatch: dispatched(runs, 0),
        dispatch_cold: dispatched(runs, 1),
        flood: flooded(runs),
        mpps_samples: mpps,
        macswap_mpps_samples: macswap,
    }
}

fn at_load(runs: &[Run], load: usize) -> Latency {
    let of = |figure: fn(&Latency) -> f64| {
        let latencies = runs.iter().filter_map(|run| run.latency.get(load));
        median(latencies.map(figure).collect())
    };
    Latency {
        load: of(|l| l.load),
        pps: of(|l| l.pps),
        mean_us: of(|l| l.mean_us),
        p50_us: of(|l| l.p50_us),
        p99_us: of(|l| l.p99_us),
        frames: of(|l| l.frames),
        disturbed: of(|l| l.disturbed),
    }
}

fn table(result: &Engine, terminal: Terminal) -> String {
    let mut page = Page::new(terminal);
    let (what, many) = match result.routes {
        Some(routes) => (
            format!("Routes: {} prefixes", count(routes.into())),
            "to so many destinations",
        ),
        None => ("Source NAT".into(), "of so many flows"),
    };
    let what = format!(
        "{what}, UDP over IPv{}, {}-byte frames {many} ({}), one worker; medians of {} runs, {} s each",
        result.family, result.wire_bytes, result.order, result.runs, result.seconds
    );
    page.words("", &what);
    page.words("", &result.machine.to_string());
    page.gap();
    let heads = [
        if result.routes.is_some() {
            "to"
        } else {
            "flows"
        },
        "Mpps",
        "MAC swap",
        "ratio",
        "cycles",
        "MAC swap",
        "mean, us",
        "p99, us",
    ];
    let mut rows = vec![heads.map(|head| page.tone(Tone::Head, head)).to_vec()];
    let us = |value: Option<f64>| value.map_or_else(|| "-".into(), |us| format!("{us:.1}"));
    for of in &result.counts {
        let share = if result.cold {
            of.cycles_ratio
        } else {
            of.over_macswap
        };
        rows.push(vec![
            count(of.flows.into()),
            format!("{:.1}", of.mpps),
            format!("{:.1}", of.macswap_mpps),
            page.tone(Tone::Good, &format!("{share:.2}")),
            format!("{:.0}", of.cycles),
            format!("{:.0}", of.macswap_cycles),
            us(of.mean_us),
            us(of.p99_us),
        ]);
    }
    page.table(2, &[0, 1, 2, 3, 4, 5, 6, 7], &rows);
    page.gap();
    let rules = match result.routes {
        Some(_) => "Nobody translates, and no rule decides.",
        None => {
            "Rules are the kernel's: it evaluates them while a flow is learned, so their number makes no difference here."
        }
    };
    page.words("", &format!("Latencies are at 90 % of the rate. {rules}"));
    if result.cold {
        page.words(
            "",
            "Headers come from memory, which the generator is slow to put them into: the ratio is that of the cycles.",
        );
    }
    for of in &result.counts {
        if let Some(line_ns) = of.line_ns {
            let words = format!(
                "{} flows: a cache line takes {line_ns:.0} ns from one CPU to the other.",
                count(of.flows.into())
            );
            page.words("", &words);
        }
    }
    for of in &result.counts {
        let each = [
            (&of.dispatch, "in a cache"),
            (&of.dispatch_cold, "in memory"),
        ];
        for (dispatched, what) in each {
            if let Some(dispatched) = dispatched {
                let words = format!(
                    "{} flows. {}",
                    count(of.flows.into()),
                    dispatched_words(dispatched, what)
                );
                page.words("", &words);
            }
        }
    }
    for of in &result.counts {
        if let Some(flood) = &of.flood {
            let words = format!("{} flows. {}", count(of.flows.into()), flooded_words(flood));
            page.words("", &words);
        }
    }
    let disturbed = result.counts.iter().filter(|of| of.disturbed > 0.5);
    let disturbed = disturbed.map(|of| {
        format!(
            "{} flows: somebody else had a core in {:.0} % of the time",
            count(of.flows.into()),
            of.disturbed * 100.0
        )
    });
    for words in result.remarks.iter().cloned().chain(disturbed) {
        page.words("", &page.tone(Tone::Warn, &format!("Mind: {words}.")));
    }
    page.finish()
}
