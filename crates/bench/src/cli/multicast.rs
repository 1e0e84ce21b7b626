// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of `bench` multicast.

use clap::Args;

use super::seconds::sample_seconds;

/// Arguments of `bench multicast`.
#[derive(Debug, Args)]
pub struct MulticastArgs {
    /// Receivers, each at a port of its own
    #[arg(long, value_name = "NUMBER", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=30))]
    pub ports: u32,
    /// Frame size in bytes, FCS counted
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = clap::value_parser!(u32).range(64..=1518))]
    pub frame_bytes: u32,
    /// Runs; figures are their medians
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
    /// Seconds of each sample of each router, 0.5 to 3600
    #[arg(long, value_name = "SECONDS", default_value = "4", value_parser = sample_seconds)]
    pub seconds: f64,
    /// Track connections and filter statefully, with so many rules that do not match ahead of the one that accepts
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub rules: Option<u32>,
    /// The receivers' ports have one MAC address, as those of a switch
    #[arg(long)]
    pub switch: bool,
    /// Have the policy refuse all flows: what Freeway costs where it does not help
    #[arg(long)]
    pub refused: bool,
    /// CPU of the router
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub cpu: usize,
    /// CPU of source, receivers and the daemon
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub host_cpu: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
