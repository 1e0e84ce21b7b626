// SPDX-License-Identifier: MIT OR Apache-2.0
//! The measurement as a page.

use freeway_console::{Page, Terminal, Tone, count, plural};

use super::result::{Measured, Rate, Rfc2544, Throughput};

const NONE: &str = "-";

/// Tables of rates, losses and latencies, and what is to be said of them.
pub fn table(result: &Rfc2544, terminal: Terminal) -> String {
    let r = result;
    let mut page = Page::new(terminal);
    let directions = match r.directions {
        1 => "one direction",
        _ => "both directions at once, figures of one",
    };
    page.words(
        "",
        &format!(
            "Scenario {}: {} flows, UDP, {directions}; trials of {} s, {:.0} % wide",
            r.scenario,
            count(r.flows.into()),
            r.search.trial_s,
            r.search.width * 100.0
        ),
    );
    if let Some(hosts) = r.destinations {
        let hosts = plural(hosts.into(), "host");
        page.words("", &format!("Flows go to {hosts} beyond the WAN."));
    }
    page.words("", &r.machine.to_string());
    page.gap();
    rates(&mut page, r);
    page.gap();
    losses(&mut page, r);
    page.gap();
    latencies(&mut page, r);
    page.gap();
    cpu_shares(&mut page, r);
    page.gap();
    page.words(
        "",
        "NDR: no loss; PDR: at most 0.5 %; FRMOL: what arrives when the generator sends all it can; burst: frames back to \
         back without loss. CPU: of the router's, what its threads had as the scheduler accounts; cpu_share: what a loop of the lowest \
         priority there did not get, with interrupts and softirqs.",
    );
    if limited(r) {
        let words = "\"at least\": not the router's own rate, but within 5 % of what the generator can do, or the generator fell short of more.";
        page.words("", &page.tone(Tone::Warn, words));
    }
    if r.sizes.iter().any(Measured::of_generator) {
        let words = "\"of gen.\": a share of what the generator can do, for the router's own PDR is not known.";
        page.words("", &page.tone(Tone::Warn, words));
    }
    for remark in &r.remarks {
        page.words("", &page.tone(Tone::Warn, remark));
    }
    page.finish()
}

/// `1.23 Mpps`, `at least 5.10 Mpps`, or that there is none.
pub fn mpps(rate: &Rate) -> String {
    match cell(rate) {
        cell if cell == NONE => "none".into(),
        cell => format!("{cell} Mpps"),
    }
}

/// `1.23`, `at least 5.10`, or a dash.
pub fn cell(rate: &Rate) -> String {
    match (rate.pps, rate.at_least_pps) {
        (Some(pps), _) => mega(pps),
        (None, Some(pps)) => format!("at least {}", mega(pps)),
        (None, None) => NONE.into(),
    }
}

/// Millions; three digits of small ones.
pub fn mega(pps: f64) -> String {
    if pps < 1e5 {
        format!("{:.4}", pps * 1e-6)
    } else {
        format!("{:.2}", pps * 1e-6)
    }
}

fn limited(result: &Rfc2544) -> bool {
    let of = |size: &Measured| {
        let figures = size.routers().into_iter();
        let mut rates = figures.flat_map(|(_, figures)| {
            let rates = [
                Some(figures.ndr.rate),
                Some(figures.pdr.rate),
                figures.frmol,
            ];
            rates.into_iter().flatten()
        });
        rates.any(|rate| rate.at_least_pps.is_some())
    };
    result.sizes.iter().any(of)
}

fn heads<const N: usize>(page: &Page, heads: [&str; N]) -> Vec<String> {
    heads.map(|head| page.tone(Tone::Head, head)).to_vec()
}

fn rates(page: &mut Page, result: &Rfc2544) {
    let heads = heads(page, ["frames", "Mpps", "NDR", "PDR", "FRMOL", "burst"]);
    let mut rows = vec![heads];
    for size in &result.sizes {
        let alone = format!("generator {}", mega(size.ceiling_pps));
        rows.push(vec![size.label.clone(), alone]);
        for (router, figures) in size.routers() {
            let burst = figures.back_to_back.as_ref();
            let of = |found: &Throughput| cell(&found.rate);
            rows.push(vec![
                String::new(),
                router.name().into(),
                of(&figures.ndr),
                of(&figures.pdr),
                figures.frmol.as_ref().map_or_else(|| NONE.into(), cell),
                burst.map_or_else(|| NONE.into(), |burst| format!("{:.0}", burst.frames)),
            ]);
        }
    }
    page.table(2, &[2, 3, 4, 5], &rows);
}

fn losses(page: &mut Page, result: &Rfc2544) {
    let heads = heads(
        page,
        ["frames", "", "offered, Mpps", "of NDR", "lost", "CPU"],
    );
    let mut rows = vec![heads];
    for size in &result.sizes {
        for (router, figures) in size.routers() {
            for loss in &figures.loss {
                let share = figures.ndr.lower_pps.map(|ndr| loss.load_pps / ndr * 100.0);
                rows.push(vec![
                    size.label.clone(),
                    router.name().into(),
                    mega(loss.offered_pps),
                    share.map_or_else(|| NONE.into(), |share| format!("{share:.0} %")),
                    format!("{:.2} %", loss.loss_ratio * 100.0),
                    format!("{:.0} %", loss.router_cpu * 100.0),
                ]);
            }
        }
    }
    page.table(2, &[2, 3, 4, 5], &rows);
}

fn latencies(page: &mut Page, result: &Rfc2544) {
    let heads = heads(
        page,
        [
            "latency, us",
            "",
            "load",
            "p50",
            "p90",
            "p99",
            "p99.9",
            "max",
        ],
    );
    let mut rows = vec![heads];
    for size in &result.sizes {
        if let Some(latency) = &size.tester_latency {
            let head = [size.label.clone(), "no router".into(), "none".into()];
            rows.push([&head[..], &latency.cells()].concat());
        }
        for (router, of) in size.routers() {
            for latency in &of.latency {
                let load = match latency.percent_of_pdr {
                    0 => "none".into(),
                    percent if of.pdr_is_generators() => format!("{percent} % of gen."),
                    percent => format!("{percent} % of PDR"),
                };
                let head = [size.label.clone(), router.name().into(), load];
                rows.push([&head[..], &latency.cells()].concat());
            }
        }
    }
    page.table(2, &[3, 4, 5, 6, 7], &rows);
}

fn cpu_shares(page: &mut Page, result: &Rfc2544) {
    let heads = heads(
        page,
        [
            "CPU",
            "",
            "load",
            "offered, Mpps",
            "lost",
            "CPU",
            "cpu_share",
        ],
    );
    let mut rows = vec![heads];
    for size in &result.sizes {
        for (router, of) in size.routers() {
            rows.extend(of.cpu.iter().map(|share| {
                vec![
                    size.label.clone(),
                    router.name().into(),
                    share.load(of.pdr_is_generators()),
                    mega(share.offered_pps),
                    format!("{:.2} %", share.loss_ratio * 100.0),
                    format!("{:.1} %", share.router_cpu * 100.0),
                    format!("{:.1} %", share.cpu_share * 100.0),
                ]
            }));
        }
    }
    page.table(2, &[3, 4, 5, 6], &rows);
}
