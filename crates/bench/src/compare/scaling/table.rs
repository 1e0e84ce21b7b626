// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rates of one CPU and of several as a page.

use freeway_console::{Page, Terminal, Tone, count, plural};

use super::result::Scaling;
use crate::router::Router;

/// The routers in a table, and what is to be said of them.
pub fn table(scaling: &Scaling, terminal: Terminal) -> String {
    let s = scaling;
    let mut page = Page::new(terminal);
    let what = format!(
        "Scenario {}: {} flows, {}, {}-byte frames, medians of {} runs, {} s each, on {}",
        s.scenario,
        count(s.flows.into()),
        s.proto.to_uppercase(),
        s.wire_bytes,
        s.runs,
        s.seconds,
        plural(s.cpus.len() as u64, "CPU")
    );
    page.words("", &what);
    page.words("", &s.machine.to_string());
    page.gap();
    let all = format!("{}, Mpps", plural(s.cpus.len() as u64, "CPU"));
    let heads = ["", "one CPU, Mpps", &all, "ratio"];
    let mut rows = vec![heads.map(|head| page.tone(Tone::Head, head)).to_vec()];
    for (router, rates) in [
        (s.kernel_shape, &s.kernel),
        (Router::Freeway, &s.freeway),
        (Router::Redirect, &s.redirect),
    ] {
        rows.push(vec![
            router.name().to_owned(),
            format!("{:.2}", rates.one_mpps),
            format!("{:.2}", rates.all_mpps),
            format!("{:.2}", rates.ratio),
        ]);
    }
    page.table(2, &[1, 2, 3], &rows);
    page.gap();
    let speedup = page.tone(Tone::Good, &format!("{:.1} times", s.speedup_all));
    let words = format!(
        "Freeway is {speedup} as fast as the kernel on all, and {:.1} times on one: of frames that arrived, generators and sinks included.",
        s.speedup_one
    );
    page.words("", &words);
    for share in &s.cpus {
        let words = format!(
            "CPU {}: {}, {:.1} % of the kernel's frames, {:.1} % of Freeway's.",
            share.cpu,
            plural(share.flows.into(), "flow"),
            share.kernel_share * 100.0,
            share.freeway_share * 100.0
        );
        page.words("", &words);
    }
    for words in s.remarks() {
        page.words("", &page.tone(Tone::Warn, &format!("Mind: {words}.")));
    }
    page.finish()
}

#[cfg(test)]
mod tests {
    use super::super::result::{Rates, Share};
    use super::*;
    use freeway_rig::Machine;

    #[test]
    fn both_rates_and_each_share_are_told() {
        let rates = |one_mpps, all_mpps| Rates {
            one_mpps,
            all_mpps,
            ratio: all_mpps / one_mpps,
            lost_share: 0.02,
        };
        let share = |cpu| Share {
            cpu,
            flows: 500,
            kernel_share: 0.5,
            freeway_share: 0.5,
        };
        let scaling = Scaling {
            scenario: "nat".into(),
            proto: "udp".into(),
            frame_bytes: 64,
            wire_bytes: 64,
            path: "auto".into(),
            flows: 1000,
            runs: 5,
            seconds: 20.0,
            cpus: vec![share(0), share(1)],
            kernel: rates(0.5, 0.75),
            freeway: rates(4.0, 6.0),
            redirect: rates(5.0, 10.0),
            kernel_shape: Router::KernelStateful,
            speedup_one: 8.0,
            speedup_all: 8.0,
            fast_share: 0.999,
            samples: Vec::new(),
            machine: Machine::this(),
        };
        let terminal = Terminal {
            width: 120,
            color: false,
        };
        let text = table(&scaling, terminal);
        for part in [
            "on 2 CPUs",
            "2 CPUs, Mpps",
            "1.50",
            "CPU 1: 500 flows, 50.0 % of the kernel's frames",
            "Mind: 2.00 % of the frames were lost in one of the runs (Freeway)",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
