// SPDX-License-Identifier: MIT OR Apache-2.0
//! A comparison as a page.

use freeway_console::{Page, Terminal, Tone, count, plural};

use super::result::Comparison;
use crate::router::Router;

const NONE: &str = "-";

/// The routers in a table, and what is to be said of them.
pub fn table(comparison: &Comparison, terminal: Terminal) -> String {
    let c = comparison;
    let mut page = Page::new(terminal);
    let what = format!(
        "Scenario {}: {} flows, {}, {}-byte frames, medians of {} runs, {} s each",
        c.scenario,
        count(c.flows.into()),
        c.proto.to_uppercase(),
        c.wire_bytes,
        c.runs,
        c.seconds
    );
    page.words("", &what);
    if let Some(hosts) = c.destinations {
        let words = format!(
            "Flows go to {} beyond the WAN.",
            plural(hosts.into(), "host")
        );
        page.words("", &words);
    }
    if c.routes {
        page.words(
            "",
            "Freeway forwards by the kernel's routes, without flows.",
        );
    }
    page.words("", &c.machine.to_string());
    page.gap();
    page.table(2, &[1, 2, 3], &rows(c, &page));
    page.gap();
    let summary = if c.refused {
        format!(
            "With Freeway attached and all flows refused by policy the kernel's path costs {:+.1} %.",
            (c.over_kernel - 1.0) * 100.0
        )
    } else {
        let speedup = page.tone(Tone::Good, &format!("{:.1} times", c.speedup));
        format!(
            "Freeway is {speedup} as fast as the kernel and costs {:.2} bare redirects.",
            c.over_redirect
        )
    };
    page.words("", &summary);
    if c.changes_per_s > 0 {
        let words = format!(
            "{} changes of routes and neighbours a second, one of ten of the flows' route, one of their next hop; {:.1} % of Freeway's frames were fast, {:.3} % were lost, \
             and {:.3} % of the kernel's.",
            count(
                c.real_changes_per_s
                    .map_or(c.changes_per_s.into(), |real| real.round() as u64)
            ),
            c.fast_share * 100.0,
            c.freeway_lost_share * 100.0,
            c.kernel_lost_share * 100.0
        );
        page.words("", &words);
    }
    let mut net = format!(
        "Net of the generator into an XDP drop ({:.1} ns).",
        c.source_ns
    );
    if let (Some(skb_ns), Some(xdp_ns)) = (c.sink_skb_ns, c.sink_xdp_ns) {
        net.push_str(&format!(
            " Output port and sink are {skb_ns:.1} ns of the kernel's figure and {xdp_ns:.1} ns of the others."
        ));
    }
    page.words("", &net);
    if let Some(program_ns) = c.program_ns {
        let words = format!(
            "Freeway's program is {program_ns:.1} ns of its figure, the counting of them included."
        );
        page.words("", &words);
    }
    for words in c.missing() {
        page.words("", &format!("{words}."));
    }
    for words in c.remarks() {
        page.words("", &page.tone(Tone::Warn, &format!("Mind: {words}.")));
    }
    page.finish()
}

fn rows(c: &Comparison, page: &Page) -> Vec<Vec<String>> {
    let heads = ["", "ns a frame, net", "Mpps, gross", "of Freeway's"];
    let mut rows = vec![heads.map(|head| page.tone(Tone::Head, head)).to_vec()];
    let mut row = |name: &str, ns: Option<f64>, mpps: Option<f64>, times: Option<f64>| {
        let or_none = |cell: Option<String>| cell.unwrap_or_else(|| NONE.into());
        rows.push(vec![
            name.to_owned(),
            or_none(ns.map(|ns| format!("{ns:.1}"))),
            or_none(mpps.map(|mpps| format!("{mpps:.2}"))),
            or_none(times.map(|times| format!("{times:.2}"))),
        ]);
    };
    let kernel = c.kernel.unwrap_or(Router::Kernel);
    row(
        kernel.name(),
        Some(c.kernel_ns),
        Some(c.kernel_mpps),
        Some(c.speedup),
    );
    for peer in &c.peers {
        row(peer.router.name(), peer.ns, peer.mpps, peer.over_freeway);
    }
    row(
        Router::Freeway.name(),
        Some(c.freeway_ns),
        Some(c.freeway_mpps),
        Some(1.0),
    );
    row(
        Router::Redirect.name(),
        Some(c.redirect_ns),
        Some(c.redirect_mpps),
        Some(1.0 / c.over_redirect),
    );
    row("XDP drop", Some(0.0), Some(c.drop_mpps()), None);
    rows
}

#[cfg(test)]
pub mod tests {
    use super::super::result::{Peer, Samples};
    use super::*;
    use freeway_rig::Machine;

    /// Of invented figures.
    pub fn example() -> Comparison {
        Comparison {
            scenario: "nat".into(),
            proto: "udp".into(),
            kernel: Some(Router::KernelStateful),
            frame_bytes: 64,
            wire_bytes: 64,
            path: "auto".into(),
            flows: 1000,
            destinations: None,
            routes: false,
            runs: 5,
            seconds: 20.0,
            source_ns: 70.0,
            kernel_ns: 1400.0,
            freeway_ns: 120.0,
            redirect_ns: 100.0,
            kernel_mpps: 0.68,
            freeway_mpps: 5.2,
            redirect_mpps: 5.9,
            speedup: 11.7,
            over_redirect: 1.2,
            over_kernel: 0.086,
            program_ns: Some(45.0),
            changes_per_s: 0,
            real_changes_per_s: None,
            refused: false,
            idle_connections: 0,
            sink_skb_ns: Some(80.0),
            sink_xdp_ns: Some(40.0),
            fast_share: 0.999,
            kernel_lost_share: 0.0,
            freeway_lost_share: 0.02,
            peers: vec![
                Peer::missing(Router::Fib, "it does not translate"),
                Peer {
                    router: Router::Flowtable,
                    missing: None,
                    ns: Some(600.0),
                    mpps: Some(1.49),
                    over_freeway: Some(5.0),
                    fast_share: Some(0.5),
                    lost_share: Some(0.0),
                    samples: vec![600.0],
                },
            ],
            samples: Samples {
                source_ns: vec![70.0, 80.0, 50.0],
                ..Samples::default()
            },
            machine: Machine::this(),
        }
    }

    #[test]
    fn fewer_changes_than_asked_for_are_told() {
        let of = |real_changes_per_s| Comparison {
            changes_per_s: 1000,
            real_changes_per_s,
            ..example()
        };
        let told = |of: &Comparison| of.remarks().iter().any(|words| words.contains("changes"));
        assert!(!told(&of(None)) && !told(&of(Some(951.0))));
        let few = of(Some(812.0));
        assert!(told(&few));
        let terminal = Terminal {
            width: 80,
            color: false,
        };
        let text = table(&few, terminal);
        assert!(text.contains("only 812 of 1000 changes"), "{text}");
        assert!(text.contains("812 changes of routes"), "{text}");
        let json = serde_json::to_value(&few).unwrap();
        assert_eq!(json["real_changes_per_s"], 812.0);
    }

    #[test]
    fn json_has_the_promised_fields() {
        let comparison = example();
        let json = serde_json::to_value(&comparison).unwrap();
        for field in [
            "scenario",
            "frame_bytes",
            "path",
            "flows",
            "source_ns",
            "kernel_ns",
            "freeway_ns",
            "redirect_ns",
            "kernel_mpps",
            "freeway_mpps",
            "speedup",
            "over_redirect",
            "over_kernel",
            "program_ns",
            "refused",
            "runs",
            "sink_skb_ns",
            "sink_xdp_ns",
            "kernel",
            "peers",
            "proto",
            "machine",
            "samples",
        ] {
            assert!(json.get(field).is_some(), "{field}");
        }
        assert_eq!(json["kernel"], "kernel_stateful");
        assert_eq!(json["peers"][0]["missing"], "it does not translate");
        assert_eq!(json["peers"][1]["router"], "flowtable");
        let text = table(
            &comparison,
            Terminal {
                width: 80,
                color: false,
            },
        );
        for words in [
            "kernel, conntrack           1400.0         0.68         11.70\n",
            "flow table                   600.0         1.49          5.00\n",
            "FIB from XDP                     -            -             -\n",
            "XDP drop                       0.0        14.29             -\n",
            "Without FIB from XDP: it does not translate.",
            "Mind: 2.00 % of the frames were lost in one of the runs (Freeway).",
            "Mind: only 50.0 % of the frames took the fast path in one of the runs (flow",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }
}
