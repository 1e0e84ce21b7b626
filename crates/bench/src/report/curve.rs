// SPDX-License-Identifier: MIT OR Apache-2.0
//! Charts of curves, in panels one below the other that share their axes. Both are logarithmic; the horizontal one's values come
//! as places on it.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::chart::{Drawing, FONT, LINE, PAD, TITLE, WIDTH, text};
use super::theme::{Tone, with_classes};

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
    /// Whose curves there are.
    pub legend: Vec<(Tone, &'static str)>,
    /// What stands at a place of the horizontal axis; nothing but at whole ones.
    pub at: fn(f64) -> String,
    /// The panels, from the top.
    pub panels: Vec<Panel>,
}

/// Curves of one kind.
#[derive(Clone, Debug)]
pub struct Panel {
    /// The kind; may be empty.
    pub label: String,
    /// Whose, and place and value of each point, in order.
    pub lines: Vec<(Tone, Vec<[f64; 2]>)>,
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
        for (tone, name) in &self.legend {
            let line = vec![(x, y as i32), (x + LINE as i32, y as i32)];
            area.draw(&PathElement::new(line, tone.color().stroke_width(STROKE)))?;
            let ink = text(FONT, Tone::Ink, FontStyle::Normal);
            x += (1.3 * LINE) as i32;
            area.draw_text(name, &ink, (x, y as i32))?;
            x += (0.55 * FONT * (name.len() + 3) as f64) as i32;
        }
        Ok(())
    }

    /// The same for all panels, so that they can be compared: the values, and the last place.
    fn ranges(&self) -> ([f64; 2], f64) {
        let lines = self.panels.iter().flat_map(|panel| &panel.lines);
        let points = || lines.clone().flat_map(|(_, curve)| curve);
        let values = || points().map(|[_, value]| *value);
        let most = values().fold(f64::MIN_POSITIVE, f64::max);
        let least = values().fold(most, f64::min);
        let end = points().map(|[place, _]| *place).fold(1.0, f64::max);
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
            .x_label_formatter(&|place| match (place - place.round()).abs() < 0.01 {
                true => (self.at)(place.round()),
                false => String::new(),
            })
            .y_label_formatter(&|value| number(*value))
            .x_label_style(labels(HPos::Center, VPos::Top))
            .y_label_style(labels(HPos::Right, VPos::Center))
            .bold_line_style(Tone::Grid.color().stroke_width(2))
            .light_line_style(TRANSPARENT)
            .axis_style(Tone::Grid.color().stroke_width(2))
            .draw()?;
        for (tone, curve) in &panel.lines {
            let points = curve.iter();
            let points = points.map(|[place, value]| (*place, value.max(low)));
            let points: Vec<(f64, f64)> = points.collect();
            let line = PathElement::new(points, tone.color().stroke_width(STROKE));
            chart.draw_series([line])?;
        }
        Ok(())
    }
}

/// `0.50`, `20`.
fn number(value: f64) -> String {
    if value < 1.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.0}")
    }
}
