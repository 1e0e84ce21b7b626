// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway bench`: measurements, their report, and the comparison of two.

mod asked;
mod banned;
mod bulk;
mod cli;
mod compare;
mod diff;
mod discipline;
mod drop;
mod dut;
mod engine;
mod expected;
mod flood;
mod flows;
mod imx8;
mod kirkwood;
mod line;
mod lookup;
mod median;
mod multicast;
mod parallel;
mod program;
mod qos;
mod replay;
mod report;
mod rfc2544;
mod rfc9693;
mod router;
mod setup;
mod shaper;
mod statistics;

use std::process::ExitCode;

use clap::CommandFactory;
use freeway_console::{Stop, start, write_completions, write_pages};

use cli::{Cli, Command};

/// The program `freeway-bench`.
pub fn main() -> ExitCode {
    start("freeway bench --help", |cli: Cli| run(cli.command))
}

fn run(command: Command) -> Result<(), Stop> {
    match command {
        Command::Compare(args) => compare::compare(&args),
        Command::Setup(args) => setup::setup(&args),
        Command::Drop(args) => drop::drop(&args),
        Command::Flood(args) => flood::flood(&args),
        Command::Bulk(args) => bulk::bulk(&args),
        Command::Shaper(args) => shaper::shaper(&args),
        Command::Imx8(args) => imx8::imx8(&args),
        Command::Kirkwood(args) => kirkwood::kirkwood(&args),
        Command::Flows(args) => flows::flows(&args),
        Command::Multicast(args) => multicast::multicast(&args),
        Command::Rfc2544(args) => rfc2544::rfc2544(&args),
        Command::Loop(args) => dut::cable(&args),
        Command::Generator(args) => dut::generator(&args),
        Command::Sink(args) => dut::sink(&args),
        Command::Rfc9693(args) => rfc9693::rfc9693(&args),
        Command::Engine(args) => engine::engine(&args),
        Command::Qos(args) => qos::qos(&args),
        Command::Replay(args) => replay::replay(&args),
        Command::Lookup(args) => lookup::lookup(&args),
        Command::Report(args) => report::report(&args),
        Command::Diff(args) => diff::diff(&args),
        Command::Man { dir } => write_pages(Cli::command(), &dir),
        Command::Completions { target } => write_completions(Cli::command(), &target),
    }
}
