// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of `bench` bulk and shaper.

use clap::{Args, ValueEnum};

/// Arguments of `bench bulk`.
#[derive(Debug, Args)]
pub struct BulkArgs {
    /// Parallel TCP streams; may be given more than once
    #[arg(long, value_name = "NUMBER", default_values_t = [1, 16], value_parser = clap::value_parser!(u32).range(1..=128))]
    pub streams: Vec<u32>,
    /// Runs; figures are their medians
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
    /// Seconds of each sample
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=600))]
    pub seconds: u32,
    /// CPU of the router
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub cpu: usize,
    /// CPU of the hosts and the daemon
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub host_cpu: usize,
    /// Leave out what is only reported: the time of tc's program
    #[arg(long)]
    pub brief: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `bench shaper`.
#[derive(Debug, Args)]
pub struct ShaperArgs {
    /// What shapes or polices
    #[arg(long, value_enum, default_value_t = Discipline::Htb)]
    pub discipline: Discipline,
    /// Rate of the port in megabits a second
    #[arg(long, value_name = "MBIT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(10..=10_000))]
    pub rate: u32,
    /// Runs; figures are their medians
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
    /// Seconds of each sample
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(2..=3600))]
    pub seconds: u32,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What holds a port to its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Discipline {
    /// Classes of 60 and 40 %, by mark (BPF classifier) and by DSCP (u32).
    Htb,
    /// One queue.
    Tbf,
    /// Queues by flow and tins by DSCP (diffserv4): the second class is bulk (CS1).
    Cake,
    /// Queues by flow, below tbf.
    FqCodel,
    /// Bands, below tbf: the first class, of 40 %, goes ahead by its mark (fw).
    Prio,
    /// No queue: a policer at the input drops what is more.
    Police,
    /// No rate but that of whoever receives: the ring behind the queue (by flow; one, where the kernel has none by flow)
    /// fills.
    Ring,
}
