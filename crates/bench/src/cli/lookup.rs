// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of `bench` lookup.

use std::path::PathBuf;

use clap::Args;

/// Arguments of `bench lookup`.
#[derive(Debug, Args)]
pub struct LookupArgs {
    /// Prefixes of a table; repeat for more [default: 1000, 100000 and 950000]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    pub prefixes: Vec<u32>,
    /// Ranges of addresses, lines `first,last,origin,...` with addresses as numbers, instead of those that are fetched
    #[arg(long, value_name = "FILE", conflicts_with = "synthetic")]
    pub ranges: Option<PathBuf>,
    /// Make prefixes up, with the lengths of a full table; nothing is fetched
    #[arg(long)]
    pub synthetic: bool,
    /// Runs; figures are their medians
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
    /// CPU that looks up
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub cpu: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
