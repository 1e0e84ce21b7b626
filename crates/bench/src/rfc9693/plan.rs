// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much is measured, and how closely.

use std::time::Duration;

use freeway_console::{Exit, Stop};

use crate::cli::Rfc9693Args;

pub const SCENARIO: &str = "nat";

/// Numbers and durations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Connections of a test.
    pub connections: u32,
    /// Repetitions of a measurement.
    pub runs: u32,
    /// The capacity is looked for up to so many connections.
    pub capacity_max: u32,
    /// Bounds of a rate are so close, relative.
    pub width: f64,
    /// Of the generator alone, each of three.
    pub ceiling: Duration,
}

impl Plan {
    /// As asked for; fails if it does not fit together.
    pub fn of(args: &Rfc9693Args) -> Result<Self, Stop> {
        let [connections, runs, capacity_max] = if args.quick {
            [10_000, 1, 50_000]
        } else {
            [50_000, 5, 300_000]
        };
        let room = args.table_max.unwrap_or(u32::MAX);
        let plan = Self {
            connections: args.connections.unwrap_or(connections.min(room)),
            runs: args.runs.unwrap_or(runs),
            capacity_max: args.capacity_max.unwrap_or(capacity_max),
            width: if args.quick { 0.05 } else { 0.02 },
            ceiling: Duration::from_millis(if args.quick { 100 } else { 500 }),
        };
        let usage = |message: String| Err(Stop::new(Exit::Usage, message));
        if args.cpu == args.host_cpu {
            return usage("--cpu and --host-cpu: router and generator need a CPU each".into());
        }
        if plan.connections > room {
            return usage(format!(
                "--connections {}: --table-max {room} does not admit them",
                plan.connections
            ));
        }
        if plan.connections > plan.capacity_max {
            return usage(format!(
                "--connections {}: --capacity-max {} is less",
                plan.connections, plan.capacity_max
            ));
        }
        Ok(plan)
    }
}
