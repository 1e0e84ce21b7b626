// SPDX-License-Identifier: MIT OR Apache-2.0
//! All plots of a report, drawn.

use super::chart::Drawing;
use super::document::Report;
use super::{curve, plots};

/// A plot.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Of its files.
    pub name: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// Unit, and which way is better.
    pub subtitle: String,
    /// With its title: a file.
    pub titled: Drawing,
    /// Without: a part of the page.
    pub bare: Drawing,
}

/// Those that have something to show, in the order of the page.
pub fn figures(report: &Report) -> Result<Vec<Figure>, String> {
    let mut figures = Vec::new();
    for chart in plots::all(report) {
        figures.push(Figure {
            titled: chart.draw(true)?,
            bare: chart.draw(false)?,
            name: chart.name,
            title: chart.title,
            subtitle: chart.subtitle,
        });
    }
    if let Some(curves) = curve::latency(report) {
        let rates = figures.iter().position(|figure| figure.name == "rates");
        let at = rates.map_or(figures.len(), |rates| rates + 1);
        let figure = Figure {
            titled: curves.draw(true)?,
            bare: curves.draw(false)?,
            name: curves.name,
            title: curves.title,
            subtitle: curves.subtitle,
        };
        figures.insert(at, figure);
    }
    Ok(figures)
}
