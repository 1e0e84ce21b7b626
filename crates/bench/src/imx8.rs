// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway bench imx8`: the 16 rows of NXP's i.MX 8 "Fast Packet Routing" measurement, and full duplex.
//!
//! Each row's frames go through three routers of one kind by turns: the kernel with conntrack and a stateful ruleset,
//! the same with a flow table of nftables, the same with Freeway. One CPU does everything, as in `bench compare`, and
//! figures are net of the generator. The source's own links had 1 Gb/s, which any of the three fills here: what a frame
//! costs says how many bits a CPU could forward, and which part of it a full link takes. In a row of both directions
//! their frames leave by turns, one by one, and what a frame costs is the mean of the two.

mod row;
mod site;
mod table;

use freeway_console::{Stop, progress, show};
use freeway_rig::Machine;
use serde::{Deserialize, Serialize};

use self::site::{Figures, ROUTERS, Run, Site};
use super::router::Router;
use crate::cli::Imx8Args;
use crate::median::median;

pub use self::row::Row;

/// Fewer of the frames on the fast path than this deserve a remark.
const SHARE_EXPECTED: f64 = 0.98;
/// So do more lost ones than this.
const LOSS_EXPECTED: f64 = 0.001;

/// The result of the measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Imx8 {
    /// Flows, in turn.
    pub flows: u32,
    /// Runs.
    pub runs: u32,
    /// Seconds of each sample.
    pub seconds: f64,
    /// The path that the configuration gives Freeway's ports: `auto`, `xdp` or `tc`.
    pub path: String,
    /// The rows, in order.
    pub rows: Vec<Measured>,
    /// What was measured on.
    pub machine: Machine,
}

/// A row. Times are medians of the runs, of which each is a median of turns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// [`Row::name`].
    pub name: String,
    /// [`Row::label`].
    pub label: String,
    /// The LAN is a VLAN, and the router masquerades on the WAN.
    pub vlan_nat: bool,
    /// Frames of both directions alternate; rates are of both together, and a full link is full both ways.
    #[serde(default)]
    pub duplex: bool,
    /// Frame size, FCS and tag counted.
    pub frame_bytes: u32,
    /// Its payload, of layer 4.
    pub payload_bytes: u32,
    /// Frames a second that fill a link of 1 Gb/s.
    pub line_pps: f64,
    /// Payload that fills it.
    pub line_mbit_s: f64,
    /// The generator into an XDP drop.
    pub source_ns: Option<f64>,
    /// A bare XDP redirect, net of the source.
    pub redirect_ns: Option<f64>,
    /// `redirect_ns` of each run.
    pub redirect_samples: Vec<f64>,
    /// The kernel with conntrack.
    pub kernel: Column,
    /// The kernel with nf_flowtable.
    pub flowtable: Column,
    /// Freeway.
    pub freeway: Column,
    /// kernel.ns / freeway.ns within a run; the median.
    pub kernel_over_freeway: Option<f64>,
    /// kernel.ns / flowtable.ns likewise.
    pub kernel_over_flowtable: Option<f64>,
    /// flowtable.ns / freeway.ns likewise.
    pub flowtable_over_freeway: Option<f64>,
    /// What should have been otherwise.
    pub remarks: Vec<String>,
}

/// What a router's figures are, or why there are none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Column {
    /// Measured.
    Cost(Cost),
    /// Not measured.
    Missing {
        /// Why.
        missing: String,
    },
}

/// What forwarding cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Nanoseconds of CPU for a frame, net of the source.
    pub ns: f64,
    /// Payload that one CPU forwards in that time, megabits a second.
    pub mbit_s: f64,
    /// The share of one CPU that a full link of 1 Gb/s takes.
    pub line_cpu: f64,
    /// Whether that is no more than there is; none if noise hides what a frame costs, and in a document that does not say.
    #[serde(default)]
    pub carries_line: Option<bool>,
    /// The least share of a run's frames that the router's fast path forwarded; none of the kernel without one.
    pub fast_share: Option<f64>,
    /// The largest share of a run's frames that did not arrive.
    pub lost_share: f64,
    /// `ns` of each run.
    pub samples: Vec<f64>,
}

impl Column {
    /// What it cost.
    pub fn cost(&self) -> Option<&Cost> {
        match self {
            Column::Cost(cost) => Some(cost),
            Column::Missing { .. } => None,
        }
    }

    /// Why there are no figures.
    pub fn missing(&self) -> Option<&str> {
        match self {
            Column::Cost(_) => None,
            Column::Missing { missing } => Some(missing),
        }
    }
}

impl Measured {
    /// Of a row's runs.
    fn of(row: Row, runs: &[Run], missing: impl Fn(Router) -> Option<String>) -> Self {
        let column = |router: Router| match missing(router) {
            Some(missing) => Column::Missing { missing },
            None => Column::Cost(cost(row, &figures(runs, router))),
        };
        let ratio = |over, under| {
            let (over, under) = (figures(runs, over), figures(runs, under));
            let ratios: Vec<f64> = over.iter().zip(&under).map(|(a, b)| a.ns / b.ns).collect();
            (!ratios.is_empty()).then(|| median(ratios))
        };
        let over = |figure: fn(&Run) -> f64| {
            (!runs.is_empty()).then(|| median(runs.iter().map(figure).collect()))
        };
        let [kernel, flowtable, freeway] = ROUTERS.map(column);
        let mut remarks = Vec::new();
        for (name, column) in [
            ("the kernel", &kernel),
            ("the flow table", &flowtable),
            ("Freeway", &freeway),
        ] {
            let Some(cost) = column.cost() else { continue };
            if cost.fast_share.is_some_and(|share| share < SHARE_EXPECTED) {
                let share = cost.fast_share.unwrap_or(0.0) * 100.0;
                remarks.push(format!("only {share:.1} % of the frames were {name}'s"));
            }
            if cost.lost_share > LOSS_EXPECTED {
                let lost = cost.lost_share * 100.0;
                remarks.push(format!("{lost:.2} % of the frames were lost with {name}"));
            }
        }
        Self {
            name: row.name(),
            label: row.label(),
            vlan_nat: row.vlan_nat,
            duplex: row.is_duplex(),
            frame_bytes: row.frame_bytes(),
            payload_bytes: row.payload_bytes(),
            line_pps: row.line_pps(),
            line_mbit_s: row.mbit_s(row.line_pps()),
            source_ns: over(|run| run.source_ns),
            redirect_ns: over(|run| run.redirect_ns),
            redirect_samples: runs.iter().map(|run| run.redirect_ns).collect(),
            kernel,
            flowtable,
            freeway,
            kernel_over_freeway: ratio(Router::Kernel, Router::Freeway),
            kernel_over_flowtable: ratio(Router::Kernel, Router::Flowtable),
            flowtable_over_freeway: ratio(Router::Flowtable, Router::Freeway),
            remarks,
        }
    }

    /// Kernel, flow table and Freeway.
    pub fn columns(&self) -> [&Column; 3] {
        [&self.kernel, &self.flowtable, &self.freeway]
    }
}

/// Of a router, by run; empty if it is missing.
fn figures(runs: &[Run], router: Router) -> Vec<Figures> {
    runs.iter().filter_map(|run| run.of(router)).collect()
}

fn cost(row: Row, runs: &[Figures]) -> Cost {
    let samples: Vec<f64> = runs.iter().map(|figures| figures.ns).collect();
    let ns = median(samples.clone());
    let line_cpu = row.line_pps() * ns / 1e9;
    let shares = runs.iter().filter_map(|figures| figures.fast_share);
    let losses = runs.iter().map(|figures| figures.lost_share);
    Cost {
        ns,
        mbit_s: row.mbit_s(1e9 / ns),
        line_cpu,
        // less than nothing is noise and says nothing
        carries_line: (ns > 0.0).then_some(line_cpu <= 1.0),
        fast_share: shares.reduce(f64::min),
        lost_share: losses.fold(0.0, f64::max),
        samples,
    }
}

/// Measures and prints.
pub fn imx8(args: &Imx8Args) -> Result<(), Stop> {
    let result = measured(args)?;
    show(args.json, &result, |terminal| {
        table::table(&result, terminal)
    })
}

/// Measures.
pub fn measured(args: &Imx8Args) -> Result<Imx8, Stop> {
    freeway_rig::prepare()?;
    Ok(Imx8 {
        flows: args.flows,
        runs: args.runs,
        seconds: args.seconds,
        path: args.path.name().into(),
        rows: measure(args)?,
        machine: Machine::this(),
    })
}

fn measure(args: &Imx8Args) -> Result<Vec<Measured>, Stop> {
    let mut left = Row::asked(&args.rows, args.duplex);
    let mut measured = Vec::new();
    while let Some(first) = left.first().copied() {
        let of_site = |row: &Row| (row.family, row.vlan_nat) == (first.family, first.vlan_nat);
        let (rows, others) = left.into_iter().partition(of_site);
        left = others;
        measured.extend(measure_site(&rows, args)?);
    }
    Ok(measured)
}

/// Rows that have their routers in common.
fn measure_site(rows: &[Row], args: &Imx8Args) -> Result<Vec<Measured>, Stop> {
    let mut measured = Vec::new();
    let Some(first) = rows.first() else {
        return Ok(measured);
    };
    progress(&format!("building the routers of {}", first.name()));
    let site = Site::build(*first, args)?;
    let none = ROUTERS.iter().all(|router| site.missing(*router).is_some());
    for row in rows {
        let mut runs = Vec::new();
        for number in 1..=args.runs {
            if none {
                break;
            }
            if row.proto == freeway_lab::Proto::Udp {
                site.keep_udp()?;
            }
            let run = site.run(*row)?;
            say(*row, number, args.runs, &run);
            runs.push(run);
        }
        let missing = |router| site.missing(router).map(str::to_owned);
        measured.push(Measured::of(*row, &runs, missing));
    }
    site.end()?;
    Ok(measured)
}

fn say(row: Row, number: u32, runs: u32, run: &Run) {
    let ns = |figures: &Option<Figures>| match figures {
        Some(figures) => format!("{:.1}", figures.ns),
        None => "-".into(),
    };
    let [kernel, flowtable, freeway] = run.routers.each_ref().map(ns);
    progress(&format!(
        "{}, run {number} of {runs}: kernel {kernel}, flow table {flowtable}, Freeway {freeway} ns",
        row.name()
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(ns: [f64; 3]) -> Run {
        let figures = |ns| Figures {
            ns,
            lost_share: 0.0,
            fast_share: Some(1.0),
        };
        let mut routers = ns.map(|ns| Some(figures(ns)));
        if let [Some(kernel), ..] = &mut routers {
            kernel.fast_share = None;
        }
        Run {
            source_ns: 200.0,
            redirect_ns: 50.0,
            routers,
        }
    }

    fn row() -> Row {
        "ipv4-udp-lan-wan-vlan-nat".parse().unwrap()
    }

    #[test]
    fn ratios_are_of_runs() {
        let runs = [
            run([1000.0, 500.0, 100.0]),
            run([2000.0, 800.0, 250.0]),
            run([1500.0, 600.0, 100.0]),
        ];
        let measured = Measured::of(row(), &runs, |_| None);
        assert_eq!(measured.kernel_over_freeway, Some(10.0));
        assert_eq!(measured.kernel_over_flowtable, Some(2.5));
        assert_eq!(measured.flowtable_over_freeway, Some(5.0));
        let kernel = measured.kernel.cost().unwrap();
        assert_eq!(kernel.ns, 1500.0);
        assert_eq!(kernel.samples, [1000.0, 2000.0, 1500.0]);
        // 1,472 octets in 1.5 us; 81,064 frames a second
        assert!((kernel.mbit_s - 7850.7).abs() < 0.1, "{kernel:?}");
        assert!((kernel.line_cpu - 0.1216).abs() < 1e-4, "{kernel:?}");
        assert_eq!(kernel.carries_line, Some(true));
        assert_eq!(kernel.fast_share, None);
        assert!(measured.remarks.is_empty(), "{:?}", measured.remarks);
    }

    #[test]
    fn a_full_duplex_link_has_twice_the_frames() {
        let row: Row = "ipv4-udp-duplex".parse().unwrap();
        let measured = Measured::of(row, &[run([8000.0, 6000.0, 250.0])], |_| None);
        assert!(measured.duplex);
        assert!((measured.line_pps - 162_548.8).abs() < 0.1, "{measured:?}");
        let [kernel, flowtable, freeway] = measured.columns().map(|column| column.cost().unwrap());
        assert!((kernel.line_cpu - 1.3004).abs() < 1e-4, "{kernel:?}");
        assert!((freeway.line_cpu - 0.0406).abs() < 1e-4, "{freeway:?}");
        assert_eq!(
            [kernel, flowtable, freeway].map(|cost| cost.carries_line),
            [Some(false), Some(true), Some(true)]
        );
        // half of the frames are of either direction: 1,472 octets in 250 ns, both ways together
        assert!((freeway.mbit_s - 47_104.0).abs() < 0.1, "{freeway:?}");
    }

    #[test]
    fn results_without_duplex_can_be_read() {
        let measured = Measured::of(row(), &[run([1000.0, 500.0, 100.0])], |_| None);
        let mut json = serde_json::to_value(&measured).unwrap();
        json.as_object_mut().unwrap().remove("duplex").unwrap();
        let kernel = json["kernel"].as_object_mut().unwrap();
        kernel.remove("carries_line").unwrap();
        let read: Measured = serde_json::from_value(json).unwrap();
        assert!(!read.duplex);
        assert_eq!(read.kernel.cost().unwrap().carries_line, None);
        assert_eq!(read.freeway, measured.freeway);
    }

    #[test]
    fn slow_frames_and_lost_ones_are_remarked() {
        let mut slow = run([1000.0, 500.0, 100.0]);
        let [Some(kernel), Some(flowtable), Some(freeway)] = &mut slow.routers else {
            unreachable!("all three are there");
        };
        kernel.lost_share = 0.02;
        flowtable.fast_share = Some(0.0);
        freeway.fast_share = Some(0.9799);
        let measured = Measured::of(row(), &[slow, run([1.0, 1.0, 1.0])], |_| None);
        assert_eq!(
            measured.remarks,
            [
                "2.00 % of the frames were lost with the kernel",
                "only 0.0 % of the frames were the flow table's",
                "only 98.0 % of the frames were Freeway's",
            ]
        );
    }

    #[test]
    fn what_is_missing_says_why() {
        let mut two = run([1000.0, 500.0, 100.0]);
        two.routers[1] = None;
        let measured = Measured::of(row(), &[two], |router| {
            (router == Router::Flowtable).then(|| "none here".to_owned())
        });
        assert_eq!(measured.flowtable.missing(), Some("none here"));
        assert_eq!(measured.kernel_over_flowtable, None);
        assert_eq!(measured.kernel_over_freeway, Some(10.0));
        let json = serde_json::to_value(&measured).unwrap();
        assert_eq!(json["flowtable"]["missing"], "none here");
        assert_eq!(json["freeway"]["ns"], 100.0);
        let nothing = Measured::of(row(), &[], |_| Some("no VLANs".into()));
        assert_eq!(nothing.source_ns, None);
        assert_eq!(
            nothing.columns().map(Column::missing),
            [Some("no VLANs"); 3]
        );
    }
}
