// SPDX-License-Identifier: MIT OR Apache-2.0
//! index.html: one file with everything in it, for any screen.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::document::{Report, Scenario};
use super::figure::Figure;
use super::outcome::{Outcome, Ratio};
use super::plots::{between, cost_plot, ns, speedup_rows, times, times_between};
use super::sources::{Ours, PUBLISHED};
use super::tables::{Table, cpu_shares, latencies, of_outcome};
use super::theme;
use crate::statistics::{INTERVAL_METHOD, summary};

const STYLE: &str = include_str!("page.css");

/// The page of a report with its plots.
pub fn page(report: &Report, plots: &[Figure]) -> String {
    let machine = &report.machine.machine;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "Freeway bench report, " (report.date) }
                // styles hold no figure of the report, so nothing has to be escaped
                style { (PreEscaped(theme::style())) (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { "Freeway bench report" }
                    p .muted {
                        (machine) ", Freeway " (machine.freeway) ", " (report.date)
                        @if report.quick { ", short form" }
                    }
                }
                main {
                    (tiles(report))
                    p .muted { "Intervals are " (INTERVAL_METHOD) "." }
                    @for plot in plots {
                        section id=(plot.name) {
                            h2 { (plot.title) }
                            figure { (PreEscaped(inline(plot))) }
                            (table_of(plot.name, report))
                        }
                    }
                    (others(report))
                    (scenarios(report))
                    (how(report))
                }
            }
        }
    };
    page.into_string()
}

/// The drawing as a part of the page, which has its style.
fn inline(plot: &Figure) -> String {
    let label = html! { (plot.title) ": " (plot.subtitle) }.into_string();
    let label = label.replace('"', "&quot;");
    let drawing = &plot.bare;
    let start = drawing.themed.find("<svg").unwrap_or(0);
    let svg = &drawing.themed[start..];
    let view = svg.find("viewBox").unwrap_or(0);
    format!("<svg role=\"img\" aria-label=\"{label}\" {}", &svg[view..])
}

/// The first figures that one wants to see.
fn tiles(report: &Report) -> Markup {
    let rows = speedup_rows(report);
    html! {
        @if !rows.is_empty() {
            ul .tiles {
                @for (label, of) in &rows {
                    li { strong { (times(of.median)) } span { (label) } }
                }
            }
            p {
                "Net: how many times less CPU than the kernel Freeway takes for a frame, from the router's input to its output. \
                 Where the generator shares the CPU, what it and the port's receiving take is measured and subtracted. "
                (gross(report))
            }
            (remarks(report))
        }
    }
}

/// The same with the generator in both sides.
fn gross(report: &Report) -> String {
    let mut of = Vec::new();
    for (scenario, outcome) in report.measured() {
        for (case, speedup) in outcome.gross_speedups() {
            let case = if case.is_empty() { "" } else { " " }.to_owned() + case;
            of.push(format!("{}{case} {}", scenario.name, times(speedup)));
        }
    }
    if of.is_empty() {
        return String::new();
    }
    format!(
        "Gross, generator and receiving in both sides: {}.",
        of.join(", ")
    )
}

/// What should have been otherwise, where it cannot be overlooked.
fn remarks(report: &Report) -> Markup {
    let mut all = Vec::new();
    for (scenario, outcome) in report.measured() {
        let of = outcome.remarks().into_iter();
        all.extend(of.map(|words| (scenario.name.as_str(), words)));
    }
    html! {
        @if !all.is_empty() {
            ul #remarks {
                @for (name, words) in &all { li { strong { "Mind " (name) ": " } (words) "." } }
            }
        }
    }
}

/// A table that scrolls if it must.
fn table(heads: &[&str], numbers: usize, rows: &[Vec<String>]) -> Markup {
    // the first columns are words, those after them numbers
    let words = heads.len() - numbers;
    let class = |at: usize| (at >= words).then_some("n");
    html! {
        div .scroll tabindex="0" {
            table {
                thead { tr { @for (at, head) in heads.iter().enumerate() { th class=[class(at)] { (head) } } } }
                tbody {
                    @for row in rows {
                        tr { @for (at, cell) in row.iter().enumerate() { td class=[class(at)] { (cell) } } }
                    }
                }
            }
        }
    }
}

/// The figures that a plot shows.
fn table_of(plot: &str, report: &Report) -> Markup {
    match plot {
        "speedup" => ratios(report),
        "cost" | "imx8" | "flows" => costs(report, plot),
        "line-cpu" => line_cpu(report),
        "sources" => sources(report),
        "latency" => latency(report),
        _ => html! {},
    }
}

fn latency(report: &Report) -> Markup {
    let Some(Outcome::Rfc2544(result)) = report.result("rfc2544") else {
        return html! {};
    };
    let of = latencies(result);
    let cpu = cpu_shares(result);
    html! {
        details {
            summary { "All sizes" }
            (table(of.heads, of.heads.len() - 1, &of.rows))
        }
        @if !cpu.rows.is_empty() {
            details {
                summary { "CPU at these loads" }
                (table(cpu.heads, cpu.heads.len() - 1, &cpu.rows))
            }
        }
    }
}

fn ratios(report: &Report) -> Markup {
    let mut rows = Vec::new();
    for (scenario, outcome) in report.measured() {
        for Ratio {
            case,
            name,
            samples,
            ..
        } in outcome.ratios()
        {
            let Some(of) = summary(&samples) else {
                continue;
            };
            let what = format!("{case}{}{name}", if case.is_empty() { "" } else { ": " });
            rows.push(vec![
                scenario.name.clone(),
                what,
                times_between(&of),
                of.runs.to_string(),
            ]);
        }
    }
    html! {
        p { "Each ratio is taken within a run, so that the machine's speed is in both of its sides." }
        details {
            summary { "All ratios" }
            (table(&["scenario", "ratio", "median (interval)", "runs"], 2, &rows))
        }
    }
}

fn costs(report: &Report, plot: &str) -> Markup {
    let mut rows = Vec::new();
    for (scenario, outcome) in report.measured() {
        if cost_plot(outcome) != plot {
            continue;
        }
        for costs in outcome.costs() {
            for (router, samples) in &costs.routers {
                let Some(of) = summary(samples) else { continue };
                let what = match costs.case.as_str() {
                    "" => scenario.name.clone(),
                    case => format!("{}, {case}", scenario.name),
                };
                let interval = match (of.low, of.high) {
                    (Some(low), Some(high)) => format!("{} to {}", ns(low), ns(high)),
                    _ => "-".into(),
                };
                rows.push(vec![
                    what,
                    costs.unit.clone(),
                    router.name().to_owned(),
                    ns(of.median),
                    interval,
                ]);
            }
        }
    }
    html! {
        details {
            summary { "The figures" }
            (table(&["scenario", "for a", "router", "median", "interval"], 2, &rows))
        }
        @match plot {
            "imx8" => (missing_rows(report)),
            "cost" => (missing_peers(report)),
            _ => {}
        }
    }
}

/// Peers without figures, each reason once.
fn missing_peers(report: &Report) -> Markup {
    let mut whys: Vec<(&str, &str, Vec<&str>)> = Vec::new();
    for (scenario, outcome) in report.measured() {
        for (name, why) in outcome.missing_peers() {
            match whys.iter_mut().find(|of| (of.0, of.1) == (name, why)) {
                Some((.., scenarios)) => scenarios.push(&scenario.name),
                None => whys.push((name, why, vec![&scenario.name])),
            }
        }
    }
    html! {
        @for (name, why, scenarios) in &whys {
            p .muted { "Without " (name) " in " (scenarios.join(", ")) ": " (why) "." }
        }
    }
}

/// Columns of the i.MX 8 measurement without figures, each reason once.
fn missing_rows(report: &Report) -> Markup {
    let Some(Outcome::Imx8(imx8)) = report.result("imx8") else {
        return html! {};
    };
    let mut whys: Vec<(&str, Vec<&str>, usize)> = Vec::new();
    for row in &imx8.rows {
        let names = ["the kernel", "the flow table", "Freeway"];
        let columns = row.columns().into_iter().zip(names);
        for (why, name) in columns.filter_map(|(column, name)| Some((column.missing()?, name))) {
            let at = whys.iter().position(|(other, ..)| *other == why);
            let at = at.unwrap_or_else(|| {
                whys.push((why, Vec::new(), 0));
                whys.len() - 1
            });
            let (_, of, cells) = &mut whys[at];
            *cells += 1;
            if !of.contains(&name) {
                of.push(name);
            }
        }
    }
    html! {
        @for (why, of, cells) in &whys {
            p .muted { (cells) " figures of " (of.join(", ")) " were not measured: " (why) "." }
        }
    }
}

fn line_cpu(report: &Report) -> Markup {
    let Some(Outcome::Imx8(imx8)) = report.result("imx8") else {
        return html! {};
    };
    let mut rows = Vec::new();
    for row in &imx8.rows {
        let shape = if row.vlan_nat { "VLAN, NAT" } else { "plain" };
        let mut cells = vec![
            row.label.clone(),
            shape.into(),
            format!("{:.0}", row.line_pps),
        ];
        cells.extend(row.columns().map(|column| {
            let cost = column.cost();
            cost.map_or("-".into(), |cost| {
                format!("{:.2} %, {:.0} Mb/s", cost.line_cpu * 100.0, cost.mbit_s)
            })
        }));
        rows.push(cells);
    }
    let heads = ["row", "", "frames/s", "kernel", "flow table", "Freeway"];
    html! {
        p { "What a full link of 1 Gb/s takes of one CPU, from what a frame costs; there is no driver in it." }
        details {
            summary { "The figures, with the payload that one CPU forwards" }
            (table(&heads, 4, &rows))
        }
    }
}

fn sources(report: &Report) -> Markup {
    let rows = PUBLISHED.iter().map(|published| {
        let [low, high] = published.ratio;
        let (ours, kind) = match (published.ours)(report) {
            Ok(ours) => {
                let words = match &ours {
                    Ours::One(of, _) => times_between(of),
                    Ours::Rows([low, high], _) => between(*low, *high),
                };
                (words, ours.kind().to_owned())
            }
            Err(why) => ("-".into(), why),
        };
        (published, between(low, high), ours, kind)
    });
    html! {
        p {
            "Their machines were others, with network cards; ratios are what can be set side by side. Ours are of what is named, the nearest that was measured."
        }
        div .scroll tabindex="0" {
            table {
                thead { tr {
                    th { "source" } th .n { "published" } th .n { "Freeway, here" } th { "what was measured" } th { "cited" }
                } }
                tbody {
                    @for (published, theirs, ours, kind) in rows {
                        tr {
                            td { (published.label) }
                            td .n { (theirs) }
                            td .n { (ours) }
                            td .w { "There: " (published.claim) ". Here: " (kind) "." }
                            td .w { (published.citation) }
                        }
                    }
                }
            }
        }
    }
}

/// Tables of what has no plot.
fn others(report: &Report) -> Markup {
    let tables: Vec<(&Scenario, Table)> = report
        .measured()
        .filter_map(|(scenario, outcome)| Some((scenario, of_outcome(outcome)?)))
        .collect();
    html! {
        @for (scenario, of) in tables {
            section id=(scenario.name) {
                h2 { (scenario.title) }
                (table(of.heads, of.heads.len() - 1, &of.rows))
                p .muted { (of.words) }
            }
        }
    }
}

fn scenarios(report: &Report) -> Markup {
    html! {
        section id="scenarios" {
            h2 { "What was run" }
            div .scroll tabindex="0" {
                table {
                    thead { tr { th { "scenario" } th { "what" } th { "command" } th .n { "took" } } }
                    tbody {
                        @for scenario in &report.scenarios {
                            tr {
                                td { (scenario.name) }
                                td .w {
                                    (scenario.title)
                                    @if let Some(why) = &scenario.missing {
                                        br; strong { "Not measured: " } (why)
                                    }
                                }
                                td .w { code { (scenario.command) } }
                                td .n { (format!("{:.0} s", scenario.elapsed_s)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn how(report: &Report) -> Markup {
    let of = &report.machine;
    let mut rows = vec![
        ("CPU", of.machine.cpu.clone()),
        ("CPUs that could be used", of.machine.cpus.to_string()),
        (
            "kernel",
            format!("Linux {}, {}", of.machine.kernel, of.machine.arch),
        ),
        ("Freeway", of.machine.freeway.clone()),
        (
            "clock source",
            of.clock_source.clone().unwrap_or_else(|| "unknown".into()),
        ),
        (
            "virtual machine",
            if of.virtual_machine { "yes" } else { "no" }.into(),
        ),
    ];
    if let Some(load) = of.load_average {
        rows.push(("load in the minute before", format!("{load:.2}")));
    }
    rows.push(("date", report.date.clone()));
    rows.push(("took", format!("{:.0} s", report.elapsed_s)));
    html! {
        section id="method" {
            h2 { "How it was measured" }
            @for words in &report.method { p { (words) } }
            div .scroll tabindex="0" {
                table { tbody {
                    @for (name, value) in &rows { tr { th { (name) } td { (value) } } }
                    tr { th { "command" } td { code { (report.command) } } }
                } }
            }
            p .muted { "report.json beside this page has the figures of every run; " code { "freeway bench diff" } " compares two of them." }
        }
    }
}

#[cfg(test)]
mod tests {
    use scraper::{Html, Selector};

    use super::super::document::tests::example;
    use super::super::figure::figures;
    use super::*;

    fn example_page() -> String {
        let report = example();
        page(&report, &figures(&report).unwrap())
    }

    fn texts(page: &Html, selector: &str) -> Vec<String> {
        let selector = Selector::parse(selector).unwrap();
        let of = page.select(&selector);
        of.map(|element| element.text().collect()).collect()
    }

    #[test]
    fn the_page_is_well_formed() {
        let page = Html::parse_document(&example_page());
        assert_eq!(page.errors, Vec::<std::borrow::Cow<str>>::new());
        assert_eq!(texts(&page, "figure svg").len(), 5);
        assert_eq!(texts(&page, "h1"), ["Freeway bench report"]);
        let ids = Selector::parse("[id]").unwrap();
        let mut ids: Vec<_> = page.select(&ids).map(|of| of.value().id()).collect();
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all, "an id is there twice");
    }

    #[test]
    fn nothing_comes_from_elsewhere() {
        let page = example_page();
        for words in [
            "http://", "https://", "src=", "url(", "@import", "<script", "<link",
        ] {
            let found = page.replace("http://www.w3.org/2000/svg", "");
            assert!(!found.contains(words), "{words}");
        }
    }

    #[test]
    fn figures_reasons_and_method_are_there() {
        let page = Html::parse_document(&example_page());
        let all = texts(&page, "body").concat();
        for words in [
            "Example CPU at 3 GHz, 2 CPUs",
            "iperf3 is not installed",
            "this kernel has no VLANs",
            "runs <of nothing> & \"none\".",
            "A. Mikanovich",
            "freeway bench report --quick --output out",
            "kernel, conntrack",
            "plain kernel",
            "Net: how many times less CPU",
            "Gross, generator and receiving in both sides: routed 3.8",
            "Mind policies: 2.00 % of the frames were lost in one of the runs (Freeway).",
            "Without FIB from XDP in nat: the scenario translates addresses",
            "Without flow table in routed, nat, policies, kirkwood: this kernel has no flow tables",
        ] {
            assert!(all.contains(words), "{words}");
        }
        let report = example();
        let speedups = texts(&page, "#speedup td").concat();
        for (_, outcome) in report.measured() {
            for ratio in outcome.ratios() {
                let of = summary(&ratio.samples).unwrap();
                assert!(speedups.contains(&times_between(&of)), "{ratio:?}");
            }
        }
    }
}
