// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway bench lookup`: longest prefix match in the structures that could hold a full table, on one CPU.
//!
//! Where `freeway-engine` is, it measures all of them and DPDK's in one process; else this program measures its own.
//! Nothing is forwarded: what a router gains by it, `bench compare` says.

mod result;
mod source;
mod table;

use std::process::{Command, Stdio};

use freeway_console::{Stop, program, progress, show};
use freeway_lookup::{Job, Table};
use freeway_rig::Machine;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use self::result::Lookup;
use self::source::source;
use crate::cli::LookupArgs;

const ENGINE: &str = "freeway-engine";
/// Few, many, and what a border router has.
const PREFIXES: [usize; 3] = [1000, 100_000, 950_000];

/// Measures and prints.
pub fn lookup(args: &LookupArgs) -> Result<(), Stop> {
    let result = measured(args)?;
    show(args.json, &result, |terminal| {
        table::table(&result, terminal)
    })
}

/// Measures.
fn measured(args: &LookupArgs) -> Result<Lookup, Stop> {
    let mut remarks = Vec::new();
    let source = source(args, &mut remarks);
    let mut prefixes: Vec<usize> = args.prefixes.iter().map(|count| *count as usize).collect();
    if prefixes.is_empty() {
        prefixes.extend(PREFIXES);
    }
    prefixes.sort_unstable();
    prefixes.dedup();
    let job = Job {
        ranges: source.ranges,
        prefixes,
        runs: args.runs,
    };
    let with_engine = match program(ENGINE) {
        None => Err("there is no freeway-engine, which has DPDK: `make engine` builds it".into()),
        Some(path) => by_engine(path.as_os_str(), &job, args.cpu),
    };
    let tables = match with_engine {
        Ok(tables) => tables,
        Err(why) => {
            remarks.push(format!("without rte_lpm and rte_fib: {why}"));
            here(&job, args.cpu)?
        }
    };
    Lookup::of(source.words, args.runs, tables, remarks, Machine::this())
        .ok_or_else(|| Stop::failure("no table was measured"))
}

/// In one process with DPDK.
fn by_engine(path: &std::ffi::OsStr, job: &Job, cpu: usize) -> Result<Vec<Table>, String> {
    let mut command = Command::new(path);
    command
        .arg("bench-lookup")
        .args(["--cpu", &cpu.to_string()]);
    command.args(["--runs", &job.runs.to_string()]);
    for prefixes in &job.prefixes {
        command.args(["--prefixes", &prefixes.to_string()]);
    }
    if let Some(file) = &job.ranges {
        command.arg("--ranges").arg(file);
    }
    command.stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command
        .output()
        .map_err(|error| format!("freeway-engine: {error}"))?;
    if !output.status.success() {
        return Err(format!("freeway-engine ended with {}", output.status));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("freeway-engine: {error}"))
}

/// In this one.
fn here(job: &Job, cpu: usize) -> Result<Vec<Table>, Stop> {
    let failed = |error: std::io::Error| Stop::failure(error.to_string());
    let mut cpus = CpuSet::new();
    cpus.set(cpu)
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &cpus))
        .map_err(|error| Stop::failure(format!("CPU {cpu}: {error}")))?;
    job.run(&mut |_, _, _| Ok(Vec::new()), &progress)
        .map_err(failed)
}
