// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of `bench` engine.

use clap::{Args, ValueEnum};
use freeway_api::engine::DispatchMode;
use freeway_api::measured::Heavy;

use super::seconds::sample_seconds;

pub(super) const ENGINE_HELP: &str = "\
Example: freeway bench engine --flows 1000
         freeway bench engine --flows 1000,1000000 --family 6 --runs 3
         freeway bench engine --pages small --rates-only
         freeway bench engine --flows 1000 --cold
         freeway bench engine --flows 1000 --mode dispatch --rates-only
         freeway bench engine --flows 1000 --flood --rates-only
         freeway bench engine --flows 10000 --workers 3 --mode rss,balanced --skew 1.2

With several workers, loads are cycles accounted by the cost model, so workers may share a CPU, and
  --heavy traffic   8 flows have 60 % of the frames, whose way is the shortest
  --heavy depth     5 flows have 2 % of the frames, each charged with 7,500 cycles beside";

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
    /// With one worker and IPv4: so many prefixes, by which frames leave that have no flow; flows are destinations then
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["workers", "flood", "mode"],
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub routes: Option<u32>,
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
    /// Runs; figures are their medians
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
    /// Seconds of each sample, 0.5 to 3600
    #[arg(long, value_name = "SECONDS", default_value = "0.5", value_parser = sample_seconds)]
    pub seconds: f64,
    /// Leave latencies out
    #[arg(long)]
    pub rates_only: bool,
    /// With one worker: headers come from memory, as from a card that does not write to caches, and not from the
    /// generator's cache. The generator is slower then, and the ratio printed is that of the cycles
    #[arg(long, conflicts_with_all = ["workers", "flood", "mode"])]
    pub cold: bool,
    /// With one worker: what hits lose, and how late they are, beside twice as many misses as the way to the kernel takes;
    /// takes root
    #[arg(long, conflicts_with = "workers")]
    pub flood: bool,
    /// CPU of generator and sink
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub cpu: u32,
    /// CPU of the worker, or of all of them
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub worker_cpu: u32,
    /// How frames come to the workers, one after the other; with one worker `dispatch` measures what an I/O core costs
    #[arg(
        long,
        value_name = "MODE,...",
        value_delimiter = ',',
        default_value = "rss"
    )]
    pub mode: Vec<DispatchMode>,
    /// Workers; with several, measure how even their loads are, and that frames keep their order
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub workers: u32,
    /// With several workers: exponent of Zipf's law of the flows' traffic, 0 to 4; 0: all have as much
    #[arg(long, value_name = "EXPONENT", default_value_t = 0.0, value_parser = exponent)]
    pub skew: f64,
    /// With several workers: what a part of the flows is
    #[arg(long, value_name = "WHAT", default_value = "none")]
    pub heavy: Heavy,
    /// With several workers: at least so many frames in each mode
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000_000)]
    pub frames: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

fn exponent(text: &str) -> Result<f64, String> {
    let number = text.parse().ok();
    let number = number.filter(|number| (0.0..=4.0).contains(number));
    number.ok_or_else(|| "an exponent is 0 to 4".to_owned())
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
