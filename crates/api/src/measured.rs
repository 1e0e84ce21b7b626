// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the program `freeway-engine` measures for `freeway bench`, and prints as JSON.

use serde::{Deserialize, Serialize};

use crate::engine::DispatchMode;

/// What an I/O core ahead of the worker costs, nanoseconds of a frame.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dispatched {
    /// Run to completion: the worker alone.
    pub alone_ns: f64,
    /// The worker behind the I/O core.
    pub worker_ns: f64,
    /// The I/O core takes bursts out of a ring port,
    pub receive_ns: f64,
    /// finds buckets,
    pub hash_ns: f64,
    /// and puts frames into the ring to the worker.
    pub ring_ns: f64,
    /// All of it, over the worker alone.
    pub over_ns: f64,
    /// The same where the I/O core sends, too.
    pub over_io_sends_ns: f64,
    /// Mean size of the worker's bursts: alone, and behind the I/O core.
    pub burst: [f64; 2],
    /// Million frames a second that arrived; the I/O core shares a CPU with generator and sink.
    pub mpps: f64,
    /// Share of the time that is left out, for somebody else had a core.
    pub disturbed: f64,
}

/// Frames that hit at a quarter of the rate, alone and beside a flood of twice as many misses as the way to the kernel takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Flooded {
    /// Frames a second that one thread gives to the kernel, which drops them at once.
    pub kernel_pps: f64,
    /// Misses a second.
    pub misses_pps: f64,
    /// The share of the misses that the ring to that thread refused.
    pub refused: f64,
    /// Hits a second: alone, and beside the flood.
    pub hits_pps: [f64; 2],
    /// The share of the hits that was lost, likewise.
    pub lost: [f64; 2],
    /// Mean latency of the hits, microseconds, likewise.
    pub mean_us: [f64; 2],
    /// 99 % of the hits were as fast, likewise.
    pub p99_us: [f64; 2],
    /// The share of the time that is left out, for somebody else had a core.
    pub disturbed: f64,
}

/// What a part of the flows is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Heavy {
    /// Nothing else than the others.
    None,
    /// Eight flows have 60 % of the frames, whose way is the shortest.
    Traffic,
    /// Five flows have 2 % of the frames, each of which costs 7,500 cycles more.
    Depth,
}

impl Heavy {
    /// As it is written.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Heavy::None => "none",
            Heavy::Traffic => "traffic",
            Heavy::Depth => "depth",
        }
    }
}

/// Loads and order in a mode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CrewRun {
    /// How frames came to workers.
    pub mode: DispatchMode,
    /// The fullest worker's accounted cycles over the mean, in the first window.
    pub first: f64,
    /// The same in windows two seconds on: their mean; none if it ended before,
    pub settled: Option<f64>,
    /// and the highest of them.
    pub worst: Option<f64>,
    /// Of all windows, in their order.
    pub windows: Vec<f64>,
    /// Frames that were sent.
    pub sent: u64,
    /// That did not arrive.
    pub lost: u64,
    /// That came behind a later one of their flow.
    pub reordered: u64,
    /// Compared as a whole with what is expected; all were right.
    pub checked: u64,
    /// Buckets that moved.
    pub moves: u64,
    /// Moves that were called off.
    pub called_off: u64,
    /// Frames that waited for a move's end.
    pub parked: u64,
    /// Seconds.
    pub elapsed_s: f64,
    /// A plain frame's cycles by the model, at the first worker.
    pub plain_cycles: u32,
    /// The last decisions.
    pub decisions: Vec<String>,
}

/// What `freeway-engine bench-crew` prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CrewRuns {
    /// Workers.
    pub workers: u32,
    /// Flows.
    pub flows: u32,
    /// Milliseconds of a window.
    pub window_ms: u64,
    /// By mode.
    pub runs: Vec<CrewRun>,
    /// What is to be minded.
    pub remarks: Vec<String>,
}

/// A rate that was set, and what left.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShapedRate {
    /// Megabits a second; none: as much as goes.
    pub set_mbit: Option<f64>,
    /// Octets of a frame, without FCS.
    pub len: u16,
    /// Megabits a second.
    pub mbit: f64,
    /// Share of the time that is left out, for somebody else had the core.
    pub paused: f64,
}

/// The first priority at half of the rate, the last one at ten times of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShapedPriority {
    /// Megabits a second.
    pub set_mbit: f64,
    /// Half of the first one's frames wait less, in the time that a frame takes at the rate.
    pub p50_frames: f64,
    /// 99 % do.
    pub p99_frames: f64,
    /// Share of the rate that the first one has.
    pub first: f64,
    /// And the last.
    pub last: f64,
    /// As of a rate.
    pub paused: f64,
}

/// Classes that share, as parts of 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShapedShares {
    /// As they should be.
    pub wanted: Vec<f64>,
    /// As they are.
    pub shares: Vec<f64>,
}

/// What a frame costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShapedCost {
    /// The scheduler.
    pub name: String,
    /// Its classes, all of which have frames.
    pub classes: u32,
    /// To be put and taken, nanoseconds.
    pub ns: f64,
}

/// What `freeway-engine bench-qos` prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shaped {
    /// Of the TSC.
    pub tsc_hz: u64,
    /// By rate.
    pub rates: Vec<ShapedRate>,
    /// By rate.
    pub priorities: Vec<ShapedPriority>,
    /// 1:2:4.
    pub weights: ShapedShares,
    /// The tree that `freeway bench qos` has the kernel's htb for, too: shares of the classes.
    pub tree: ShapedShares,
    /// By class count.
    pub costs: Vec<ShapedCost>,
}
