// SPDX-License-Identifier: MIT OR Apache-2.0
//! What five published fast paths gained, and what of a report is of the same kind.

use super::document::Report;
use super::outcome::{OVER_RULE, Outcome, Ratio, SPEEDUP};
use crate::statistics::{Summary, summary};

/// A published ratio.
#[derive(Clone, Copy, Debug)]
pub struct Published {
    /// What it is of.
    pub label: &'static str,
    /// The ratio, or the least and the greatest.
    pub ratio: [f64; 2],
    /// What was measured there.
    pub claim: &'static str,
    /// Where it was published.
    pub citation: &'static str,
    /// What of ours is beside it.
    pub ours: fn(&Report) -> Result<Ours, String>,
}

/// Our ratio of the same kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ours {
    /// One, of its runs.
    One(Summary, &'static str),
    /// Of several rows, the least and the greatest.
    Rows([f64; 2], &'static str),
}

impl Ours {
    /// What was measured here.
    pub fn kind(&self) -> &'static str {
        match self {
            Ours::One(_, kind) | Ours::Rows(_, kind) => kind,
        }
    }
}

const KIRKWOOD: &str = "A. Mikanovich, Promwad: Using fastpath software to boost performance of Linux-based home network routers";
const FREEBSD: &str =
    "N. Momiyama: The Design and Implementation of IP Forwarding Fastpath on FreeBSD, NLUUG 2018";
const IMX8: &str = "NXP: i.MX 8 Fast Packet Routing";
const T1: &str = "T1-System: security appliances on DPDK";
const EMBEDDED: &str = "XDP for embedded networking";

/// All of them.
pub const PUBLISHED: [Published; 7] = [
    Published {
        label: "Kirkwood NFP, TCP",
        ratio: [1.96, 1.96],
        claim: "1,400-byte packets, 1 GHz: 281 and 551 Mb/s",
        citation: KIRKWOOD,
        ours: |report| {
            let tcp = |r: &Ratio| r.name == SPEEDUP && r.case == "TCP";
            one(report, "kirkwood", tcp, "packets of 1,400 bytes, TCP, NAT")
        },
    },
    Published {
        label: "Kirkwood NFP, UDP",
        ratio: [1.63, 1.63],
        claim: "1,400-byte packets, 1 GHz: 338 and 552 Mb/s",
        citation: KIRKWOOD,
        ours: |report| {
            let udp = |r: &Ratio| r.name == SPEEDUP && r.case == "UDP";
            one(report, "kirkwood", udp, "packets of 1,400 bytes, UDP, NAT")
        },
    },
    Published {
        label: "FreeBSD IP forwarding fastpath",
        ratio: [4.0, 4.0],
        claim: "one core: 1.4 and 5.6 Mpps",
        citation: FREEBSD,
        ours: |report| {
            let kind = "64-byte frames on one core, net of the generator";
            one(report, "routed", |r| r.name == SPEEDUP, kind)
        },
    },
    Published {
        label: "i.MX 8 L-FP, all rows",
        ratio: [2.7, 7.0],
        claim: "kernel 295 to 587 Mb/s at 100 % of a core, fast path 932 to 952 Mb/s at 46 to 58 %",
        citation: IMX8,
        ours: |report| rows(report, |r| r.name == SPEEDUP, "full frames, rows of imx8"),
    },
    Published {
        label: "i.MX 8 L-FP, VLAN and NAT",
        ratio: [3.2, 5.7],
        claim: "the rows with a VLAN on the LAN and NAT on the WAN",
        citation: IMX8,
        ours: |report| {
            let vlan = |r: &Ratio| r.name == SPEEDUP && r.case.ends_with("VLAN, NAT");
            rows(report, vlan, "full frames, rows of imx8 with VLAN and NAT")
        },
    },
    Published {
        label: "T1-System, over netmap",
        ratio: [3.79, 3.79],
        claim: "64-byte packets, 24 cores, 1,000 policies: 102.4 Gb/s, netmap 27 Gb/s",
        citation: T1,
        ours: |report| {
            let kind = "64-byte frames on one core, NAT and 1,000 policies, over the kernel";
            one(report, "policies", |r| r.name == SPEEDUP, kind)
        },
    },
    Published {
        label: "XDP on an ARM board, dropping",
        ratio: [5.67, 5.67],
        claim: "1,379,231 pps offered: iptables dropped 183,588, XDP 1,041,127",
        citation: EMBEDDED,
        ours: |report| {
            let kind = "a flood dropped by a set, over iptables with one rule";
            one(report, "drop", |r| r.name == OVER_RULE, kind)
        },
    },
];

/// The source's own CPU at a full link: its label, and the least and greatest share.
pub const IMX8_LINE_CPU: [(&str, [f64; 2]); 1] = [("i.MX 8 L-FP, published", [0.46, 0.58])];

fn outcome<'a>(report: &'a Report, name: &str) -> Result<&'a Outcome, String> {
    let scenario = report.scenarios.iter().find(|s| s.name == name);
    match scenario {
        None => Err(format!("{name} was not asked for")),
        Some(scenario) => scenario.result.as_ref().ok_or_else(|| {
            let why = scenario.missing.as_deref().unwrap_or("unknown");
            format!("{name} could not run: {why}")
        }),
    }
}

fn one(
    report: &Report,
    name: &str,
    wanted: impl Fn(&Ratio) -> bool,
    kind: &'static str,
) -> Result<Ours, String> {
    let ratios = outcome(report, name)?.ratios();
    let ratio = ratios.iter().find(|ratio| wanted(ratio));
    let summary = ratio.and_then(|ratio| summary(&ratio.samples));
    let summary = summary.ok_or_else(|| format!("{name} has no figures"))?;
    Ok(Ours::One(summary, kind))
}

/// Of the rows of the i.MX 8 measurement.
fn rows(
    report: &Report,
    wanted: impl Fn(&Ratio) -> bool,
    kind: &'static str,
) -> Result<Ours, String> {
    let outcome = outcome(report, "imx8")?;
    let ratios = outcome.ratios();
    let wanted = ratios.iter().filter(|ratio| wanted(ratio));
    let medians = wanted.filter_map(|ratio| Some(summary(&ratio.samples)?.median));
    let medians: Vec<f64> = medians.collect();
    if medians.is_empty() {
        return Err(match outcome {
            Outcome::Imx8(imx8) => {
                let whys = imx8.rows.iter().rev().flat_map(|row| row.columns());
                let why = whys.into_iter().find_map(|column| column.missing());
                why.unwrap_or("no such row was measured").to_owned()
            }
            _ => "no such row was measured".into(),
        });
    }
    let least = medians.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = medians.iter().copied().fold(0.0, f64::max);
    Ok(Ours::Rows([least, greatest], kind))
}

#[cfg(test)]
mod tests {
    use super::super::document::tests::example;
    use super::*;

    #[test]
    fn ours_are_beside_them_or_say_why_not() {
        let report = example();
        let ours: Vec<_> = PUBLISHED.iter().map(|p| (p.ours)(&report)).collect();
        for (at, kind) in [
            (0, "TCP"),
            (1, "UDP"),
            (2, "64-byte"),
            (3, "imx8"),
            (5, "1,000 policies"),
            (6, "one rule"),
        ] {
            let of = ours[at].as_ref().unwrap();
            assert!(of.kind().contains(kind), "{of:?}");
        }
        assert_eq!(ours[4], Err("this kernel has no VLANs".into()));
        let mut without = report;
        without.scenarios.retain(|s| s.name != "routed");
        assert_eq!(
            (PUBLISHED[2].ours)(&without),
            Err("routed was not asked for".into())
        );
    }
}
