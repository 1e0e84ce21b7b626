// SPDX-License-Identifier: MIT OR Apache-2.0
//! A replay as a page.

use freeway_console::{Page, Terminal, Tone, count, plural};

use super::result::Replay;

const NONE: &str = "-";

/// What was sent, what became of it, and what is to be said of it.
pub fn table(result: &Replay, terminal: Terminal) -> String {
    let r = result;
    let mut page = Page::new(terminal);
    let kind = if r.stateful {
        "stateful filter"
    } else {
        "routed"
    };
    page.words(
        "",
        &format!(
            "{}: {}, {} to {} LAN and WAN addresses, {}; {kind}, {}, {} a run, {}",
            r.file,
            plural(r.capture.replayed, "frame"),
            count(r.capture.lan_addresses),
            count(r.capture.wan_addresses),
            plural(r.capture.conversations, "conversation"),
            r.tempo,
            plural(r.loops.into(), "loop"),
            plural(r.runs.into(), "run"),
        ),
    );
    page.words("", &r.machine.to_string());
    page.gap();
    let heads = [
        "",
        "LAN>WAN sent",
        "arrived",
        "WAN>LAN sent",
        "arrived",
        "lost",
        "CPU ns",
        "fast",
    ];
    let mut rows = vec![heads.map(|head| page.tone(Tone::Head, head)).to_vec()];
    for (router, of) in r.routers() {
        let share = |share: f64| format!("{:.2} %", share * 100.0);
        rows.push(vec![
            router.name().into(),
            count(of.sent_lan),
            count(of.arrived_wan),
            count(of.sent_wan),
            count(of.arrived_lan),
            share(of.loss_ratio()),
            of.cpu_ns
                .map_or_else(|| NONE.into(), |ns| format!("{ns:.0}")),
            of.fast_share.map_or_else(|| NONE.into(), share),
        ]);
    }
    page.table(2, &[1, 2, 3, 4, 5, 6, 7], &rows);
    page.gap();
    if let Some(speedup) = r.speedup {
        let times = page.tone(Tone::Good, &format!("{speedup:.1} times"));
        page.words(
            "",
            &format!(
                "The kernel takes {times} the CPU time for a frame that it takes with Freeway."
            ),
        );
    }
    page.words(
        "",
        "CPU: what the threads of the router's ports had, for each frame that arrived. fast: share of these that Freeway \
         forwarded.",
    );
    if r.capture.untagged > 0 {
        let words = format!(
            "{} lost their VLAN tags.",
            plural(r.capture.untagged, "frame")
        );
        page.words("", &words);
    }
    for skipped in &r.capture.skipped {
        let words = format!(
            "{} not sent: {}.",
            plural(skipped.frames, "frame"),
            skipped.reason.words()
        );
        page.words("", &page.tone(Tone::Warn, &words));
    }
    for remark in &r.remarks {
        page.words("", &page.tone(Tone::Warn, &format!("Mind: {remark}.")));
    }
    page.finish()
}

#[cfg(test)]
pub mod tests {
    use super::super::deal::Skip;
    use super::super::result::{Capture, Figures, Skipped};
    use super::*;
    use freeway_rig::Machine;

    /// A result that is invented.
    pub fn example() -> Replay {
        let figures = |cpu_ns: f64, fast_share| Figures {
            sent_lan: 4000,
            sent_wan: 3000,
            arrived_wan: 4000,
            arrived_lan: 2930,
            lost: 70,
            offered_pps: 350_000.0,
            cpu_ns: Some(cpu_ns),
            fast_share,
            samples: vec![cpu_ns - 10.0, cpu_ns, cpu_ns + 10.0],
        };
        Replay {
            file: "office.pcapng".into(),
            capture: Capture {
                format: "pcapng".into(),
                frames: 711,
                replayed: 700,
                bytes: 420_000,
                untagged: 3,
                skipped: vec![Skipped {
                    reason: Skip::Group,
                    frames: 11,
                }],
                lan_addresses: 12,
                wan_addresses: 1234,
                conversations: 210,
                duration_s: 1.5,
                ..Capture::default()
            },
            tempo: "full".into(),
            loops: 10,
            stateful: false,
            runs: 3,
            digest: "00112233445566aa".into(),
            kernel: figures(1500.0, None),
            freeway: figures(300.0, Some(0.931)),
            speedup: Some(5.0),
            remarks: vec!["the sender was late".into()],
            machine: Machine::this(),
        }
    }

    #[test]
    fn everything_is_said() {
        let result = example();
        let terminal = Terminal {
            width: 80,
            color: false,
        };
        let text = table(&result, terminal);
        for words in [
            "12 to 1,234 LAN and WAN",
            "1.00 %",
            "93.10 %",
            "5.0 times",
            "11 frames not sent: multicast or broadcast.",
            "3 frames lost their VLAN tags",
            "Mind: the sender was late.",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        let wide = text.lines().find(|line| line.chars().count() > 80);
        assert_eq!(wide, None);
        let json = serde_json::to_value(&result).unwrap();
        assert_eq!(json["capture"]["skipped"][0]["reason"], "group");
        assert_eq!(serde_json::from_value::<Replay>(json).unwrap(), result);
    }
}
