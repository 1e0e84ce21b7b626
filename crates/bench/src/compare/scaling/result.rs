// SPDX-License-Identifier: MIT OR Apache-2.0
//! What more CPUs than one are worth.

use freeway_lab::{AbreastTurn, OneAndAll};
use freeway_rig::Machine;
use serde::{Deserialize, Serialize};

use crate::expected::{LOSS_EXPECTED, SHARE_EXPECTED};
use crate::median::median;
use crate::router::Router;

/// The result. Rates are of frames that arrived, millions a second, generators and sinks included.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scaling {
    /// The lab's topology.
    pub scenario: String,
    /// The protocol, `udp` or `tcp`.
    pub proto: String,
    /// Frame size asked for, FCS counted.
    pub frame_bytes: u32,
    /// Frame size sent.
    pub wire_bytes: u32,
    /// The path that the configuration gives Freeway's ports.
    pub path: String,
    /// Flows.
    pub flows: u32,
    /// Runs.
    pub runs: u32,
    /// Seconds of all CPUs in each router and run.
    pub seconds: f64,
    /// The CPUs, and what each had of the work; the first is the one that is measured alone.
    pub cpus: Vec<Share>,
    /// The kernel as the scenario has it.
    pub kernel: Rates,
    /// Freeway.
    pub freeway: Rates,
    /// A bare XDP redirect: what the machine, the veths and the generators make of so many CPUs.
    pub redirect: Rates,
    /// Which of its shapes the kernel has.
    pub kernel_shape: Router,
    /// Freeway's rate over the kernel's on one CPU, within a run; the median.
    pub speedup_one: f64,
    /// The same on all.
    pub speedup_all: f64,
    /// The least share of a run's frames that the fast path forwarded.
    pub fast_share: f64,
    /// The figures of each run.
    pub samples: Vec<Sample>,
    /// What was measured on.
    pub machine: Machine,
}

/// What a CPU had of the work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// The CPU.
    pub cpu: usize,
    /// Its flows.
    pub flows: u32,
    /// Its share of the kernel's frames while all sent.
    pub kernel_share: f64,
    /// Of Freeway's.
    pub freeway_share: f64,
}

/// A router's rates: medians of the turns of a run, or of the runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Of one CPU, millions of frames a second.
    pub one_mpps: f64,
    /// Of all together.
    pub all_mpps: f64,
    /// The latter over the former, within a turn.
    pub ratio: f64,
    /// The largest share of a run's frames that did not arrive.
    pub lost_share: f64,
}

impl Rates {
    pub fn of(turns: &[AbreastTurn], of: impl Fn(&AbreastTurn) -> &OneAndAll) -> Self {
        let over =
            |figure: fn(&OneAndAll) -> f64| median(turns.iter().map(|t| figure(of(t))).collect());
        let sum = |figure: fn(&OneAndAll) -> u64| turns.iter().map(|t| figure(of(t))).sum::<u64>();
        let sent = sum(|ways| ways.one.sent() + ways.all.sent());
        let received = sum(|ways| ways.one.received + ways.all.received);
        Self {
            one_mpps: over(|ways| ways.one.mpps),
            all_mpps: over(|ways| ways.all.mpps),
            ratio: over(|ways| ways.all.mpps / ways.one.mpps),
            lost_share: sent.saturating_sub(received) as f64 / sent.max(1) as f64,
        }
    }

    pub fn median(of: &[&Rates]) -> Self {
        let over = |figure: fn(&Rates) -> f64| median(of.iter().map(|r| figure(r)).collect());
        Self {
            one_mpps: over(|rates| rates.one_mpps),
            all_mpps: over(|rates| rates.all_mpps),
            ratio: over(|rates| rates.ratio),
            lost_share: of.iter().map(|r| r.lost_share).fold(0.0, f64::max),
        }
    }
}

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The kernel.
    pub kernel: Rates,
    /// Freeway.
    pub freeway: Rates,
    /// A bare redirect.
    pub redirect: Rates,
    /// Frames of each CPU through the kernel while all sent.
    pub kernel_frames: Vec<u64>,
    /// Through Freeway.
    pub freeway_frames: Vec<u64>,
    /// The share of Freeway's frames that the fast path forwarded.
    pub fast_share: f64,
}

impl Sample {
    /// Of turns through the kernel and Freeway, in this order.
    pub fn of(turns: &[AbreastTurn], fast_share: f64) -> Self {
        let frames = |router: usize| {
            let mut sums = Vec::new();
            for sent in turns.iter().map(|turn| &turn.routers[router].all.sent) {
                sums.resize(sent.len(), 0);
                sums.iter_mut().zip(sent).for_each(|(sum, of)| *sum += of);
            }
            sums
        };
        Self {
            kernel: Rates::of(turns, |turn| &turn.routers[0]),
            freeway: Rates::of(turns, |turn| &turn.routers[1]),
            redirect: Rates::of(turns, |turn| &turn.redirect),
            kernel_frames: frames(0),
            freeway_frames: frames(1),
            fast_share,
        }
    }
}

impl Scaling {
    /// What should have been otherwise.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.fast_share < SHARE_EXPECTED {
            remarks.push(format!(
                "only {:.1} % of the frames took the fast path in one of the runs (Freeway)",
                self.fast_share * 100.0
            ));
        }
        let routers = [
            (self.kernel_shape, &self.kernel),
            (Router::Freeway, &self.freeway),
        ];
        for (router, rates) in routers {
            if rates.lost_share > LOSS_EXPECTED {
                remarks.push(format!(
                    "{:.2} % of the frames were lost in one of the runs ({})",
                    rates.lost_share * 100.0,
                    router.name()
                ));
            }
        }
        remarks
    }
}
