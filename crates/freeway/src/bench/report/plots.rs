// SPDX-License-Identifier: MIT OR Apache-2.0
//! The plots of a report.

use super::chart::{Bar, Chart, Extent, Row};
use super::document::{Report, Scenario};
use super::outcome::{Costs, Outcome, Router, SPEEDUP, imx8_case};
use super::sources::{IMX8_LINE_CPU, Ours, PUBLISHED};
use super::theme::Tone;
use crate::bench::imx8::{Column, Measured};
use crate::bench::median;
use crate::bench::statistics::{Summary, summary};
use crate::render::count;

const MISSING: &str = "not measured";
const OURS: &str = "Freeway, here";
const THEIRS: &str = "published";

impl Router {
    fn tone(self) -> Tone {
        match self {
            Router::Kernel => Tone::Kernel,
            Router::Flowtable => Tone::Flowtable,
            Router::Freeway => Tone::Freeway,
            Router::Tc => Tone::Tc,
            Router::Redirect => Tone::Redirect,
        }
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
    charts.push(sources(report));
    charts.retain(|chart| !chart.rows.is_empty());
    charts
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

/// What each scenario's speed-up is; the rows of the i.MX 8 in two groups.
pub fn speedup_rows(report: &Report) -> Vec<(String, Summary)> {
    let mut rows = Vec::new();
    for (scenario, outcome) in report.measured() {
        let mut ratios = outcome.ratios();
        ratios.retain(|ratio| ratio.name == SPEEDUP);
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
            continue;
        }
        for ratio in &ratios {
            let summary = summary(&ratio.samples);
            rows.extend(summary.map(|summary| (label(scenario, &ratio.case), summary)));
        }
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
            tone: router.tone(),
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

/// The cost of a frame in each scenario but the i.MX 8's, which have a plot of their own.
fn costs(report: &Report) -> Chart {
    let mut rows = Vec::new();
    for (scenario, outcome) in report.measured() {
        if matches!(outcome, Outcome::Imx8(_)) {
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
        subtitle: "ns of one CPU, net of the generator; less is better".into(),
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
fn imx8_row(row: &Measured, bar: impl Fn(&crate::bench::imx8::Cost) -> (Extent, String)) -> Row {
    let routers = [Router::Kernel, Router::Flowtable, Router::Freeway];
    let bars = routers.into_iter().zip(row.columns());
    let bars = bars.map(|(router, column)| {
        let (extent, words) = match column {
            Column::Cost(cost) => bar(cost),
            Column::Missing { .. } => (Extent::Missing, MISSING.to_owned()),
        };
        Bar {
            tone: router.tone(),
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
    bar: impl Fn(&crate::bench::imx8::Cost) -> (Extent, String) + Copy,
) -> Vec<Row> {
    let rows = imx8_rows(report).iter().map(|row| imx8_row(row, bar));
    rows.filter(|row| !row.bars.is_empty()).collect()
}

fn imx8(report: &Report) -> Chart {
    let bar = |cost: &crate::bench::imx8::Cost| match summary(&cost.samples) {
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
    let bar = |cost: &crate::bench::imx8::Cost| {
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
    fn speedups_are_medians_of_runs() {
        let rows = speedup_rows(&example());
        let labels: Vec<_> = rows.iter().map(|(label, _)| label.as_str()).collect();
        assert_eq!(
            labels,
            [
                "routed",
                "routed6",
                "nat",
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
