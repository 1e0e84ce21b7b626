// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the examples that measure traffic share: their words, and short samples of CPU time.

use std::error::Error;
use std::time::Duration;

use freeway_lab::{MeasureSpec, Sample, Topology};

/// `[TOPOLOGY] [FLOWS] [ROUNDS] [CPU]`.
pub struct Words {
    pub topology: &'static Topology,
    pub rounds: u32,
    /// Short samples.
    pub spec: MeasureSpec,
}

impl Words {
    /// The command line, with these where it says nothing.
    pub fn read(topology: &str, rounds: u32) -> Result<Self, Box<dyn Error>> {
        let args: Vec<String> = std::env::args().skip(1).collect();
        let number = |i: usize, default: u32| -> Result<u32, std::num::ParseIntError> {
            args.get(i).map_or(Ok(default), |text| text.parse())
        };
        Ok(Self {
            topology: Topology::parse(args.first().map_or(topology, String::as_str))?,
            rounds: number(2, rounds)?,
            spec: MeasureSpec {
                flows: number(1, 1000)?,
                cpu: number(3, 1)? as usize,
                warmup: Duration::from_millis(20),
                duration: Duration::from_millis(60),
                ..MeasureSpec::default()
            },
        })
    }
}

/// CPU time for each frame that arrived, ns.
pub fn cost(sample: Sample) -> f64 {
    sample.cpu_ns as f64 / sample.received.max(1) as f64
}
