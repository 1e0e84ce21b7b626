// SPDX-License-Identifier: MIT OR Apache-2.0
//! Latencies by percentile, one panel for each load: both axes are logarithmic, the percentile's in how few take longer.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::chart::{Drawing, FONT, LINE, PAD, TITLE, WIDTH, text};
use super::document::Report;
use super::outcome::Outcome;
use super::theme::{Tone, with_classes};
use crate::bench::rfc2544::{Latency, Measured, Router};

/// Of a panel, below its label.
const HEIGHT: f64 = 300.0;
const GAP: f64 = 20.0;
/// Of the axes' numbers.
const X_LABELS: u32 = 44;
const Y_LABELS: u32 = 96;
/// Of a line.
const STROKE: u32 = 5;

type Failed = DrawingAreaErrorKind<std::io::Error>;

/// A chart of curves.
#[derive(Clone, Debug)]
pub struct Curves {
    /// Of its files.
    pub name: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// Unit, and which way is better.
    pub subtitle: String,
    /// The panels, from the top.
    pub panels: Vec<Panel>,
}

/// Curves of one load.
#[derive(Clone, Debug)]
pub struct Panel {
    /// The load.
    pub label: String,
    /// Whose, and percentile and value at each point, in order.
    pub lines: Vec<(Tone, Vec<[f64; 2]>)>,
}

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
        Panel {
            label: label(size, load),
            lines: of_load
                .map(|(router, of)| (tone(router), of.curve.clone()))
                .filter(|(_, curve)| curve.len() > 1)
                .collect(),
        }
    };
    let mut panels: Vec<Panel> = loads.into_iter().map(panel).collect();
    panels.retain(|panel| !panel.lines.is_empty());
    (!panels.is_empty()).then(|| Curves {
        name: "latency",
        title: "Latency by percentile",
        subtitle: format!("{}, one way, µs; less is better", size.label),
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

/// The percentile at a whole place; nothing between them.
fn percentile(place: f64) -> String {
    if (place - place.round()).abs() > 0.01 {
        return String::new();
    }
    match place.round() as i32 {
        0 => "0 %".into(),
        1 => "90 %".into(),
        digits => format!(
            "99{}{} %",
            if digits > 2 { "." } else { "" },
            "9".repeat(digits.max(2).cast_unsigned() as usize - 2)
        ),
    }
}

impl Curves {
    /// Draws it, with its title or without.
    pub fn draw(&self, titled: bool) -> Result<Drawing, String> {
        let title = if titled { 1.4 * LINE } else { 0.0 };
        let head = title + 2.4 * LINE;
        let panel = LINE + HEIGHT + GAP;
        let height = head + panel * self.panels.len() as f64;
        let pad = if titled { PAD } else { 0 };
        let mut plain = String::new();
        {
            let size = (WIDTH + 2 * pad, height as u32 + 2 * pad);
            let whole = SVGBackend::with_string(&mut plain, size).into_drawing_area();
            let area = whole.margin(pad, pad, pad, pad);
            let drawn = self.draw_head(&area, titled).and_then(|()| {
                for (number, of) in (0..).zip(&self.panels) {
                    let top = head + panel * f64::from(number);
                    let bottom = height - top - panel;
                    let place = area.margin(top as u32, bottom.max(0.0) as u32, 0, 0);
                    self.draw_panel(&place, of)?;
                }
                whole.present()
            });
            drawn.map_err(|error| format!("cannot draw {}: {error}", self.name))?;
        }
        let themed = with_classes(&plain);
        Ok(Drawing { plain, themed })
    }

    fn draw_head<B: DrawingBackend<ErrorType = std::io::Error>>(
        &self,
        area: &DrawingArea<B, Shift>,
        titled: bool,
    ) -> Result<(), Failed> {
        let mut y = LINE / 2.0;
        if titled {
            let style = text(TITLE, Tone::Ink, FontStyle::Bold);
            area.draw_text(self.title, &style, (0, y as i32))?;
            y += 1.4 * LINE;
        }
        let muted = text(FONT, Tone::Muted, FontStyle::Normal);
        area.draw_text(&self.subtitle, &muted, (0, y as i32))?;
        y += LINE;
        let mut x = 0;
        for (tone, name) in LEGEND {
            let line = vec![(x, y as i32), (x + LINE as i32, y as i32)];
            area.draw(&PathElement::new(line, tone.color().stroke_width(STROKE)))?;
            let ink = text(FONT, Tone::Ink, FontStyle::Normal);
            x += (1.3 * LINE) as i32;
            area.draw_text(name, &ink, (x, y as i32))?;
            x += (5.0 * LINE) as i32;
        }
        Ok(())
    }

    /// The same times and percentiles for all panels, so that they can be compared.
    fn ranges(&self) -> ([f64; 2], f64) {
        let lines = self.panels.iter().flat_map(|panel| &panel.lines);
        let points = || lines.clone().flat_map(|(_, curve)| curve);
        let most = points()
            .map(|[_, us]| *us)
            .fold(f64::MIN_POSITIVE, f64::max);
        let least = points().map(|[_, us]| *us).fold(most, f64::min);
        let end = points()
            .map(|[percentile, _]| place(*percentile))
            .fold(1.0, f64::max);
        ([least.max(0.01) * 0.8, most.max(0.02) * 1.25], end)
    }

    fn draw_panel<B: DrawingBackend<ErrorType = std::io::Error>>(
        &self,
        area: &DrawingArea<B, Shift>,
        panel: &Panel,
    ) -> Result<(), Failed> {
        let ink = text(FONT, Tone::Ink, FontStyle::Normal);
        area.draw_text(&panel.label, &ink, (0, (LINE / 2.0) as i32))?;
        let ([low, high], end) = self.ranges();
        let labels = |horizontal, vertical| {
            text(FONT * 0.9, Tone::Muted, FontStyle::Normal).pos(Pos::new(horizontal, vertical))
        };
        let mut chart = ChartBuilder::on(area)
            .margin_top(LINE as u32)
            .margin_bottom(GAP as u32)
            .margin_right(WIDTH / 20)
            .x_label_area_size(X_LABELS)
            .y_label_area_size(Y_LABELS)
            .build_cartesian_2d(0.0..end, (low..high).log_scale())?;
        chart
            .configure_mesh()
            .x_labels(end as usize + 1)
            .y_labels(5)
            .x_label_formatter(&|at| percentile(*at))
            .y_label_formatter(&|us| number(*us))
            .x_label_style(labels(HPos::Center, VPos::Top))
            .y_label_style(labels(HPos::Right, VPos::Center))
            .bold_line_style(Tone::Grid.color().stroke_width(2))
            .light_line_style(TRANSPARENT)
            .axis_style(Tone::Grid.color().stroke_width(2))
            .draw()?;
        for (tone, curve) in &panel.lines {
            let points = curve.iter();
            let points = points.map(|[percentile, us]| (place(*percentile), us.max(low)));
            let points: Vec<(f64, f64)> = points.collect();
            let line = PathElement::new(points, tone.color().stroke_width(STROKE));
            chart.draw_series([line])?;
        }
        Ok(())
    }
}

/// `0.5`, `20`.
fn number(us: f64) -> String {
    if us < 1.0 {
        format!("{us:.2}")
    } else {
        format!("{us:.0}")
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
    use crate::bench::rfc2544;

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
