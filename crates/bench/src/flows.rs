// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway bench flows`: what a frame costs by how many flows there are.

use freeway_console::{Page, Stop, Terminal, Tone, count, show};
use freeway_rig::Machine;
use serde::{Deserialize, Serialize};

use super::compare::{self, Comparison};
use super::router::Router;
use crate::cli::{ByFlowsArgs, CompareArgs};

/// The result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ByFlows {
    /// The scenario.
    pub scenario: String,
    /// Size of a frame, FCS counted.
    pub wire_bytes: u32,
    /// Runs.
    pub runs: u32,
    /// Seconds of each sample.
    pub seconds: f64,
    /// The path that the configuration gives Freeway's ports.
    pub path: String,
    /// By number of flows, in rising order. Connections of the greatest number are there for all.
    pub counts: Vec<Comparison>,
    /// What was measured on.
    pub machine: Machine,
}

/// Measures and prints.
pub fn flows(args: &ByFlowsArgs) -> Result<(), Stop> {
    let result = measured(args)?;
    show(args.json, &result, |terminal| table(&result, terminal))
}

/// Measures.
pub fn measured(args: &ByFlowsArgs) -> Result<ByFlows, Stop> {
    let counts = rising(&args.flows);
    let compare = CompareArgs {
        scenario: args.scenario,
        flows: counts.last().copied(),
        destinations: None,
        proto: freeway_lab::Proto::Udp,
        frame_bytes: None,
        no_peers: true,
        runs: args.runs,
        seconds: args.seconds,
        changes: None,
        refused: false,
        routes: false,
        path: args.path,
        idle_connections: 0,
        cpu: args.cpu,
        cpus: 1,
        brief: true,
        one_daemon: true,
        json: false,
    };
    let mut of_counts = compare::measured_of(&compare, &counts)?;
    // who is left out on purpose is not missing
    of_counts.iter_mut().for_each(|of| of.peers.clear());
    Ok(ByFlows {
        scenario: args.scenario.name().into(),
        wire_bytes: of_counts.first().map_or(0, |of| of.wire_bytes),
        runs: args.runs,
        seconds: args.seconds,
        path: args.path.name().into(),
        counts: of_counts,
        machine: Machine::this(),
    })
}

/// Each once.
fn rising(flows: &[u32]) -> Vec<u32> {
    let mut counts = flows.to_vec();
    counts.sort_unstable();
    counts.dedup();
    counts
}

impl ByFlows {
    /// Figures of each router by number of flows, nanoseconds a frame; the kernel as it is there, Freeway and the bare
    /// redirect.
    pub fn lines(&self) -> [(Router, Vec<(u32, f64)>); 3] {
        let first = self.counts.first();
        let kernel = first.and_then(|of| of.kernel).unwrap_or(Router::Kernel);
        let line = |figure: fn(&Comparison) -> f64| {
            let points = self.counts.iter().map(|of| (of.flows, figure(of)));
            points.collect()
        };
        [
            (kernel, line(|of| of.kernel_ns)),
            (Router::Freeway, line(|of| of.freeway_ns)),
            (Router::Redirect, line(|of| of.redirect_ns)),
        ]
    }
}

fn table(result: &ByFlows, terminal: Terminal) -> String {
    let mut page = Page::new(terminal);
    let what = format!(
        "Scenario {}: {}-byte frames of so many flows in turn, medians of {} runs, {} s each",
        result.scenario, result.wire_bytes, result.runs, result.seconds
    );
    page.words("", &what);
    page.words("", &result.machine.to_string());
    page.gap();
    let heads = [
        "flows",
        "kernel, ns",
        "Freeway",
        "bare redirect",
        "kernel / Freeway",
        "Freeway / redirect",
    ];
    let mut rows = vec![heads.map(|head| page.tone(Tone::Head, head)).to_vec()];
    for of in &result.counts {
        rows.push(vec![
            count(of.flows.into()),
            format!("{:.0}", of.kernel_ns),
            format!("{:.1}", of.freeway_ns),
            format!("{:.1}", of.redirect_ns),
            page.tone(Tone::Good, &format!("{:.1}", of.speedup)),
            format!("{:.2}", of.over_redirect),
        ]);
    }
    page.table(2, &[0, 1, 2, 3, 4, 5], &rows);
    page.gap();
    page.words("", "Nanoseconds a frame, net of the generator.");
    for of in &result.counts {
        for words in of.remarks() {
            let words = format!("Mind: {} flows: {words}.", count(of.flows.into()));
            page.words("", &page.tone(Tone::Warn, &words));
        }
    }
    page.finish()
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// One that was never measured.
    pub fn example() -> ByFlows {
        let of = |(flows, times): (u32, f64)| {
            let mut of = compare::example();
            of.flows = flows;
            of.peers.clear();
            of.freeway_ns *= times;
            of.samples.kernel_net_ns = vec![1400.0, 1390.0, 1410.0];
            of.samples.freeway_net_ns = vec![120.0, 118.0, 122.0];
            of.samples.redirect_net_ns = vec![100.0, 99.0, 101.0];
            let samples = of.samples.freeway_net_ns.iter_mut();
            samples.for_each(|ns| *ns *= times);
            of
        };
        let counts = [(1, 1.0), (1000, 1.1), (1_000_000, 2.5)];
        ByFlows {
            scenario: "nat".into(),
            wire_bytes: 64,
            runs: 3,
            seconds: 0.5,
            path: "auto".into(),
            counts: counts.map(of).to_vec(),
            machine: compare::example().machine,
        }
    }

    #[test]
    fn counts_rise() {
        assert_eq!(rising(&[1000, 1, 1000, 50]), [1, 50, 1000]);
    }

    #[test]
    fn a_line_for_each_router() {
        let result = example();
        let [(_, kernel), (_, freeway), (of, redirect)] = result.lines();
        assert_eq!(of, Router::Redirect);
        for line in [&kernel, &freeway, &redirect] {
            let flows: Vec<u32> = line.iter().map(|(flows, _)| *flows).collect();
            assert_eq!(flows, [1, 1000, 1_000_000]);
        }
        assert!((freeway[2].1 / freeway[0].1 - 2.5).abs() < 1e-9);
        let terminal = Terminal {
            width: 80,
            color: false,
        };
        let text = table(&result, terminal);
        assert!(text.contains("1,000,000"), "{text}");
    }
}
