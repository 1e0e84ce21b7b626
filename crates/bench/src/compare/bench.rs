// SPDX-License-Identifier: MIT OR Apache-2.0
//! The routers of a comparison, and what a run of them says.

use std::cell::Cell;
use std::thread;
use std::time::{Duration, Instant};

use freeway_console::{Exit, Stop, count, progress};
use freeway_lab::routes::{Beyond, ROUTES_MAX};
use freeway_lab::{
    AbreastTurns, Counting, FLOWS_MAX, FlowSpec, Lab, MeasureSpec, Proto, Sample, SinkCost,
    Topology, Turn, Turns, measure, measure_sink,
};
use freeway_rig::{Machine, RouterDaemon, flow_config, pin};

use super::churn::Churn;
use super::scaling::result::Sample as AbreastSample;
use super::scenario::Definition;
use super::session;
use crate::cli::{CompareArgs, Scenario};
use crate::median::median;
use crate::program::input_program;
use crate::router::{Place, Router};

/// Frames before each Freeway sample: flows must be seen twice and prepared. So much at a time,
const WARMUP: Duration = Duration::from_millis(250);
/// until this share of the flows is fast,
const WARM: f64 = 0.99;
/// or this has passed.
const WARMUP_MAX: Duration = Duration::from_secs(240);
/// Who waits longer is told how far it is.
const WARMUP_SAY: Duration = Duration::from_secs(4);
/// Connections outlive this, even if nothing of them came for as long as a long sample takes.
const PRIME_AGE: Duration = Duration::from_secs(20);
/// More connections than these are opened in one router after the other: one CPU opens them all.
const PRIMED_AT_ONCE: u32 = 10_000;
/// Frames of so long count the program's own time.
const COUNTED: Duration = Duration::from_secs(1);
/// The sink's cost takes twenty samples, once; it is only reported.
const SINK: Duration = Duration::from_secs(1);

/// What a run says of a router.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Ns a frame, everything included; medians of the turns, as the next.
    pub ns: f64,
    /// The same less the source of the turn.
    pub net_ns: f64,
    /// Frames that were sent,
    pub sent: u64,
    /// and that did not arrive.
    pub lost: u64,
    /// The share of its frames that its fast path forwarded, if it has one.
    pub fast_share: Option<f64>,
}

impl Figures {
    fn of(turns: &[Turn], sample: impl Fn(&Turn) -> &Sample) -> Self {
        let over = |figure: &dyn Fn(&Turn) -> f64| median(turns.iter().map(figure).collect());
        let sum =
            |figure: fn(&Sample) -> u64| turns.iter().map(|turn| figure(sample(turn))).sum::<u64>();
        let (sent, received) = (sum(|of| of.sent), sum(|of| of.received));
        Self {
            ns: over(&|turn| sample(turn).ns_per_frame),
            net_ns: over(&|turn| sample(turn).ns_per_frame - turn.source.ns_per_frame),
            sent,
            lost: sent.saturating_sub(received),
            fast_share: None,
        }
    }

    /// The share that did not arrive.
    pub fn lost_share(&self) -> f64 {
        self.lost as f64 / self.sent.max(1) as f64
    }
}

/// A run.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The generator into an XDP drop, ns a frame.
    pub source_ns: f64,
    /// A bare redirect.
    pub redirect: Figures,
    /// The kernel as the scenario has it.
    pub kernel: Figures,
    /// Freeway.
    pub freeway: Figures,
    /// Freeway's net time over the kernel's within a turn, the median.
    pub over_kernel: f64,
    /// Freeway's program, for a frame.
    pub program_ns: Option<f64>,
    /// Changes that there really were a second, in the router with the fewest.
    pub changes_per_s: Option<f64>,
    /// The peers that are there.
    pub peers: Vec<Figures>,
}

/// The routers.
#[derive(Debug)]
pub struct Bench<'a> {
    args: &'a CompareArgs,
    config: String,
    kernel: Place,
    /// The router that Freeway is started in.
    freeway: Place,
    peers: Vec<Place>,
    /// Those that cannot be here, and why.
    missing: Vec<(Router, String)>,
    /// When all connections were opened or kept from expiring.
    primed: Cell<Option<Instant>>,
}

/// A router; or why it cannot be here.
type Built = Result<Result<Place, String>, Stop>;

/// What a thread has built.
fn joined(builder: thread::ScopedJoinHandle<'_, Built>) -> Built {
    let failed = |_| Stop::failure("a thread that builds a router ended badly");
    builder.join().map_err(failed)?
}

impl<'a> Bench<'a> {
    /// Builds them.
    pub fn build(args: &'a CompareArgs, topology: &'static Topology) -> Result<Self, Stop> {
        let scenario = Definition::of(args.scenario);
        let mut like = scenario.options(args.flows() + args.idle_connections)?;
        like.queues = args.cpus;
        if let Some(hosts) = args.destinations {
            like.beyond = Some(Beyond {
                hosts,
                routes: ROUTES_MAX,
            });
        }
        // what these two cannot have, the scenario needs
        let there = |built: Built| -> Result<Place, Stop> {
            built?.map_err(|why| Stop::new(Exit::Unavailable, why))
        };
        let none = args.without_peers();
        let rest = if none.is_some() { &[] } else { scenario.peers };
        // most of the time is the wait for links to be up
        let (kernel, freeway, built) = thread::scope(|scope| {
            let build = |router: Router| {
                let like = &like;
                scope.spawn(move || router.build(topology, like))
            };
            let (kernel, freeway) = (build(Router::Kernel), build(Router::Freeway));
            let rest: Vec<_> = rest.iter().map(|router| build(*router)).collect();
            let rest: Vec<Built> = rest.into_iter().map(joined).collect();
            (joined(kernel), joined(freeway), rest)
        });
        let (kernel, freeway) = (there(kernel)?, there(freeway)?);
        let (mut peers, mut missing) = (Vec::new(), Vec::new());
        for (router, built) in rest.iter().zip(built) {
            match built? {
                Ok(place) => peers.push(place),
                Err(why) => missing.push((*router, why)),
            }
        }
        if let Some(why) = none {
            missing.extend(
                scenario
                    .peers
                    .iter()
                    .map(|router| (*router, why.to_owned())),
            );
        }
        Ok(Self {
            args,
            config: if args.routes {
                "[policy]\nroutes = true\n".into()
            } else if args.refused {
                "[policy]\nudp = false\ntcp = false\n".into()
            } else {
                flow_config(args.flows())
            },
            kernel,
            freeway,
            peers,
            missing,
            primed: Cell::new(None),
        })
    }

    /// The peers that are there, in the order of [`Run::peers`].
    pub fn peers(&self) -> impl Iterator<Item = Router> {
        self.peers.iter().map(|place| place.router)
    }

    /// Why one is not.
    pub fn missing(&self, router: Router) -> Option<&str> {
        let mut missing = self.missing.iter();
        missing.find_map(|(of, why)| (*of == router).then_some(why.as_str()))
    }

    /// Which of its shapes the kernel has.
    pub fn kernel_shape(&self) -> Router {
        Router::kernel_of(self.kernel.lab.topology())
    }

    /// Size of the frames that are sent, FCS counted.
    pub fn wire_bytes(&self) -> u32 {
        self.flows().wire_bytes()
    }

    /// All of them.
    fn flows(&self) -> FlowSpec {
        let (flows, frame_bytes) = (self.args.flows(), self.args.frame_bytes());
        let lab = &self.freeway.lab;
        lab.flows(self.args.proto, flows, frame_bytes)
    }

    /// What the sink costs.
    pub fn sink(&self) -> Result<SinkCost, Stop> {
        self.prime(self.args.flows())?;
        let spec = self.spec(self.args.flows(), SINK);
        Ok(measure_sink(&self.freeway.lab, &spec)?)
    }

    fn spec(&self, flows: u32, duration: Duration) -> MeasureSpec {
        let CompareArgs { proto, cpu, .. } = *self.args;
        MeasureSpec {
            flows,
            frame_bytes: self.args.frame_bytes(),
            proto,
            cpu,
            duration,
            ..MeasureSpec::default()
        }
    }

    /// Opens the connections, or keeps those of UDP from expiring, in all routers that follow them.
    fn prime(&self, connections: u32) -> Result<(), Stop> {
        let CompareArgs { proto, cpu, .. } = *self.args;
        let prime = |lab: &Lab| lab.prime(proto, connections, Some(cpu));
        let places = [&self.kernel, &self.freeway].into_iter().chain(&self.peers);
        let tracking = places.filter(|place| place.tracks());
        let labs: Vec<&Lab> = tracking.map(|place| &place.lab).collect();
        if connections > PRIMED_AT_ONCE {
            return labs
                .into_iter()
                .try_for_each(|lab| Ok(prime(lab).map(drop)?));
        }
        // most of the time is the wait for UDP connections to be assured
        thread::scope(|scope| {
            let primed: Vec<_> = labs
                .into_iter()
                .map(|lab| scope.spawn(move || prime(lab)))
                .collect();
            primed.into_iter().try_for_each(|primed| {
                let failed = |_| Stop::failure("a thread that opens connections ended badly");
                primed.join().map_err(failed)??;
                Ok(())
            })
        })
    }

    /// Opens them for a run, unless they are there still.
    fn keep(&self) -> Result<(), Stop> {
        // the idle ones are not seen by Freeway: they outlive the run by their timeout, and TCP's live for days
        let kept = self.primed.get().is_some_and(|at| {
            self.args.proto == Proto::Tcp
                || self.args.idle_connections == 0 && at.elapsed() < PRIME_AGE
        });
        if !kept {
            self.prime(self.args.flows() + self.args.idle_connections)?;
            self.primed.set(Some(Instant::now()));
        }
        Ok(())
    }

    /// Frames leave by routes here, outside the sample.
    fn confirm(&self, daemon: &RouterDaemon, flows: u32) -> Result<(), Stop> {
        let start = Instant::now();
        while start.elapsed() < WARMUP_MAX {
            let before = forwarded(daemon)?;
            let sent = measure(&self.freeway.lab, &self.spec(flows, WARMUP))?.sent;
            if forwarded(daemon)? - before >= (sent as f64 * WARM) as u64 {
                return Ok(());
            }
        }
        Err(Stop::failure(
            "no frames leave by routes: `freeway routes` in the lab's router says why",
        ))
    }

    /// Flows become fast here, outside the sample.
    fn warm_up(&self, daemon: &RouterDaemon, flows: u32) -> Result<(), Stop> {
        if self.args.routes {
            return self.confirm(daemon, flows);
        }
        let enough = (f64::from(flows) * WARM) as u64;
        let start = Instant::now();
        let mut said = start;
        loop {
            measure(&self.freeway.lab, &self.spec(flows, WARMUP))?;
            let active = daemon.status()?.flows.active;
            if active >= enough || self.args.refused || start.elapsed() >= WARMUP_MAX {
                return Ok(());
            }
            if said.elapsed() >= WARMUP_SAY {
                progress(&format!("{} flows are fast", count(active)));
                said = Instant::now();
            }
        }
    }

    /// The program's mean time, apart from the samples, for counting takes time.
    fn program_ns(&self) -> Result<Option<f64>, Stop> {
        let Some(program) = input_program(self.freeway.lab.lan_port())? else {
            return Ok(None);
        };
        let _counting = Counting::begin()?;
        let before = program.run_time()?;
        measure(&self.freeway.lab, &self.spec(self.args.flows(), COUNTED))?;
        Ok(Some(program.run_time()?.since(before).mean_ns()))
    }

    /// What the peers' fast paths have left to the kernel.
    fn slow(&self) -> Result<Vec<Option<f64>>, Stop> {
        let l3_bytes = self.flows().l3_bytes();
        let peers = self.peers.iter();
        peers.map(|place| place.slow_frames(l3_bytes)).collect()
    }

    /// Lets routes and neighbours change, if they are to: in all routers but the plain one. Who changes them and who follows
    /// has another CPU, if there is one.
    fn churn(&self, daemon: &RouterDaemon) -> Result<Vec<Churn>, Stop> {
        let per_s = self.args.changes();
        if per_s == 0 {
            return Ok(Vec::new());
        }
        let other = usize::from(self.args.cpu == 0);
        let other = (Machine::this().cpus > 1).then_some(other);
        if let Some(cpu) = other {
            pin(daemon.status()?.pid, cpu)?;
        }
        let places = [&self.kernel, &self.freeway].into_iter().chain(&self.peers);
        let changed = places.filter(|place| place.router != Router::KernelPlain);
        let begin = |place: &Place| Churn::begin(&place.lab, per_s, other);
        changed.map(begin).collect()
    }

    /// Measures as often as asked for, each time with a daemon of its own unless one is to do.
    pub fn runs(&self, said: impl Fn(usize, &Run)) -> Result<Vec<Run>, Stop> {
        let number = self.args.runs as usize;
        let at_once = if self.args.one_daemon { number } else { 1 };
        let mut runs = Vec::with_capacity(number);
        let flows = self.args.flows();
        while runs.len() < number {
            let daemon = self.start()?;
            self.warm_up(&daemon, flows)?;
            let program_ns = if self.args.brief {
                None
            } else {
                self.program_ns()?
            };
            let turns = self.turns(flows)?;
            for _ in 0..at_once {
                let run = Run {
                    program_ns,
                    ..self.run(&daemon, &turns)?
                };
                said(runs.len() + 1, &run);
                runs.push(run);
            }
            drop(turns);
            daemon.stop()?;
        }
        Ok(runs)
    }

    /// Measures as often as asked for with each of these numbers of flows, by one daemon. Connections are there for all.
    pub fn runs_of(
        &self,
        counts: &[u32],
        said: impl Fn(u32, usize, &Run),
    ) -> Result<Vec<Vec<Run>>, Stop> {
        let daemon = self.start()?;
        let mut all = Vec::with_capacity(counts.len());
        for flows in counts {
            self.keep()?;
            self.warm_up(&daemon, *flows)?;
            let turns = self.turns(*flows)?;
            let mut runs = Vec::new();
            for number in 1..=self.args.runs as usize {
                let run = self.run(&daemon, &turns)?;
                said(*flows, number, &run);
                runs.push(run);
            }
            all.push(runs);
        }
        daemon.stop()?;
        Ok(all)
    }

    /// As [`Bench::runs`], with the first of these CPUs and with all of them by turns. Flows of each CPU, and the runs.
    pub fn runs_abreast(
        &self,
        cpus: &[usize],
        said: impl Fn(usize, &AbreastSample),
    ) -> Result<(Vec<u32>, Vec<AbreastSample>), Stop> {
        let CompareArgs { proto, .. } = *self.args;
        let (flows, number) = (self.args.flows(), self.args.runs as usize);
        let at_once = if self.args.one_daemon { number } else { 1 };
        let seconds = Duration::from_secs_f64(self.args.seconds);
        let (mut shares, mut runs) = (Vec::new(), Vec::with_capacity(number));
        while runs.len() < number {
            let daemon = self.start()?;
            self.warm_up(&daemon, flows)?;
            let labs = [&self.kernel.lab, &self.freeway.lab];
            let turns = AbreastTurns::new(&labs, (proto, flows, self.args.frame_bytes()), cpus)?;
            for _ in 0..at_once {
                let (frames, fast) = (turns.frames()?, daemon.stats()?.fast.packets);
                let samples = turns.run(seconds)?;
                let fast = daemon.stats()?.fast.packets.saturating_sub(fast);
                let sent = |frames: Vec<u64>| frames.get(1).copied().unwrap_or(0);
                // those of the warm-ups are in both
                let frames = sent(turns.frames()?) - sent(frames);
                let fast_share = fast as f64 / frames.max(1) as f64;
                let run = AbreastSample::of(&samples, fast_share);
                said(runs.len() + 1, &run);
                runs.push(run);
            }
            shares = turns.flows();
            drop(turns);
            daemon.stop()?;
        }
        Ok((shares, runs))
    }

    /// A daemon, to which its ports have been shown.
    fn start(&self) -> Result<RouterDaemon, Stop> {
        self.keep()?;
        let lab = &self.freeway.lab;
        let daemon = RouterDaemon::start_on(lab, self.args.path, &self.config)?;
        daemon.require_fast_ports()?;
        session::show(lab, &daemon, self.args.path)?;
        if self.args.idle_connections > 0 {
            self.prime(self.args.flows())?;
        }
        Ok(daemon)
    }

    fn turns(&self, flows: u32) -> Result<Turns, Stop> {
        let seconds = Duration::from_secs_f64(self.args.seconds);
        let peers: Vec<&Lab> = self.peers.iter().map(|place| &place.lab).collect();
        let routers = [&self.kernel.lab, &self.freeway.lab];
        Ok(Turns::new(&routers, &peers, &self.spec(flows, seconds))?)
    }

    fn run(&self, daemon: &RouterDaemon, turns: &Turns) -> Result<Run, Stop> {
        let frames = turns.frames()?;
        let (slow, fast) = (self.slow()?, forwarded(daemon)?);
        let churns = self.churn(daemon)?;
        let samples = turns.run()?;
        let mut changes_per_s = None;
        for churn in churns {
            let per_s = churn.end()?;
            changes_per_s = Some(changes_per_s.map_or(per_s, |least: f64| least.min(per_s)));
        }
        let fast = forwarded(daemon)?.saturating_sub(fast);
        let slow: Vec<_> = slow.into_iter().zip(self.slow()?).collect();
        // those of the turns' warm-ups are among them, as they are among the frames
        let frames: Vec<u64> = turns
            .frames()?
            .into_iter()
            .zip(frames)
            .map(|(after, before)| after - before)
            .collect();
        let sent = |at: usize| frames.get(at).copied().unwrap_or(0).max(1) as f64;
        let router = |at: usize| Figures::of(&samples, move |turn| &turn.routers[at]);
        let peers = slow
            .into_iter()
            .zip(2..)
            .map(|((before, after), at)| Figures {
                fast_share: before
                    .zip(after)
                    .map(|(before, after)| (1.0 - (after - before) / sent(at)).max(0.0)),
                ..router(at)
            });
        let net = |turn: &Turn, at: usize| turn.routers[at].ns_per_frame - turn.source.ns_per_frame;
        let over = |figure: &dyn Fn(&Turn) -> f64| median(samples.iter().map(figure).collect());
        Ok(Run {
            source_ns: over(&|turn| turn.source.ns_per_frame),
            redirect: Figures::of(&samples, |turn| &turn.redirect),
            kernel: router(0),
            freeway: Figures {
                fast_share: Some(fast as f64 / sent(1)),
                ..router(1)
            },
            over_kernel: over(&|turn| net(turn, 1) / net(turn, 0)),
            program_ns: None,
            changes_per_s,
            peers: peers.collect(),
        })
    }
}

/// Frames that Freeway forwarded, by flows and by routes.
fn forwarded(daemon: &RouterDaemon) -> Result<u64, Stop> {
    let stats = daemon.stats()?;
    let mut routed = stats
        .reasons
        .iter()
        .filter(|reason| reason.name == "routed");
    let routed = routed.next().map_or(0, |reason| reason.packets);
    Ok(stats.fast.packets + routed)
}

/// The routers.
pub fn built(args: &CompareArgs) -> Result<Bench<'_>, Stop> {
    let topology = Definition::of(args.scenario).topology()?;
    freeway_rig::prepare()?;
    if args.changes.is_some() && args.changes() == 0 {
        let message = "--changes is of `--scenario churn` alone";
        return Err(Stop::new(Exit::Usage, message));
    }
    let spread = [Scenario::Nat, Scenario::Routed, Scenario::FullTable];
    if args.destinations.is_some() && !spread.contains(&args.scenario) {
        let message = "--destinations is of `--scenario nat`, `routed` and `full-table` alone";
        return Err(Stop::new(Exit::Usage, message));
    }
    let untracked = [Scenario::Routed, Scenario::FullTable, Scenario::Churn];
    if args.routes && !untracked.contains(&args.scenario) {
        let message = "--routes is of `--scenario routed`, `full-table` and `churn` alone";
        return Err(Stop::new(Exit::Usage, message));
    }
    let connections = args.flows() + args.idle_connections;
    if connections > FLOWS_MAX {
        let message = format!(
            "--flows and --idle-connections: {connections} in all, but the generator has {FLOWS_MAX} tuples; ask for fewer"
        );
        return Err(Stop::new(Exit::Usage, message));
    }
    progress(&format!(
        "building the routers of `{}`",
        args.scenario.name()
    ));
    Bench::build(args, topology)
}
