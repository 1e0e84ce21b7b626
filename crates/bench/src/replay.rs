// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway bench replay`: the frames of a capture through the kernel alone and through the kernel with Freeway.
//!
//! Only MAC addresses are the lab's. The router has a route to each address on the LAN, and one to all others; frames come in
//! by wires, as from a driver's ring, from the side that had sent them, in the order of the file. The router's ports are polled
//! by threads on a CPU that the hosts do not use: what these threads take is its cost.

mod capture;
mod deal;
mod result;
mod site;
mod table;

use std::thread;

use freeway_lab::Tempo;

use self::capture::Format;
use self::deal::{BYTES_MAX, Deal, FRAMES_MAX};
use self::result::LATE;
use self::site::{Pass, Site};

pub use self::result::{Capture, Figures, Replay, Skipped};

#[cfg(test)]
pub use self::table::tests::example;
use super::rfc2544::Router;
use crate::cli::ReplayArgs;
use crate::median::ratio;
use freeway_console::progress;
use freeway_console::{Exit, Stop};
use freeway_console::{count, plural, show};
use freeway_rig::Machine;

/// Measures and prints.
pub fn replay(args: &ReplayArgs) -> Result<(), Stop> {
    let result = measured(args)?;
    show(args.json, &result, |terminal| {
        table::table(&result, terminal)
    })
}

/// Measures.
pub fn measured(args: &ReplayArgs) -> Result<Replay, Stop> {
    if args.cpu == args.host_cpu {
        let message = "--cpu and --host-cpu: router and hosts need a CPU each";
        return Err(Stop::new(Exit::Usage, message));
    }
    let (deal, capture) = read(args)?;
    freeway_rig::prepare()?;
    progress("building the routers");
    // most of the time is the wait for links to be up; processes end with the thread that starts them
    let [kernel, freeway] = thread::scope(|scope| {
        let builders = Router::ALL.map(|_| scope.spawn(|| Site::lab(args, &deal)));
        let failed = |_| Stop::failure("a thread that builds a router ended badly");
        builders.map(|builder| builder.join().map_err(failed)?)
    });
    let sites = [
        Site::start(kernel?, args, &deal, false)?,
        Site::start(freeway?, args, &deal, true)?,
    ];
    let tempo = args.tempo();
    let mut passes = [const { Vec::new() }; 2];
    for run in 1..=args.runs {
        for ((router, site), passes) in Router::ALL.into_iter().zip(&sites).zip(&mut passes) {
            let pass = site.pass(&deal.tape, tempo, args.loops)?;
            progress(&format!(
                "run {run} of {}: {:<7} {:.0} ns of CPU a frame, {} of {} arrived",
                args.runs,
                router.name(),
                pass.cpu_ns(),
                count(pass.all_arrived()),
                plural(pass.sent(), "frame")
            ));
            passes.push(pass);
        }
    }
    sites.into_iter().try_for_each(Site::end)?;
    let remarks = remarks(&deal, tempo, args.loops, &passes);
    let [kernel, freeway] = [0, 1].map(|at| Figures::of(&passes[at], Router::ALL[at]));
    let speedup = ratio(&kernel.samples, &freeway.samples);
    Ok(Replay {
        file: args.file.display().to_string(),
        capture,
        tempo: match tempo {
            Tempo::Times(factor) => format!("{factor} times as fast"),
            Tempo::Pps(pps) => format!("{pps} pps"),
            Tempo::Full => "full".into(),
        },
        loops: args.loops,
        stateful: args.stateful,
        runs: args.runs,
        digest: format!("{:016x}", deal.tape.digest()),
        kernel,
        freeway,
        speedup: speedup.is_finite().then_some(speedup),
        remarks,
        machine: Machine::this(),
    })
}

/// Reads the file and deals its frames.
fn read(args: &ReplayArgs) -> Result<(Deal, Capture), Stop> {
    let mut deal = Deal::default();
    let format: Format = capture::read(&args.file, |frame| deal.take(frame))?;
    let skipped = deal.skipped();
    let skipped: Vec<_> = skipped
        .map(|(reason, frames)| Skipped { reason, frames })
        .collect();
    if deal.tape.is_empty() {
        let reasons = skipped
            .iter()
            .map(|of| format!("; {} {}", count(of.frames), of.reason.words()));
        let message = format!(
            "{}: none of its {} can be replayed{}",
            args.file.display(),
            plural(deal.read, "frame"),
            reasons.collect::<String>()
        );
        return Err(Stop::new(Exit::BAD_FILE, message));
    }
    let tape = &deal.tape;
    let capture = Capture {
        format: format.name().into(),
        frames: deal.read,
        cut: deal.full,
        replayed: tape.len() as u64,
        bytes: tape.bytes(),
        untagged: deal.untagged,
        skipped,
        lan_addresses: deal.near.len() as u64,
        wan_addresses: deal.far,
        conversations: deal.conversations(),
        duration_s: tape.span_ns() as f64 * 1e-9,
    };
    Ok((deal, capture))
}

fn remarks(deal: &Deal, tempo: Tempo, loops: u32, passes: &[Vec<Pass>; 2]) -> Vec<String> {
    let mut remarks = Vec::new();
    if deal.full {
        remarks.push(format!(
            "the file has more than is kept in memory, {} frames or {} MiB: the first {} were replayed",
            count(FRAMES_MAX as u64),
            BYTES_MAX >> 20,
            count(deal.tape.len() as u64)
        ));
    }
    let wanted_ns = tempo.span_ns(&deal.tape, loops) as f64;
    for (router, passes) in Router::ALL.into_iter().zip(passes) {
        let took_ns = passes.iter().map(|pass| pass.played.elapsed_ns).max();
        let took_ns = took_ns.unwrap_or(0) as f64;
        if tempo != Tempo::Full && took_ns > wanted_ns * LATE {
            remarks.push(format!(
                "{}: the sender took {:.3} s for {:.3} s, it cannot do more",
                router.name(),
                took_ns * 1e-9,
                wanted_ns * 1e-9
            ));
        }
    }
    remarks
}
