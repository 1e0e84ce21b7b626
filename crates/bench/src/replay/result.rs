// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a replay says.

use freeway_lab::Direction;
use freeway_rig::Machine;
use serde::{Deserialize, Serialize};

use super::deal::Skip;
use super::site::Pass;
use crate::median::median;
use crate::rfc2544::Router;

/// A sender that takes longer than this many times what it should is told.
pub const LATE: f64 = 1.02;

/// The result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Replay {
    /// The file.
    pub file: String,
    /// What was made of it.
    pub capture: Capture,
    /// When frames were sent: `1 times as fast`, `100000 pps`, `full`.
    pub tempo: String,
    /// How often the capture was sent in a run.
    pub loops: u32,
    /// Whether the router tracked connections and filtered by their state.
    pub stateful: bool,
    /// Runs of each router.
    pub runs: u32,
    /// Marks what was sent: the same frames from the same sides, 64 bits, hexadecimal.
    pub digest: String,
    /// The kernel alone.
    pub kernel: Figures,
    /// The kernel with Freeway.
    pub freeway: Figures,
    /// CPU time for a frame, the kernel's over Freeway's of the same run; the median.
    pub speedup: Option<f64>,
    /// What should have been otherwise.
    pub remarks: Vec<String>,
    /// What was measured on.
    pub machine: Machine,
}

/// A file's frames.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Capture {
    /// `pcap` or `pcapng`.
    pub format: String,
    /// Frames that were read.
    pub frames: u64,
    /// There are more, for which there was no room.
    pub cut: bool,
    /// Frames that one loop sends,
    pub replayed: u64,
    /// and their bytes, without FCS.
    pub bytes: u64,
    /// Of these, frames whose VLAN tags were taken off.
    pub untagged: u64,
    /// Frames that are not sent, by reason.
    pub skipped: Vec<Skipped>,
    /// Addresses on the LAN.
    pub lan_addresses: u64,
    /// Addresses beyond the WAN.
    pub wan_addresses: u64,
    /// Pairs of addresses and ports.
    pub conversations: u64,
    /// From the first frame that is sent to the last, seconds.
    pub duration_s: f64,
}

/// Frames that are not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Why.
    pub reason: Skip,
    /// How many.
    pub frames: u64,
}

/// A router's: frames of all runs, and medians.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Frames that the LAN sent,
    pub sent_lan: u64,
    /// and the WAN.
    pub sent_wan: u64,
    /// Frames of the LAN that arrived at the WAN,
    pub arrived_wan: u64,
    /// and the other way round.
    pub arrived_lan: u64,
    /// Frames that did not arrive.
    pub lost: u64,
    /// Frames sent in a second.
    pub offered_pps: f64,
    /// The router's CPU time for a frame that arrived, nanoseconds; none if none did.
    pub cpu_ns: Option<f64>,
    /// Share of the frames that arrived that Freeway forwarded; none of the kernel's.
    pub fast_share: Option<f64>,
    /// cpu_ns of each run.
    pub samples: Vec<f64>,
}

impl Figures {
    pub fn of(passes: &[Pass], router: Router) -> Self {
        let sum = |of: fn(&Pass) -> u64| passes.iter().map(of).sum::<u64>();
        let over = |of: &dyn Fn(&Pass) -> f64| median(passes.iter().map(of).collect());
        let arrived = sum(Pass::all_arrived);
        let samples = passes.iter().map(Pass::cpu_ns);
        let samples: Vec<f64> = samples.filter(|ns| ns.is_finite()).collect();
        Self {
            sent_lan: sum(|of| of.played.sent[Direction::Forward as usize]),
            sent_wan: sum(|of| of.played.sent[Direction::Reply as usize]),
            arrived_wan: sum(|of| of.arrived[Direction::Forward as usize]),
            arrived_lan: sum(|of| of.arrived[Direction::Reply as usize]),
            lost: sum(Pass::sent).saturating_sub(arrived),
            offered_pps: over(&|of| of.sent() as f64 * 1e9 / of.played.elapsed_ns.max(1) as f64),
            cpu_ns: (!samples.is_empty()).then(|| median(samples.clone())),
            fast_share: (router == Router::Freeway).then(|| over(&Pass::fast_share)),
            samples,
        }
    }

    /// Frames from both sides.
    pub fn sent(&self) -> u64 {
        self.sent_lan + self.sent_wan
    }

    /// Share of them that did not arrive.
    pub fn loss_ratio(&self) -> f64 {
        self.lost as f64 / self.sent().max(1) as f64
    }
}

impl Replay {
    /// The routers by their names.
    pub fn routers(&self) -> [(Router, &Figures); 2] {
        [
            (Router::Kernel, &self.kernel),
            (Router::Freeway, &self.freeway),
        ]
    }
}
