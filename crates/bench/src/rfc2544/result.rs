// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the trials say.

use freeway_api::PortPath;
use freeway_rig::Machine;
use serde::{Deserialize, Serialize};

use super::burst::BackToBack;
use super::cpu::CpuShare;
use super::latency::Latency;
use super::pace::{LOSS_RATIOS, Pace};
use super::search::{Found, Search};
use super::site::Router;

/// A rate that is closer to the generator's own is the generator's.
pub const LIMITED: f64 = 0.95;

/// The result. Loads and rates are of one direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rfc2544 {
    /// The lab's topology.
    pub scenario: String,
    /// Flows, each in both directions if these are two.
    pub flows: u32,
    /// Hosts beyond the WAN to which they went in turn; none if they went to the scenario's.
    #[serde(default)]
    pub destinations: Option<u32>,
    /// Directions in which frames are sent at the same time, 1 or 2.
    pub directions: u32,
    /// In the short form.
    pub quick: bool,
    /// How rates were searched for.
    pub search: Method,
    /// By frame size.
    pub sizes: Vec<Measured>,
    /// What was left out, or should have been otherwise.
    pub remarks: Vec<String>,
    /// What was measured on.
    pub machine: Machine,
}

/// The search's goals (RFC 9971).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Method {
    /// Goal final trial duration, seconds.
    pub trial_s: f64,
    /// Goal duration sum, seconds.
    pub sum_s: f64,
    /// Goal exceed ratio.
    pub exceed_ratio: f64,
    /// Goal width, relative.
    pub width: f64,
    /// Goal loss ratio of the NDR,
    pub ndr_loss_ratio: f64,
    /// and of the PDR.
    pub pdr_loss_ratio: f64,
}

/// Frames of a size.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// `64`, `imix`.
    pub name: String,
    /// `64 bytes`, `IMIX`.
    pub label: String,
    /// The mean size really sent, FCS counted.
    pub frame_bytes: f64,
    /// The path of Freeway's ports; none in reports of an older Freeway.
    #[serde(default)]
    pub path: Option<PortPath>,
    /// What sender and receiver can do without a router, frames a second.
    pub ceiling_pps: f64,
    /// Latency without a router and without load; none without samples.
    pub tester_latency: Option<Latency>,
    /// The kernel alone.
    pub kernel: Figures,
    /// The kernel with Freeway.
    pub freeway: Figures,
}

/// A router's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// The highest rate without loss.
    pub ndr: Throughput,
    /// The highest rate at which no more than 0.5 % are lost.
    pub pdr: Throughput,
    /// Forwarding rate at the maximum offered load (RFC 2889, 5.4.3); none if there was no time.
    pub frmol: Option<Rate>,
    /// Loss at loads from the NDR upwards.
    pub loss: Vec<Loss>,
    /// Bursts; none if the router keeps up with the generator or holds all that it can send in 0.1 s.
    pub back_to_back: Option<BackToBack>,
    /// Latencies at no load and at shares of the PDR's lower bound, which is the generator's if that limited it.
    pub latency: Vec<Latency>,
    /// CPU at no load, at shares of the PDR's lower bound, and at 1 Gb/s if that is no more than it.
    #[serde(default)]
    pub cpu: Vec<CpuShare>,
    /// Share of the frames that arrived that Freeway forwarded.
    pub fast_share: Option<f64>,
    /// Trials of the search.
    pub trials: u64,
}

/// A rate, or what it is at least if the generator limited it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// Frames a second; none if the generator limited it, or if there is none.
    pub pps: Option<f64>,
    /// Set if the generator limited it: the router's own is not known, and not less.
    pub at_least_pps: Option<f64>,
    /// `pps`, of frames with FCS, without gaps, megabits a second.
    pub mbit_s: Option<f64>,
}

/// A rate that was searched for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// The lower bound, as a result.
    #[serde(flatten)]
    pub rate: Rate,
    /// The relevant lower bound, frames a second.
    pub lower_pps: Option<f64>,
    /// The relevant upper bound.
    pub upper_pps: Option<f64>,
    /// Conditional throughput at the lower bound.
    pub conditional_pps: Option<f64>,
    /// Whether the bounds are there and as close as asked for.
    pub regular: bool,
}

/// What is lost at a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Loss {
    /// Frames a second that were asked for; of the last, that were sent, for that is all the generator can,
    pub load_pps: f64,
    /// and that were sent.
    pub offered_pps: f64,
    /// Frames a second that arrived.
    pub forwarded_pps: f64,
    /// Share of the frames sent that did not.
    pub loss_ratio: f64,
    /// Share of its CPU that the router had.
    pub router_cpu: f64,
}

impl Method {
    /// Of searches that take their time so.
    pub fn of(pace: &Pace) -> Self {
        let [ndr_loss_ratio, pdr_loss_ratio] = LOSS_RATIOS;
        Self {
            trial_s: pace.trial.as_secs_f64(),
            sum_s: (pace.trial * pace.trials).as_secs_f64(),
            exceed_ratio: pace.exceed_ratio(),
            width: pace.width,
            ndr_loss_ratio,
            pdr_loss_ratio,
        }
    }
}

impl Rate {
    /// A rate of frames of that size, beside what the generator can do.
    pub fn new(pps: f64, ceiling_pps: f64, limited: bool, frame_bytes: f64) -> Self {
        if limited || pps >= ceiling_pps * LIMITED {
            return Self {
                at_least_pps: Some(pps),
                ..Self::default()
            };
        }
        Self {
            pps: Some(pps),
            at_least_pps: None,
            mbit_s: Some(pps * frame_bytes * 8e-6),
        }
    }
}

impl Loss {
    /// What arrives, when all was sent that the generator can: its limit is what it sent, or else what it can receive.
    pub fn frmol(&self, ceiling_pps: f64, frame_bytes: f64) -> Rate {
        let limit = ceiling_pps.min(self.offered_pps);
        Rate::new(self.forwarded_pps, limit, false, frame_bytes)
    }
}

impl Throughput {
    /// Rates of what a search found: the NDR and the PDR.
    pub fn both(search: &Search, ceiling_pps: f64, frame_bytes: f64) -> [Self; 2] {
        let found = search.found();
        [0, 1].map(|goal| {
            let found = found.get(goal).copied().unwrap_or_default();
            Self::of(&found, ceiling_pps, frame_bytes)
        })
    }

    pub fn of(found: &Found, ceiling_pps: f64, frame_bytes: f64) -> Self {
        let pps = |load: u64| load as f64;
        let rate = found
            .lower
            .map(|lower| Rate::new(pps(lower), ceiling_pps, found.limited, frame_bytes));
        Self {
            rate: rate.unwrap_or_default(),
            lower_pps: found.lower.map(pps),
            upper_pps: found.upper.map(pps),
            conditional_pps: found.conditional_throughput,
            regular: found.regular,
        }
    }
}

impl Figures {
    /// Whether the PDR is not the router's own but what the generator can do.
    pub fn pdr_is_generators(&self) -> bool {
        self.pdr.rate.at_least_pps.is_some()
    }
}

impl Measured {
    /// Whether a latency was taken at a share of what the generator can do.
    pub fn of_generator(&self) -> bool {
        let of = |figures: &Figures| {
            let loaded = |latency: &Latency| latency.percent_of_pdr > 0;
            figures.pdr_is_generators() && figures.latency.iter().any(loaded)
        };
        of(&self.kernel) || of(&self.freeway)
    }

    /// Freeway's rates and the kernel's, where they are known.
    pub fn rates(&self) -> [(&'static str, [Option<f64>; 2]); 2] {
        let (kernel, freeway) = (&self.kernel, &self.freeway);
        [
            (
                "NDR, Freeway / kernel",
                [freeway.ndr.rate.pps, kernel.ndr.rate.pps],
            ),
            (
                "PDR, Freeway / kernel",
                [freeway.pdr.rate.pps, kernel.pdr.rate.pps],
            ),
        ]
    }

    /// The routers by their names.
    pub fn routers(&self) -> [(Router, &Figures); 2] {
        [
            (Router::Kernel, &self.kernel),
            (Router::Freeway, &self.freeway),
        ]
    }
}
