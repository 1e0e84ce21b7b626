// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the scenarios, and writes what came of them.

use std::fs;
use std::path::Path;
use std::time::{Instant, SystemTime};

use freeway_console::{Exit, Meter, Stop, Terminal, print, progress, rough};

use super::document::{FORMAT, Report, Scenario, VERSION};
use super::figure::figures;
use super::machine::Description;
use super::measure::measure as measured;
use super::outcome::Outcome;
use super::png::Painter;
use super::scenario::{ALL, Definition};
use super::{page, text};
use crate::cli::ReportArgs;

/// How it is measured.
const METHOD: [&str; 8] = [
    "Everything runs in network namespaces on this machine: hosts, router and wires (veth). There is no network card and no driver; what Freeway saves is \
     saved in front of the kernel's network stack, with a card as here.",
    "In routed, routed6, full-table, nat, policies, bridge, vlan, pppoe, churn, kirkwood and imx8 the generator, the router and the sink share one CPU, so time divided by frames is what they cost together. What the \
     generator and the port's receiving take, down to a drop in XDP, is measured by turns with the rest, and subtracted. The kernel, Freeway and a bare XDP redirect take turns of half a second or less.",
    "In bulk, multicast and drop the router's ports are polled by threads (threaded NAPI), in bulk and multicast on a CPU of their own; their CPU time is the router's cost, GRO \
     included, and nothing of the hosts'.",
    "In rfc2544 sender and receiver share one CPU and the router has another. What the sender and the receiver can do without a router is measured first; a rate within \
     5 % of that is no result of the router's, and has no bar.",
    "The kernel has no program of Freeway attached. Freeway has its defaults, revalidations and connection checks included, and is measured when 99 % of the flows are fast.",
    "Peers have a router each, of the same kind, and half as much time: kernels with and without conntrack, or without what the scenario adds; nf_flowtable in software; \
     and an XDP program that asks the kernel's FIB for each frame. They do not all do the same work: the last filters nothing.",
    "The bare redirect or broadcast is an XDP program that looks at nothing: the least that forwarding costs here.",
    "A run's figure is a median of turns, a figure shown the median of runs; ratios are taken within a run. On a machine with other work a run may be so \
     disturbed that what is left after subtraction is not positive; it stays, and its figure has no interval.",
];

/// Measures, or reads what was measured, and writes all of it.
pub fn report(args: &ReportArgs) -> Result<(), Stop> {
    let report = match &args.from {
        Some(file) => Report::read(file)?,
        None => {
            freeway_rig::prepare()?;
            create(&args.output)?;
            measure(args)?
        }
    };
    create(&args.output)?;
    write(&args.output, &report)?;
    print(&text::text(&report, &args.output, Terminal::stdout()))?;
    if report.measured().next().is_none() {
        return Err(Stop::failure("nothing was measured: see the reasons above"));
    }
    // of a saved one nothing is told but what it says
    match failed(&report) {
        Some(names) if args.from.is_none() => Err(Stop::failure(format!(
            "measuring failed in {names}: see the reasons above; the report is written"
        ))),
        _ => Ok(()),
    }
}

/// Scenarios that failed although they are possible here.
fn failed(report: &Report) -> Option<String> {
    let failed = report.scenarios.iter().filter(|scenario| scenario.failed);
    let names: Vec<&str> = failed.map(|scenario| scenario.name.as_str()).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

fn create(dir: &Path) -> Result<(), Stop> {
    fs::create_dir_all(dir).map_err(|error| cannot_write(dir, &error))
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Stop {
    Stop::failure(format!(
        "cannot write to {}: {error}; name another folder with --output",
        path.display()
    ))
}

fn measure(args: &ReportArgs) -> Result<Report, Stop> {
    let asked = |scenario: &&Definition| match args.scenarios.is_empty() {
        true => scenario.is_default(args.quick),
        false => args.scenarios.iter().any(|name| name == scenario.name),
    };
    let asked: Vec<&Definition> = ALL.iter().filter(asked).collect();
    let machine = Description::this();
    let date = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let steps = asked.iter().map(|scenario| {
        let seconds = scenario.seconds(args.quick);
        (scenario.name.to_owned(), seconds)
    });
    let steps: Vec<(String, f64)> = steps.collect();
    let expected: f64 = steps.iter().map(|(_, seconds)| seconds).sum();
    progress(&format!(
        "{} scenarios, about {}; leave the machine alone meanwhile",
        steps.len(),
        rough(expected)
    ));
    let began = Instant::now();
    let meter = Meter::begin(steps);
    let width = Terminal::stderr().width;
    let line: Vec<String> = std::env::args().skip(1).collect();
    let cpus = machine.machine.cpus;
    let ahead = asked.iter().map(|scenario| ahead(scenario, args.quick));
    let mut report = Report {
        format: FORMAT.into(),
        version: VERSION,
        date,
        command: format!("freeway bench {}", line.join(" ")),
        quick: args.quick,
        elapsed_s: 0.0,
        machine,
        method: METHOD.map(str::to_owned).to_vec(),
        scenarios: ahead.collect(),
    };
    for (number, scenario) in asked.into_iter().enumerate() {
        meter.step(number);
        report.scenarios[number] = measure_one(scenario, args.quick, cpus);
        progress(&text::rows(&report.scenarios[number], width));
        report.elapsed_s = began.elapsed().as_secs_f64();
        // whoever stops it keeps what was measured
        save(&args.output, &report)?;
    }
    drop(meter);
    Ok(report)
}

/// A scenario whose turn has not come.
fn ahead(scenario: &Definition, quick: bool) -> Scenario {
    Scenario {
        name: scenario.name.into(),
        title: scenario.title.into(),
        command: scenario.command(quick),
        elapsed_s: 0.0,
        missing: Some("it was stopped before its turn came".into()),
        failed: false,
        bench: None,
        result: None,
    }
}

fn measure_one(scenario: &Definition, quick: bool, cpus: usize) -> Scenario {
    let began = Instant::now();
    let measured = match scenario.lacks_cpus(cpus) {
        Some(why) => Err(Stop::new(Exit::Unavailable, why)),
        None => measured(scenario, quick).and_then(readable),
    };
    let failure = measured.as_ref().err();
    Scenario {
        name: scenario.name.into(),
        title: scenario.title.into(),
        command: scenario.command(quick),
        elapsed_s: began.elapsed().as_secs_f64(),
        missing: failure.map(ToString::to_string),
        failed: failure.is_some_and(|stop| stop.exit != Exit::Unavailable),
        bench: measured.as_ref().ok().map(|of| of.bench().to_owned()),
        result: measured.ok(),
    }
}

/// JSON has no infinity and nothing that is no number: such a result could be written, but not read.
fn readable(outcome: Outcome) -> Result<Outcome, Stop> {
    let value = serde_json::to_value(&outcome);
    let value = value.map_err(|error| Stop::failure(error.to_string()))?;
    Outcome::read(outcome.bench(), value).map_err(|why| {
        let what = format!("a figure of it is no number, perhaps for want of frames ({why})");
        Stop::failure(what)
    })
}

/// Writes a file whole, or leaves the one that is there.
fn put(dir: &Path, name: &str, bytes: &[u8]) -> Result<(), Stop> {
    let path = dir.join(name);
    let new = dir.join(format!(".{name}.new"));
    let written = fs::write(&new, bytes).and_then(|()| fs::rename(&new, &path));
    written.map_err(|error| {
        let _ = fs::remove_file(&new);
        cannot_write(&path, &error)
    })
}

fn save(dir: &Path, report: &Report) -> Result<(), Stop> {
    let json = serde_json::to_string_pretty(report);
    let json = json.map_err(|error| Stop::failure(error.to_string()))?;
    put(dir, "report.json", format!("{json}\n").as_bytes())
}

/// The document, the page and the plots.
fn write(dir: &Path, report: &Report) -> Result<(), Stop> {
    // first, for it cannot be had again
    save(dir, report)?;
    let put = |name: &str, bytes: &[u8]| put(dir, name, bytes);
    let figures = figures(report).map_err(Stop::failure)?;
    put("index.html", page::page(report, &figures).as_bytes())?;
    let painter = Painter::new();
    if let Err(why) = &painter {
        progress(&format!("no PNG of the plots: {why}"));
    }
    for figure in &figures {
        let (name, drawing) = (figure.name, &figure.titled);
        put(&format!("{name}.svg"), drawing.standalone().as_bytes())?;
        if let Ok(painter) = &painter {
            let png = painter
                .paint(&drawing.plain)
                .map_err(|why| Stop::failure(format!("cannot make a picture of {name}: {why}")))?;
            put(&format!("{name}.png"), &png)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::document::tests::example;
    use super::*;

    #[test]
    fn what_is_impossible_here_is_no_failure() {
        let mut report = example();
        assert_eq!(failed(&report), None);
        report.scenarios[0].failed = true;
        report.scenarios[3].failed = true;
        assert_eq!(failed(&report).as_deref(), Some("routed, policies"));
    }
}
