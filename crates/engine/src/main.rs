// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program `freeway-engine`.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use freeway_console::{Stop, start};

#[derive(Parser)]
#[command(
    name = "freeway-engine",
    version,
    about = "Forwarding on cores of its own, with DPDK"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Which DPDK this is built with.
    Dpdk,
}

fn main() -> ExitCode {
    start("freeway-engine --help", |cli: Cli| run(cli.command))
}

fn run(command: Command) -> Result<(), Stop> {
    match command {
        Command::Dpdk => println!("{}", freeway_engine::eal::version()),
    }
    Ok(())
}
