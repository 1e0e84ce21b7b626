// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program `freeway-engine`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use freeway_api::engine::DispatchMode;
use freeway_api::measured::Heavy;
use freeway_console::{Exit, Stop, print_json, progress, start, write_pages};
use freeway_engine::bench::{Fault, Options, measure};
use freeway_engine::crew;
use freeway_engine::{qos, run};
use freeway_lookup::Pages;

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
    /// Forward, until SIGTERM.
    Run {
        /// The configuration [default: /etc/freeway/freeway.toml].
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// The daemon's control socket, where it is not the default one.
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
    },
    /// Which DPDK this is built with.
    Dpdk,
    /// Write man pages to a directory.
    #[command(hide = true)]
    Man {
        /// The directory.
        dir: PathBuf,
    },
    /// Measure a worker between rings, as JSON; `freeway bench engine` has the words.
    Bench(BenchArgs),
    /// Measure the scheduler, as JSON; `freeway bench qos` has the words.
    BenchQos {
        /// Samples of each
        #[arg(long, value_name = "NUMBER", default_value_t = 3)]
        runs: u32,
        /// Seconds of each sample
        #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
        seconds: f64,
        /// CPU to measure on
        #[arg(long, value_name = "NUMBER", default_value_t = 1)]
        cpu: u32,
    },
    /// Measure several workers between rings, as `freeway bench engine --workers` asks for; prints JSON.
    BenchCrew(CrewArgs),
    /// Measure lookups of prefixes, as `freeway bench lookup` asks for; prints JSON.
    BenchLookup {
        #[command(flatten)]
        job: freeway_lookup::Job,
        /// CPU to measure on
        #[arg(long, value_name = "NUMBER", default_value_t = 0)]
        cpu: usize,
    },
}

#[derive(Args)]
struct BenchArgs {
    /// Numbers of flows, one after the other
    #[arg(long, value_name = "NUMBER,...", value_delimiter = ',', default_value = "1000",
          value_parser = clap::value_parser!(u32).range(1..=4_000_000))]
    flows: Vec<u32>,
    /// 4 or 6
    #[arg(long, value_name = "4|6", default_value_t = 4, value_parser = clap::value_parser!(u8).range(4..=6))]
    family: u8,
    /// So many prefixes, by which frames leave that have no flow; flows are destinations then
    #[arg(long, value_name = "NUMBER", default_value_t = 0, conflicts_with_all = ["dispatch", "flood"],
          value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    routes: u32,
    /// Flows come in turn, not in random order
    #[arg(long)]
    in_turn: bool,
    /// Frames that the worker takes at once
    #[arg(long, value_name = "NUMBER", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=64))]
    burst: u32,
    /// What the flow table lies on
    #[arg(long, value_name = "SIZE", default_value = "huge")]
    pages: PagesArg,
    /// Runs
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    runs: u32,
    /// Seconds of each sample
    #[arg(long, value_name = "SECONDS", default_value_t = 0.5)]
    seconds: f64,
    /// Leave latencies out
    #[arg(long)]
    rates_only: bool,
    /// Headers come from memory, not from the generator's cache
    #[arg(long, conflicts_with_all = ["dispatch", "flood"])]
    cold: bool,
    /// What an I/O core ahead of the worker costs, too
    #[arg(long)]
    dispatch: bool,
    /// What hits lose beside a flood of misses, too
    #[arg(long)]
    flood: bool,
    /// CPU of generator and sink
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    cpu: u32,
    /// CPU of the worker
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    worker_cpu: u32,
}

#[derive(Args)]
struct CrewArgs {
    /// How frames come to workers, one after the other
    #[arg(
        long = "mode",
        value_name = "MODE,...",
        value_delimiter = ',',
        default_value = "rss,balanced"
    )]
    modes: Vec<DispatchMode>,
    /// Workers
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=16))]
    workers: u32,
    /// Flows
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(64..=32_768))]
    flows: u32,
    /// Exponent of Zipf's law, 0 to 4; 0: all flows have as much
    #[arg(long, value_name = "EXPONENT", default_value_t = 0.0)]
    skew: f64,
    /// What a part of the flows is
    #[arg(long, value_name = "WHAT", default_value = "none")]
    heavy: Heavy,
    /// At least so many frames
    #[arg(long, value_name = "NUMBER", default_value_t = 1_000_000)]
    frames: u64,
    /// And so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 4.0)]
    seconds: f64,
    /// CPU of generator, I/O core and sink
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    cpu: u32,
    /// CPUs of the workers, in turn
    #[arg(
        long,
        value_name = "NUMBER,...",
        value_delimiter = ',',
        default_value = "1"
    )]
    worker_cpus: Vec<u32>,
}

#[derive(Clone, Copy, ValueEnum)]
enum PagesArg {
    Huge,
    Small,
}

fn main() -> ExitCode {
    start("freeway-engine --help", |cli: Cli| run(cli.command))
}

fn run(command: Command) -> Result<(), Stop> {
    match command {
        Command::Run { config, socket } => run::run(&run::Options { config, socket })?,
        Command::Man { dir } => write_pages(Cli::command(), &dir)?,
        Command::Dpdk => println!("{}", freeway_engine::eal::version()),
        Command::Bench(args) => bench(args)?,
        Command::BenchQos { runs, seconds, cpu } => {
            let options = qos::Options { seconds, runs, cpu };
            let measured = qos::measure(&options, progress);
            let unavailable = |words| Stop::new(Exit::Unavailable, words);
            print_json(&measured.map_err(unavailable)?)?;
        }
        Command::BenchCrew(args) => bench_crew(args)?,
        Command::BenchLookup { job, cpu } => {
            let tables = freeway_engine::lookup::measured(&job, cpu, &|words| progress(words));
            print_json(&tables.map_err(|error| Stop::failure(error.to_string()))?)?;
        }
    }
    Ok(())
}

fn bench(args: BenchArgs) -> Result<(), Stop> {
    if args.routes > 0 && args.family == 6 {
        return Err(Stop::new(Exit::Config, "--routes: of IPv4 alone"));
    }
    let options = Options {
        flows: args.flows,
        v6: args.family == 6,
        routes: args.routes,
        random: !args.in_turn,
        burst: args.burst,
        pages: match args.pages {
            PagesArg::Huge => Pages::Huge,
            PagesArg::Small => Pages::Small,
        },
        runs: args.runs,
        seconds: args.seconds,
        rates_only: args.rates_only,
        cold: args.cold,
        generator_cpu: args.cpu,
        worker_cpu: args.worker_cpu,
        dispatch: args.dispatch,
        flood: args.flood,
    };
    print_json(&measure(&options, progress).map_err(stop)?)
}

fn stop(fault: Fault) -> Stop {
    match fault {
        Fault::Unavailable(words) => Stop::new(Exit::Unavailable, words),
        Fault::Wrong(words) => Stop::failure(words),
    }
}

fn bench_crew(args: CrewArgs) -> Result<(), Stop> {
    let options = crew::Options {
        modes: args.modes,
        workers: args.workers,
        flows: args.flows,
        skew: args.skew,
        heavy: args.heavy,
        frames: args.frames,
        seconds: args.seconds,
        generator_cpu: args.cpu,
        worker_cpus: args.worker_cpus,
    };
    print_json(&crew::measure(&options, progress).map_err(stop)?)
}
