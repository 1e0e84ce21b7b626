// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables of results that no plot shows.

use freeway_console::count;

use super::outcome::{Outcome, drop_case};
use crate::{drop::Drops, flood::Flood, rfc2544::Rfc2544, setup::Setup, shaper::Shaper};

/// A table; the first column is words, the others numbers.
#[derive(Clone, Debug)]
pub struct Table {
    /// The heads.
    pub heads: &'static [&'static str],
    /// The rows.
    pub rows: Vec<Vec<String>>,
    /// What they are.
    pub words: String,
}

/// Of a result without a plot of its own.
pub fn of_outcome(outcome: &Outcome) -> Option<Table> {
    match outcome {
        Outcome::Rfc2544(result) => Some(of_rfc2544(result)),
        Outcome::Flood(flood) => Some(of_flood(flood)),
        Outcome::Drop(drops) => Some(of_drops(drops)),
        Outcome::Setup(setup) => Some(of_setup(setup)),
        Outcome::Shaper(shaper) => Some(of_shaper(shaper)),
        Outcome::Compare(_)
        | Outcome::Kirkwood(_)
        | Outcome::Imx8(_)
        | Outcome::Flows(_)
        | Outcome::Bulk(_)
        | Outcome::Multicast(_)
        | Outcome::Rfc9693(_)
        | Outcome::Replay(_) => None,
    }
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.2} %", 100.0 * part as f64 / whole.max(1) as f64)
}

fn of_rfc2544(result: &Rfc2544) -> Table {
    let mut rows = Vec::new();
    for size in &result.sizes {
        for (router, figures) in size.routers() {
            let burst = figures.back_to_back.as_ref();
            let burst = burst.map(|burst| count(burst.frames.round() as u64));
            let frmol = figures.frmol.as_ref().map(crate::rfc2544::mpps);
            rows.push(vec![
                format!("{}, {}", size.label, router.name()),
                crate::rfc2544::mpps(&figures.ndr.rate),
                crate::rfc2544::mpps(&figures.pdr.rate),
                frmol.unwrap_or_else(|| "-".into()),
                burst.unwrap_or_else(|| "-".into()),
                format!("{:.2} Mpps", size.ceiling_pps * 1e-6),
            ]);
        }
    }
    Table {
        heads: &[
            "frames",
            "NDR",
            "PDR",
            "at the largest load",
            "burst",
            "the generator alone",
        ],
        rows,
        words: format!(
            "Scenario {}, {}, router and generator on a CPU each. NDR: no loss; PDR: at most 0.5 %, by MLRsearch (RFC 9971). \
             What is within 5 % of the generator's own rate, or what the generator fell short of exceeding, is not the router's: \u{201c}at least\u{201d}. A burst is of frames back to back without loss.",
            result.scenario,
            match result.directions {
                1 => "one direction",
                _ => "both directions at once, figures of one",
            }
        ),
    }
}

/// Percentiles of one-way latencies.
pub fn latencies(result: &Rfc2544) -> Table {
    let mut rows = Vec::new();
    for size in &result.sizes {
        for (router, figures) in size.routers() {
            for l in &figures.latency {
                let load = match l.percent_of_pdr {
                    0 => "no load".into(),
                    percent if figures.pdr_is_generators() => {
                        format!("{percent} % of the generator's rate")
                    }
                    percent => format!("{percent} % of PDR"),
                };
                let mut row = vec![format!("{}, {}, {load}", size.label, router.name())];
                row.extend(l.cells());
                row.push(count(l.samples));
                rows.push(row);
            }
        }
    }
    Table {
        heads: &["us", "p50", "p90", "p99", "p99.9", "max", "frames timed"],
        rows,
        words: String::new(),
    }
}

/// CPU by an idle loop.
pub fn cpu_shares(result: &Rfc2544) -> Table {
    let mut rows = Vec::new();
    for size in &result.sizes {
        for (router, figures) in size.routers() {
            rows.extend(figures.cpu.iter().map(|share| {
                let load = share.load(figures.pdr_is_generators());
                vec![
                    format!("{}, {}, {load}", size.label, router.name()),
                    count(share.offered_pps as u64),
                    format!("{:.2} %", share.loss_ratio * 100.0),
                    format!("{:.1} %", share.router_cpu * 100.0),
                    format!("{:.1} %", share.cpu_share * 100.0),
                ]
            }));
        }
    }
    Table {
        heads: &[
            "of the router's CPU",
            "frames/s",
            "lost",
            "its threads had",
            "an idle loop did not get",
        ],
        rows,
        words: String::new(),
    }
}

fn of_flood(flood: &Flood) -> Table {
    let rows = flood.kinds.iter().map(|kind| {
        vec![
            kind.name.replace('_', " "),
            count(kind.capacity_per_s as u64),
            format!("{:.1} ns", kind.hit_ns_before),
            format!("{:.1} ns", kind.hit_ns_during),
            percent(kind.freeway_lost, kind.freeway_sent),
            percent(kind.kernel_lost, kind.kernel_sent),
            format!("{} of {}", kind.new_flows_fast, kind.new_flows),
        ]
    });
    Table {
        heads: &[
            "flood",
            "new tuples/s",
            "a hit before",
            "in the flood",
            "lost",
            "kernel's",
            "new flows fast",
        ],
        rows: rows.collect(),
        words: format!(
            "{} established flows while new tuples come as fast as the kernel alone takes them; lost are frames of the established flows, \
             with Freeway and by the kernel alone.",
            count(flood.flows.into())
        ),
    }
}

fn of_drops(drops: &Drops) -> Table {
    let ns = |ns: Option<f64>| ns.map_or_else(|| "-".into(), |ns| format!("{ns:.1}"));
    let rows = drops.sets.iter().map(|set| {
        vec![
            drop_case(set),
            ns(set.iptables_ns),
            ns(set.iptables_rule_ns),
            ns(Some(set.nft_ns)),
            ns(set.nft_ingress_ns),
            ns(Some(set.freeway_ns)),
            ns(Some(set.xdp_drop_ns)),
        ]
    });
    Table {
        heads: &[
            "ns for a frame",
            "iptables, ipset",
            "iptables, one rule",
            "nftables",
            "nftables at ingress",
            "Freeway",
            "bare XDP drop",
        ],
        rows: rows.collect(),
        words: format!(
            "SYNs of {} bytes from addresses in a set by which a rule drops: what a frame costs the router, receiving included. \
             iptables has them in a set of ipset, or one rule for all of them, in FORWARD; nftables has the set in prerouting, where Freeway takes the rule over.",
            drops.frame_bytes
        ),
    }
}

fn of_setup(setup: &Setup) -> Table {
    let rows = setup.samples.iter().map(|sample| {
        vec![
            count(sample.rate_per_s.into()),
            percent(sample.fast, sample.connections),
            format!("{:.2}", sample.daemon_cpu),
            format!("{:.1} us", sample.daemon_us_per_connection),
            format!("{:.0} ms", sample.to_fast_ms.p50),
            format!("{:.0} ms", sample.to_fast_ms.p99),
        ]
    });
    Table {
        heads: &[
            "new connections/s",
            "fast",
            "daemon, cores",
            "for each",
            "to fast, p50",
            "p99",
        ],
        rows: rows.collect(),
        words: "UDP connections; to fast: from when both directions had shown a packet that could be learned from until both are fast."
            .into(),
    }
}

fn of_shaper(shaper: &Shaper) -> Table {
    let routers = [
        ("kernel", &shaper.kernel),
        ("kernel again", &shaper.kernel_again),
        ("Freeway", &shaper.freeway),
    ];
    let rows = routers.map(|(name, of)| {
        vec![
            name.to_owned(),
            format!("{:.1} Mb/s", of.marked_mbit),
            format!("{:.1} Mb/s", of.dscp_mbit),
            format!("{:.2} ms", of.latency_p50_ms),
            format!("{:.2} ms", of.latency_p95_ms),
        ]
    });
    Table {
        heads: &["router", "by mark", "by DSCP", "latency, p50", "p95"],
        rows: rows.to_vec(),
        words: format!(
            "{} at {} Mb/s; {:.1} % of the packets were Freeway's. {}",
            shaper.discipline,
            shaper.rate_mbit,
            shaper.freeway.fast_share * 100.0,
            if shaper.equal {
                "Freeway differs from the kernel no more than is allowed or than two kernels do."
            } else {
                "Freeway differs from the kernel by more than is allowed and than two kernels do."
            }
        ),
    }
}
