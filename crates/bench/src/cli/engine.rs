// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of `bench` engine.

use clap::{Args, ValueEnum};

use super::seconds::sample_seconds;

pub(super) const ENGINE_HELP: &str = "\
Example: freeway bench engine --flows 1000
         freeway bench engine --flows 1000,1000000 --family 6 --runs 3
         freeway bench engine --pages small --ahead never --rates-only";

/// Arguments of `bench engine`.
#[derive(Debug, Args)]
pub struct EngineArgs {
    /// Numbers of flows, one after the other
    #[arg(long, value_name = "NUMBER,...", value_delimiter = ',', default_value = "1,1000,50000,1000000",
          value_parser = clap::value_parser!(u32).range(1..=4_000_000))]
    pub flows: Vec<u32>,
    /// Rules of the ruleset under which the flows were learned; the kernel evaluates them for a flow's first packets, and
    /// the engine never does
    #[arg(long, value_name = "NUMBER", default_value_t = 1000)]
    pub rules: u32,
    /// IPv4 or IPv6: 4 or 6
    #[arg(long, value_name = "FAMILY", default_value = "4", value_parser = ["4", "6"])]
    pub family: String,
    /// Flows come in random order, or in turn
    #[arg(long, value_name = "ORDER", default_value = "random")]
    pub order: Order,
    /// What the flow table lies on: pages of 2 MiB, or of 4 KiB as a mapped BPF array
    #[arg(long, value_name = "SIZE", default_value = "huge")]
    pub pages: PageSize,
    /// Frames that the worker takes at once
    #[arg(long, value_name = "NUMBER", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub burst: u32,
    /// Whether a burst's flows are fetched ahead; `auto` measures now and then which is cheaper
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub ahead: Ahead,
    /// Runs; figures are their medians
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
    /// Seconds of each sample, 0.5 to 3600
    #[arg(long, value_name = "SECONDS", default_value = "0.5", value_parser = sample_seconds)]
    pub seconds: f64,
    /// Leave latencies out
    #[arg(long)]
    pub rates_only: bool,
    /// CPU of generator and sink
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub cpu: u32,
    /// CPU of the worker
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub worker_cpu: u32,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

macro_rules! words {
    ($name:ident, $what:literal, $($value:ident $text:literal),*) => {
        #[doc = $what]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
        #[allow(missing_docs)]
        pub enum $name { $($value),* }

        impl $name {
            /// As it is written.
            pub fn name(self) -> &'static str {
                match self { $($name::$value => $text),* }
            }
        }
    };
}

words!(Order, "In which flows come.", Random "random", Turn "turn");
words!(PageSize, "Of the flow table.", Huge "huge", Small "small");
words!(Ahead, "Whether flows are fetched ahead.", Auto "auto", Always "always", Never "never");
