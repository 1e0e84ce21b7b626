// SPDX-License-Identifier: MIT OR Apache-2.0
//! The measurement as a page.

use freeway_console::{Page, Terminal, Tone, count, plural};

use super::result::{Figures, Rfc9693};
use super::spread::Spread;

const NONE: &str = "-";

/// One table, and what is to be said of it.
pub fn table(result: &Rfc9693, terminal: Terminal) -> String {
    let r = result;
    let mut page = Page::new(terminal);
    page.words(
        "",
        &format!(
            "Scenario {}: {} UDP connections, {}, rates {:.0} % wide; the generator alone {} frames a second",
            r.scenario,
            count(r.connections.into()),
            plural(r.runs.into(), "run"),
            r.width * 100.0,
            whole(r.generator_pps)
        ),
    );
    page.words("", &r.machine.to_string());
    page.gap();
    let heads = ["", "kernel", "Freeway"];
    let mut rows = vec![heads.map(|head| page.tone(Tone::Head, head)).to_vec()];
    let mut row = |name: &str, cell: &dyn Fn(&Figures) -> String| {
        let cells = r.routers().map(|(_, figures)| cell(figures));
        rows.push([&[name.to_owned()][..], &cells].concat());
    };
    row("new connections a second", &|of| {
        let of = &of.establishment;
        match (of.per_s, of.at_least_per_s) {
            (Some(spread), _) => whole(spread.median),
            (None, Some(rate)) => format!("at least {}", whole(rate)),
            (None, None) => NONE.into(),
        }
    });
    row("  least to most", &|of| between(of.establishment.per_s));
    row("deleted a second", &|of| {
        let spread = of.tear_down.per_s;
        spread.map_or_else(|| NONE.into(), |spread| whole(spread.median))
    });
    row("  least to most", &|of| between(of.tear_down.per_s));
    row("  flows of them", &|of| count(of.tear_down.flows));
    row("connections at most", &|of| {
        at_least(of.capacity.at_least, of.capacity.connections.into())
    });
    row("  flows of them", &|of| {
        let table = of.flow_table;
        table.map_or_else(
            || NONE.into(),
            |table| at_least(table.at_least, table.flows),
        )
    });
    page.table(2, &[1, 2], &rows);
    page.gap();
    let limit = r.table_max.map_or_else(
        || format!("nf_conntrack_max is {}", count(r.table_limit)),
        |max| {
            format!(
                "the rules admitted {} connections; nf_conntrack_max is {}",
                count(max.into()),
                count(r.table_limit)
            )
        },
    );
    page.words(
        "",
        &format!(
            "New connections: the highest rate at which none was missing. Deleted: until the kernel's table and Freeway's flows are gone, net \
             of an empty table. At most: more were not all there; {limit}."
        ),
    );
    if let Some(table) = r.freeway.flow_table {
        let words = format!(
            "Freeway's own table has room for {} flows.",
            count(table.room)
        );
        page.words("", &words);
    }
    let figures = r.routers();
    if figures
        .iter()
        .any(|(_, of)| of.establishment.at_least_per_s.is_some())
    {
        let words = "New connections, \"at least\": not the router's own rate, but what the generator can do.";
        page.words("", &page.tone(Tone::Warn, words));
    }
    if figures.iter().any(|(_, of)| of.capacity.at_least) {
        let words = format!(
            "Connections, \"at least\": more than {} were not tried (--capacity-max).",
            count(r.capacity_max.into())
        );
        page.words("", &page.tone(Tone::Warn, &words));
    }
    for remark in &r.remarks {
        page.words("", &page.tone(Tone::Warn, remark));
    }
    page.finish()
}

fn whole(value: f64) -> String {
    count(value.round() as u64)
}

fn between(spread: Option<Spread>) -> String {
    spread.map_or_else(
        || NONE.into(),
        |spread| format!("{} to {}", whole(spread.least), whole(spread.most)),
    )
}

fn at_least(limited: bool, number: u64) -> String {
    let words = if limited { "at least " } else { "" };
    format!("{words}{}", count(number))
}
