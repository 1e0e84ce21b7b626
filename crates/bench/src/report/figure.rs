// SPDX-License-Identifier: MIT OR Apache-2.0
//! All plots of a report, drawn.

use super::by_flows::by_flows;
use super::chart::Drawing;
use super::curve::Curves;
use super::document::Report;
use super::latency::latency;
use super::plots;

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
    for (curves, chart) in [(by_flows(report), "cost"), (latency(report), "rates")] {
        if let Some(curves) = curves {
            let before = figures.iter().position(|figure| figure.name == chart);
            let at = before.map_or(figures.len(), |before| before + 1);
            figures.insert(at, drawn(curves)?);
        }
    }
    Ok(figures)
}

fn drawn(curves: Curves) -> Result<Figure, String> {
    Ok(Figure {
        titled: curves.draw(true)?,
        bare: curves.draw(false)?,
        name: curves.name,
        title: curves.title,
        subtitle: curves.subtitle,
    })
}
