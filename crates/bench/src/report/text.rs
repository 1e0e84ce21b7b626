// SPDX-License-Identifier: MIT OR Apache-2.0
//! A report on a terminal.

use std::path::Path;

use freeway_console::{Page, Terminal, Tone};

use super::document::{Report, Scenario};
use super::plots::{speedup_rows, speedup_rows_of, times_between};
use crate::statistics::INTERVAL_METHOD;

/// Of a bar, for each doubling: speed-ups differ a hundredfold.
const DOUBLING: f64 = 3.0;
/// Of the longest bar.
const BAR_MAX: f64 = 36.0;
/// Of a scenario's name and case, in a row by itself,
const LABEL: usize = 26;
/// and of its speed-up.
const TIMES: usize = 22;

fn bar(times: f64) -> String {
    let length = (times.log2() * DOUBLING).round().clamp(0.0, BAR_MAX);
    "#".repeat(length as usize)
}

/// A scenario that has just been measured: lines of a table that grows, no wider than the terminal.
pub fn rows(scenario: &Scenario, width: usize) -> String {
    let measured = scenario.result.as_ref();
    let speedups = measured.map(|outcome| speedup_rows_of(scenario, outcome));
    let row = |label: &str, words: &str, bar: &str| {
        let row = format!("  {label:<LABEL$}  {words:>TIMES$}  {bar}");
        let row: String = row.chars().take(width).collect();
        row.trim_end().to_owned()
    };
    let words = match (&scenario.missing, speedups) {
        (Some(why), _) => vec![format!("{} was not measured: {why}", scenario.name)],
        (None, Some(speedups)) if !speedups.is_empty() => {
            let rows = speedups.iter();
            rows.map(|(label, of)| row(label, &times_between(of), &bar(of.median)))
                .collect()
        }
        (None, _) => vec![row(&scenario.name, "measured", "")],
    };
    words.join("\n")
}

/// Speed-ups, what is missing, and where the page is.
pub fn text(report: &Report, dir: &Path, terminal: Terminal) -> String {
    let mut page = Page::new(terminal);
    page.words("", &report.machine.machine.to_string());
    let speedups = speedup_rows(report);
    if !speedups.is_empty() {
        page.gap();
        let heads = ["kernel / Freeway", "median (interval)", ""];
        let mut rows = vec![heads.map(|head| page.tone(Tone::Head, head)).to_vec()];
        for (label, of) in &speedups {
            rows.push(vec![label.clone(), times_between(of), bar(of.median)]);
        }
        page.table(2, &[1], &rows);
        page.gap();
        let words = "A bar grows by three characters with each doubling";
        page.words("", &format!("{words}. Intervals: {INTERVAL_METHOD}."));
    }
    for scenario in &report.scenarios {
        if let Some(why) = &scenario.missing {
            let words = format!("{} was not measured: {why}.", scenario.name);
            page.words("", &page.tone(Tone::Warn, &words));
        }
    }
    page.words(
        "",
        &format!("The page: {}", dir.join("index.html").display()),
    );
    page.finish()
}

#[cfg(test)]
mod tests {
    use super::super::document::tests::example;
    use super::*;

    #[test]
    fn speed_ups_and_reasons_are_there() {
        let terminal = Terminal {
            width: 80,
            color: false,
        };
        let text = text(&example(), Path::new("out"), terminal);
        for words in [
            "  nat ",
            "####",
            "shaper was not measured: iperf3 is not installed",
            "The page: out/index.html",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        let wide = text.lines().find(|line| line.chars().count() > 80);
        assert_eq!(wide, None);
    }

    #[test]
    fn bars_grow_with_doublings() {
        assert_eq!(bar(0.8), "");
        assert_eq!(bar(1.0), "");
        assert_eq!(bar(8.0).len(), 9);
        assert_eq!(bar(f64::INFINITY).len(), 36);
        assert_eq!(bar(f64::NAN), "");
    }

    #[test]
    fn a_scenario_has_its_rows() {
        let report = example();
        let of = |name: &str| {
            let mut all = report.scenarios.iter();
            all.find(|of| of.name == name).unwrap()
        };
        let nat = rows(of("nat"), 80);
        assert!(nat.starts_with("  nat  "), "{nat}");
        assert!(nat.ends_with("###"), "{nat}");
        let why = "shaper was not measured: iperf3 is not installed";
        assert!(rows(of("shaper"), 80).starts_with(why));
        assert_eq!(rows(of("nat"), 9), "  nat");
        assert_eq!(rows(of("kirkwood"), 80).lines().count(), 2);
    }
}
