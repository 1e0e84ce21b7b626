// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of `bench qos`.

use clap::Args;

use super::seconds::sample_seconds;

pub(super) const QOS_HELP: &str = "\
Example: sudo freeway bench qos
         sudo freeway bench qos --runs 5 --seconds 5 --json";

/// Arguments of `bench qos`.
#[derive(Debug, Args)]
pub struct QosArgs {
    /// Samples of each rate; figures are their medians
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
    /// Seconds of each sample, 0.5 to 3600
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = sample_seconds)]
    pub seconds: f64,
    /// CPU to measure on
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub cpu: u32,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
