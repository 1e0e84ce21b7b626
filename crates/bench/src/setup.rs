// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway bench setup`: new connections taken from their first packet to the fast path.
//!
//! Generator, router and hosts share one CPU, the daemon has another. What is measured is the daemon: how many
//! connections it takes in a second, what of its CPU that costs, and how soon they are fast.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use freeway_api::Latency;
use freeway_console::{Page, Stop, Terminal, Tone, count, progress, show};
use freeway_lab::frame::FLOWS_PER_BLOCK;
use freeway_lab::{
    FlowSpec, Generator, Lab, Load, Proto, Reflector, Sink, SinkSpec, Topology, Until,
};
use freeway_rig::{Machine, RouterDaemon, cpu_time, flow_config, options, pin};
use serde::{Deserialize, Serialize};

use crate::cli::SetupArgs;

/// When each connection's packets leave the client; each is answered. A UDP connection is assured by a packet at an
/// age of two seconds (nf_conntrack_udp_packet), so the second packet is the first that can be learned from.
const PACKETS_MS: [u64; 5] = [0, 2200, 2220, 2240, 2260];
/// The share of connections that must be fast for a rate to hold.
const SHARE: f64 = 0.99;
/// The search begins here, goes on by this factor, and ends when two rates are as near as that.
const SEARCH_BEGIN: u32 = 30_000;
const SEARCH_STEP: f64 = 1.5;
const SEARCH_END: f64 = 1.1;
/// The generator cannot do more.
const SEARCH_MAX: u32 = 200_000;
/// The share of the rate at which the time to fast is measured.
const LATENCY_SHARE: u32 = 10;
/// What is under way when the last packet was sent.
const SETTLE: Duration = Duration::from_millis(500);
const SCENARIO: &str = "nat";

/// The result. CPU times are in cores: 1 is one core's whole time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// The lab's topology.
    pub scenario: String,
    /// Packets of a connection, each way.
    pub packets: usize,
    /// Seconds for which connections began in a sample.
    pub seconds: u32,
    /// Connections that conntrack held already, unused.
    pub idle_connections: u32,
    /// The sample of the highest rate that held; none if the lowest tried did not.
    pub rate: Option<Sample>,
    /// The sample at a tenth of that rate.
    pub latency: Option<Sample>,
    /// All samples, in order.
    pub samples: Vec<Sample>,
    /// What was measured on.
    pub machine: Machine,
}

/// Connections at one rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// New connections a second that were asked for.
    pub rate_per_s: u32,
    /// That the generator made.
    pub offered_per_s: f64,
    /// Connections that became fast in both directions each second, while as many began.
    pub taken_per_s: f64,
    /// Connections.
    pub connections: u64,
    /// Of which both directions were fast in the end.
    pub fast: u64,
    /// The daemon's CPU time in that while.
    pub daemon_cpu: f64,
    /// The same for each connection taken, microseconds.
    pub daemon_us_per_connection: f64,
    /// CPU time of generator, router and hosts while connections began.
    pub router_cpu: f64,
    /// From when both directions had shown a packet that could be learned from until both are fast.
    pub to_fast_ms: Latency,
    /// Candidates that the manager refused.
    pub refused: u64,
    /// Candidates lost to a full ring buffer.
    pub lost: u64,
    /// Candidates put off by the data plane's budget.
    pub over_budget: u64,
    /// Netlink overruns.
    pub overruns: u64,
    /// Flows in the table in the end.
    pub flows: u64,
    /// The daemon's own memory in the end.
    pub memory_rss_bytes: u64,
    /// Whether the rate held.
    pub held: bool,
}

/// Measures and prints.
pub fn setup(args: &SetupArgs) -> Result<(), Stop> {
    let setup = measured(args)?;
    show(args.json, &setup, |terminal| table(&setup, terminal))
}

/// Measures.
pub fn measured(args: &SetupArgs) -> Result<Setup, Stop> {
    let topology = Topology::parse(SCENARIO)?;
    freeway_rig::prepare()?;
    run(args, topology)
}

fn run(args: &SetupArgs, topology: &'static Topology) -> Result<Setup, Stop> {
    let mut samples = Vec::new();
    let mut measure = |rate: u32| -> Result<Sample, Stop> {
        let sample = sample(args, topology, rate)?;
        progress(&words(&sample));
        samples.push(sample);
        Ok(sample)
    };
    let rate = match args.rate {
        Some(rate) => Some(measure(rate)?).filter(|sample| sample.held),
        None => search(&mut measure)?,
    };
    let tenth = rate.map_or(args.rate, |sample| Some(sample.rate_per_s));
    let latency = tenth
        .map(|rate| measure((rate / LATENCY_SHARE).max(1)))
        .transpose()?;
    Ok(Setup {
        scenario: topology.name.into(),
        packets: PACKETS_MS.len(),
        seconds: args.seconds,
        idle_connections: args.idle_connections,
        rate,
        latency,
        samples,
        machine: Machine::this(),
    })
}

/// The highest rate that holds.
fn search(measure: &mut impl FnMut(u32) -> Result<Sample, Stop>) -> Result<Option<Sample>, Stop> {
    let (mut best, mut fails): (Option<Sample>, Option<u32>) = (None, None);
    let mut rate = SEARCH_BEGIN;
    loop {
        let sample = measure(rate)?;
        if sample.held {
            best = Some(sample);
        } else {
            fails = Some(rate);
        }
        rate = match next_rate(best.map(|sample| sample.rate_per_s), fails) {
            Some(rate) => rate,
            None => return Ok(best),
        };
    }
}

/// The rate to try after the highest that held and the lowest that did not.
fn next_rate(held: Option<u32>, fails: Option<u32>) -> Option<u32> {
    let scaled = |rate: u32, factor: f64| (f64::from(rate) * factor) as u32;
    match (held, fails) {
        (None, None) => Some(SEARCH_BEGIN),
        (Some(held), None) if held >= SEARCH_MAX => None,
        (Some(held), None) => Some(scaled(held, SEARCH_STEP).min(SEARCH_MAX)),
        (None, Some(fails)) => Some(scaled(fails, 1.0 / SEARCH_STEP)).filter(|rate| *rate >= 1000),
        (Some(held), Some(fails)) => {
            let near = f64::from(fails) < f64::from(held) * SEARCH_END;
            (!near).then(|| scaled(held, (f64::from(fails) / f64::from(held)).sqrt()))
        }
    }
}

/// CPU time so far.
#[derive(Clone, Copy)]
struct Usage {
    at: Instant,
    taken: u64,
    daemon: Duration,
}

fn sample(args: &SetupArgs, topology: &'static Topology, rate: u32) -> Result<Sample, Stop> {
    let connections = rate.saturating_mul(args.seconds).min(args.connections);
    let lab = Lab::build(topology, options(connections + args.idle_connections))?;
    if args.idle_connections > 0 {
        lab.prime(Proto::Udp, args.idle_connections, Some(args.cpu))?;
    }
    let daemon = RouterDaemon::start(&lab, &flow_config(connections))?;
    daemon.require_fast_ports()?;
    let pid = daemon.status()?.pid;
    pin(pid, args.daemon_cpu)?;
    let _reflector = Reflector::attach(lab.server_port())?;
    let _sink = Sink::attach(lab.client_port(), SinkSpec::plain())?;
    let spec = lab.flows(Proto::Udp, connections, 64);
    let spec = FlowSpec {
        // behind the ports of those that are idle
        far_port: spec.far_port + args.idle_connections.div_ceil(FLOWS_PER_BLOCK) as u16,
        ..spec
    };
    let generators: Vec<Arc<Generator>> = PACKETS_MS
        .iter()
        .map(|_| Generator::new(lab.client_port(), &spec).map(Arc::new))
        .collect::<Result<_, _>>()?;
    let load = Load::paced(Until::Frames(connections.into()), rate.into()).on_cpu(args.cpu);
    let usage = || -> Result<Usage, Stop> {
        Ok(Usage {
            at: Instant::now(),
            taken: daemon.status()?.learn.connections,
            daemon: cpu_time(pid)?,
        })
    };
    let begin = Instant::now();
    let mut running = Vec::new();
    for (generator, after_ms) in generators.iter().zip(PACKETS_MS) {
        thread::sleep(Duration::from_millis(after_ms).saturating_sub(begin.elapsed()));
        running.push(generator.start(load)?);
    }
    // Connections begin and become fast at the same rate from here on, until the first generator has done.
    let before = usage()?;
    let first = running.remove(0).wait()?;
    let after = usage()?;
    let mut router_ns = first.cpu_ns;
    for generator in running {
        router_ns += generator.wait()?.cpu_ns;
    }
    thread::sleep(SETTLE);
    let (status, stats) = (daemon.status()?, daemon.stats()?);
    daemon.stop()?;
    let steady_s = (after.at - before.at).as_secs_f64();
    let taken = (after.taken - before.taken) as f64;
    let daemon_s = (after.daemon - before.daemon).as_secs_f64();
    let reason = |name: &str| {
        let reason = stats.reasons.iter().find(|reason| reason.name == name);
        reason.map_or(0, |reason| reason.packets)
    };
    let fast = status.learn.connections;
    Ok(Sample {
        rate_per_s: rate,
        offered_per_s: f64::from(connections) * 1e9 / first.elapsed_ns as f64,
        taken_per_s: taken / steady_s,
        connections: connections.into(),
        fast,
        daemon_cpu: daemon_s / steady_s,
        daemon_us_per_connection: daemon_s * 1e6 / taken.max(1.0),
        router_cpu: router_ns as f64 / first.elapsed_ns as f64,
        to_fast_ms: status.learn.connection_to_fast_ms,
        refused: status.learn.refused,
        lost: stats.events.lost,
        over_budget: reason("learn_budget"),
        overruns: stats.netlink.overruns,
        flows: status.flows.preparing
            + status.flows.active
            + status.flows.unconfirmed
            + status.flows.suspended,
        memory_rss_bytes: status.memory_rss_bytes,
        held: fast as f64 >= SHARE * f64::from(connections)
            && first.elapsed_ns as f64 * f64::from(rate) <= 1.02e9 * f64::from(connections),
    })
}

fn words(sample: &Sample) -> String {
    format!(
        "{:>7} new connections a second: {:>5.1} % fast, daemon {:.2} cores ({:.1} us each), router {:.2}, \
         p95 {:.0} ms{}",
        count(sample.rate_per_s.into()),
        100.0 * sample.fast as f64 / sample.connections.max(1) as f64,
        sample.daemon_cpu,
        sample.daemon_us_per_connection,
        sample.router_cpu,
        sample.to_fast_ms.p95,
        if sample.held { "" } else { "; does not hold" },
    )
}

fn table(setup: &Setup, terminal: Terminal) -> String {
    let mut page = Page::new(terminal);
    page.words(
        "",
        &format!(
            "Scenario {}: new UDP connections, {} packets each way, {} s a sample",
            setup.scenario, setup.packets, setup.seconds
        ),
    );
    page.words("", &setup.machine.to_string());
    page.gap();
    let heads = [
        "a second",
        "fast",
        "daemon CPU",
        "us each",
        "router CPU",
        "p95",
    ];
    let mut rows = vec![heads.map(|head| page.tone(Tone::Head, head)).to_vec()];
    for sample in &setup.samples {
        rows.push(vec![
            count(sample.rate_per_s.into()),
            format!(
                "{:.1} %",
                100.0 * sample.fast as f64 / sample.connections.max(1) as f64
            ),
            format!("{:.2}", sample.daemon_cpu),
            format!("{:.1}", sample.daemon_us_per_connection),
            format!("{:.2}", sample.router_cpu),
            format!("{:.0} ms", sample.to_fast_ms.p95),
        ]);
    }
    page.table(2, &[0, 1, 2, 3, 4, 5], &rows);
    page.gap();
    match &setup.rate {
        Some(sample) => {
            let rate = page.tone(Tone::Good, &format!("{:.0}", sample.taken_per_s));
            page.words(
                "",
                &format!(
                    "{rate} new connections a second become fast, with {:.2} of a core for the daemon.",
                    sample.daemon_cpu
                ),
            );
        }
        None => page.words("", &page.tone(Tone::Warn, "No rate that was tried held.")),
    }
    if let Some(sample) = &setup.latency {
        let to_fast = sample.to_fast_ms;
        page.words(
            "",
            &format!(
                "At {} a second, from learnable to fast in both directions: p50 {:.0} ms, p95 {:.0} ms, \
                 p99 {:.0} ms, max {:.0} ms.",
                count(sample.rate_per_s.into()),
                to_fast.p50,
                to_fast.p95,
                to_fast.p99,
                to_fast.max
            ),
        );
    }
    page.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_closes_in() {
        for limit in [500, 7_000, 30_000, 47_123, 90_000, 1_000_000] {
            let (mut held, mut fails) = (None, None);
            let mut tries = 0;
            while let Some(rate) = next_rate(held, fails) {
                if rate <= limit {
                    held = held.max(Some(rate));
                } else {
                    fails = Some(rate);
                }
                tries += 1;
                assert!(tries < 20, "{limit}");
            }
            match held {
                None => assert!(limit < 1000 * 3 / 2),
                Some(SEARCH_MAX) => assert!(limit >= SEARCH_MAX),
                Some(held) => assert!(held <= limit && f64::from(limit) < 1.1 * f64::from(held)),
            }
        }
    }

    #[test]
    fn the_page_has_the_figures() {
        let sample = Sample {
            rate_per_s: 30_000,
            taken_per_s: 29_990.0,
            connections: 300_000,
            fast: 299_999,
            daemon_cpu: 0.4,
            held: true,
            ..Sample::default()
        };
        let setup = Setup {
            scenario: "nat".into(),
            packets: 5,
            seconds: 10,
            idle_connections: 0,
            rate: Some(sample),
            latency: Some(Sample {
                rate_per_s: 3000,
                ..sample
            }),
            samples: vec![sample],
            machine: Machine::this(),
        };
        let terminal = Terminal {
            width: 80,
            color: false,
        };
        let text = table(&setup, terminal);
        assert!(text.contains("29990 new connections a second"), "{text}");
        assert!(text.contains("At 3,000 a second"), "{text}");
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        let json = serde_json::to_value(&setup).unwrap();
        for field in ["taken_per_s", "daemon_cpu", "to_fast_ms"] {
            assert!(json["rate"].get(field).is_some(), "{field}");
        }
    }
}
