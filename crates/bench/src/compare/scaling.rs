// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway bench compare --cpus N`: what several CPUs get through the kernel and through Freeway, over what one does.
//!
//! Each CPU has a generator with its share of the flows, and a queue of each port, so that generators, router and sink of a
//! share are on one CPU, as they are without `--cpus`. One CPU and all are measured by turns, in the same routers, with the same flows.

pub mod result;
mod table;

use freeway_console::{Exit, Stop, progress, show};
use freeway_rig::Machine;
use nix::unistd::{SysconfVar, sysconf};

use self::result::{Rates, Sample, Scaling, Share};
use super::bench::{Bench, built};
use crate::cli::{CompareArgs, Scenario};
use crate::median::median;
use crate::router::Router;

/// The scenarios whose routers have no devices beside their ports, which would have queues of their own.
const SCENARIOS: [Scenario; 5] = [
    Scenario::Nat,
    Scenario::Routed,
    Scenario::Routed6,
    Scenario::Policies,
    Scenario::Kirkwood,
];

/// What these arguments ask for can be measured on a machine of so many CPUs.
fn check(args: &CompareArgs, online: usize) -> Result<(), Stop> {
    let (number, first) = (args.cpus as usize, args.cpu);
    let usage = |message: String| Err(Stop::new(Exit::Usage, message));
    if first.saturating_add(number) > online {
        return usage(format!(
            "--cpus {number}, from CPU {first} on: this machine has {online}, 0 to {}; ask for fewer",
            online.saturating_sub(1)
        ));
    }
    if !SCENARIOS.contains(&args.scenario) {
        return usage(format!(
            "--cpus is of `--scenario {}` alone",
            SCENARIOS.map(Scenario::name).join("`, `")
        ));
    }
    if args.refused || args.destinations.is_some() {
        return usage("--refused and --destinations are for one CPU: leave out --cpus".into());
    }
    let flows = args.flows();
    if flows < args.cpus {
        return usage(format!(
            "--flows {flows}: with --cpus {number} there are {number} at least, one for each"
        ));
    }
    Ok(())
}

impl Scaling {
    fn of(args: &CompareArgs, bench: &Bench<'_>, flows: &[u32], samples: Vec<Sample>) -> Self {
        let over = |of: fn(&Sample) -> &Rates| {
            let rates: Vec<&Rates> = samples.iter().map(of).collect();
            Rates::median(&rates)
        };
        let speedup = |of: fn(&Rates) -> f64| {
            let ratios = samples.iter().map(|s| of(&s.freeway) / of(&s.kernel));
            median(ratios.collect())
        };
        let share = |at: usize, of: fn(&Sample) -> &Vec<u64>| {
            let all: u64 = samples.iter().flat_map(of).sum();
            let own: u64 = samples.iter().filter_map(|s| of(s).get(at)).sum();
            own as f64 / all.max(1) as f64
        };
        let cpus = args.sending_cpus().zip(flows).enumerate();
        let cpus = cpus.map(|(at, (cpu, flows))| Share {
            cpu,
            flows: *flows,
            kernel_share: share(at, |sample| &sample.kernel_frames),
            freeway_share: share(at, |sample| &sample.freeway_frames),
        });
        Self {
            scenario: args.scenario.name().into(),
            proto: args.proto.name().into(),
            frame_bytes: args.frame_bytes(),
            wire_bytes: bench.wire_bytes(),
            path: args.path.name().into(),
            flows: args.flows(),
            runs: args.runs,
            seconds: args.seconds,
            cpus: cpus.collect(),
            kernel: over(|sample| &sample.kernel),
            freeway: over(|sample| &sample.freeway),
            redirect: over(|sample| &sample.redirect),
            kernel_shape: bench.kernel_shape(),
            speedup_one: speedup(|rates| rates.one_mpps),
            speedup_all: speedup(|rates| rates.all_mpps),
            fast_share: samples.iter().map(|s| s.fast_share).fold(1.0, f64::min),
            samples,
            machine: Machine::this(),
        }
    }
}

/// Measures and prints.
pub fn scaling(args: &CompareArgs) -> Result<(), Stop> {
    let scaling = measured(args)?;
    show(args.json, &scaling, |terminal| {
        table::table(&scaling, terminal)
    })
}

fn measured(args: &CompareArgs) -> Result<Scaling, Stop> {
    let online = sysconf(SysconfVar::_NPROCESSORS_ONLN).ok().flatten();
    check(args, online.and_then(|n| n.try_into().ok()).unwrap_or(1))?;
    let bench = built(args)?;
    let (flows, samples) = bench.runs_abreast(
        &args.sending_cpus().collect::<Vec<_>>(),
        |number, sample| {
            for (router, rates) in [
                (Router::Kernel, &sample.kernel),
                (Router::Freeway, &sample.freeway),
                (Router::Redirect, &sample.redirect),
            ] {
                progress(&format!(
                    "run {number} of {}: {:<20} {:>5.2} Mpps on one CPU, {:>5.2} on {}",
                    args.runs,
                    router.name(),
                    rates.one_mpps,
                    rates.all_mpps,
                    args.cpus
                ));
            }
        },
    )?;
    Ok(Scaling::of(args, &bench, &flows, samples))
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use freeway_lab::Together;

    use super::*;
    use freeway_lab::{AbreastTurn, OneAndAll};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: CompareArgs,
    }

    fn refused(words: &str, online: usize) -> String {
        let line = format!("compare {words}");
        let line = Line::parse_from(line.split_whitespace());
        check(&line.args, online).unwrap_err().to_string()
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        let line = Line::parse_from(["compare", "--cpus", "2"]);
        assert!(check(&line.args, 2).is_ok());
        assert_eq!(line.args.sending_cpus().collect::<Vec<_>>(), [0, 1]);
        for (words, online, part) in [
            ("--cpus 3", 2, "this machine has 2, 0 to 1"),
            ("--cpus 2 --cpu 1", 2, "from CPU 1 on"),
            (
                "--cpus 2 --scenario churn",
                2,
                "--cpus is of `--scenario nat`",
            ),
            ("--cpus 2 --destinations 7", 2, "--destinations"),
            ("--cpus 2 --flows 1", 2, "--flows 1: with --cpus 2"),
        ] {
            let why = refused(words, online);
            assert!(why.contains(part), "{words}: {why}");
        }
    }

    #[test]
    fn rates_are_medians_and_losses_the_worst() {
        let together = |sent: [u64; 2], received, mpps| Together {
            sent: sent.to_vec(),
            received,
            mpps,
        };
        let ways = |all_mpps| OneAndAll {
            one: together([100, 0], 100, 1.0),
            all: together([150, 50], 180, all_mpps),
        };
        let turn = |all_mpps| AbreastTurn {
            redirect: ways(2.0),
            routers: vec![ways(all_mpps), ways(1.0)],
        };
        let sample = Sample::of(&[turn(1.5), turn(1.9), turn(1.7)], 1.0);
        assert_eq!(sample.kernel.all_mpps, 1.7);
        assert_eq!(sample.kernel.ratio, 1.7);
        assert!((sample.kernel.lost_share - 60.0 / 900.0).abs() < 1e-9);
        assert_eq!(sample.kernel_frames, [450, 150]);
        let rates = Rates::median(&[&sample.kernel, &sample.freeway]);
        assert_eq!((rates.one_mpps, rates.all_mpps), (1.0, 1.35));
    }
}
