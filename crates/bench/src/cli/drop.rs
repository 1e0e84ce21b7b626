// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of `bench` drop.

use clap::Args;

use super::seconds::sample_seconds;

/// Arguments of `bench drop`.
#[derive(Debug, Args)]
pub struct DropArgs {
    /// Addresses in the set; repeat for more [default: 1, 1000 and 1000000]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub entries: Vec<u32>,
    /// Addresses of the set that send, one after the other
    #[arg(long, value_name = "NUMBER", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub sources: u32,
    /// Frame size in bytes, FCS counted
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = clap::value_parser!(u32).range(64..=1518))]
    pub frame_bytes: u32,
    /// Runs; figures are their medians
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
    /// Seconds of each sample of each router, 0.5 to 3600
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = sample_seconds)]
    pub seconds: f64,
    /// CPU of the router
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub cpu: usize,
    /// CPU of the source; another one has the frames in the other's caches
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub host_cpu: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
