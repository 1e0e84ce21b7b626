// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of `bench` replay.

use std::path::PathBuf;

use clap::Args;
use freeway_lab::Tempo;

pub(super) const REPLAY_HELP: &str = "\
Example: freeway bench replay office.pcapng
         freeway bench replay office.pcapng --speed 10 --loops 5
         freeway bench replay office.pcapng --full --loops 20 --runs 5 --stateful";

/// Arguments of `bench replay`.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// A capture, pcap or pcapng, of an Ethernet port
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Send at the times of the capture, so many times as fast, 0.001 to 100000 [default: 1]
    #[arg(long, value_name = "FACTOR", value_parser = speed_factor)]
    pub speed: Option<f64>,
    /// Send evenly, so many frames a second, both sides together
    #[arg(long, value_name = "NUMBER", conflicts_with = "speed", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub pps: Option<u64>,
    /// Send as fast as the CPU of the hosts can
    #[arg(long, conflicts_with_all = ["speed", "pps"])]
    pub full: bool,
    /// Send the frames so often in a run, the same each time
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub loops: u32,
    /// Runs of each router, which begin without flows and connections; figures are their medians
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
    /// Track connections and filter by their state, without translation; what the WAN opens is dropped
    #[arg(long)]
    pub stateful: bool,
    /// CPU of the router
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub cpu: usize,
    /// CPU of the hosts and the daemon
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub host_cpu: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl ReplayArgs {
    /// When frames are sent.
    pub fn tempo(&self) -> Tempo {
        match self.pps {
            _ if self.full => Tempo::Full,
            Some(pps) => Tempo::Pps(pps),
            None => Tempo::Times(self.speed.unwrap_or(1.0)),
        }
    }
}

fn speed_factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if (0.001..=100_000.0).contains(&factor) => Ok(factor),
        _ => Err("write a factor from 0.001 to 100000".into()),
    }
}
