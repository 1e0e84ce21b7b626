// SPDX-License-Identifier: MIT OR Apache-2.0
//! Freeway: a fast path for Linux routers that learns from what the kernel sends.

mod bench;
mod capture;
mod cli;
mod config;
mod demo;
mod doctor;
mod lab;
mod live;
mod render;
mod show;
mod support;
mod top;
mod web;

use std::process::ExitCode;

use clap::CommandFactory;
use freeway_api::SteerChange;
use freeway_console::{Stop, start, write_completions, write_pages};
use freeway_daemon::Options;

use cli::{Cli, Command, ConfigCommand, EngineCommand, LabCommand, SteerCommand};

fn main() -> ExitCode {
    start("freeway --help", |cli: Cli| run(cli.command))
}

fn run(command: Command) -> Result<(), Stop> {
    match command {
        Command::Run(args) => freeway_daemon::run(Options {
            config: args.config,
            interfaces: args.interfaces,
            socket: args.socket.socket,
            metrics: args.metrics,
            log: args.log,
            take_over: args.take_over,
        }),
        Command::Status(args) => show::status(&args),
        Command::Stats(args) => show::stats(&args),
        Command::Drops(args) => show::drops(&args),
        Command::Routes(args) => show::routes(&args),
        Command::Hosts(args) => show::hosts(&args),
        Command::Flows(args) => show::flows(&args),
        Command::Explain(args) => show::explain(&args),
        Command::Top(args) => show::top(&args),
        Command::Web(args) => web::run(args),
        Command::On(args) => show::switch(&args, true),
        Command::Off(args) => show::switch(&args, false),
        Command::Steer(SteerCommand::List(args)) => show::steer(&args, None),
        Command::Steer(SteerCommand::Add(args)) => show::steer_add(args),
        Command::Steer(SteerCommand::Mirror(args)) => show::steer_mirror(args),
        Command::Steer(SteerCommand::Delete { number, show }) => {
            show::steer(&show, Some(&SteerChange::Delete { number }))
        }
        Command::Engine(EngineCommand::Dispatch { port, mode, show }) => {
            show::dispatch(&show, port.zip(mode))
        }
        Command::Reload(args) => show::reload(&args),
        Command::Upgrade(args) => show::upgrade(&args),
        Command::Config(ConfigCommand::Check { elsewhere, config }) => {
            config::check(&config, elsewhere)
        }
        Command::Config(ConfigCommand::Show(args)) => config::show(&args),
        Command::Flush(args) => show::flush(&args),
        Command::Resync(args) => show::resync(&args),
        Command::Doctor(args) => show::doctor(&args),
        Command::Capture(args) => capture::run(&args),
        Command::Support(args) => support::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Lab(LabCommand::List { json }) => lab::list(json),
        Command::Lab(LabCommand::Shell { name, freeway }) => lab::shell(&name, freeway),
        Command::Bench { arguments } => bench::run(&arguments),
        Command::Man { dir, positional } => {
            write_pages(Cli::command(), &dir.or(positional).unwrap_or_default())
        }
        Command::Completions { target } => write_completions(Cli::command(), &target),
    }
}
