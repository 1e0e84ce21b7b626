// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of `bench` flood and setup.

use clap::{Args, ValueEnum};

use super::seconds::sample_seconds;

/// Arguments of `bench flood`.
#[derive(Debug, Args)]
pub struct FloodArgs {
    /// What floods; all of them if none is named
    #[arg(long = "kind", value_name = "KIND")]
    pub kinds: Vec<FloodKind>,
    /// Established flows
    #[arg(long, value_name = "NUMBER", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub flows: u32,
    /// Runs; figures are their medians
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=20))]
    pub runs: u32,
    /// Seconds of each sample, 0.5 to 3600; a flood that would repeat its tuples ends sooner
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = sample_seconds)]
    pub seconds: f64,
    /// CPU of the flood and the router
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub cpu: usize,
    /// CPU of the daemon
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub daemon_cpu: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What new tuples come as, and what becomes of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FloodKind {
    /// TCP SYN, accepted.
    SynAccepted,
    /// TCP SYN, dropped by a rule.
    SynDropped,
    /// TCP SYN from addresses in a set by which the firewall drops.
    SynBanned,
    /// UDP, accepted.
    UdpAccepted,
    /// UDP, dropped by a rule.
    UdpDropped,
}

/// Arguments of `bench setup`.
#[derive(Debug, Args)]
pub struct SetupArgs {
    /// New connections a second [default: the highest rate that holds is looked for]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(100..=200_000))]
    pub rate: Option<u32>,
    /// Seconds for which connections begin, in each sample
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(4..=600))]
    pub seconds: u32,
    /// At most so many connections in a sample, which ends sooner then
    #[arg(long, value_name = "NUMBER", default_value_t = 600_000, value_parser = clap::value_parser!(u32).range(1000..=1_000_000))]
    pub connections: u32,
    /// Connections that conntrack holds already and nobody uses
    #[arg(long, value_name = "NUMBER", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub idle_connections: u32,
    /// CPU of generator and router
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub cpu: usize,
    /// CPU of the daemon
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub daemon_cpu: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
