// SPDX-License-Identifier: MIT OR Apache-2.0
//! The measurement as a page.

use freeway_console::{Page, Terminal, Tone, count, plural};

use super::{Dut, Measured};
use crate::rfc2544::{Rate, cell, mega};

const NONE: &str = "-";

/// Tables of rates, losses and latencies, and what is to be said of them.
pub fn table(result: &Dut, terminal: Terminal) -> String {
    let r = result;
    let mut page = Page::new(terminal);
    let gateway = match r.sender.gateway {
        Some(gateway) => format!("{gateway} ({})", r.sender.gateway_mac),
        None => r.sender.gateway_mac.clone(),
    };
    let sink = r.receiver.sink.map(|sink| format!(" of the sink {sink}"));
    page.words(
        "",
        &format!(
            "From {} by {} to the router at {gateway}, and from it to {} at {}{}: {}, UDP, one direction",
            r.sender.address,
            r.sender.port,
            r.receiver.address,
            r.receiver.port,
            sink.unwrap_or_default(),
            plural(r.flows.into(), "flow")
        ),
    );
    if let Some(search) = &r.search {
        let width = search.width * 100.0;
        let words = format!("Trials of {} s, bounds {width:.0} % apart", search.trial_s);
        page.words("", &words);
    }
    page.words("", &r.machine.to_string());
    if r.search.is_some() {
        page.gap();
        rates(&mut page, r);
    }
    page.gap();
    losses(&mut page, r);
    if r.sizes.iter().any(|size| !size.latency.is_empty()) {
        page.gap();
        latencies(&mut page, r);
    }
    page.gap();
    if r.search.is_some() {
        page.words(
            "",
            "NDR: no loss; PDR: at most 0.5 %; FRMOL: what arrives when all is sent that can be; sender: what its port took then.",
        );
    }
    if r.receiver.sink.is_some() {
        let words = "No latency: the clocks of two hosts differ; `freeway bench loop` has it.";
        page.words("", words);
    }
    if r.sizes.iter().any(is_limited) {
        let words = "\"at least\": not the router's own rate, but within 5 % of what the sender can do, or the sender fell short of more.";
        page.words("", &page.tone(Tone::Warn, words));
    }
    for remark in &r.remarks {
        page.words("", &page.tone(Tone::Warn, remark));
    }
    page.finish()
}

fn found(size: &Measured) -> [Option<Rate>; 3] {
    let of = |found: &Option<crate::rfc2544::Throughput>| found.map(|found| found.rate);
    [of(&size.ndr), of(&size.pdr), size.frmol]
}

fn is_limited(size: &Measured) -> bool {
    let mut rates = found(size).into_iter().flatten();
    rates.any(|rate| rate.at_least_pps.is_some())
}

fn heads<const N: usize>(page: &Page, heads: [&str; N]) -> Vec<String> {
    heads.map(|head| page.tone(Tone::Head, head)).to_vec()
}

fn rates(page: &mut Page, result: &Dut) {
    let heads = heads(page, ["frames, Mpps", "sender", "NDR", "PDR", "FRMOL"]);
    let mut rows = vec![heads];
    for size in &result.sizes {
        let none = || NONE.to_owned();
        let [ndr, pdr, frmol] = found(size).map(|rate| rate.as_ref().map_or_else(none, cell));
        let sender = size.ceiling_pps.map_or_else(none, mega);
        rows.push(vec![size.label.clone(), sender, ndr, pdr, frmol]);
    }
    page.table(2, &[1, 2, 3, 4], &rows);
}

fn losses(page: &mut Page, result: &Dut) {
    let heads = heads(
        page,
        [
            "frames",
            "offered, Mpps",
            "of NDR",
            "sent",
            "arrived",
            "lost",
        ],
    );
    let mut rows = vec![heads];
    for size in &result.sizes {
        let ndr_pps = size.ndr.and_then(|ndr| ndr.lower_pps);
        rows.extend(size.loss.iter().map(|loss| {
            let share = ndr_pps.map(|ndr| loss.load_pps / ndr * 100.0);
            vec![
                size.label.clone(),
                mega(loss.offered_pps),
                share.map_or_else(|| NONE.into(), |share| format!("{share:.0} %")),
                count(loss.sent),
                count(loss.received),
                format!("{:.2} %", loss.loss_ratio * 100.0),
            ]
        }));
    }
    page.table(2, &[1, 2, 3, 4, 5], &rows);
}

fn latencies(page: &mut Page, result: &Dut) {
    let heads = heads(
        page,
        ["latency, us", "load", "p50", "p90", "p99", "p99.9", "max"],
    );
    let mut rows = vec![heads];
    for size in &result.sizes {
        rows.extend(size.latency.iter().map(|latency| {
            let load = match latency.percent_of_pdr {
                0 => "none".into(),
                percent => format!("{percent} % of PDR"),
            };
            [&[size.label.clone(), load][..], &latency.cells()].concat()
        }));
    }
    page.table(2, &[2, 3, 4, 5, 6], &rows);
}
