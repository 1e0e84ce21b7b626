// SPDX-License-Identifier: MIT OR Apache-2.0
//! Latencies by percentile, one panel for each load. The percentile's axis is logarithmic in how few take longer.

use super::curve::{Curves, Panel};
use super::document::Report;
use super::outcome::Outcome;
use super::theme::Tone;
use crate::rfc2544::{Latency, Measured, Router};

const LEGEND: [(Tone, &str); 2] = [(Tone::Kernel, "kernel"), (Tone::Freeway, "Freeway")];

/// Latencies of the smallest frames that were measured.
pub fn latency(report: &Report) -> Option<Curves> {
    let Some(Outcome::Rfc2544(result)) = report.result("rfc2544") else {
        return None;
    };
    let size = result.sizes.iter();
    let size = size.min_by(|a, b| a.frame_bytes.total_cmp(&b.frame_bytes))?;
    let mut loads: Vec<u32> = all(size).map(|(_, of)| of.percent_of_pdr).collect();
    loads.sort_unstable();
    loads.dedup();
    let panel = |load: u32| {
        let of_load = all(size).filter(|(_, of)| of.percent_of_pdr == load);
        let curve = |of: &Latency| {
            let points = of.curve.iter();
            points
                .map(|[percentile, us]| [place(*percentile), *us])
                .collect()
        };
        Panel {
            label: label(size, load),
            lines: of_load
                .filter(|(_, of)| of.curve.len() > 1)
                .map(|(router, of)| (tone(router), curve(of)))
                .collect(),
        }
    };
    let mut panels: Vec<Panel> = loads.into_iter().map(panel).collect();
    panels.retain(|panel| !panel.lines.is_empty());
    (!panels.is_empty()).then(|| Curves {
        name: "latency",
        title: "Latency by percentile",
        subtitle: format!("{}, one way, µs; less is better", size.label),
        legend: LEGEND.to_vec(),
        at: percentile,
        panels,
    })
}

/// What a load is a share of: a PDR that the generator limited is its own rate.
fn label(size: &Measured, percent: u32) -> String {
    if percent == 0 {
        return "no load".into();
    }
    let routers = size.routers().into_iter();
    let limited: Vec<&str> = routers
        .filter(|(_, figures)| figures.pdr_is_generators())
        .map(|(router, _)| router.name())
        .collect();
    match limited[..] {
        [] => format!("{percent} % of the PDR, each router's own"),
        [one] => format!("{percent} % of the PDR; {one}: of the generator's rate"),
        _ => format!("{percent} % of the generator's rate"),
    }
}

fn all(size: &Measured) -> impl Iterator<Item = (Router, &Latency)> {
    let routers = size.routers().into_iter();
    routers.flat_map(|(router, figures)| figures.latency.iter().map(move |of| (router, of)))
}

fn tone(router: Router) -> Tone {
    match router {
        Router::Kernel => Tone::Kernel,
        Router::Freeway => Tone::Freeway,
    }
}

/// Where a percentile is: 90 at 1, 99 at 2, 99.9 at 3.
fn place(percentile: f64) -> f64 {
    -(1.0 - percentile / 100.0).log10()
}

/// The percentile at a whole place.
fn percentile(place: f64) -> String {
    match place as i32 {
        0 => "0 %".into(),
        1 => "90 %".into(),
        digits => format!(
            "99{}{} %",
            if digits > 2 { "." } else { "" },
            "9".repeat(digits.max(2).cast_unsigned() as usize - 2)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::chart::Extent;
    use super::super::document::Scenario;
    use super::super::document::tests::example;
    use super::super::figure::figures;
    use super::super::{page, plots};
    use super::*;
    use crate::rfc2544;

    fn with_latencies() -> Report {
        let mut report = example();
        report.scenarios.push(Scenario {
            name: "rfc2544".into(),
            title: "Throughput".into(),
            command: "freeway bench rfc2544".into(),
            elapsed_s: 1.0,
            missing: None,
            failed: false,
            bench: Some("rfc2544".into()),
            result: Some(Outcome::Rfc2544(rfc2544::tests::example())),
        });
        report
    }

    #[test]
    fn percentiles_have_their_places() {
        for (of, at, words) in [
            (0.0, 0.0, "0 %"),
            (90.0, 1.0, "90 %"),
            (99.0, 2.0, "99 %"),
            (99.9, 3.0, "99.9 %"),
            (99.99, 4.0, "99.99 %"),
        ] {
            assert!((place(of) - at).abs() < 1e-9, "{of}");
            assert_eq!(percentile(at), words);
        }
    }

    #[test]
    fn what_the_generator_limited_has_no_bar() {
        let charts = plots::all(&with_latencies());
        let rates = charts.iter().find(|chart| chart.name == "rates").unwrap();
        let labels: Vec<&str> = rates.rows.iter().map(|row| row.label.as_str()).collect();
        assert_eq!(labels, ["64 bytes, NDR", "64 bytes, PDR"]);
        let [ndr, pdr] = [&rates.rows[0].bars, &rates.rows[1].bars];
        assert_eq!(ndr[0].extent, Extent::To(0.7, None));
        assert_eq!(ndr[1].extent, Extent::To(4.7, None));
        assert_eq!(pdr[1].extent, Extent::Missing);
        assert_eq!(pdr[1].words, "at least 4.80 Mpps: the generator's limit");
        let names: Vec<_> = figures(&with_latencies())
            .unwrap()
            .iter()
            .map(|figure| figure.name)
            .collect();
        let at = |name| names.iter().position(|found| *found == name).unwrap();
        assert_eq!(at("latency"), at("rates") + 1);
        let page = page::page(&with_latencies(), &figures(&with_latencies()).unwrap());
        for words in [
            "All sizes",
            "kernel, 90 % of PDR",
            "91.3 %",
            "Freeway, 1 Gb/s",
        ] {
            assert!(page.contains(words), "{words}");
        }
    }

    #[test]
    fn loads_are_of_whom_they_are() {
        let mut size = rfc2544::tests::example().sizes.remove(0);
        let limited = size.freeway.pdr;
        size.kernel.pdr = limited;
        assert_eq!(label(&size, 90), "90 % of the generator's rate");
        for figures in [&mut size.kernel, &mut size.freeway] {
            figures.pdr = rfc2544::Throughput::default();
        }
        assert_eq!(label(&size, 90), "90 % of the PDR, each router's own");
        assert_eq!(label(&size, 0), "no load");
    }

    #[test]
    fn each_load_has_a_panel() {
        assert!(latency(&example()).is_none());
        let curves = latency(&with_latencies()).unwrap();
        let labels: Vec<&str> = curves
            .panels
            .iter()
            .map(|panel| panel.label.as_str())
            .collect();
        assert_eq!(
            labels,
            [
                "no load",
                "50 % of the PDR; Freeway: of the generator's rate"
            ]
        );
        let tones: Vec<Tone> = curves.panels[0]
            .lines
            .iter()
            .map(|(tone, _)| *tone)
            .collect();
        assert_eq!(tones, [Tone::Kernel, Tone::Freeway]);
        for titled in [true, false] {
            let drawing = curves.draw(titled).unwrap();
            let tree = roxmltree::Document::parse(&drawing.themed).unwrap();
            let texts: String = tree.descendants().filter_map(|node| node.text()).collect();
            assert_eq!(texts.contains(curves.title), titled);
            for words in ["90 %", "99 %", "99.9 %", "no load", "kernel", "Freeway"] {
                assert!(texts.contains(words), "{words}: {texts}");
            }
            for node in tree.descendants() {
                for attribute in ["fill", "stroke"] {
                    let color = node.attribute(attribute).unwrap_or("none");
                    assert_eq!(color, "none", "{node:?}");
                }
            }
        }
    }
}
