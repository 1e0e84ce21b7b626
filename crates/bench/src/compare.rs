// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway bench compare`: the same frames through the kernel, through Freeway, and through others.
//!
//! One CPU does everything, generator, router and sink, so time divided by frames is what they cost together. Net
//! figures are without the generator and the input port (`source_ns`); the sink's part stays in and is reported. Each
//! router has a lab of its own, of one kind: what is compared or subtracted is measured by turns, within a second or so,
//! for the machine's speed drifts.

mod bench;
mod churn;
mod result;
mod scaling;
mod scenario;
mod session;
mod table;

use freeway_console::{Stop, plural, progress, show};

use self::bench::{Bench, Run, built};
use super::router::Router;
use crate::cli::CompareArgs;

pub use self::result::Comparison;

/// Runs the comparison and prints it.
pub fn compare(args: &CompareArgs) -> Result<(), Stop> {
    if args.cpus > 1 {
        return scaling::scaling(args);
    }
    let comparison = measured(args)?;
    show(args.json, &comparison, |terminal| {
        table::table(&comparison, terminal)
    })
}

/// Runs it.
pub fn measured(args: &CompareArgs) -> Result<Comparison, Stop> {
    let bench = built(args)?;
    let sink = if args.brief {
        None
    } else {
        progress("what the sink costs");
        Some(bench.sink()?)
    };
    let runs = bench.runs(|number, run| {
        say(&bench, run, &format!("run {number} of {}", args.runs));
    })?;
    Ok(Comparison::of(
        args,
        args.flows(),
        &bench,
        sink.as_ref(),
        &runs,
    ))
}

/// Runs it with each of these numbers of flows, of which the arguments have the greatest.
pub fn measured_of(args: &CompareArgs, counts: &[u32]) -> Result<Vec<Comparison>, Stop> {
    let bench = built(args)?;
    let runs = bench.runs_of(counts, |flows, number, run| {
        let flows = plural(flows.into(), "flow");
        say(
            &bench,
            run,
            &format!("{flows}, run {number} of {}", args.runs),
        );
    })?;
    let of = |(flows, runs): (&u32, Vec<Run>)| Comparison::of(args, *flows, &bench, None, &runs);
    Ok(counts.iter().zip(runs).map(of).collect())
}

fn say(bench: &Bench<'_>, run: &Run, number: &str) {
    let routers = [
        (Router::Kernel, run.kernel),
        (Router::Freeway, run.freeway),
        (Router::Redirect, run.redirect),
    ];
    let peers = bench.peers().zip(run.peers.iter().copied());
    for (router, figures) in routers.into_iter().chain(peers) {
        progress(&format!(
            "{number}: {:<20} {:>7.1} ns, {:>5.2} Mpps",
            router.name(),
            figures.ns,
            1000.0 / figures.ns
        ));
    }
}

#[cfg(test)]
pub use self::table::tests::example;
