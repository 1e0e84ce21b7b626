// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway bench compare`: the same frames through the kernel and through Freeway.
//!
//! One CPU does everything, generator, router and sink, so time divided by frames is what they cost together. Net
//! figures are without the generator and the input port (`source_ns`); the sink's part stays in and is reported. A
//! second router of the same kind has the kernel alone: what is compared or subtracted is measured by turns, within a
//! second or so, for the machine's speed drifts.

use std::cell::Cell;
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use freeway_lab::{
    Counting, FLOWS_MAX, Lab, MeasureSpec, Proto, Sample, Topology, Turn, Turns, measure,
    measure_sink,
};
use serde::{Deserialize, Serialize};

use super::program::input_program;
use super::{flow_config, median, options, progress, ratio};
use crate::cli::CompareArgs;
use crate::exit::{Exit, Stop};
use crate::lab;
use crate::machine::Machine;
use crate::render::{self, Page, Terminal, Tone, count};
use crate::router::RouterDaemon;

/// Frames before each Freeway sample: flows must be seen twice and prepared. So much at a time,
const WARMUP: Duration = Duration::from_secs(1);
/// until this share of the flows is fast,
const WARM: f64 = 0.99;
/// or this has passed.
const WARMUP_MAX: Duration = Duration::from_secs(240);
/// Connections outlive this, even if nothing of them came for as long as a long sample takes.
const PRIME_AGE: Duration = Duration::from_secs(20);
/// More connections than these are opened in one router after the other: one CPU opens them all.
const PRIMED_AT_ONCE: u32 = 10_000;
/// Frames of so long count the program's own time.
const COUNTED: Duration = Duration::from_secs(1);
/// The sink's cost takes twenty samples, once; it is only reported.
const SINK: Duration = Duration::from_secs(1);
/// Fewer of the frames on the fast path than this deserve a remark.
const SHARE_EXPECTED: f64 = 0.98;

/// The result of a comparison. Times are medians over the runs, per frame that arrived.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The lab's topology.
    pub scenario: String,
    /// Frame size asked for, FCS counted.
    pub frame_bytes: u32,
    /// Frame size sent: the shortest that holds the headers, if that is more.
    pub wire_bytes: u32,
    /// The path that the configuration gives Freeway's ports: `auto`, `xdp` or `tc`.
    pub path: String,
    /// Flows.
    pub flows: u32,
    /// Runs.
    pub runs: u32,
    /// Seconds of each Freeway sample.
    pub seconds: u32,
    /// The generator into an XDP drop at the router's input.
    pub source_ns: f64,
    /// The kernel's forwarding, net of the source.
    pub kernel_ns: f64,
    /// Freeway's forwarding, net of the source.
    pub freeway_ns: f64,
    /// A bare XDP redirect, net of the source.
    pub redirect_ns: f64,
    /// The kernel's rate, everything included.
    pub kernel_mpps: f64,
    /// Freeway's rate, everything included.
    pub freeway_mpps: f64,
    /// The bare redirect's rate, everything included.
    pub redirect_mpps: f64,
    /// kernel_ns / freeway_ns within a run; the median.
    pub speedup: f64,
    /// freeway_ns / redirect_ns within a run; the median.
    pub over_redirect: f64,
    /// freeway_ns / kernel_ns within a turn; the median.
    pub over_kernel: f64,
    /// Freeway's program at the router's input, for a frame, as the kernel counts it (kernel.bpf_stats_enabled), which
    /// is part of the figure; none with `--brief`, and where the kernel does not tell which program it is.
    pub program_ns: Option<f64>,
    /// The policy refused all flows.
    pub refused: bool,
    /// Connections that conntrack held beside those of the flows.
    pub idle_connections: u32,
    /// The part of output port and sink in kernel_ns; none with `--brief`.
    pub sink_skb_ns: Option<f64>,
    /// The part of output port and sink in freeway_ns and redirect_ns; none with `--brief`.
    pub sink_xdp_ns: Option<f64>,
    /// The least share of a Freeway sample's frames that the fast path forwarded.
    pub fast_share: f64,
    /// The figures of each run.
    pub samples: Samples,
    /// What was measured on.
    pub machine: Machine,
}

/// The figures of each run, in order; times are gross where not called net.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Samples {
    /// The generator into an XDP drop.
    pub source_ns: Vec<f64>,
    /// The kernel.
    pub kernel_ns: Vec<f64>,
    /// A bare redirect.
    pub redirect_ns: Vec<f64>,
    /// Freeway.
    pub freeway_ns: Vec<f64>,
    /// The kernel less the source of the same turns; medians of the turns, as the next two.
    pub kernel_net_ns: Vec<f64>,
    /// The bare redirect likewise.
    pub redirect_net_ns: Vec<f64>,
    /// Freeway likewise.
    pub freeway_net_ns: Vec<f64>,
    /// Freeway's over the kernel's, both net, within a turn.
    pub over_kernel: Vec<f64>,
    /// Freeway's program.
    pub program_ns: Vec<f64>,
    /// Frames of the Freeway sample that did not arrive.
    pub freeway_lost: Vec<u64>,
    /// Share of its frames that the fast path forwarded.
    pub fast_share: Vec<f64>,
}

/// What a number of turns say: medians, ns a frame.
struct Figures {
    source_ns: f64,
    redirect_ns: f64,
    redirect_net_ns: f64,
    kernel_ns: f64,
    kernel_net_ns: f64,
    freeway_ns: f64,
    freeway_net_ns: f64,
    over_kernel: f64,
    lost: u64,
}

impl Figures {
    fn of(turns: &[Turn]) -> Self {
        let over = |figure: &dyn Fn(&Turn) -> f64| median(turns.iter().map(figure).collect());
        let gross = |sample: fn(&Turn) -> &Sample| over(&|turn| sample(turn).ns_per_frame);
        let net = |sample: fn(&Turn) -> &Sample| {
            over(&|turn| sample(turn).ns_per_frame - turn.source.ns_per_frame)
        };
        Self {
            source_ns: gross(|turn| &turn.source),
            redirect_ns: gross(|turn| &turn.redirect),
            redirect_net_ns: net(|turn| &turn.redirect),
            kernel_ns: gross(kernel),
            kernel_net_ns: net(kernel),
            freeway_ns: gross(freeway),
            freeway_net_ns: net(freeway),
            over_kernel: over(&|turn| {
                (freeway(turn).ns_per_frame - turn.source.ns_per_frame)
                    / (kernel(turn).ns_per_frame - turn.source.ns_per_frame)
            }),
            lost: turns.iter().map(|turn| lost(freeway(turn))).sum(),
        }
    }
}

/// The routers of a turn come in the order in which they were given.
fn kernel(turn: &Turn) -> &Sample {
    &turn.routers[0]
}

fn freeway(turn: &Turn) -> &Sample {
    &turn.routers[1]
}

fn lost(sample: &Sample) -> u64 {
    sample.sent.saturating_sub(sample.received)
}

/// Runs the comparison and prints it.
pub fn compare(args: &CompareArgs) -> Result<(), Stop> {
    let comparison = measured(args)?;
    render::show(args.json, &comparison, |terminal| {
        table(&comparison, terminal)
    })
}

/// Runs it.
pub fn measured(args: &CompareArgs) -> Result<Comparison, Stop> {
    let topology = Topology::parse(args.scenario.name())?;
    lab::prepare()?;
    run(args, topology)
}

fn run(args: &CompareArgs, topology: &'static Topology) -> Result<Comparison, Stop> {
    progress(&format!("building the lab `{}`", topology.name));
    let connections = args.flows + args.idle_connections;
    if connections > FLOWS_MAX {
        let message = format!(
            "--flows and --idle-connections: {connections} in all, but the generator has {FLOWS_MAX} tuples; ask for fewer"
        );
        return Err(Stop::new(Exit::Usage, message));
    }
    let lab = Lab::build(topology, options(connections))?;
    let kernel = Lab::build(topology, options(connections))?;
    let bench = Bench {
        lab: &lab,
        kernel: &kernel,
        args,
        config: if args.refused {
            "[policy]\nudp = false\n".into()
        } else {
            flow_config(args.flows)
        },
        primed: Cell::new(None),
    };
    let wire_bytes = lab
        .flows(Proto::Udp, args.flows, args.frame_bytes)
        .wire_bytes();
    let sink = if args.brief {
        None
    } else {
        progress("what the sink costs");
        bench.prime(args.flows)?;
        Some(measure_sink(&lab, &bench.spec(SINK))?)
    };
    let mut samples = Samples::default();
    for run in 1..=args.runs {
        bench.run(run, &mut samples)?;
    }
    let mpps = |gross: &[f64]| median(gross.iter().map(|ns| 1000.0 / ns).collect());
    let (kernel_ns, freeway_ns, redirect_ns) = (
        median(samples.kernel_net_ns.clone()),
        median(samples.freeway_net_ns.clone()),
        median(samples.redirect_net_ns.clone()),
    );
    Ok(Comparison {
        scenario: topology.name.into(),
        frame_bytes: args.frame_bytes,
        wire_bytes,
        path: args.path.name().into(),
        flows: args.flows,
        runs: args.runs,
        seconds: args.seconds,
        source_ns: median(samples.source_ns.clone()),
        kernel_ns,
        freeway_ns,
        redirect_ns,
        kernel_mpps: mpps(&samples.kernel_ns),
        freeway_mpps: mpps(&samples.freeway_ns),
        redirect_mpps: mpps(&samples.redirect_ns),
        speedup: ratio(&samples.kernel_net_ns, &samples.freeway_net_ns),
        over_redirect: ratio(&samples.freeway_net_ns, &samples.redirect_net_ns),
        over_kernel: median(samples.over_kernel.clone()),
        program_ns: (!samples.program_ns.is_empty()).then(|| median(samples.program_ns.clone())),
        refused: args.refused,
        idle_connections: args.idle_connections,
        sink_skb_ns: sink.as_ref().map(|sink| sink.skb_ns),
        sink_xdp_ns: sink.as_ref().map(|sink| sink.xdp_ns),
        fast_share: samples.fast_share.iter().copied().fold(1.0, f64::min),
        samples,
        machine: Machine::this(),
    })
}

struct Bench<'a> {
    /// Freeway's router.
    lab: &'a Lab,
    /// One without it.
    kernel: &'a Lab,
    args: &'a CompareArgs,
    config: String,
    /// When all connections were opened or kept from expiring.
    primed: Cell<Option<Instant>>,
}

impl Bench<'_> {
    fn spec(&self, duration: Duration) -> MeasureSpec {
        let CompareArgs {
            flows,
            frame_bytes,
            cpu,
            ..
        } = *self.args;
        MeasureSpec {
            flows,
            frame_bytes,
            cpu,
            duration,
            ..MeasureSpec::default()
        }
    }

    /// Opens the connections, or keeps them from expiring.
    fn prime(&self, connections: u32) -> Result<(), Stop> {
        let cpu = Some(self.args.cpu);
        let prime = |lab: &Lab| lab.prime(Proto::Udp, connections, cpu);
        if connections > PRIMED_AT_ONCE {
            prime(self.lab)?;
            prime(self.kernel)?;
            return Ok(());
        }
        // most of the time is the wait for UDP connections to be assured
        let [of_freeway, of_kernel] = thread::scope(|scope| {
            [self.lab, self.kernel]
                .map(|lab| scope.spawn(move || prime(lab)))
                .map(ScopedJoinHandle::join)
        });
        let failed = |_| Stop::failure("a thread that opens connections ended badly");
        of_freeway.map_err(failed)??;
        of_kernel.map_err(failed)??;
        Ok(())
    }

    fn run(&self, number: u32, samples: &mut Samples) -> Result<(), Stop> {
        let say = |words: String| progress(&format!("run {number} of {}: {words}", self.args.runs));
        // the idle ones are not seen by Freeway: they outlive the run by their timeout
        let kept = self.args.idle_connections == 0
            && self.primed.get().is_some_and(|at| at.elapsed() < PRIME_AGE);
        if !kept {
            self.prime(self.args.flows + self.args.idle_connections)?;
            self.primed.set(Some(Instant::now()));
        }
        let (figures, share, program_ns) = self.freeway()?;
        for (name, ns) in [
            ("kernel  ", figures.kernel_ns),
            ("Freeway ", figures.freeway_ns),
            ("redirect", figures.redirect_ns),
        ] {
            say(format!("{name} {ns:>7.1} ns, {:>5.2} Mpps", 1000.0 / ns));
        }
        if share < SHARE_EXPECTED && !self.args.refused {
            say(format!(
                "only {:.1} % of these frames took the fast path",
                share * 100.0
            ));
        }
        samples.source_ns.push(figures.source_ns);
        samples.redirect_ns.push(figures.redirect_ns);
        samples.redirect_net_ns.push(figures.redirect_net_ns);
        samples.kernel_ns.push(figures.kernel_ns);
        samples.kernel_net_ns.push(figures.kernel_net_ns);
        samples.freeway_ns.push(figures.freeway_ns);
        samples.freeway_net_ns.push(figures.freeway_net_ns);
        samples.over_kernel.push(figures.over_kernel);
        samples.program_ns.extend(program_ns);
        samples.freeway_lost.push(figures.lost);
        samples.fast_share.push(share);
        Ok(())
    }

    /// Flows become fast here, outside the sample.
    fn warm_up(&self, daemon: &RouterDaemon) -> Result<(), Stop> {
        let enough = (f64::from(self.args.flows) * WARM) as u64;
        let start = Instant::now();
        loop {
            measure(self.lab, &self.spec(WARMUP))?;
            let active = daemon.status()?.flows.active;
            if active >= enough || self.args.refused || start.elapsed() >= WARMUP_MAX {
                return Ok(());
            }
            if start.elapsed() >= 4 * WARMUP {
                progress(&format!("{} flows are fast", count(active)));
            }
        }
    }

    /// The program's mean time, apart from the samples, for counting takes time.
    fn program_ns(&self) -> Result<Option<f64>, Stop> {
        let Some(program) = input_program(self.lab.lan_port())? else {
            return Ok(None);
        };
        let _counting = Counting::begin()?;
        let before = program.run_time()?;
        measure(self.lab, &self.spec(COUNTED))?;
        Ok(Some(program.run_time()?.since(before).mean_ns()))
    }

    /// One sample with a daemon of its own, the share of frames that were fast, and the program's time.
    fn freeway(&self) -> Result<(Figures, f64, Option<f64>), Stop> {
        let daemon = RouterDaemon::start_on(self.lab, self.args.path, &self.config)?;
        daemon.require_fast_ports()?;
        if self.args.idle_connections > 0 {
            self.prime(self.args.flows)?;
        }
        self.warm_up(&daemon)?;
        let seconds = Duration::from_secs(self.args.seconds.into());
        let turns = Turns::new(&[self.kernel, self.lab], &self.spec(seconds))?;
        let before = daemon.stats()?.fast.packets;
        let figures = Figures::of(&turns.run()?);
        let fast = daemon.stats()?.fast.packets.saturating_sub(before);
        let share = fast as f64 / turns.frames()?[1].max(1) as f64;
        drop(turns);
        let program_ns = if self.args.brief {
            None
        } else {
            self.program_ns()?
        };
        daemon.stop()?;
        Ok((figures, share, program_ns))
    }
}

fn table(comparison: &Comparison, terminal: Terminal) -> String {
    let c = comparison;
    let mut page = Page::new(terminal);
    page.words(
        "",
        &format!(
            "Scenario {}: {} flows, UDP, {}-byte frames, medians of {} runs, {} s each",
            c.scenario,
            count(c.flows.into()),
            c.wire_bytes,
            c.runs,
            c.seconds
        ),
    );
    page.words("", &c.machine.to_string());
    page.gap();
    let row = |name: &str, ns: f64, mpps: f64| {
        vec![name.to_owned(), format!("{ns:.1}"), format!("{mpps:.2}")]
    };
    let heads = ["", "ns a frame, net", "Mpps, gross"]
        .map(|head| page.tone(Tone::Head, head))
        .to_vec();
    page.table(
        2,
        &[1, 2],
        &[
            heads,
            row("kernel", c.kernel_ns, c.kernel_mpps),
            row("Freeway", c.freeway_ns, c.freeway_mpps),
            row("bare redirect", c.redirect_ns, c.redirect_mpps),
        ],
    );
    page.gap();
    let summary = if c.refused {
        format!(
            "With Freeway attached and all flows refused by policy the kernel's path costs {:+.1} %.",
            (c.over_kernel - 1.0) * 100.0
        )
    } else {
        let speedup = page.tone(Tone::Good, &format!("{:.1} times", c.speedup));
        format!(
            "Freeway is {speedup} as fast as the kernel and costs {:.2} bare redirects.",
            c.over_redirect
        )
    };
    page.words("", &summary);
    let mut net = format!("Net of the generator ({:.1} ns).", c.source_ns);
    if let (Some(skb_ns), Some(xdp_ns)) = (c.sink_skb_ns, c.sink_xdp_ns) {
        net.push_str(&format!(
            " Output port and sink are {skb_ns:.1} ns of the kernel's figure and {xdp_ns:.1} ns of the others."
        ));
    }
    page.words("", &net);
    if let Some(program_ns) = c.program_ns {
        let words = format!(
            "Freeway's program is {program_ns:.1} ns of its figure, the counting of them included."
        );
        page.words("", &words);
    }
    if c.fast_share < SHARE_EXPECTED && !c.refused {
        let words = format!(
            "Only {:.1} % of the frames took the fast path in one of the runs.",
            c.fast_share * 100.0
        );
        page.words("", &page.tone(Tone::Warn, &words));
    }
    page.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_the_promised_fields() {
        let comparison = Comparison {
            scenario: "nat".into(),
            frame_bytes: 64,
            wire_bytes: 64,
            path: "auto".into(),
            flows: 1000,
            runs: 5,
            seconds: 20,
            source_ns: 70.0,
            kernel_ns: 1400.0,
            freeway_ns: 120.0,
            redirect_ns: 100.0,
            kernel_mpps: 0.68,
            freeway_mpps: 5.2,
            redirect_mpps: 5.9,
            speedup: 11.7,
            over_redirect: 1.2,
            over_kernel: 0.086,
            program_ns: Some(45.0),
            refused: false,
            idle_connections: 0,
            sink_skb_ns: Some(80.0),
            sink_xdp_ns: Some(40.0),
            fast_share: 0.999,
            samples: Samples::default(),
            machine: Machine::this(),
        };
        let json = serde_json::to_value(&comparison).unwrap();
        for field in [
            "scenario",
            "frame_bytes",
            "path",
            "flows",
            "source_ns",
            "kernel_ns",
            "freeway_ns",
            "redirect_ns",
            "kernel_mpps",
            "freeway_mpps",
            "speedup",
            "over_redirect",
            "over_kernel",
            "program_ns",
            "refused",
            "runs",
            "sink_skb_ns",
            "sink_xdp_ns",
            "machine",
            "samples",
        ] {
            assert!(json.get(field).is_some(), "{field}");
        }
        let text = table(
            &comparison,
            Terminal {
                width: 80,
                color: false,
            },
        );
        assert!(
            text.contains("kernel                  1400.0         0.68\n"),
            "{text}"
        );
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }
}
