// SPDX-License-Identifier: MIT OR Apache-2.0
//! The plots of a report.

use freeway_console::count;

use super::chart::{Bar, Chart, Extent, Row};
use super::document::{Report, Scenario};
use super::outcome::{Costs, Outcome, SPEEDUP, imx8_case};
use super::sources::{IMX8_LINE_CPU, Ours, PUBLISHED};
use super::theme::Tone;
use crate::imx8::{Column, Measured};
use crate::median::median;
use crate::rfc2544;
use crate::router::Router;
use crate::statistics::{Summary, summary};

/// Of the chart of rates by frame size.
const RATES: &str = "rates";
const MISSING: &str = "not measured";
const OURS: &str = "Freeway, here";
const THEIRS: &str = "published";

/// A router's colour.
pub fn tone(router: Router) -> Tone {
    match router {
        Router::Kernel => Tone::Kernel,
        Router::KernelStateless => Tone::Less,
        Router::KernelPlain => Tone::Plain,
        Router::KernelStateful => Tone::More,
        Router::Flowtable => Tone::Flowtable,
        Router::FlowtableXdp => Tone::FlowtableXdp,
        Router::Fib => Tone::Fib,
        Router::LpmTrie => Tone::Lpm,
        Router::Freeway => Tone::Freeway,
        Router::Tc => Tone::Tc,
        Router::Redirect | Router::Broadcast => Tone::Redirect,
    }
}

/// All that have something to show, in the order of the page.
pub fn all(report: &Report) -> Vec<Chart> {
    let mut charts = vec![
        speedups(report),
        costs(report),
        imx8(report),
        line_cpu(report),
    ];
    charts.push(rates(report));
    charts.push(sources(report));
    charts.retain(|chart| !chart.rows.is_empty());
    // sizes of frames are far apart by nature
    let cuttable = charts.iter_mut().filter(|chart| chart.name != RATES);
    cuttable.for_each(cut);
    charts
}

/// So many times longer than those of all other rows, a row's bars would leave nothing to be seen of these;
const FAR_OUT: f64 = 4.0;
/// they are cut off a little behind them, and say so.
const CUT: f64 = 1.3;

fn cut(chart: &mut Chart) {
    let longest = |row: &Row| {
        let ends = row.bars.iter().map(|bar| bar.extent.end());
        ends.fold(0.0, f64::max)
    };
    let mut ends: Vec<f64> = chart.rows.iter().map(longest).collect();
    ends.sort_by(|a, b| b.total_cmp(a));
    let [first, second, ..] = ends[..] else {
        return;
    };
    if second <= 0.0 || first < FAR_OUT * second {
        return;
    }
    let bars = chart.rows.iter_mut().flat_map(|row| &mut row.bars);
    for bar in bars.filter(|bar| bar.extent.end() > CUT * second) {
        bar.extent = Extent::To(CUT * second, None);
        bar.words.push_str(", cut off");
    }
}

/// Of a disturbed run that takes less than nothing there is no bar.
fn extent(of: &Summary) -> Extent {
    if of.median <= 0.0 {
        return Extent::Missing;
    }
    Extent::To(
        of.median,
        of.low.zip(of.high).map(|(low, high)| [low, high]),
    )
}

/// `15.0×`; a small one with two decimals.
pub fn times(ratio: f64) -> String {
    if ratio < 10.0 {
        format!("{ratio:.2}×")
    } else {
        format!("{ratio:.1}×")
    }
}

/// `15.0× (14.8 to 15.3)`.
pub fn times_between(of: &Summary) -> String {
    match (of.low, of.high) {
        (Some(low), Some(high)) => format!("{} ({low:.1} to {high:.1})", times(of.median)),
        _ if of.runs > 1 => format!("{}, disturbed", times(of.median)),
        _ => times(of.median),
    }
}

/// `2,649 ns`; a small one with a decimal.
pub fn ns(value: f64) -> String {
    if value < 100.0 {
        format!("{value:.1} ns")
    } else {
        format!("{} ns", count(value.round() as u64))
    }
}

fn label(scenario: &Scenario, case: &str) -> String {
    match case {
        "" => scenario.name.clone(),
        case => format!("{}, {case}", scenario.name),
    }
}

/// Of several ratios of as many runs each, by run: a disturbed one does not spoil the others.
fn medians(of: &[&[f64]]) -> Vec<f64> {
    let runs = of.iter().map(|samples| samples.len()).min().unwrap_or(0);
    let middle = |run: usize| median(of.iter().map(|samples| samples[run]).collect());
    (0..runs).map(middle).collect()
}

/// What each scenario's speed-up is.
pub fn speedup_rows(report: &Report) -> Vec<(String, Summary)> {
    let measured = report.measured();
    measured
        .flat_map(|(scenario, outcome)| speedup_rows_of(scenario, outcome))
        .collect()
}

/// What a scenario's speed-up is; the rows of the i.MX 8 in two groups.
pub fn speedup_rows_of(scenario: &Scenario, outcome: &Outcome) -> Vec<(String, Summary)> {
    let mut ratios = outcome.ratios();
    ratios.retain(|ratio| ratio.name == SPEEDUP);
    let mut rows = Vec::new();
    if matches!(outcome, Outcome::Imx8(_)) {
        for vlan_nat in [false, true] {
            let group = ratios.iter();
            let group = group.filter(|ratio| ratio.case.ends_with("VLAN, NAT") == vlan_nat);
            let group: Vec<&[f64]> = group.map(|ratio| ratio.samples.as_slice()).collect();
            let shape = if vlan_nat { "VLAN and NAT" } else { "plain" };
            let case = format!("{} {shape} rows", group.len());
            let summary = summary(&medians(&group));
            rows.extend(summary.map(|summary| (label(scenario, &case), summary)));
        }
        return rows;
    }
    for ratio in &ratios {
        let summary = summary(&ratio.samples);
        rows.extend(summary.map(|summary| (label(scenario, &ratio.case), summary)));
    }
    rows
}

fn speedups(report: &Report) -> Chart {
    let row = |(label, of): (String, Summary)| Row {
        label,
        bars: vec![Bar {
            tone: Tone::Freeway,
            name: SPEEDUP,
            extent: extent(&of),
            words: times_between(&of),
        }],
    };
    Chart {
        name: "speedup",
        title: "Speed-up by scenario",
        subtitle: "the kernel's time for a frame over Freeway's; more is better".into(),
        reference: Some(1.0),
        rows: speedup_rows(report).into_iter().map(row).collect(),
    }
}

fn cost_row(label: String, costs: &Costs) -> Row {
    let bar = |(router, samples): &(Router, Vec<f64>)| {
        let of = summary(samples)?;
        Some(Bar {
            tone: tone(*router),
            name: router.name(),
            extent: extent(&of),
            words: ns(of.median),
        })
    };
    Row {
        label,
        bars: costs.routers.iter().filter_map(bar).collect(),
    }
}

/// The plot of what frames cost that has these figures.
pub fn cost_plot(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Imx8(_) => "imx8",
        Outcome::Flows(_) => "flows",
        _ => "cost",
    }
}

/// The cost of a frame in each scenario without a plot of its own.
fn costs(report: &Report) -> Chart {
    let mut rows = Vec::new();
    for (scenario, outcome) in report.measured() {
        if cost_plot(outcome) != "cost" {
            continue;
        }
        for costs in outcome.costs() {
            let what = label(scenario, &costs.case);
            rows.push(cost_row(format!("{what}: {}", costs.unit), &costs));
        }
    }
    Chart {
        name: "cost",
        title: "Cost of a frame by scenario",
        subtitle: "ns of one CPU, net of generator and XDP drop; less is better".into(),
        reference: None,
        rows,
    }
}

fn imx8_rows(report: &Report) -> &[Measured] {
    match report.result("imx8") {
        Some(Outcome::Imx8(imx8)) => &imx8.rows,
        _ => &[],
    }
}

/// A bar for each router of a row, or none if all are missing.
fn imx8_row(row: &Measured, bar: impl Fn(&crate::imx8::Cost) -> (Extent, String)) -> Row {
    let routers = [Router::Kernel, Router::Flowtable, Router::Freeway];
    let bars = routers.into_iter().zip(row.columns());
    let bars = bars.map(|(router, column)| {
        let (extent, words) = match column {
            Column::Cost(cost) => bar(cost),
            Column::Missing { .. } => (Extent::Missing, MISSING.to_owned()),
        };
        Bar {
            tone: tone(router),
            name: router.name(),
            extent,
            words,
        }
    });
    let bars: Vec<Bar> = bars.collect();
    let nothing = bars.iter().all(|bar| bar.extent == Extent::Missing);
    Row {
        label: imx8_case(&row.label, row.vlan_nat),
        bars: if nothing { Vec::new() } else { bars },
    }
}

fn imx8_chart_rows(
    report: &Report,
    bar: impl Fn(&crate::imx8::Cost) -> (Extent, String) + Copy,
) -> Vec<Row> {
    let rows = imx8_rows(report).iter().map(|row| imx8_row(row, bar));
    rows.filter(|row| !row.bars.is_empty()).collect()
}

fn imx8(report: &Report) -> Chart {
    let bar = |cost: &crate::imx8::Cost| match summary(&cost.samples) {
        Some(of) => (extent(&of), ns(of.median)),
        None => (Extent::Missing, MISSING.into()),
    };
    Chart {
        name: "imx8",
        title: "The rows of the i.MX 8",
        subtitle: "ns of one CPU for a full frame; less is better".into(),
        reference: None,
        rows: imx8_chart_rows(report, bar),
    }
}

fn line_cpu(report: &Report) -> Chart {
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let bar = |cost: &crate::imx8::Cost| {
        let extent = Extent::To(cost.line_cpu * 100.0, None);
        (extent, percent(cost.line_cpu))
    };
    let mut rows = imx8_chart_rows(report, bar);
    if !rows.is_empty() {
        let published = IMX8_LINE_CPU.map(|(label, [low, high])| Row {
            label: label.into(),
            bars: vec![Bar {
                tone: Tone::Published,
                name: THEIRS,
                extent: Extent::Between(low * 100.0, high * 100.0),
                words: format!("{:.0} to {:.0} %", low * 100.0, high * 100.0),
            }],
        });
        rows.extend(published);
    }
    Chart {
        name: "line-cpu",
        title: "CPU at line rate",
        subtitle: "% of one CPU that a full 1 Gb/s link takes; less is better".into(),
        reference: None,
        rows,
    }
}

/// What was measured of a router itself; of what the generator limited there is no bar.
fn rates(report: &Report) -> Chart {
    let mut rows = Vec::new();
    if let Some(Outcome::Rfc2544(result)) = report.result("rfc2544") {
        for size in &result.sizes {
            for name in ["NDR", "PDR"] {
                let bar = |(router, figures): (rfc2544::Router, &rfc2544::Figures)| {
                    let of = match name {
                        "NDR" => &figures.ndr.rate,
                        _ => &figures.pdr.rate,
                    };
                    let extent = of
                        .pps
                        .map_or(Extent::Missing, |pps| Extent::To(pps * 1e-6, None));
                    let words = match of.at_least_pps {
                        Some(_) => format!("{}: the generator's limit", rfc2544::mpps(of)),
                        None => rfc2544::mpps(of),
                    };
                    let (tone, name) = match router {
                        rfc2544::Router::Kernel => (Tone::Kernel, Router::Kernel.name()),
                        rfc2544::Router::Freeway => (Tone::Freeway, Router::Freeway.name()),
                    };
                    Bar {
                        tone,
                        name,
                        extent,
                        words,
                    }
                };
                rows.push(Row {
                    label: format!("{}, {name}", size.label),
                    bars: size.routers().map(bar).to_vec(),
                });
            }
        }
    }
    // without any bar there is nothing to see
    let bars = rows.iter().flat_map(|row| &row.bars);
    if bars.into_iter().all(|bar| bar.extent == Extent::Missing) {
        rows.clear();
    }
    Chart {
        name: "rates",
        title: "Rate by frame size",
        subtitle: "Mpps without loss (NDR) and with 0.5 % (PDR); more is better".into(),
        reference: None,
        rows,
    }
}

fn sources(report: &Report) -> Chart {
    let row = |published: &super::sources::Published| {
        let [low, high] = published.ratio;
        let theirs = if low == high {
            (Extent::To(low, None), times(low))
        } else {
            (Extent::Between(low, high), between(low, high))
        };
        let ours = match (published.ours)(report) {
            Ok(Ours::One(of, _)) => (extent(&of), times_between(&of)),
            Ok(Ours::Rows([low, high], _)) => (Extent::Between(low, high), between(low, high)),
            Err(_) => (Extent::Missing, MISSING.into()),
        };
        let bar = |tone, name, (extent, words)| Bar {
            tone,
            name,
            extent,
            words,
        };
        Row {
            label: published.label.into(),
            bars: vec![
                bar(Tone::Published, THEIRS, theirs),
                bar(Tone::Freeway, OURS, ours),
            ],
        }
    };
    Chart {
        name: "sources",
        title: "Beside published fast paths",
        subtitle: "gain of each source, and ours over the kernel".into(),
        reference: Some(1.0),
        rows: PUBLISHED.iter().map(row).collect(),
    }
}

/// `3.20 to 5.70×`.
pub fn between(low: f64, high: f64) -> String {
    if format!("{low:.1}") == format!("{high:.1}") {
        return times(low);
    }
    format!("{low:.1} to {high:.1}×")
}

#[cfg(test)]
mod tests {
    use super::super::document::tests::example;
    use super::super::png::Painter;
    use super::*;

    #[test]
    fn every_plot_is_there() {
        let names: Vec<_> = all(&example()).iter().map(|chart| chart.name).collect();
        assert_eq!(names, ["speedup", "cost", "imx8", "line-cpu", "sources"]);
        let mut nothing = example();
        nothing.scenarios.clear();
        let names: Vec<_> = all(&nothing).iter().map(|chart| chart.name).collect();
        assert_eq!(names, ["sources"]);
    }

    #[test]
    fn what_is_far_out_is_cut_off() {
        let charts = all(&example());
        let cost = charts.iter().find(|chart| chart.name == "cost").unwrap();
        let bars = |wanted: bool| {
            let of = cost.rows.iter();
            let of = of.filter(move |row| row.label.starts_with("policies") == wanted);
            of.flat_map(|row| &row.bars)
        };
        let cut: Vec<_> = bars(true)
            .filter(|bar| bar.words.ends_with(", cut off"))
            .collect();
        assert_eq!(cut.len(), 1);
        assert!(cut[0].words.starts_with("8,637 ns"), "{}", cut[0].words);
        let longest = bars(false).map(|bar| bar.extent.end()).fold(0.0, f64::max);
        assert!(
            matches!(cut[0].extent, Extent::To(to, None) if to > longest && to < 2.0 * longest)
        );
        assert!(bars(false).all(|bar| !bar.words.contains("cut")));
    }

    #[test]
    fn speedups_are_medians_of_runs() {
        let rows = speedup_rows(&example());
        let labels: Vec<_> = rows.iter().map(|(label, _)| label.as_str()).collect();
        assert_eq!(
            labels,
            [
                "routed",
                "routed6",
                "nat",
                "policies",
                "kirkwood, TCP",
                "kirkwood, UDP",
                "imx8, 8 plain rows",
                "bulk, 1 stream",
                "multicast, IPv4",
                "multicast, IPv6"
            ]
        );
        let nat = rows[2].1;
        assert!(nat.low.unwrap() < nat.median && nat.median < nat.high.unwrap());
        let of = medians(&[&[2.0, 3.0], &[8.0, -12.0, 9.0], &[4.0, 5.0]]);
        assert_eq!(of, [4.0, 3.0]);
    }

    #[test]
    fn drawings_are_xml_without_colours_of_their_own() {
        for chart in all(&example()) {
            for titled in [true, false] {
                let drawing = chart.draw(titled).unwrap();
                let tree = roxmltree::Document::parse(&drawing.themed).unwrap();
                let root = tree.root_element();
                assert_eq!(root.tag_name().name(), "svg", "{}", chart.name);
                for node in root.descendants() {
                    for attribute in ["fill", "stroke"] {
                        let color = node.attribute(attribute).unwrap_or("none");
                        assert_eq!(color, "none", "{}: {node:?}", chart.name);
                    }
                }
                let texts: String = root.descendants().filter_map(|node| node.text()).collect();
                assert_eq!(texts.contains(chart.title), titled);
                for row in &chart.rows {
                    assert!(texts.contains(&row.label), "{}", row.label);
                }
            }
        }
    }

    #[test]
    fn words_stay_inside() {
        for chart in all(&example()) {
            let drawing = chart.draw(true).unwrap();
            let tree = roxmltree::Document::parse(&drawing.plain).unwrap();
            for node in tree.descendants().filter(|node| node.has_tag_name("text")) {
                let number = |name| node.attribute(name).and_then(|n| n.parse::<f64>().ok());
                let (x, size) = (number("x").unwrap(), number("font-size").unwrap());
                let text = node.text().unwrap_or("").trim();
                let width = match node.attribute("text-anchor") {
                    Some("start") => text.chars().count() as f64 * size * 0.56,
                    _ => 0.0,
                };
                assert!(
                    x + width <= 988.0,
                    "{}: {text:?} ends at {}",
                    chart.name,
                    x + width
                );
            }
        }
    }

    #[test]
    fn pictures_are_painted_where_there_is_a_font() {
        let Ok(painter) = Painter::new() else {
            println!("skipped: no font");
            return;
        };
        let drawing = all(&example())[0].draw(true).unwrap();
        let png = painter.paint(&drawing.plain).unwrap();
        assert!(png.starts_with(b"\x89PNG"));
        assert!(png.len() > 5000, "{}", png.len());
    }
}
