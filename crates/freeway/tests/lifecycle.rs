// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon's life under load: on and off, killed, stopped, started again, ended.
//!
//! ```text
//!      client                     router                     server
//!  +------------+         +---------------------+         +------------+
//!  |  generator |---------| lan0           wan0 |---------| sink       |
//!  +------------+         +---------------------+         +------------+
//!   192.0.2.2/24      192.0.2.1/24      198.51.100.1/24   198.51.100.2/24
//!                       postrouting: masquerade on wan0
//! ```
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use common::*;
use freeway_lab::generator::Running;
use freeway_lab::{Generator, Lab, Load, MeasureSpec, Proto, Sent, Sink, SinkSpec, Until, measure};
use nix::sys::signal::Signal;

const FLOWS: u32 = 1000;
/// The generator's, and with it the router's.
const CPU: usize = 0;
/// What rings and queues of a veth hold when a program goes.
const IN_FLIGHT: u64 = 600;

/// A lab with assured connections, a sink, and a generator at half the kernel's capacity.
struct Bench {
    lab: Lab,
    sink: Sink,
    generator: Arc<Generator>,
    pps: u64,
}

impl Bench {
    fn new() -> Bench {
        let lab = build("nat");
        lab.prime(Proto::Udp, FLOWS, Some(CPU)).unwrap();
        let spec = MeasureSpec {
            flows: FLOWS,
            cpu: CPU,
            ..MeasureSpec::default()
        };
        let kernel = measure(
            &lab,
            &MeasureSpec {
                duration: Duration::from_millis(500),
                ..spec
            },
        )
        .unwrap();
        let capacity = kernel.received as f64 / kernel.elapsed_ns as f64 * 1e9;
        let pps = (capacity / 2.0) as u64;
        eprintln!("the kernel forwards {capacity:.0} frames/s; load: {pps}");
        let sink = Sink::attach(lab.server_port(), SinkSpec::thorough(FLOWS)).unwrap();
        let flows = lab.flows(Proto::Udp, FLOWS, 64);
        let generator = Arc::new(Generator::new(lab.client_port(), &flows).unwrap());
        Bench {
            lab,
            sink,
            generator,
            pps,
        }
    }

    fn load(&self) -> Running {
        self.generator
            .start(Load::paced(Until::Stopped, self.pps).on_cpu(CPU))
            .unwrap()
    }

    /// Ends the load; all that can still arrive has arrived.
    fn end(&self, load: Running) -> Sent {
        let sent = load.stop().unwrap();
        let mut before = u64::MAX;
        until("silence at the sink", Duration::from_secs(2), || {
            let now = self.sink.counts().unwrap().frames;
            let silent = now == before;
            before = now;
            silent.then_some(())
        });
        sent
    }

    /// Nothing was lost, and what arrived is right.
    #[track_caller]
    fn check(&self, sent: &Sent, lost_max: u64) {
        let counts = self.sink.counts().unwrap();
        let lost = sent.frames.saturating_sub(counts.frames);
        eprintln!(
            "{} frames sent, {lost} lost, {} late",
            sent.frames, counts.reordered
        );
        assert!(
            lost <= lost_max,
            "{lost} of {} frames are lost",
            sent.frames
        );
        assert!(counts.frames <= sent.frames, "frames arrived twice");
        assert_eq!((counts.bad_ip_checksum, counts.bad_l4_checksum), (0, 0));
    }

    /// Frames that the generator has sent and that the router's kernel has forwarded.
    fn progress(&self) -> (u64, u64) {
        (
            self.generator.frames().unwrap(),
            forwarded(self.lab.router()),
        )
    }

    /// The kernel's part of what is sent in the next moment.
    fn kernel_share(&self, time: Duration) -> f64 {
        let before = self.progress();
        thread::sleep(time);
        let after = self.progress();
        (after.1 - before.1) as f64 / (after.0 - before.0).max(1) as f64
    }

    /// Waits until nearly all is fast.
    #[track_caller]
    fn wait_fast(&self, patience: Duration) -> Duration {
        self.wait_share(patience, |share| share < 0.05)
    }

    /// Waits until all is the kernel's.
    #[track_caller]
    fn wait_kernel(&self, patience: Duration) -> Duration {
        self.wait_share(patience, |share| share > 0.98)
    }

    #[track_caller]
    fn wait_share(&self, patience: Duration, enough: impl Fn(f64) -> bool) -> Duration {
        let start = Instant::now();
        let mut share = f64::NAN;
        while start.elapsed() < patience + Duration::from_millis(30) {
            let begin = start.elapsed();
            share = self.kernel_share(Duration::from_millis(30));
            if enough(share) {
                return begin;
            }
        }
        panic!("after {patience:?} the kernel has {:.1} %", share * 100.0);
    }
}

#[test]
fn off_and_on_lose_nothing_and_counters_are_true() {
    let Some(_machine) = machine() else { return };
    let bench = Bench::new();
    let router = Router::start(&bench.lab);
    let before = router.stats();
    let load = bench.load();
    eprintln!("fast after {:?}", bench.wait_fast(Duration::from_secs(5)));
    for _ in 0..3 {
        assert_eq!(router.json(&["off"])["on"], false);
        assert_eq!(router.status()["on"], false);
        let fast = router.stats().fast();
        bench.wait_kernel(Duration::from_millis(500));
        assert_eq!(router.stats().fast(), fast, "switched off");
        assert_eq!(router.json(&["on"])["on"], true);
        assert_eq!(router.status()["on"], true);
        eprintln!(
            "fast again after {:?}",
            bench.wait_fast(Duration::from_secs(5))
        );
    }
    let status = router.status();
    assert!(
        status["flows"]["active"].as_u64().unwrap() >= u64::from(FLOWS) * 9 / 10,
        "{status}"
    );
    let sent = bench.end(load);
    bench.check(&sent, 0);
    let stats = router.stats();
    let (fast, punted) = (
        stats.fast() - before.fast(),
        stats.punted() - before.punted(),
    );
    eprintln!("{fast} fast, {punted} by the kernel\n{stats}");
    // it was off and being learned for most of the time, the longer the busier the machine
    assert!(fast > sent.frames / 20, "{stats}");
    // The kernel's ARP and the like may add a few.
    let difference = (fast + punted).abs_diff(sent.frames);
    assert!(
        difference <= 20,
        "{fast} + {punted} of {}\n{stats}",
        sent.frames
    );
    assert!(stats.reason("off") > 0, "{stats}");
    router.stop();
}

#[test]
fn killing_the_daemon_leaves_the_kernel() {
    let Some(_machine) = machine() else { return };
    let bench = Bench::new();
    let mut router = Router::start(&bench.lab);
    let load = bench.load();
    bench.wait_fast(Duration::from_secs(5));
    router.signal(Signal::SIGKILL);
    let status = router.wait();
    assert!(!status.success());
    let took = bench.wait_kernel(Duration::from_secs(1));
    eprintln!("all in the kernel {took:?} after the daemon's end");
    let files = router.files();
    drop(router);
    // The next one finds what the killed one left.
    let router = Router::start(&bench.lab);
    bench.wait_fast(Duration::from_secs(5));
    let sent = bench.end(load);
    bench.check(&sent, IN_FLIGHT.max(sent.frames / 1000));
    router.stop();
    assert!(!files.iter().any(|file| file.exists()), "{files:?}");
}

#[test]
fn a_stopped_daemon_is_noticed_by_the_data_plane() {
    let Some(_machine) = machine() else { return };
    let bench = Bench::new();
    let router = Router::start(&bench.lab);
    let load = bench.load();
    bench.wait_fast(Duration::from_secs(5));
    for _ in 0..2 {
        router.signal(Signal::SIGSTOP);
        let stopped = Instant::now();
        bench.wait_kernel(Duration::from_millis(2500));
        eprintln!("all in the kernel {:?} after SIGSTOP", stopped.elapsed());
        assert!(stopped.elapsed() < Duration::from_millis(2600));
        let share = bench.kernel_share(Duration::from_millis(300));
        assert!(share > 0.98, "it does not stay so: {share}");
        router.signal(Signal::SIGCONT);
        eprintln!(
            "fast {:?} after SIGCONT",
            bench.wait_fast(Duration::from_secs(5))
        );
    }
    let sent = bench.end(load);
    bench.check(&sent, 0);
    assert!(router.stats().reason("deadline") > 0);
    router.stop();
}

#[test]
fn restarting_loses_no_more_than_what_is_in_flight() {
    let Some(_machine) = machine() else { return };
    let bench = Bench::new();
    let load = bench.load();
    for _ in 0..3 {
        let router = Router::start(&bench.lab);
        bench.wait_fast(Duration::from_secs(5));
        router.stop();
        bench.wait_kernel(Duration::from_millis(500));
    }
    let sent = bench.end(load);
    // Each attaching and detaching replaces the port's rings.
    bench.check(&sent, (12 * IN_FLIGHT).max(sent.frames / 1000));
}

#[test]
fn a_second_daemon_is_refused() {
    let Some(_machine) = machine() else { return };
    let lab = build("nat");
    let router = Router::start(&lab);
    let pid = router.child.id();
    let socket = std::env::temp_dir().join(format!("freeway-second-{}.sock", std::process::id()));
    for extra in [&[][..], &["--socket", socket.to_str().unwrap()]] {
        let output = router.run(&[&["run", "-i", "lan0"], extra].concat());
        let line = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{line}");
        assert_eq!(line.lines().count(), 1, "{line}");
        assert!(line.contains(&format!("process {pid}")), "{line}");
        assert!(!socket.exists());
    }
    assert_eq!(router.status()["pid"], pid, "the first one is untouched");
    router.stop();
}

/// Freeway's programs on this machine.
fn programs() -> BTreeSet<u64> {
    let output = Command::new("bpftool")
        .args(["-j", "prog", "show"])
        .output()
        .unwrap();
    let all: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let all = all.as_array().unwrap().iter();
    all.filter(|program| {
        program["name"]
            .as_str()
            .is_some_and(|name| name.starts_with("freeway_"))
    })
    .map(|program| program["id"].as_u64().unwrap())
    .collect()
}

#[test]
fn the_end_leaves_nothing() {
    let Some(_machine) = machine() else { return };
    let lab = build("nat");
    let qdiscs = lab.router().tool("tc qdisc show").unwrap();
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let before = programs();
        let mut router = Router::start(&lab);
        let loaded = programs();
        let loaded: Vec<u64> = loaded.difference(&before).copied().collect();
        let files = router.files();
        assert!(loaded.len() >= 3, "{loaded:?}");
        assert!(files.iter().all(|file| file.exists()), "{files:?}");
        let links = lab.router().tool("ip -d link show").unwrap();
        assert!(links.contains("prog/xdp"), "{links}");
        router.signal(signal);
        let status = router.wait();
        let log = router.log();
        assert!(status.success(), "{signal}: {status}: {log}");
        let links = lab.router().tool("ip -d link show").unwrap();
        assert!(!links.contains("xdp"), "{links}");
        assert_eq!(lab.router().tool("tc qdisc show").unwrap(), qdiscs);
        assert!(!files.iter().any(|file| file.exists()), "{files:?}");
        // The kernel frees programs after a grace period.
        until("the programs' end", Duration::from_secs(3), || {
            let left = programs();
            (!loaded.iter().any(|id| left.contains(id))).then_some(())
        });
        let output = router.run(&["status"]);
        assert_eq!(output.status.code(), Some(2), "no daemon");
    }
}
