// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of `bench` rfc9693.

use clap::Args;

pub(super) const RFC9693_HELP: &str = "\
Example: freeway bench rfc9693 --quick
         freeway bench rfc9693 --connections 100000 --runs 20
         freeway bench rfc9693 --capacity-max 1000000

Throughput of the connections afterwards, in both directions at once: freeway bench rfc2544 --scenario nat --bidirectional";

/// Arguments of `bench rfc9693`.
#[derive(Debug, Args)]
pub struct Rfc9693Args {
    /// Connections of a rate's test [default: 50000; 10000 with --quick]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    pub connections: Option<u32>,
    /// Runs; figures are their medians [default: 5; 1 with --quick]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: Option<u32>,
    /// Fewer connections and runs, and coarse bounds
    #[arg(long)]
    pub quick: bool,
    /// Have the router's rules admit so many connections [default: what the kernel's table holds]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    pub table_max: Option<u32>,
    /// Look for the capacity up to so many connections [default: 300000; 50000 with --quick]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    pub capacity_max: Option<u32>,
    /// CPU of the router
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub cpu: usize,
    /// CPU of Initiator, Responder and the daemon
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub host_cpu: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
