// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the rows say.

use freeway_rig::Machine;
use serde::{Deserialize, Serialize};

use super::row::Row;
use super::site::{Figures, ROUTERS, Run};
use crate::expected::{LOSS_EXPECTED, SHARE_EXPECTED};
use crate::median::median;
use crate::router::Router;

/// The result of the measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Imx8 {
    /// Flows, in turn.
    pub flows: u32,
    /// Runs.
    pub runs: u32,
    /// Seconds of each sample.
    pub seconds: f64,
    /// The path that the configuration gives Freeway's ports: `auto`, `xdp` or `tc`.
    pub path: String,
    /// The rows, in order.
    pub rows: Vec<Measured>,
    /// What was measured on.
    pub machine: Machine,
}

/// A row. Times are medians of the runs, of which each is a median of turns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// [`Row::name`].
    pub name: String,
    /// [`Row::label`].
    pub label: String,
    /// The LAN is a VLAN, and the router masquerades on the WAN.
    pub vlan_nat: bool,
    /// Frames of both directions alternate; rates are of both together, and a full link is full both ways.
    #[serde(default)]
    pub duplex: bool,
    /// Frame size, FCS and tag counted.
    pub frame_bytes: u32,
    /// Its payload, of layer 4.
    pub payload_bytes: u32,
    /// Frames a second that fill a link of 1 Gb/s.
    pub line_pps: f64,
    /// Payload that fills it.
    pub line_mbit_s: f64,
    /// The generator into an XDP drop.
    pub source_ns: Option<f64>,
    /// A bare XDP redirect, net of the source.
    pub redirect_ns: Option<f64>,
    /// `redirect_ns` of each run.
    pub redirect_samples: Vec<f64>,
    /// The kernel with conntrack.
    pub kernel: Column,
    /// The kernel with nf_flowtable.
    pub flowtable: Column,
    /// Freeway.
    pub freeway: Column,
    /// kernel.ns / freeway.ns within a run; the median.
    pub kernel_over_freeway: Option<f64>,
    /// kernel.ns / flowtable.ns likewise.
    pub kernel_over_flowtable: Option<f64>,
    /// flowtable.ns / freeway.ns likewise.
    pub flowtable_over_freeway: Option<f64>,
    /// What should have been otherwise.
    pub remarks: Vec<String>,
}

/// What a router's figures are, or why there are none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Column {
    /// Measured.
    Cost(Cost),
    /// Not measured.
    Missing {
        /// Why.
        missing: String,
    },
}

/// What forwarding cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Nanoseconds of CPU for a frame, net of the source.
    pub ns: f64,
    /// Payload that one CPU forwards in that time, megabits a second.
    pub mbit_s: f64,
    /// The share of one CPU that a full link of 1 Gb/s takes.
    pub line_cpu: f64,
    /// Whether that is no more than there is; none if noise hides what a frame costs, and in a document that does not say.
    #[serde(default)]
    pub carries_line: Option<bool>,
    /// The least share of a run's frames that the router's fast path forwarded; none of the kernel without one.
    pub fast_share: Option<f64>,
    /// The largest share of a run's frames that did not arrive.
    pub lost_share: f64,
    /// `ns` of each run.
    pub samples: Vec<f64>,
}

impl Column {
    /// What it cost.
    pub fn cost(&self) -> Option<&Cost> {
        match self {
            Column::Cost(cost) => Some(cost),
            Column::Missing { .. } => None,
        }
    }

    /// Why there are no figures.
    pub fn missing(&self) -> Option<&str> {
        match self {
            Column::Cost(_) => None,
            Column::Missing { missing } => Some(missing),
        }
    }
}

impl Measured {
    /// Of a row's runs.
    pub fn of(row: Row, runs: &[Run], missing: impl Fn(Router) -> Option<String>) -> Self {
        let column = |router: Router| match missing(router) {
            Some(missing) => Column::Missing { missing },
            None => Column::Cost(cost(row, &figures(runs, router))),
        };
        let ratio = |over, under| {
            let (over, under) = (figures(runs, over), figures(runs, under));
            let ratios: Vec<f64> = over.iter().zip(&under).map(|(a, b)| a.ns / b.ns).collect();
            (!ratios.is_empty()).then(|| median(ratios))
        };
        let over = |figure: fn(&Run) -> f64| {
            (!runs.is_empty()).then(|| median(runs.iter().map(figure).collect()))
        };
        let [kernel, flowtable, freeway] = ROUTERS.map(column);
        let mut remarks = Vec::new();
        for (name, column) in [
            ("the kernel", &kernel),
            ("the flow table", &flowtable),
            ("Freeway", &freeway),
        ] {
            let Some(cost) = column.cost() else { continue };
            if cost.fast_share.is_some_and(|share| share < SHARE_EXPECTED) {
                let share = cost.fast_share.unwrap_or(0.0) * 100.0;
                remarks.push(format!("only {share:.1} % of the frames were {name}'s"));
            }
            if cost.lost_share > LOSS_EXPECTED {
                let lost = cost.lost_share * 100.0;
                remarks.push(format!("{lost:.2} % of the frames were lost with {name}"));
            }
        }
        Self {
            name: row.name(),
            label: row.label(),
            vlan_nat: row.vlan_nat,
            duplex: row.is_duplex(),
            frame_bytes: row.frame_bytes(),
            payload_bytes: row.payload_bytes(),
            line_pps: row.line_pps(),
            line_mbit_s: row.mbit_s(row.line_pps()),
            source_ns: over(|run| run.source_ns),
            redirect_ns: over(|run| run.redirect_ns),
            redirect_samples: runs.iter().map(|run| run.redirect_ns).collect(),
            kernel,
            flowtable,
            freeway,
            kernel_over_freeway: ratio(Router::Kernel, Router::Freeway),
            kernel_over_flowtable: ratio(Router::Kernel, Router::Flowtable),
            flowtable_over_freeway: ratio(Router::Flowtable, Router::Freeway),
            remarks,
        }
    }

    /// Kernel, flow table and Freeway.
    pub fn columns(&self) -> [&Column; 3] {
        [&self.kernel, &self.flowtable, &self.freeway]
    }
}

/// Of a router, by run; empty if it is missing.
pub fn figures(runs: &[Run], router: Router) -> Vec<Figures> {
    runs.iter().filter_map(|run| run.of(router)).collect()
}

pub fn cost(row: Row, runs: &[Figures]) -> Cost {
    let samples: Vec<f64> = runs.iter().map(|figures| figures.ns).collect();
    let ns = median(samples.clone());
    let line_cpu = row.line_pps() * ns / 1e9;
    let shares = runs.iter().filter_map(|figures| figures.fast_share);
    let losses = runs.iter().map(|figures| figures.lost_share);
    Cost {
        ns,
        mbit_s: row.mbit_s(1e9 / ns),
        line_cpu,
        // less than nothing is noise and says nothing
        carries_line: (ns > 0.0).then_some(line_cpu <= 1.0),
        fast_share: shares.reduce(f64::min),
        lost_share: losses.fold(0.0, f64::max),
        samples,
    }
}
