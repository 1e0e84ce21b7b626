// SPDX-License-Identifier: MIT OR Apache-2.0
//! One kind of chart for everything: rows of bars with intervals, each under its label.
//!
//! Labels above their bars leave the whole width to the bars, so that a chart can be read on a phone.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::theme::{Tone, style, with_classes};

/// A chart.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Of its files.
    pub name: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// Unit, and which way is better.
    pub subtitle: String,
    /// A line across all rows, such as that of "no difference".
    pub reference: Option<f64>,
    /// The rows.
    pub rows: Vec<Row>,
}

/// Bars under a label.
#[derive(Clone, Debug)]
pub struct Row {
    /// The label.
    pub label: String,
    /// The bars.
    pub bars: Vec<Bar>,
}

/// A bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Whose.
    pub tone: Tone,
    /// The name in the legend.
    pub name: &'static str,
    /// How far it reaches.
    pub extent: Extent,
    /// The words at its end.
    pub words: String,
}

/// How far a bar reaches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Extent {
    /// To a value, perhaps with an interval around it.
    To(f64, Option<[f64; 2]>),
    /// From one value to another.
    Between(f64, f64),
    /// There is no value.
    Missing,
}

impl Extent {
    /// Where it ends, its interval included.
    pub fn end(self) -> f64 {
        match self {
            Extent::To(value, interval) => interval.map_or(value, |[_, high]| high.max(value)),
            Extent::Between(_, high) => high,
            Extent::Missing => 0.0,
        }
    }
}

/// What a chart was drawn as.
#[derive(Clone, Debug)]
pub struct Drawing {
    /// In the light colours.
    pub plain: String,
    /// With classes for colours.
    pub themed: String,
}

impl Drawing {
    /// As a file: the style is within.
    pub fn standalone(&self) -> String {
        let head = self.themed.find('>').map_or(0, |at| at + 1);
        let (head, body) = self.themed.split_at(head);
        format!("{head}\n<style>{}</style>{body}", style())
    }
}

/// Units of the drawing; a page is about half as many pixels wide, a phone a third.
pub(super) const WIDTH: u32 = 960;
/// Around a drawing that stands alone.
pub(super) const PAD: u32 = 28;
/// Half of the axis' first and last numbers.
const LEFT: u32 = 12;
const RIGHT: u32 = 40;
pub(super) const FONT: f64 = 28.0;
pub(super) const TITLE: f64 = 36.0;
pub(super) const LINE: f64 = 40.0;
const BAR: f64 = 26.0;
const BAR_GAP: f64 = 8.0;
const ROW_GAP: f64 = 20.0;
const AXIS: u32 = 48;
/// How much of its colour a bar keeps between its least and its greatest value.
const RANGE: f64 = 0.45;
/// Between a bar and its words.
const BESIDE: f64 = 12.0;
/// A character of the usual fonts, of their size.
const CHARACTER: f64 = 0.58;
/// plotters' SVG backend divides sizes by this.
const SVG_SIZE: f64 = 1.24;

type Failed = DrawingAreaErrorKind<std::io::Error>;

/// A style of text.
pub(super) fn text(size: f64, tone: Tone, weight: FontStyle) -> TextStyle<'static> {
    let font = ("sans-serif", size * SVG_SIZE, weight).into_font();
    TextStyle {
        color: tone.color().to_backend_color(),
        pos: Pos::new(HPos::Left, VPos::Center),
        ..TextStyle::from(font)
    }
}

impl Chart {
    fn legend(&self) -> Vec<(Tone, &'static str)> {
        let mut legend = Vec::new();
        for bar in self.rows.iter().flat_map(|row| &row.bars) {
            if !legend.contains(&(bar.tone, bar.name)) {
                legend.push((bar.tone, bar.name));
            }
        }
        legend
    }

    /// The legend's lines: names that fit beside each other.
    fn legend_lines(&self) -> Vec<Vec<(f64, Tone, &'static str)>> {
        let mut lines: Vec<Vec<_>> = vec![Vec::new()];
        let mut left = 0.0;
        for (tone, name) in self.legend() {
            let width = LINE + name.len() as f64 * FONT * CHARACTER + LINE * 0.6;
            if left + width > f64::from(WIDTH) && left > 0.0 {
                lines.push(Vec::new());
                left = 0.0;
            }
            if let Some(line) = lines.last_mut() {
                line.push((left, tone, name));
            }
            left += width;
        }
        lines
    }

    fn rows_height(&self) -> f64 {
        let row = |row: &Row| LINE + row.bars.len() as f64 * (BAR + BAR_GAP) + ROW_GAP;
        self.rows.iter().map(row).sum()
    }

    /// Where the axis ends, so that all words fit behind their bars.
    fn axis_end(&self) -> f64 {
        let width = f64::from(WIDTH - LEFT - RIGHT);
        let bars = self.rows.iter().flat_map(|row| &row.bars);
        let needed = bars.map(|bar| {
            let words = bar.words.chars().count() as f64 * FONT * CHARACTER + BESIDE;
            bar.extent.end() * width / (width - words)
        });
        let reference = self.reference.unwrap_or(0.0);
        needed.fold(reference.max(f64::MIN_POSITIVE), f64::max)
    }

    /// Draws it, with its title or without.
    pub fn draw(&self, titled: bool) -> Result<Drawing, String> {
        let legend = self.legend_lines();
        let title = if titled { 1.4 * LINE } else { 0.0 };
        let head = title + LINE + legend.len() as f64 * LINE + 0.4 * LINE;
        let height = head + self.rows_height() + f64::from(AXIS);
        let mut plain = String::new();
        {
            let pad = if titled { PAD } else { 0 };
            let size = (WIDTH + 2 * pad, height as u32 + 2 * pad);
            let whole = SVGBackend::with_string(&mut plain, size).into_drawing_area();
            let area = whole.margin(pad, pad, pad, pad);
            self.draw_head(&area, titled, &legend)
                .and_then(|()| self.draw_rows(&area.margin(head as u32, 0, 0, 0)))
                .and_then(|()| whole.present())
                .map_err(|error| format!("cannot draw {}: {error}", self.name))?;
        }
        let themed = with_classes(&plain);
        Ok(Drawing { plain, themed })
    }

    fn draw_head<B: DrawingBackend<ErrorType = std::io::Error>>(
        &self,
        area: &DrawingArea<B, Shift>,
        titled: bool,
        legend: &[Vec<(f64, Tone, &'static str)>],
    ) -> Result<(), Failed> {
        let left = 0;
        let mut y = LINE / 2.0;
        if titled {
            let style = text(TITLE, Tone::Ink, FontStyle::Bold);
            area.draw_text(self.title, &style, (left, y as i32))?;
            y += 1.4 * LINE;
        }
        area.draw_text(
            &self.subtitle,
            &text(FONT, Tone::Muted, FontStyle::Normal),
            (left, y as i32),
        )?;
        for line in legend {
            y += LINE;
            for (x, tone, name) in line {
                let (x, y) = (*x as i32, y as i32);
                let half = BAR as i32 / 2;
                area.draw(&Rectangle::new(
                    [(x, y - half), (x + 2 * half, y + half)],
                    tone.color().filled(),
                ))?;
                let style = text(FONT, Tone::Ink, FontStyle::Normal);
                area.draw_text(name, &style, (x + 2 * half + 10, y))?;
            }
        }
        Ok(())
    }

    fn draw_rows<B: DrawingBackend<ErrorType = std::io::Error>>(
        &self,
        area: &DrawingArea<B, Shift>,
    ) -> Result<(), Failed> {
        let end = self.axis_end();
        let height = self.rows_height();
        let mut chart = ChartBuilder::on(area)
            .margin_left(LEFT)
            .margin_right(RIGHT)
            .x_label_area_size(AXIS)
            .build_cartesian_2d(0.0..end, 0.0..height)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .x_labels(6)
            .x_label_formatter(&|value| format!("{value}"))
            .x_label_style(
                text(FONT * 0.9, Tone::Muted, FontStyle::Normal)
                    .pos(Pos::new(HPos::Center, VPos::Top)),
            )
            .bold_line_style(Tone::Grid.color().stroke_width(2))
            .light_line_style(TRANSPARENT)
            .axis_style(Tone::Grid.color().stroke_width(2))
            .draw()?;
        // from the top; the axis has its zero at the bottom
        let mut top = height;
        for row in &self.rows {
            chart.draw_series([Text::new(
                row.label.clone(),
                (0.0, top - LINE / 2.0),
                text(FONT, Tone::Ink, FontStyle::Normal),
            )])?;
            top -= LINE;
            for bar in &row.bars {
                let (high, low, middle) = (top, top - BAR, top - BAR / 2.0);
                let (sure, range) = match bar.extent {
                    Extent::To(value, _) => (value, value),
                    Extent::Between(from, to) => (from, to),
                    Extent::Missing => (0.0, 0.0),
                };
                let color = bar.tone.color();
                for (from, to, color) in [
                    (0.0, sure, color.filled()),
                    (sure, range, color.mix(RANGE).filled()),
                ] {
                    if to > from {
                        chart.draw_series([Rectangle::new([(from, high), (to, low)], color)])?;
                    }
                }
                if let Extent::To(_, Some([from, to])) = bar.extent {
                    let ink = Tone::Ink.color().stroke_width(3);
                    let tick = BAR / 4.0;
                    let lines = [
                        vec![(from, middle), (to, middle)],
                        vec![(from, middle - tick), (from, middle + tick)],
                        vec![(to, middle - tick), (to, middle + tick)],
                    ];
                    chart.draw_series(lines.map(|line| PathElement::new(line, ink)))?;
                }
                if let Some(at) = self.reference.filter(|_| range > 0.0) {
                    let ink = Tone::Ink.color().stroke_width(3);
                    let line = vec![(at, high + 3.0), (at, low - 3.0)];
                    chart.draw_series([PathElement::new(line, ink)])?;
                }
                let tone = match bar.extent {
                    Extent::Missing => Tone::Muted,
                    _ => Tone::Ink,
                };
                let beside = end / f64::from(WIDTH) * BESIDE;
                chart.draw_series([Text::new(
                    bar.words.clone(),
                    (bar.extent.end() + beside, middle),
                    text(FONT * 0.95, tone, FontStyle::Normal),
                )])?;
                top -= BAR + BAR_GAP;
            }
            top -= ROW_GAP;
        }
        Ok(())
    }
}
