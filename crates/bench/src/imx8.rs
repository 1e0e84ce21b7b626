// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway bench imx8`: the 16 rows of NXP's i.MX 8 "Fast Packet Routing" measurement, and full duplex.
//!
//! Each row's frames go through three routers of one kind by turns: the kernel with conntrack and a stateful ruleset,
//! the same with a flow table of nftables, the same with Freeway. One CPU does everything, as in `bench compare`, and
//! figures are net of the generator. The source's own links had 1 Gb/s, which any of the three fills here: what a frame
//! costs says how many bits a CPU could forward, and which part of it a full link takes. In a row of both directions
//! their frames leave by turns, one by one, and what a frame costs is the mean of the two.

mod result;
mod row;
mod site;
mod table;

use freeway_console::{Stop, progress, show};
use freeway_rig::Machine;

use self::site::{Figures, ROUTERS, Run, Site};
use crate::cli::Imx8Args;

pub use self::result::{Column, Cost, Imx8, Measured};
pub use self::row::Row;

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
    use crate::router::Router;

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
