// SPDX-License-Identifier: MIT OR Apache-2.0
//! The measurement as a page.

use std::collections::BTreeSet;

use freeway_console::{Page, Terminal, Tone, count, plural};

use super::result::{Column, Cost, Imx8, Measured};

const NONE: &str = "-";
/// Of the columns of figures, by group.
const GROUPS: [(&str, &[&str]); 5] = [
    ("ns", &["K", "T", "F"]),
    ("Mb/s", &["K", "T", "F"]),
    ("CPU %", &["K", "T", "F"]),
    ("times", &["K/F", "K/T", "T/F"]),
    ("fast %", &["T", "F"]),
];

/// One table, whatever its width, and what is to be said of it.
pub fn table(imx8: &Imx8, terminal: Terminal) -> String {
    let mut page = Page::new(terminal);
    let what = format!(
        "{}, full size frames (MTU 1500), medians of {}, {} s of each router in each",
        plural(imx8.flows.into(), "flow"),
        plural(imx8.runs.into(), "run"),
        imx8.seconds
    );
    page.words("", &what);
    page.words("", &imx8.machine.to_string());
    page.gap();
    let mut rows = heads(&page);
    rows.extend(imx8.rows.iter().map(|row| cells(&page, row)));
    let right: Vec<usize> = (2..rows[0].len()).collect();
    page.table(2, &right, &rows);
    page.gap();
    page.words(
        "",
        "K: the kernel with conntrack and a stateful ruleset; T: the same with nf_flowtable, in software; F: Freeway. ns: of one CPU for a frame, net of the \
         generator. Mb/s: layer-4 payload that one CPU forwards at that cost. CPU %: what of it a full 1 Gb/s link takes. fast %: frames that the flow table, or \
         Freeway, forwarded. lost %: frames that did not arrive, of the worst of the three.",
    );
    if let Some(words) = duplex(imx8) {
        page.words("", &words);
    }
    for words in remarks(imx8) {
        page.words("", &page.tone(Tone::Warn, &words));
    }
    page.finish()
}

/// What rows of both directions are, and which routers carry a link that is full both ways; nothing without such rows.
fn duplex(imx8: &Imx8) -> Option<String> {
    let rows: Vec<&Measured> = imx8.rows.iter().filter(|row| row.duplex).collect();
    if rows.is_empty() {
        return None;
    }
    let carries = ["K", "T", "F"].into_iter().enumerate();
    let carries = carries.filter_map(|(at, name)| {
        let costs = rows.iter().filter_map(|row| row.columns()[at].cost());
        let carried: Vec<bool> = costs.filter_map(|cost| cost.carries_line).collect();
        let fit = carried.iter().filter(|carried| **carried).count();
        let all = plural(carried.len() as u64, "row");
        (!carried.is_empty()).then(|| format!("{name} in {fit} of {all}"))
    });
    let carries: Vec<String> = carries.collect();
    let whose = match carries.as_slice() {
        [] => String::new(),
        carries => format!(" One CPU carries it with {}.", carries.join(", with ")),
    };
    Some(format!(
        "duplex: frames of both directions by turns; ns: the mean of the two; Mb/s: both ways together; CPU %: of a link that is full both ways.{whose}"
    ))
}

/// The first row names groups, at their first columns.
fn heads(page: &Page) -> Vec<Vec<String>> {
    let mut groups = vec![String::new(); 2];
    let mut heads = vec!["frames".to_owned(), String::new()];
    for (group, columns) in GROUPS {
        groups.push(group.to_owned());
        groups.extend(columns[1..].iter().map(|_| String::new()));
        heads.extend(columns.iter().map(|&head| head.to_owned()));
    }
    groups.push("lost %".into());
    heads.push(String::new());
    [groups, heads]
        .map(|row| {
            let heads = row.iter().map(|head| page.tone(Tone::Head, head));
            heads.collect()
        })
        .to_vec()
}

fn cells(page: &Page, row: &Measured) -> Vec<String> {
    let shape = if row.vlan_nat { "VLAN, NAT" } else { "plain" };
    let mut cells = vec![row.label.clone(), shape.to_owned()];
    let costs = row.columns().map(Column::cost);
    let mut each = |figure: &dyn Fn(&Cost) -> String| {
        cells.extend(costs.map(|cost| cost.map_or(NONE.into(), figure)));
    };
    each(&|cost| format!("{:.1}", cost.ns));
    each(&|cost| count(cost.mbit_s as u64));
    each(&|cost| {
        let percent = format!("{:.2}", cost.line_cpu * 100.0);
        match cost.carries_line {
            Some(false) => page.tone(Tone::Warn, &percent),
            _ => percent,
        }
    });
    let ratio = |ratio: Option<f64>| ratio.map_or(NONE.into(), |ratio| format!("{ratio:.1}"));
    let freeways = ratio(row.kernel_over_freeway);
    cells.push(page.tone(Tone::Good, &freeways));
    cells.push(ratio(row.kernel_over_flowtable));
    cells.push(ratio(row.flowtable_over_freeway));
    let [_, others @ ..] = costs;
    for cost in others {
        let share = cost.and_then(|cost| cost.fast_share);
        cells.push(share.map_or(NONE.into(), |share| format!("{:.1}", share * 100.0)));
    }
    let lost = costs.into_iter().flatten().map(|cost| cost.lost_share);
    let lost = lost.reduce(f64::max);
    cells.push(lost.map_or(NONE.into(), |lost| format!("{:.2}", lost * 100.0)));
    cells
}

/// What rows say of themselves, and why columns are missing, each reason once.
fn remarks(imx8: &Imx8) -> Vec<String> {
    let mut words = Vec::new();
    for row in &imx8.rows {
        let shape = if row.vlan_nat { ", VLAN, NAT" } else { "" };
        let of_row = row.remarks.iter();
        words.extend(of_row.map(|remark| format!("{}{shape}: {remark}.", row.label)));
    }
    // Columns of the same reason in as many rows are one.
    let mut missing: Vec<(Vec<&str>, usize, &str)> = Vec::new();
    for (at, name) in ["K", "T", "F"].into_iter().enumerate() {
        let whys = || {
            imx8.rows
                .iter()
                .filter_map(|row| row.columns()[at].missing())
        };
        for why in whys().collect::<BTreeSet<_>>() {
            let rows = whys().filter(|other| *other == why).count();
            match missing.iter_mut().find(|m| (m.1, m.2) == (rows, why)) {
                Some((names, ..)) => names.push(name),
                None => missing.push((vec![name], rows, why)),
            }
        }
    }
    words.extend(missing.iter().map(|(names, rows, why)| {
        let rows = plural(*rows as u64, "row");
        format!("Without {} in {rows}: {why}.", names.join(", "))
    }));
    words
}

#[cfg(test)]
mod tests {
    use super::super::Row;
    use super::super::site::{Figures, Run};
    use super::*;
    use crate::router::Router;
    use freeway_rig::Machine;

    fn page(rows: Vec<Measured>) -> String {
        let imx8 = Imx8 {
            flows: 64,
            runs: 3,
            seconds: 2.0,
            path: "auto".into(),
            rows,
            machine: Machine::this(),
        };
        let terminal = Terminal {
            width: 160,
            color: false,
        };
        table(&imx8, terminal)
    }

    #[test]
    fn every_row_has_its_figures_or_a_reason() {
        let figures = |ns, fast_share| {
            Some(Figures {
                ns,
                lost_share: 0.0,
                fast_share,
            })
        };
        let run = Run {
            source_ns: 200.0,
            redirect_ns: 50.0,
            routers: [
                figures(1200.0, None),
                figures(400.0, Some(1.0)),
                figures(100.0, Some(0.97)),
            ],
        };
        let of = |row: Row| {
            let runs = if row.vlan_nat { vec![] } else { vec![run] };
            let why = |_: Router| row.vlan_nat.then(|| "this kernel has no VLANs".to_owned());
            Measured::of(row, &runs, why)
        };
        let text = page(Row::asked(&[], false).into_iter().map(of).collect());
        assert!(!text.contains("duplex"), "{text}");
        let of_rows = |shape: &str| text.lines().filter(|line| line.contains(shape)).count();
        assert_eq!(
            (of_rows("  plain "), of_rows("  VLAN, NAT ")),
            (8, 8),
            "{text}"
        );
        let words = [
            "IPv4 UDP LAN>WAN  plain      1200.0  400.0  100.0",
            "9,813  29,440  117,760",
            "9.75  3.25  0.81   12.0  3.0  4.0   100.0  97.0    0.00",
            "IPv6 TCP WAN>LAN: only 97.0 % of the frames were Freeway's.",
            "Without K, T, F in 8 rows: this kernel has no VLANs.",
        ];
        for words in words {
            assert!(text.contains(words), "{words}: {text}");
        }
    }
    #[test]
    fn rows_of_both_directions_say_who_carries_the_link() {
        let of = |name: &str, kernel_ns| {
            let figures = |ns| {
                Some(Figures {
                    ns,
                    lost_share: 0.0,
                    fast_share: None,
                })
            };
            let run = Run {
                source_ns: 200.0,
                redirect_ns: 50.0,
                routers: [figures(kernel_ns), None, figures(100.0)],
            };
            let why = |router: Router| (router == Router::Flowtable).then(|| "none".to_owned());
            Measured::of(name.parse().unwrap(), &[run], why)
        };
        let text = page(vec![
            of("ipv4-udp-lan-wan", 9000.0),
            of("ipv4-udp-duplex", 9000.0),
            of("ipv6-udp-duplex", 4000.0),
        ]);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for words in [
            "IPv4 UDP duplex plain 9000.0 - 100.0 1,308 - 117,760 146.29 - 1.63",
            "One CPU carries it with K in 1 of 2 rows, with F in 2 of 2 rows.",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }
}
