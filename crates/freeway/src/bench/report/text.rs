// SPDX-License-Identifier: MIT OR Apache-2.0
//! A report on a terminal.

use std::path::Path;

use super::document::Report;
use super::plots::{speedup_rows, times_between};
use crate::bench::statistics::INTERVAL_METHOD;
use crate::render::{Page, Terminal, Tone};

/// Of the longest bar.
const BAR: f64 = 24.0;

/// Speed-ups, what is missing, and where the page is.
pub fn text(report: &Report, dir: &Path, terminal: Terminal) -> String {
    let mut page = Page::new(terminal);
    page.words("", &report.machine.machine.to_string());
    let speedups = speedup_rows(report);
    let most = speedups.iter().map(|(_, of)| of.median).fold(1.0, f64::max);
    if !speedups.is_empty() {
        page.gap();
        let heads = ["kernel / Freeway", "median (interval)", ""];
        let mut rows = vec![heads.map(|head| page.tone(Tone::Head, head)).to_vec()];
        for (label, of) in &speedups {
            let bar = "#".repeat((of.median / most * BAR).round() as usize);
            rows.push(vec![label.clone(), times_between(of), bar]);
        }
        page.table(2, &[1], &rows);
        page.gap();
        page.words("", &format!("Intervals: {INTERVAL_METHOD}."));
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
}
