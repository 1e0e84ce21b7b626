// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway demo`: the same traffic without and with the fast path.

use std::thread;
use std::time::{Duration, Instant};

use freeway_console::{Page, Stop, Terminal, Tone, count, progress, show};
use freeway_lab::{
    Lab, MeasureSpec, NapiThreads, Options, Proto, Reference, Sample, Topology, measure,
    measure_reference,
};
use freeway_rig::iperf::{Client, Server, Spec};
use freeway_rig::{
    Machine, RouterDaemon, Streamed, figures, flow_config, options, pin, poll_by_threads, prepare,
};
use serde::Serialize;

use crate::cli::DemoArgs;

/// The lab of the demo.
const TOPOLOGY: &str = "nat";
/// 64-byte frames, FCS counted: the hardest for a router.
const FRAME_BYTES: u32 = 64;
/// Frames before a sample, so that flows become fast.
const WARMUP: Duration = Duration::from_secs(2);
/// Until a stream has its speed and is fast.
const STREAM_WARMUP_S: u32 = 2;
/// By which it lasts longer than what is looked at.
const STREAM_MARGIN_S: u32 = 1;

/// What the demo measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Demo {
    /// The lab's topology.
    pub scenario: String,
    /// Frame size of the generator, FCS counted.
    pub frame_bytes: u32,
    /// Flows of the generator.
    pub flows: u32,
    /// What the kernel alone did.
    pub kernel: Figures,
    /// What Freeway did.
    pub freeway: Figures,
    /// Freeway's packet rate over the kernel's, generator and sink included.
    pub packet_ratio: f64,
    /// Freeway's time for a frame over the kernel's, without the generator: how many times faster.
    pub net_ratio: Option<f64>,
    /// Freeway's TCP throughput over the kernel's.
    pub tcp_ratio: f64,
    /// The kernel's CPU time for a gigabit of it over Freeway's.
    pub tcp_cpu_ratio: f64,
    /// What was measured on.
    pub machine: Machine,
}

/// The figures of one of the two.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Packet rate, generator and sink included.
    pub mpps: f64,
    /// Time for a frame without the generator; none if the generator alone took as long: the machine does other work.
    pub net_ns: Option<f64>,
    /// What the server's port received of a TCP stream (iperf3).
    pub tcp_gbit_s: f64,
    /// CPU time of the router's ports for a gigabit of it.
    pub tcp_cpu_ms_per_gbit: f64,
}

/// Runs the demo and prints its table.
pub fn run(args: &DemoArgs) -> Result<(), Stop> {
    prepare()?;
    let demo = measure_all(args)?;
    show(args.json, &demo, |terminal| table(&demo, terminal))
}

fn measure_all(args: &DemoArgs) -> Result<Demo, Stop> {
    let start = Instant::now();
    let say = |words: &str| progress(&format!("[{:>2} s] {words}", start.elapsed().as_secs()));
    let topology = Topology::parse(TOPOLOGY)?;
    say(&format!(
        "building the lab `{TOPOLOGY}`: {}",
        topology.summary
    ));
    let seconds = Duration::from_secs(args.seconds.into());
    let [kernel_tcp, freeway_tcp] = streams(topology, args.seconds, &say)?;

    let lab = Lab::build(topology, options(args.flows))?;
    let spec = MeasureSpec {
        flows: args.flows,
        frame_bytes: FRAME_BYTES,
        duration: seconds,
        ..MeasureSpec::default()
    };
    let generator = format!(
        "{} flows of {FRAME_BYTES}-byte frames",
        count(args.flows.into())
    );
    say(&format!("kernel: {generator}"));
    let short = MeasureSpec {
        duration: Duration::from_secs(1),
        ..spec
    };
    let generator_ns = || {
        let source = measure_reference(&lab, &short, Reference::XdpDrop)?;
        Ok::<_, Stop>(source.ns_per_frame)
    };
    let source_ns = generator_ns()?;
    lab.prime(Proto::Udp, args.flows, Some(spec.cpu))?;
    let kernel = measure(&lab, &spec)?;
    say(&format!("kernel: {}", figures(&kernel)));

    say("starting Freeway in the router");
    let daemon = RouterDaemon::start(&lab, &flow_config(args.flows))?;
    daemon.require_fast_ports()?;
    say(&format!("Freeway: {generator}"));
    lab.prime(Proto::Udp, args.flows, Some(spec.cpu))?;
    let freeway = measure(
        &lab,
        &MeasureSpec {
            warmup: WARMUP,
            ..spec
        },
    )?;
    say(&format!("Freeway: {}", figures(&freeway)));
    let fast = daemon.stats()?.fast.packets;
    if fast == 0 {
        return Err(Stop::failure(
            "no packet took the fast path: `freeway doctor` may say why",
        ));
    }
    say(&format!(
        "{} packets took the fast path; removing everything",
        count(fast)
    ));
    daemon.stop()?;
    // once more: what else the machine does comes and goes
    let source_ns = source_ns.min(generator_ns()?);
    drop(lab);

    let net = |sample: &Sample| Some(sample.ns_per_frame - source_ns).filter(|ns| *ns > 0.0);
    let net_ratio = net(&kernel).zip(net(&freeway));
    let figures = |sample: &Sample, tcp: &Streamed| Figures {
        mpps: sample.mpps(),
        net_ns: net(sample),
        tcp_gbit_s: tcp.gbit_s(),
        tcp_cpu_ms_per_gbit: tcp.cpu_ms_per_gbit(),
    };
    Ok(Demo {
        scenario: TOPOLOGY.into(),
        frame_bytes: FRAME_BYTES,
        flows: args.flows,
        kernel: figures(&kernel, &kernel_tcp),
        freeway: figures(&freeway, &freeway_tcp),
        packet_ratio: freeway.mpps() / kernel.mpps(),
        net_ratio: net_ratio.map(|(kernel, freeway)| kernel / freeway),
        tcp_ratio: freeway_tcp.gbit_s() / kernel_tcp.gbit_s(),
        tcp_cpu_ratio: kernel_tcp.cpu_ms_per_gbit() / freeway_tcp.cpu_ms_per_gbit(),
        machine: Machine::this(),
    })
}

/// One TCP stream through the kernel, then through Freeway. The lab has wires: a veth would hand over the sender's
/// skbs, and the router is to get frames as from a driver. Its ports are polled by threads, whose CPU time is all that it does.
fn streams(
    topology: &'static Topology,
    seconds: u32,
    say: &impl Fn(&str),
) -> Result<[Streamed; 2], Stop> {
    let wired = Options {
        wires: true,
        ..options(0)
    };
    let lab = Lab::build(topology, wired)?;
    let (threads, host_cpu) = poll_by_threads(&lab)?;
    let of_hosts = Spec {
        cpu: Some(host_cpu),
        ..Spec::default()
    };
    let _server = Server::start(&lab, &of_hosts)?;
    let client = Spec {
        seconds: STREAM_WARMUP_S + seconds + STREAM_MARGIN_S,
        ..of_hosts
    };
    say(&format!("kernel: iperf3, one TCP stream, {seconds} s"));
    let kernel = stream(&lab, &threads, None, &client, seconds)?;
    say(&format!(
        "kernel: {:.2} Gb/s; starting Freeway in the router",
        kernel.gbit_s()
    ));
    let daemon = RouterDaemon::start(&lab, "")?;
    daemon.require_fast_ports()?;
    pin(daemon.status()?.pid, host_cpu)?;
    say(&format!("Freeway: iperf3, one TCP stream, {seconds} s"));
    let freeway = stream(&lab, &threads, Some(&daemon), &client, seconds)?;
    say(&format!("Freeway: {:.2} Gb/s", freeway.gbit_s()));
    daemon.stop()?;
    Ok([kernel, freeway])
}

fn stream(
    lab: &Lab,
    threads: &NapiThreads,
    daemon: Option<&RouterDaemon>,
    client: &Spec,
    seconds: u32,
) -> Result<Streamed, Stop> {
    let client = Client::start(lab, client)?;
    thread::sleep(Duration::from_secs(STREAM_WARMUP_S.into()));
    let streamed = Streamed::watch(lab, threads, daemon, Duration::from_secs(seconds.into()))?;
    client.received_bit_s()?;
    Ok(streamed)
}

fn table(demo: &Demo, terminal: Terminal) -> String {
    let mut page = Page::new(terminal);
    page.words(
        "",
        &format!(
            "A router with masquerade and a stateful firewall, on one core of {} (Linux {})",
            demo.machine.cpu, demo.machine.kernel
        ),
    );
    page.gap();
    let heads = ["", "kernel", "Freeway", "ratio"]
        .map(|head| page.tone(Tone::Head, head))
        .to_vec();
    let row = |name: String, kernel: String, freeway: String, ratio: Option<f64>| {
        let ratio = ratio.map_or("-".into(), |ratio| format!("{ratio:.1}"));
        vec![name, kernel, freeway, ratio]
    };
    let net = |figures: &Figures| figures.net_ns.map_or("-".into(), |ns| format!("{ns:.0}"));
    let (kernel, freeway) = (&demo.kernel, &demo.freeway);
    let flows = count(demo.flows.into());
    page.table(
        2,
        &[1, 2, 3],
        &[
            heads,
            row(
                format!("{}-byte frames, {flows} flows, Mpps", demo.frame_bytes),
                format!("{:.2}", kernel.mpps),
                format!("{:.2}", freeway.mpps),
                Some(demo.packet_ratio),
            ),
            row(
                "the same without the generator's time, ns a frame".into(),
                net(kernel),
                net(freeway),
                demo.net_ratio,
            ),
            row(
                "iperf3, one TCP stream, Gb/s".into(),
                format!("{:.2}", kernel.tcp_gbit_s),
                format!("{:.2}", freeway.tcp_gbit_s),
                Some(demo.tcp_ratio),
            ),
            row(
                "the router's CPU for a gigabit of it, ms".into(),
                format!("{:.1}", kernel.tcp_cpu_ms_per_gbit),
                format!("{:.1}", freeway.tcp_cpu_ms_per_gbit),
                Some(demo.tcp_cpu_ratio),
            ),
        ],
    );
    page.gap();
    let packets = page.tone(Tone::Good, &format!("{:.1} times", demo.packet_ratio));
    let less = page.tone(Tone::Good, &format!("{:.1} times", demo.tcp_cpu_ratio));
    page.words("", &format!("Freeway forwards {packets} as many packets, and needs {less} less CPU for a TCP stream. The stream's speed here is that of its two ends, which share a CPU."));
    page.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_fits() {
        let demo = Demo {
            scenario: "nat".into(),
            frame_bytes: 64,
            flows: 1000,
            kernel: Figures {
                mpps: 0.7,
                net_ns: Some(1400.0),
                tcp_gbit_s: 3.1,
                tcp_cpu_ms_per_gbit: 90.0,
            },
            freeway: Figures {
                mpps: 5.3,
                net_ns: None,
                tcp_gbit_s: 5.9,
                tcp_cpu_ms_per_gbit: 30.0,
            },
            packet_ratio: 7.571,
            net_ratio: None,
            tcp_ratio: 1.903,
            tcp_cpu_ratio: 3.0,
            machine: Machine::this(),
        };
        let text = table(
            &demo,
            Terminal {
                width: 80,
                color: false,
            },
        );
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        assert!(text.contains("0.70     5.30    7.6\n"), "{text}");
        assert!(text.contains(" 1400        -      -\n"), "{text}");
        assert!(
            text.contains("Freeway forwards 7.6 times as many packets, and"),
            "{text}"
        );
    }
}
