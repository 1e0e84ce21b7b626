// SPDX-License-Identifier: MIT OR Apache-2.0
//! The measurement as a page.

use freeway_console::{Page, Terminal, Tone, count, plural};
use freeway_lookup::{Pages, Rates, Table};

use super::result::Lookup;

const NONE: &str = "-";

/// A table for each number of prefixes, then what it comes to.
pub fn table(lookup: &Lookup, terminal: Terminal) -> String {
    let mut page = Page::new(terminal);
    let runs = plural(lookup.runs.into(), "run");
    page.words("", &format!("{}, medians of {runs}", lookup.source));
    page.words("", &lookup.machine.to_string());
    for table in &lookup.tables {
        page.gap();
        of_prefixes(&mut page, table);
    }
    page.gap();
    page.words(
        "",
        "Millions of lookups a second, of random addresses of random prefixes. one: one after the other; dep.: each needs the next hop before; 64: in bursts. \
         bytes: what a lookup may read, for each prefix.",
    );
    let over = |other: Option<f64>| other.map_or(NONE.into(), |ratio| format!("{ratio:.2}"));
    page.words(
        "",
        &format!(
            "{}, meant for XDP: {:.1} from 4 KiB pages, {} times rte_lpm, {} times rte_fib; {:.1} dependent; {:.2} bytes a prefix. In bursts, for which the engine fetches it, too: {:.1}, {} times rte_fib.",
            lookup.xdp_structure,
            lookup.xdp_mlps,
            over(lookup.xdp_over_rte_lpm),
            over(lookup.xdp_over_rte_fib),
            lookup.xdp_dependent_mlps,
            lookup.bytes_per_prefix,
            lookup.engine_burst_mlps,
            over(lookup.engine_over_rte_fib),
        ),
    );
    for words in &lookup.remarks {
        page.words("", &page.tone(Tone::Warn, words));
    }
    page.finish()
}

fn of_prefixes(page: &mut Page, table: &Table) {
    page.head(&format!(
        "{} prefixes, {} next hops, {} ranges",
        count(table.prefixes as u64),
        count(table.next_hops as u64),
        count(table.ranges as u64)
    ));
    let of_pages = [Pages::Small, Pages::Huge];
    let mut heads = vec![String::new(), "bytes".into(), "build s".into()];
    for pages in of_pages {
        heads.push(format!("{} one", pages.words()));
        heads.extend(["dep.".into(), "64".into()]);
    }
    let mut rows = vec![heads];
    for candidate in &table.candidates {
        let mut row = vec![
            candidate.name.clone(),
            format!("{:.2}", candidate.bytes_per_prefix),
            format!("{:.2}", candidate.build_seconds),
        ];
        for pages in of_pages {
            row.extend(cells(candidate.pages.get(&pages)));
        }
        rows.push(row);
    }
    let right: Vec<usize> = (1..rows[0].len()).collect();
    page.table(2, &right, &rows);
}

fn cells(rates: Option<&Rates>) -> [String; 3] {
    let cell =
        |rate: fn(&Rates) -> f64| rates.map_or(NONE.into(), |rates| format!("{:.1}", rate(rates)));
    [
        cell(|rates| rates.single_mlps),
        cell(|rates| rates.dependent_mlps),
        cell(|rates| rates.burst_mlps),
    ]
}
