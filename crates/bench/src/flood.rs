// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway bench flood`: established fast flows while new tuples flood the same port.
//!
//! The kernel counts a program's time for hits and misses together. A hit's time is what is left when the misses are
//! taken out, at the time that one takes in a flood without established flows, measured before and after.

use std::net::IpAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use freeway_api::{FlowFilter, FlowState, PortRange};
use freeway_console::{Page, Stop, Terminal, Tone, count, progress, show};
use freeway_lab::frame::{FLOWS_MAX, FLOWS_PER_BLOCK, TCP_SYN};
use freeway_lab::{
    Counting, FlowSpec, Generator, Lab, Load, Options, Program, Proto, Rule, RunTime, Running,
    Sent, Sink, SinkSpec, Topology, Until,
};
use freeway_rig::{Machine, RouterDaemon, cpu_time, options, pin};
use serde::{Deserialize, Serialize};

use crate::banned::{FIRST, PREROUTING, ban, taken_over};
use crate::cli::{FloodArgs, FloodKind};
use crate::median::median;

const SCENARIO: &str = "nat";
/// Frames a second of the established flows: where a hit's time is taken, so that hits outnumber misses,
const TIMED_PPS: u64 = 1_000_000;
/// and where losses are counted, so that the kernel alone could carry them beside the flood.
const CARRIED_PPS: u64 = 100_000;
/// Connections that begin to send during the flood, and how often in all.
const NEW_FLOWS: u32 = 100;
const NEW_PPS: u64 = 5_000;
/// How long they go on after the flood until all of them are fast.
const NEW_PATIENCE: Duration = Duration::from_secs(5);
/// Their ports begin at a multiple of this, a power of two.
const NEW_BLOCK: u32 = NEW_FLOWS.next_power_of_two();
/// Of the source port, UDP over IPv4.
const PORTS_OFFSET: u32 = 34;
/// The flood's destination ports; each sample has ports of its own, or its tuples would be known.
const FLOOD_PORT: u16 = 20_000;
/// Addresses that are banned.
const BANNED: u32 = 100_000;
/// Of a flood's tuples that the kernel accepted, the next sample is to find few.
const TIMEOUT_S: &str = "5";
/// All flows are fast a moment after they were learned.
const WARM_UP: Duration = Duration::from_secs(20);
/// Nothing but hits, as many as the CPU can.
const FULL: Duration = Duration::from_secs(1);
/// What is under way when the last frame was sent.
const SETTLE: Duration = Duration::from_millis(200);

/// The result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Flood {
    /// The lab's topology.
    pub scenario: String,
    /// Established flows.
    pub flows: u32,
    /// Runs.
    pub runs: u32,
    /// Each sort of flood.
    pub kinds: Vec<Kind>,
    /// What was measured on.
    pub machine: Machine,
}

/// One sort of flood. Figures are medians of the runs, losses and what is learned are sums.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Kind {
    /// `syn_accepted` and so on.
    pub name: String,
    /// New tuples a second that the kernel alone takes, the generator's work included.
    pub capacity_per_s: f64,
    /// New tuples a second beside the established flows, of the kernel alone.
    pub kernel_flood_per_s: f64,
    /// The same with Freeway.
    pub flood_per_s: f64,
    /// Mean program time of a hit before the flood, nanoseconds.
    pub hit_ns_before: f64,
    /// The same if the CPU does nothing but hits, without a pause between them in which caches cool down.
    pub hit_ns_full: f64,
    /// During it.
    pub hit_ns_during: f64,
    /// hit_ns_during / hit_ns_before.
    pub hit_ratio: f64,
    /// Mean program time of a miss in the flood alone, which the above supposes.
    pub miss_ns: f64,
    /// Hits for each miss where that was measured.
    pub hits_per_miss: f64,
    /// Frames that the established flows sent while the flood came, and a moment before and after, kernel alone.
    pub kernel_sent: u64,
    /// Of which did not arrive.
    pub kernel_lost: u64,
    /// Frames sent meanwhile, with Freeway.
    pub freeway_sent: u64,
    /// Of which did not arrive.
    pub freeway_lost: u64,
    /// The daemon's CPU time during the flood, in cores; the most of all runs.
    pub daemon_cpu: f64,
    /// The daemon's own memory before the flood.
    pub memory_before_bytes: u64,
    /// After it; the most of all runs.
    pub memory_after_bytes: u64,
    /// Connections that began to send during the flood.
    pub new_flows: u64,
    /// Their frames that arrived during the flood.
    pub new_flows_arrived: u64,
    /// Of the connections, those that were fast when it ended.
    pub new_flows_fast: u64,
    /// And when they had gone on for at most five seconds more.
    pub new_flows_fast_after: u64,
    /// The figures of each run.
    pub samples: Samples,
}

/// The figures of each run, in order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Samples {
    /// `capacity_per_s` of each run, and so on.
    pub capacity_per_s: Vec<f64>,
    /// A hit before the flood.
    pub hit_ns_before: Vec<f64>,
    /// On a CPU that does nothing else.
    pub hit_ns_full: Vec<f64>,
    /// In the flood.
    pub hit_ns_during: Vec<f64>,
    /// A miss in it.
    pub miss_ns: Vec<f64>,
    /// Share of the established flows' frames that arrived, of the kernel alone.
    pub kernel_arrived_share: Vec<f64>,
    /// With Freeway.
    pub freeway_arrived_share: Vec<f64>,
}

/// Measures and prints.
pub fn flood(args: &FloodArgs) -> Result<(), Stop> {
    let flood = measured(args)?;
    show(args.json, &flood, |terminal| table(&flood, terminal))
}

/// Measures.
pub fn measured(args: &FloodArgs) -> Result<Flood, Stop> {
    let topology = Topology::parse(SCENARIO)?;
    freeway_rig::prepare()?;
    let kinds = match &args.kinds[..] {
        [] => &[
            FloodKind::SynAccepted,
            FloodKind::SynDropped,
            FloodKind::SynBanned,
            FloodKind::UdpAccepted,
            FloodKind::UdpDropped,
        ],
        kinds => kinds,
    };
    let mut measured = Vec::new();
    for kind in kinds {
        progress(&format!("{}:", name(*kind)));
        measured.push(Site::build(args, topology, *kind)?.measure()?);
    }
    Ok(Flood {
        scenario: topology.name.into(),
        flows: args.flows,
        runs: args.runs,
        kinds: measured,
        machine: Machine::this(),
    })
}

fn name(kind: FloodKind) -> &'static str {
    match kind {
        FloodKind::SynAccepted => "syn_accepted",
        FloodKind::SynDropped => "syn_dropped",
        FloodKind::SynBanned => "syn_banned",
        FloodKind::UdpAccepted => "udp_accepted",
        FloodKind::UdpDropped => "udp_dropped",
    }
}

struct Site<'a> {
    args: &'a FloodArgs,
    kind: FloodKind,
    lab: Lab,
    /// Samples whose tuples are used up.
    floods: u16,
    /// Tuples of each.
    tuples: u32,
}

/// One run's figures.
struct Timed {
    before_ns: f64,
    full_ns: f64,
    during_ns: f64,
    miss_ns: f64,
    hits_per_miss: f64,
}

/// Established flows beside a flood.
#[derive(Clone, Copy, Default)]
struct Carried {
    sent: u64,
    lost: u64,
    flood_per_s: f64,
    daemon_cpu: f64,
    memory_bytes: [u64; 2],
    /// Frames of the new flows that arrived during the flood.
    new_arrived: u64,
    /// Of the new flows, when it ended and later.
    new_fast: [u64; 2],
}

impl Carried {
    fn arrived_share(&self) -> f64 {
        1.0 - self.lost as f64 / self.sent.max(1) as f64
    }
}

impl<'a> Site<'a> {
    fn build(
        args: &'a FloodArgs,
        topology: &'static Topology,
        kind: FloodKind,
    ) -> Result<Self, Stop> {
        let (proto, dropped) = match kind {
            FloodKind::SynAccepted => (Proto::Tcp, false),
            FloodKind::SynDropped => (Proto::Tcp, true),
            FloodKind::SynBanned => (Proto::Tcp, false),
            FloodKind::UdpAccepted => (Proto::Udp, false),
            FloodKind::UdpDropped => (Proto::Udp, true),
        };
        let extra_nft = if dropped {
            format!(
                "table inet flood {{\n\tchain forward {{\n\t\ttype filter hook forward priority -1;\n\
                 \t\t{} dport >= {FLOOD_PORT} drop\n\t}}\n}}\n",
                proto.name()
            )
        } else {
            String::new()
        };
        let lab = Lab::build(
            topology,
            Options {
                extra_nft,
                ..options(2 * FLOWS_MAX)
            },
        )?;
        for timeout in ["udp_timeout", "tcp_timeout_syn_sent"] {
            let path = format!("net/netfilter/nf_conntrack_{timeout}");
            lab.router().sysctl(&path, TIMEOUT_S)?;
        }
        let mut tuples = FLOWS_MAX;
        if kind == FloodKind::SynBanned {
            tuples = BANNED;
            ban(lab.router(), PREROUTING, BANNED)?;
        }
        Ok(Self {
            args,
            kind,
            lab,
            floods: 0,
            tuples,
        })
    }

    fn measure(mut self) -> Result<Kind, Stop> {
        let mut capacities = Vec::new();
        let mut timed = Vec::new();
        let (mut kernel, mut freeway) = (Vec::new(), Vec::new());
        for run in 1..=self.args.runs {
            let say =
                |words: String| progress(&format!("  run {run} of {}: {words}", self.args.runs));
            self.forget()?;
            let sent = self.flood(None)?.wait()?;
            let capacity = per_second(&sent);
            capacities.push(capacity);
            let pps = capacity as u64;
            self.prime()?;
            let alone = self.carry(pps, None)?;
            let times = self.time(pps)?;
            let daemon = self.start()?;
            let both = self.carry(pps, Some(&daemon))?;
            daemon.stop()?;
            say(format!(
                "{} new tuples a second; a hit {:.1} ns, busy {:.1}, in the flood {:.1}, a miss {:.1}; lost {} of {}, by the kernel alone {} of {}; \
                 daemon {:.2} cores; {} of {NEW_FLOWS} new flows fast",
                count(pps),
                times.before_ns,
                times.full_ns,
                times.during_ns,
                times.miss_ns,
                both.lost,
                both.sent,
                alone.lost,
                alone.sent,
                both.daemon_cpu,
                both.new_fast[0]
            ));
            timed.push(times);
            kernel.push(alone);
            freeway.push(both);
        }
        let of = |figure: fn(&Timed) -> f64| median(timed.iter().map(figure).collect());
        let sum = |runs: &[Carried], figure: fn(&Carried) -> u64| runs.iter().map(figure).sum();
        let floods = |runs: &[Carried]| median(runs.iter().map(|run| run.flood_per_s).collect());
        let most = |at: usize| {
            freeway
                .iter()
                .map(|run| run.memory_bytes[at])
                .max()
                .unwrap_or(0)
        };
        let each = |figure: fn(&Timed) -> f64| timed.iter().map(figure).collect();
        let arrived = |runs: &[Carried]| runs.iter().map(Carried::arrived_share).collect();
        let samples = Samples {
            capacity_per_s: capacities.clone(),
            hit_ns_before: each(|run| run.before_ns),
            hit_ns_full: each(|run| run.full_ns),
            hit_ns_during: each(|run| run.during_ns),
            miss_ns: each(|run| run.miss_ns),
            kernel_arrived_share: arrived(&kernel),
            freeway_arrived_share: arrived(&freeway),
        };
        Ok(Kind {
            samples,
            name: name(self.kind).into(),
            capacity_per_s: median(capacities),
            kernel_flood_per_s: floods(&kernel),
            flood_per_s: floods(&freeway),
            hit_ns_before: of(|run| run.before_ns),
            hit_ns_full: of(|run| run.full_ns),
            hit_ns_during: of(|run| run.during_ns),
            hit_ratio: of(|run| run.during_ns / run.before_ns),
            miss_ns: of(|run| run.miss_ns),
            hits_per_miss: of(|run| run.hits_per_miss),
            kernel_sent: sum(&kernel, |run| run.sent),
            kernel_lost: sum(&kernel, |run| run.lost),
            freeway_sent: sum(&freeway, |run| run.sent),
            freeway_lost: sum(&freeway, |run| run.lost),
            daemon_cpu: freeway.iter().map(|run| run.daemon_cpu).fold(0.0, f64::max),
            memory_before_bytes: most(0),
            memory_after_bytes: most(1),
            new_flows: u64::from(NEW_FLOWS) * u64::from(self.args.runs),
            new_flows_arrived: sum(&freeway, |run| run.new_arrived),
            new_flows_fast: sum(&freeway, |run| run.new_fast[0]),
            new_flows_fast_after: sum(&freeway, |run| run.new_fast[1]),
        })
    }

    fn seconds(&self) -> Duration {
        Duration::from_secs_f64(self.args.seconds)
    }

    /// The established flows, and those that are to come.
    fn established(&self) -> FlowSpec {
        self.lab.flows(Proto::Udp, self.args.flows, 64)
    }

    /// The first of those that are to come: one comparison tells them from all others.
    fn first_newcomer(&self) -> u32 {
        self.args.flows.next_multiple_of(NEW_BLOCK)
    }

    fn newcomers(&self) -> FlowSpec {
        let all = self.established();
        FlowSpec {
            flows: NEW_FLOWS,
            near_port: all.near_port + self.first_newcomer() as u16,
            bare: true,
            ..all
        }
    }

    /// Their frames behind the masquerade, which keeps the ports.
    fn of_newcomers(&self) -> Rule {
        let spec = self.newcomers();
        Rule {
            offset: PORTS_OFFSET,
            mask: (0x1_0000 - NEW_BLOCK) << 16 | 0xffff,
            value: u32::from(spec.near_port) << 16 | u32::from(spec.far_port),
        }
    }

    /// Empties the table: the tuples of a flood would expire during the next.
    fn forget(&self) -> Result<(), Stop> {
        self.lab.router().tool("conntrack -F")?;
        Ok(())
    }

    /// Opens the connections of both.
    fn prime(&self) -> Result<(), Stop> {
        self.forget()?;
        let flows = self.first_newcomer() + NEW_FLOWS;
        self.lab.prime(Proto::Udp, flows, Some(self.args.cpu))?;
        Ok(())
    }

    /// New tuples, as many as the CPU can or so many a second, until they would repeat; or banned ones, again and again.
    fn flood(&mut self, pps: Option<u64>) -> Result<Running, Stop> {
        let time = self.seconds();
        let (spec, until) = if self.kind == FloodKind::SynBanned {
            (self.banned(), Until::Elapsed(time))
        } else {
            let until = match pps {
                Some(pps) => {
                    Until::Frames((time.as_millis() as u64 * pps / 1000).min(self.tuples.into()))
                }
                // half of them: the machine may be faster later
                None => Until::Frames(u64::from(self.tuples) / 2),
            };
            (self.unknown(), until)
        };
        let load = Load {
            pps,
            ..Load::full(until)
        };
        let generator = Arc::new(Generator::new(self.lab.client_port(), &spec)?);
        Ok(generator.start(load.on_cpu(self.args.cpu))?)
    }

    /// Tuples that no flood before had.
    fn unknown(&mut self) -> FlowSpec {
        let tcp = matches!(self.kind, FloodKind::SynAccepted | FloodKind::SynDropped);
        let proto = if tcp { Proto::Tcp } else { Proto::Udp };
        let blocks = FLOWS_MAX.div_ceil(FLOWS_PER_BLOCK) as u16;
        let far_port = FLOOD_PORT + self.floods * blocks;
        self.floods += 1;
        FlowSpec {
            far_port,
            tcp_flags: TCP_SYN,
            bare: true,
            ..self.lab.flows(proto, self.tuples, 64)
        }
    }

    /// One from each banned address.
    fn banned(&self) -> FlowSpec {
        FlowSpec {
            near: IpAddr::V4(FIRST.into()),
            near_each: true,
            tcp_flags: TCP_SYN,
            bare: true,
            ..self.lab.flows(Proto::Tcp, self.tuples, 64)
        }
    }

    fn load(&self, spec: &FlowSpec, load: Load) -> Result<Running, Stop> {
        let generator = Arc::new(Generator::new(self.lab.client_port(), spec)?);
        Ok(generator.start(load)?)
    }

    /// A daemon under which the established flows are fast.
    fn start(&self) -> Result<RouterDaemon, Stop> {
        // before it looks: it is not to know those that are to come
        self.prime()?;
        let daemon = RouterDaemon::start(&self.lab, "")?;
        daemon.require_fast_ports()?;
        pin(daemon.status()?.pid, self.args.daemon_cpu)?;
        if self.kind == FloodKind::SynBanned {
            taken_over(&daemon, self.tuples)?;
        }
        let _sink = Sink::attach(self.lab.server_port(), SinkSpec::plain())?;
        let load = self.load(&self.established(), paced(CARRIED_PPS, self.args.cpu))?;
        let patience = Instant::now() + WARM_UP;
        while daemon.count(&self.active(&self.established()))? < self.args.flows.into() {
            if Instant::now() > patience {
                return Err(Stop::failure("the established flows did not become fast"));
            }
            thread::sleep(SETTLE);
        }
        load.stop()?;
        Ok(daemon)
    }

    fn fast_newcomers(&self, daemon: &RouterDaemon) -> Result<u64, Stop> {
        daemon.count(&self.active(&self.newcomers()))
    }

    /// The same when all are, or patience ends.
    fn fast_in_the_end(&self, daemon: &RouterDaemon) -> Result<u64, Stop> {
        let patience = Instant::now() + NEW_PATIENCE;
        loop {
            let fast = self.fast_newcomers(daemon)?;
            if fast == u64::from(NEW_FLOWS) || Instant::now() > patience {
                return Ok(fast);
            }
            thread::sleep(SETTLE);
        }
    }

    fn active(&self, spec: &FlowSpec) -> FlowFilter {
        let first = spec.near_port;
        let last = first + (spec.flows - 1) as u16;
        FlowFilter {
            sport: Some(PortRange { first, last }),
            port: Some(self.lab.lan_port().name.clone()),
            state: Some(FlowState::Active),
            ..FlowFilter::default()
        }
    }

    /// What hits and misses take in the program.
    fn time(&mut self, pps: u64) -> Result<Timed, Stop> {
        let daemon = self.start()?;
        let _sink = Sink::attach(self.lab.server_port(), SinkSpec::plain())?;
        let program = Program::xdp(self.lab.lan_port())?;
        let program = program.ok_or_else(|| {
            Stop::failure(format!("{} has no XDP program", self.lab.lan_port().name))
        })?;
        let _counting = Counting::begin()?;
        let hits = || -> Result<u64, Stop> { Ok(daemon.stats()?.fast.packets) };
        let spec = self.established();

        let first = self.miss(&program, pps)?;
        let generator = Generator::new(self.lab.client_port(), &spec)?;
        let (from, fast) = (program.run_time()?, hits()?);
        generator.run(&Load::full(Until::Elapsed(FULL)).on_cpu(self.args.cpu))?;
        let full_ns = without(program.run_time()?.since(from), hits()? - fast, first);
        let load = self.load(&spec, paced(TIMED_PPS, self.args.cpu))?;
        let (from, fast) = (program.run_time()?, hits()?);
        thread::sleep(self.seconds().min(Duration::from_secs(2)));
        let (before, fast) = (program.run_time()?.since(from), hits()? - fast);
        // connections end and checks are due: a few are no hits
        let before_ns = without(before, fast, first);
        let flood = self.flood(Some(pps))?;
        let (from, fast) = (program.run_time()?, hits()?);
        while !flood.is_done() {
            thread::sleep(Duration::from_millis(1));
        }
        let (during, fast) = (program.run_time()?.since(from), hits()? - fast);
        load.stop()?;
        flood.wait()?;
        let last = self.miss(&program, pps)?;
        daemon.stop()?;
        let miss_ns = (first + last) / 2.0;
        Ok(Timed {
            before_ns,
            full_ns,
            during_ns: without(during, fast, miss_ns),
            miss_ns,
            hits_per_miss: fast as f64 / during.count.saturating_sub(fast).max(1) as f64,
        })
    }

    /// The mean program time of a miss.
    fn miss(&mut self, program: &Program, pps: u64) -> Result<f64, Stop> {
        let from = program.run_time()?;
        self.flood(Some(pps))?.wait()?;
        Ok(program.run_time()?.since(from).mean_ns())
    }

    /// The established flows' frames beside the flood. They come from another CPU, as from another sender: the flood
    /// cannot slow that down.
    fn carry(&mut self, pps: u64, daemon: Option<&RouterDaemon>) -> Result<Carried, Stop> {
        let spec = SinkSpec {
            flows: self.args.flows,
            rules: true,
            ..SinkSpec::default()
        };
        let sink = Sink::attach(self.lab.server_port(), spec)?;
        sink.set_rule(0, self.of_newcomers())?;
        let usage = || -> Result<(Instant, Duration, u64), Stop> {
            let Some(daemon) = daemon else {
                return Ok((Instant::now(), Duration::ZERO, 0));
            };
            let status = daemon.status()?;
            let memory = status.memory_rss_bytes;
            Ok((Instant::now(), cpu_time(status.pid)?, memory))
        };
        // the daemon, which shares that CPU, must not hold them up either
        let beside = |pps| paced(pps, self.args.daemon_cpu).ahead();
        let load = self.load(&self.established(), beside(CARRIED_PPS))?;
        let before = usage()?;
        let flood = self.flood(Some(pps))?;
        let newcomers = self.load(&self.newcomers(), beside(NEW_PPS))?;
        let flood = flood.wait()?;
        let after = usage()?;
        let new_arrived = sink.mark(0)?.count;
        let new_fast = match daemon {
            Some(daemon) => [self.fast_newcomers(daemon)?, self.fast_in_the_end(daemon)?],
            None => [0; 2],
        };
        newcomers.stop()?;
        let sent = load.stop()?.frames;
        thread::sleep(SETTLE);
        let arrived: u64 = sink.flows()?.iter().map(|flow| flow.frames).sum();
        let elapsed_s = (after.0 - before.0).as_secs_f64();
        Ok(Carried {
            sent,
            lost: sent.saturating_sub(arrived),
            flood_per_s: per_second(&flood),
            daemon_cpu: (after.1 - before.1).as_secs_f64() / elapsed_s,
            memory_bytes: [before.2, after.2],
            new_arrived,
            new_fast,
        })
    }
}

fn paced(pps: u64, cpu: usize) -> Load {
    Load::paced(Until::Stopped, pps).on_cpu(cpu)
}

/// The mean time of a hit, once the misses are taken out.
fn without(all: RunTime, hits: u64, miss_ns: f64) -> f64 {
    let misses = all.count.saturating_sub(hits) as f64;
    (all.ns as f64 - misses * miss_ns) / hits.max(1) as f64
}

fn per_second(sent: &Sent) -> f64 {
    sent.frames as f64 * 1e9 / sent.elapsed_ns.max(1) as f64
}

fn table(flood: &Flood, terminal: Terminal) -> String {
    let mut page = Page::new(terminal);
    page.words(
        "",
        &format!(
            "Scenario {}: {} established UDP flows, and new tuples as fast as the kernel alone takes them; {} runs",
            flood.scenario,
            count(flood.flows.into()),
            flood.runs
        ),
    );
    page.words("", &flood.machine.to_string());
    page.gap();
    let heads = [
        "flood",
        "new a second",
        "hit",
        "busy",
        "in flood",
        "lost",
        "kernel's",
        "daemon",
        "new fast",
    ];
    let mut rows = vec![heads.map(|head| page.tone(Tone::Head, head)).to_vec()];
    let percent =
        |part: u64, whole: u64| format!("{:.2} %", 100.0 * part as f64 / whole.max(1) as f64);
    for kind in &flood.kinds {
        rows.push(vec![
            kind.name.clone(),
            count(kind.capacity_per_s as u64),
            format!("{:.1} ns", kind.hit_ns_before),
            format!("{:.1} ns", kind.hit_ns_full),
            format!("{:+.0} %", (kind.hit_ratio - 1.0) * 100.0),
            percent(kind.freeway_lost, kind.freeway_sent),
            percent(kind.kernel_lost, kind.kernel_sent),
            format!("{:.2}", kind.daemon_cpu),
            format!("{}/{}", kind.new_flows_fast, kind.new_flows),
        ]);
    }
    page.table(2, &[1, 2, 3, 4, 5, 6, 7, 8], &rows);
    page.gap();
    page.words(
        "",
        "hit: mean program time before the flood, on a CPU that does nothing else, and its change in the flood; lost: frames of the established flows, and of the \
         kernel alone; daemon: cores; new fast: connections that became fast during the flood.",
    );
    page.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misses_are_taken_out() {
        let all = RunTime {
            ns: 1000 * 30 + 500 * 70,
            count: 1500,
        };
        assert!((without(all, 1000, 70.0) - 30.0).abs() < 1e-9);
        assert!(without(RunTime::default(), 0, 70.0).abs() < 1e-9);
    }

    #[test]
    fn the_page_has_the_figures() {
        let kind = Kind {
            name: "udp_accepted".into(),
            capacity_per_s: 345_678.0,
            hit_ns_before: 40.0,
            hit_ratio: 1.1,
            freeway_sent: 1000,
            freeway_lost: 10,
            kernel_sent: 1000,
            kernel_lost: 250,
            new_flows: 300,
            new_flows_fast: 299,
            ..Kind::default()
        };
        let flood = Flood {
            scenario: "nat".into(),
            flows: 1000,
            runs: 3,
            kinds: vec![kind],
            machine: Machine::this(),
        };
        let terminal = Terminal {
            width: 100,
            color: false,
        };
        let text = table(&flood, terminal);
        for words in ["345,678", "+10 %", "1.00 %", "25.00 %", "299/300"] {
            assert!(text.contains(words), "{words}: {text}");
        }
        let json = serde_json::to_value(&flood).unwrap();
        for field in [
            "hit_ratio",
            "freeway_lost",
            "daemon_cpu",
            "new_flows_fast",
            "new_flows_fast_after",
        ] {
            assert!(json["kinds"][0].get(field).is_some(), "{field}");
        }
    }
}
