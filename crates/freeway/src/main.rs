// SPDX-License-Identifier: MIT OR Apache-2.0
//! Freeway: a fast path for Linux routers that learns from what the kernel sends.

mod api;
mod bench;
mod cli;
mod client;
mod config;
mod daemon;
mod demo;
mod doctor;
mod exit;
mod filter;
mod iperf;
mod kinds;
mod lab;
mod live;
mod machine;
mod manual;
mod netns;
mod render;
mod router;
mod show;
#[cfg(test)]
mod testing;

use std::process::ExitCode;

use clap::Parser;

use cli::{BenchCommand, Cli, Command, LabCommand};
use exit::{Exit, Stop};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    match run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(stop) => {
            eprintln!("freeway: {stop}");
            stop.exit.into()
        }
    }
}

fn run(command: Command) -> Result<(), Stop> {
    match command {
        Command::Run(args) => daemon::run(args),
        Command::Status(args) => show::status(&args),
        Command::Stats(args) => show::stats(&args),
        Command::Flows(args) => show::flows(&args),
        Command::Explain(args) => show::explain(&args),
        Command::Top(args) => show::top(&args),
        Command::On(args) => show::switch(&args, true),
        Command::Off(args) => show::switch(&args, false),
        Command::Flush(args) => show::flush(&args),
        Command::Resync(args) => show::resync(&args),
        Command::Doctor(args) => show::doctor(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Lab(LabCommand::List { json }) => lab::list(json),
        Command::Lab(LabCommand::Shell { name, freeway }) => lab::shell(&name, freeway),
        Command::Bench(BenchCommand::Compare(args)) => bench::compare(&args),
        Command::Bench(BenchCommand::Setup(args)) => bench::setup(&args),
        Command::Bench(BenchCommand::Flood(args)) => bench::flood(&args),
        Command::Bench(BenchCommand::Bulk(args)) => bench::bulk(&args),
        Command::Bench(BenchCommand::Shaper(args)) => bench::shaper(&args),
        Command::Bench(BenchCommand::Imx8(args)) => bench::imx8(&args),
        Command::Bench(BenchCommand::Kirkwood(args)) => bench::kirkwood(&args),
        Command::Bench(BenchCommand::Flows(args)) => bench::flows(&args),
        Command::Bench(BenchCommand::Multicast(args)) => bench::multicast(&args),
        Command::Bench(BenchCommand::Rfc2544(args)) => bench::rfc2544(&args),
        Command::Bench(BenchCommand::Loop(args)) => bench::cable(&args),
        Command::Bench(BenchCommand::Generator(args)) => bench::generator(&args),
        Command::Bench(BenchCommand::Sink(args)) => bench::sink(&args),
        Command::Bench(BenchCommand::Rfc9693(args)) => bench::rfc9693(&args),
        Command::Bench(BenchCommand::Replay(args)) => bench::replay(&args),
        Command::Bench(BenchCommand::Report(args)) => bench::report(&args),
        Command::Bench(BenchCommand::Diff(args)) => bench::diff(&args),
        Command::Man { dir, positional } => manual::pages(&dir.or(positional).unwrap_or_default()),
        Command::Completions { target } => manual::completions(&target),
    }
}

/// Help and version are answers; everything else is bad input, said in one line.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // A reader that has left is no error.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let text = error.render().to_string();
    // clap lists what is missing on lines of its own, before an empty one.
    let lines: Vec<_> = text
        .lines()
        .take_while(|line| !line.trim().is_empty())
        .map(str::trim)
        .collect();
    let words = lines.join(" ");
    let words = words.strip_prefix("error: ").unwrap_or(&words);
    let what = if words.is_empty() { "bad input" } else { words };
    eprintln!("freeway: {what}; see `freeway --help`");
    Exit::Usage.into()
}
