// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of `bench` imx8.

use clap::Args;
use freeway_api::PathChoice;

use super::seconds::sample_seconds;
use crate::imx8::Row;

/// Arguments of `bench imx8`.
#[derive(Debug, Args)]
pub struct Imx8Args {
    /// Measure this row, such as ipv4-tcp-lan-wan, ipv6-udp-wan-lan-vlan-nat or ipv4-tcp-duplex; repeat for more [default: the
    /// 16 of one direction]
    #[arg(long = "row", value_name = "NAME")]
    pub rows: Vec<Row>,
    /// Measure full duplex, too: after each pair of rows both directions at once, whose frames alternate
    #[arg(long)]
    pub duplex: bool,
    /// Flows, in turn, so many that GRO finds no two frames of one to merge
    #[arg(long, value_name = "NUMBER", default_value_t = 64, value_parser = clap::value_parser!(u32).range(64..=10_000))]
    pub flows: u32,
    /// Runs; figures are their medians
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
    /// Seconds of each sample of each router, 0.5 to 3600
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = sample_seconds)]
    pub seconds: f64,
    /// The path of Freeway's ports
    #[arg(long, value_name = "PATH", default_value = "auto")]
    pub path: PathChoice,
    /// CPU of generator and router
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub cpu: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
