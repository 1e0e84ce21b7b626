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

use std::thread;
use std::time::Duration;

use freeway_testkit::bench::{Bench, FLOWS, IN_FLIGHT};
use freeway_testkit::objects::Objects;
use freeway_testkit::*;
use nix::sys::signal::Signal;

#[test]
fn off_and_on_lose_nothing_and_counters_are_true() {
    let Some(_machine) = machine() else { return };
    let bench = Bench::of_nat();
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
    let bench = Bench::of_nat();
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
    let bench = Bench::of_nat();
    let router = Router::start(&bench.lab);
    let load = bench.load();
    bench.wait_fast(Duration::from_secs(5));
    for _ in 0..2 {
        router.signal(Signal::SIGSTOP);
        // two seconds, and what the clock of the data plane may be late
        thread::sleep(Duration::from_millis(2100));
        for when in ["is", "stays"] {
            let share = bench.kernel_share_of_arrivals();
            assert!(share > 0.9, "the kernel's share {when} {share}");
        }
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
    let bench = Bench::of_nat();
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

#[test]
fn the_end_leaves_nothing() {
    let Some(_machine) = machine() else { return };
    let lab = build("nat");
    let qdiscs = lab.router().tool("tc qdisc show").unwrap();
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut router = Router::start(&lab);
        let loaded = Objects::of(router.child.id());
        let files = router.files();
        assert!(loaded.programs.len() >= 3, "{loaded:?}");
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
        loaded.wait_gone();
        let output = router.run(&["status"]);
        assert_eq!(output.status.code(), Some(2), "no daemon");
    }
}
