// SPDX-License-Identifier: MIT OR Apache-2.0
//! Faults: what goes wrong around the daemon, or is done to it behind its back. After each one the traffic is right,
//! all of it is fast again, the daemon is in step with the kernel, and what ended has left nothing.
//!
//! ```text
//!      client                     router                     server
//!  +------------+         +---------------------+         +------------+
//!  |  generator |---------| lan0           wan0 |---------| sink       |
//!  +------------+         +---------------------+         +------------+
//!   192.0.2.2/24      192.0.2.1/24      198.51.100.1/24   198.51.100.2/24
//!                       postrouting: masquerade on wan0
//! ```
//!
//! `FREEWAY_LONG=1`: more of each.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;

use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use freeway_testkit::bench::Bench;
use freeway_testkit::objects::Objects;
use freeway_testkit::*;

use freeway_lab::frame::NEAR_PORT;
use freeway_lab::{
    FlowSpec, Generator, Lab, Load, Options, Proto, Sink, SinkCounts, SinkSpec, Until,
};
use nix::sys::signal::Signal;

const FLOWS: u32 = 200;
const PPS: u64 = 10_000;
const PATIENCE: Duration = Duration::from_secs(20);

fn site() -> Bench {
    Bench::light(Options::default(), FLOWS, PPS)
}

/// What the sink has when nothing arrives any more: queues may hold some of what was sent before.
fn counts_at_rest(bench: &Bench) -> SinkCounts {
    let mut last = bench.sink.counts().unwrap();
    until("nothing arrives any more", PATIENCE, || {
        thread::sleep(Duration::from_millis(100));
        let before = std::mem::replace(&mut last, bench.sink.counts().unwrap());
        (last.frames == before.frames).then_some(before)
    })
}

/// All of what is sent now arrives, once, and right.
#[track_caller]
fn wait_whole(bench: &Bench) {
    let patience = Duration::from_secs(10);
    until("a time without loss", patience, || {
        let before = counts_at_rest(bench);
        let load = bench.load();
        thread::sleep(Duration::from_millis(300));
        let sent = bench.end(load);
        let after = bench.sink.counts().unwrap();
        assert!(after.frames - before.frames <= sent.frames, "frames twice");
        assert_eq!((after.bad_ip_checksum, after.bad_l4_checksum), (0, 0));
        assert_eq!(after.untracked, before.untracked);
        (after.frames - before.frames == sent.frames).then_some(())
    });
}

/// Traffic is right and fast, and the daemon knows what there is.
#[track_caller]
fn wait_recovered(bench: &Bench, router: &Router) {
    wait_whole(bench);
    let load = bench.load();
    bench.wait_fast(PATIENCE);
    router.wait_in_step();
    bench.wait_fast(PATIENCE);
    bench.end(load);
    wait_whole(bench);
}

/// `kill -9` and start again, under load.
#[test]
fn killed() {
    let Some(_machine) = machine() else { return };
    let bench = Bench::light(Options::default(), FLOWS, 50_000);
    let rounds = if long() { 100 } else { 10 };
    let load = bench.load();
    for round in 0..rounds {
        let mut router = Router::start(&bench.lab);
        // in every state that it may be in: sometimes before anything is fast
        if round % 3 != 2 {
            bench.wait_fast(PATIENCE);
        }
        let objects = Objects::of(router.child.id());
        router.signal(Signal::SIGKILL);
        assert!(!router.wait().success());
        bench.wait_kernel(PATIENCE);
        objects.wait_gone();
    }
    let sent = bench.end(load);
    // Attaching and detaching replace the rings of two ports.
    bench.check(&sent, rounds * 4 * 256);
    let router = Router::start(&bench.lab);
    wait_recovered(&bench, &router);
    router.stop();
}

#[test]
fn flapping() {
    let Some(_machine) = machine() else { return };
    let bench = site();
    let router = Router::start(&bench.lab);
    let load = bench.load();
    bench.wait_fast(PATIENCE);
    for round in 0..if long() { 500 } else { 40 } {
        let port = ["lan0", "wan0"][round % 2];
        for word in ["down", "up"] {
            let line = format!("ip link set {port} {word}");
            bench.lab.router().tool(&line).unwrap();
            // quickly at first, then slowly enough to be learned in between
            thread::sleep(Duration::from_millis(round as u64 % 10 * 20));
        }
    }
    bench.end(load);
    wait_recovered(&bench, &router);
    router.stop();
}

/// Each of the programs, one after the other, is taken off by somebody else.
#[test]
fn programs_taken_off() {
    let Some(_machine) = machine() else { return };
    let bench = site();
    let router = Router::start(&bench.lab);
    let load = bench.load();
    bench.wait_fast(PATIENCE);
    let pid = router.child.id();
    let before = Objects::steady(pid);
    let at_ports = |objects: &Objects| -> BTreeSet<(u64, String)> {
        let links = objects.links.iter();
        links
            .filter(|(_, kind)| ["xdp", "tcx"].contains(&kind.as_str()))
            .cloned()
            .collect()
    };
    let links = at_ports(&before);
    if links.len() < 6 {
        println!("skipped: this kernel has no tcx links");
        return;
    }
    assert_eq!(links.len(), 6, "{before:?}");
    // the oldest of its kind, so that each port has its turn; the two of tc are put on together
    for wanted in ["xdp", "tcx", "xdp", "tcx"] {
        let mut now = at_ports(&Objects::of(pid)).into_iter();
        let (id, kind) = now.find(|(_, kind)| kind == wanted).unwrap();
        let output = Command::new("bpftool")
            .args(["link", "detach", "id", &id.to_string()])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let taken = Instant::now();
        until("it is put on again", Duration::from_secs(5), || {
            let now = at_ports(&Objects::of(pid));
            (now.len() == 6 && !now.contains(&(id, kind.clone()))).then_some(())
        });
        eprintln!("{kind} is on again after {:?}", taken.elapsed());
        bench.wait_fast(PATIENCE);
    }
    let after = Objects::steady(pid);
    assert_eq!(after.descriptors, before.descriptors);
    assert_eq!((after.maps, after.programs), (before.maps, before.programs));
    bench.end(load);
    wait_recovered(&bench, &router);
    router.stop();
}

/// A port goes to another namespace, where it is nobody's, and comes back.
#[test]
fn port_moved() {
    let Some(_machine) = machine() else { return };
    let bench = site();
    let router = Router::start(&bench.lab);
    let load = bench.load();
    bench.wait_fast(PATIENCE);
    let (lab, away) = (&bench.lab, bench.lab.client());
    for _ in 0..3 {
        let line = format!("ip link set wan0 netns {}", away.name());
        lab.router().tool(&line).unwrap();
        until("the port is gone", PATIENCE, || {
            let status = router.status();
            (status["ports"].as_array().unwrap().len() == 1).then_some(())
        });
        until("its flows are gone", PATIENCE, || {
            router.flows("").is_empty().then_some(())
        });
        // neither XDP nor tcx programs may forward in a namespace that is not theirs
        let there = away.tool("ip -d link show dev wan0").unwrap();
        assert!(!there.contains("xdp"), "{there}");
        let there = away.tool("bpftool net show dev wan0").unwrap();
        assert!(!there.contains("freeway"), "{there}");
        let line = format!("ip link set wan0 netns {}", lab.router().name());
        away.tool(&line).unwrap();
        for line in [
            "ip address add 198.51.100.1/24 dev wan0",
            "ip link set wan0 up",
            "ethtool -K wan0 tx off tso off gso off txvlan off gro on",
        ] {
            lab.router().tool(line).unwrap();
        }
        bench.wait_fast(PATIENCE);
    }
    bench.end(load);
    wait_recovered(&bench, &router);
    router.stop();
}

/// The names of the namespaces go, then the hosts behind the ports. The router's lives as long as its daemon.
#[test]
fn namespaces_deleted() {
    let Some(_machine) = machine() else { return };
    let bench = site();
    let mut router = Router::start(&bench.lab);
    let load = bench.load();
    bench.wait_fast(PATIENCE);
    let pid = router.child.id();
    let objects = Objects::of(pid);
    let ask = |arguments: &[&str]| -> Output {
        Command::new("nsenter")
            .arg(format!("--net=/proc/{pid}/ns/net"))
            .arg(freeway_testkit::program("freeway"))
            .args(arguments)
            .output()
            .unwrap()
    };
    let json = |arguments: &[&str]| -> serde_json::Value {
        let output = ask(arguments);
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let delete = |name: &str| {
        let status = Command::new("ip").args(["netns", "delete", name]).status();
        assert!(status.unwrap().success());
    };
    delete(bench.lab.router().name());
    let fast = |json: serde_json::Value| json["fast"]["packets"].as_u64().unwrap();
    let before = (
        fast(json(&["stats", "--json"])),
        bench.sink.counts().unwrap().frames,
    );
    until("it forwards without a name", PATIENCE, || {
        let now = fast(json(&["stats", "--json"]));
        (now > before.0 + PPS / 2).then_some(())
    });
    assert!(bench.sink.counts().unwrap().frames > before.1);
    let sent = bench.end(load);
    bench.check(&sent, 0);

    let Bench {
        lab,
        sink,
        generator,
        ..
    } = bench;
    drop((sink, generator));
    delete(lab.client().name());
    delete(lab.server().name());
    until("no port is left", PATIENCE, || {
        let status = json(&["status", "--json"]);
        let ports = status["ports"].as_array().unwrap();
        (ports.is_empty() && status["flows"]["active"] == 0).then_some(())
    });
    until("in step", PATIENCE, || {
        (json(&["resync", "--json"])["changes"] == 0).then_some(())
    });
    assert_eq!(Objects::of(pid).maps, objects.maps);
    router.signal(Signal::SIGTERM);
    let status = router.wait();
    let log = router.log();
    assert!(status.success(), "{status}\n{log}");
    assert!(!log.contains("somebody took programs off"), "{log}");
    objects.wait_gone();
}

/// Ports that vanish with the namespace of their peers are gone, which is no fault of anybody's: the log says that and
/// warns of nothing, whether the kernel's event or the look at the programs comes first.
#[test]
fn ports_vanish() {
    const PORTS: usize = 12;
    let Some(_machine) = machine() else { return };
    let lab = build("routed");
    let rounds = if long() { 20 } else { 3 };
    let names: Vec<String> = (0..PORTS).map(|i| format!("p{i}")).collect();
    let mut config = lab.config_toml("");
    let mut links = String::new();
    for name in &names {
        config.push_str(&format!("[port.{name}]\nwire_true = true\n"));
        links.push_str(&format!(
            "link add {name} type veth peer name h{name} netns PEERS\nlink set {name} up\n"
        ));
    }
    // its name begins as those that a later lab sweeps away
    let peers = format!("{}-peers", lab.router().name());
    let ip = |line: &str| {
        let words = line.split_whitespace();
        let status = Command::new("ip").args(words).status().unwrap();
        assert!(status.success(), "ip {line}");
    };
    let connect = || {
        ip(&format!("netns add {peers}"));
        let batch = links.replace("PEERS", &peers);
        lab.router().tool_with_input("ip -batch -", &batch).unwrap();
        for name in &names {
            ip(&format!("-n {peers} link set h{name} up"));
        }
    };
    connect();
    let mut program = freeway();
    program.env("FREEWAY_LOG", "info");
    let ports = ["lan0", "wan0"].into_iter();
    let ports: Vec<&str> = ports.chain(names.iter().map(String::as_str)).collect();
    let mut router = Router::start_in(lab.router(), &config, program, &ports);
    for round in 1..=rounds {
        // ports are told, and programs looked at, as often as it answers
        let vanishing = AtomicBool::new(true);
        let end = Moment::now() + PATIENCE;
        thread::scope(|scope| {
            scope.spawn(|| {
                while vanishing.load(Ordering::Relaxed) && Moment::now() < end {
                    router.run(&["resync"]);
                }
            });
            ip(&format!("netns delete {peers}"));
            let left = || router.status()["ports"].as_array().unwrap().len();
            while left() > 2 && Moment::now() < end {
                thread::sleep(Duration::from_millis(20));
            }
            vanishing.store(false, Ordering::Relaxed);
        });
        if round == rounds {
            break;
        }
        connect();
        until("the new ports take part", PATIENCE, || {
            let status = router.status();
            let mut there = status["ports"].as_array().unwrap().iter();
            (there.len() == ports.len() && there.all(|port| port["state"] == "fast")).then_some(())
        });
    }
    router.signal(Signal::SIGTERM);
    let status = router.wait();
    let log = router.log();
    assert!(status.success(), "{status}\n{log}");
    for name in &names {
        let words = format!("the port is gone port={name:?}");
        assert_eq!(log.matches(&words).count(), rounds, "{name}\n{log}");
    }
    // a busy machine may have it stand still
    let mut lines = log
        .lines()
        .filter(|line| !line.contains("the daemon was stopped for"));
    assert!(lines.all(|line| !line.contains("WARN")), "{log}");
}

/// The wall clock jumps by years, forth and back, in the eyes of the daemon.
#[test]
fn clock_set() {
    let Some(_machine) = machine() else { return };
    const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";
    if !std::path::Path::new(FAKETIME).exists() {
        println!("skipped: libfaketime is not installed");
        return;
    }
    let file = std::env::temp_dir().join(format!("freeway-clock-{}", std::process::id()));
    let set = |offset: &str| std::fs::write(&file, offset).unwrap();
    let faked = |program: &str| {
        let mut command = Command::new(program);
        command
            .env("LD_PRELOAD", FAKETIME)
            .env("FAKETIME_TIMESTAMP_FILE", &file)
            .env("FAKETIME_NO_CACHE", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .env("DONT_FAKE_MONOTONIC", "1")
            .env("NO_COLOR", "1");
        command
    };
    let year = || -> i32 {
        let output = faked("date").arg("+%Y").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.trim().parse().unwrap()
    };
    set("+0d");
    let today = year();
    let bench = site();
    let router = Router::start_as(
        &bench.lab,
        "",
        faked(&freeway_testkit::program("freeway")),
        &["lan0", "wan0"],
    );
    let pid = router.child.id();
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    assert!(maps.contains("libfaketime"), "it sees another clock");
    let load = bench.load();
    bench.wait_fast(PATIENCE);
    let before = router.status();
    for (offset, years) in [("+3700d", 10), ("-3700d", -10), ("+1h", 0), ("-1h", 0)] {
        set(offset);
        assert!((year() - today - years).abs() <= 1, "{offset}");
        // the deadline is two seconds
        thread::sleep(Duration::from_millis(700));
        let share = bench.kernel_share_of_arrivals();
        assert!(share < 0.5, "{offset}: the kernel has {share}");
    }
    let after = router.status();
    assert_eq!(after["epoch"], before["epoch"], "nothing was learned anew");
    assert!(after["uptime_s"].as_u64().unwrap() < 600, "{after}");
    assert_eq!(router.stats().reason("deadline"), 0);
    let sent = bench.end(load);
    bench.check(&sent, 0);
    wait_recovered(&bench, &router);
    router.stop();
    std::fs::remove_file(file).unwrap();
}

/// Memory runs out: when it starts, and while it learns.
#[test]
fn memory_limited() {
    let Some(_machine) = machine() else { return };
    let bench = site();
    let load = bench.load();
    let start = |limit: &str| -> Output {
        let mut command = Command::new("prlimit");
        command
            .arg(format!("--as={limit}"))
            .args([
                &freeway_testkit::program("freeway"),
                "run",
                "--config",
                "/dev/stdin",
            ])
            .env("NO_COLOR", "1")
            .stdin(Stdio::null());
        bench
            .lab
            .router()
            .place(&mut command)
            .unwrap()
            .output()
            .unwrap()
    };
    let mut failed = 0;
    for megabytes in [40, 60] {
        let output = start(&format!("{}", megabytes << 20));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{megabytes} MB: {output:?}");
        failed += 1;
        eprintln!(
            "{megabytes} MB: {} {}",
            output.status,
            text.lines().last().unwrap_or("")
        );
        let links = bench.lab.router().tool("ip -d link show").unwrap();
        assert!(!links.contains("xdp"), "{links}");
    }
    assert!(failed > 0);

    let mut router = Router::start_with(&bench.lab, "[flows]\nmax = 200000\n");
    bench.wait_fast(PATIENCE);
    let pid = router.child.id();
    let objects = Objects::of(pid);
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap();
    let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
    let status = Command::new("prlimit")
        .args([&format!("--pid={pid}"), &format!("--as={}", pages * 4096)])
        .status();
    assert!(status.unwrap().success());
    // one-way flows, learned from their second packet
    let more = FlowSpec {
        near_port: 20_000,
        far_port: 7000,
        ..bench.lab.flows(Proto::Udp, 30_000, 64)
    };
    let generator = Generator::new(bench.lab.client_port(), &more).unwrap();
    let ended = Moment::now() + PATIENCE;
    let status = loop {
        let spec = Load::paced(Until::Frames(90_000), 150_000);
        generator.run(&spec).unwrap();
        if let Some(status) = router.child.try_wait().unwrap() {
            break status;
        }
        assert!(
            Moment::now() < ended,
            "it lives with no memory: {}",
            router.status()
        );
    };
    assert!(!status.success(), "{status}");
    eprintln!(
        "without memory it ended: {status} {}",
        router.log().lines().last().unwrap_or("")
    );
    bench.end(load);
    objects.wait_gone();
    wait_whole(&bench);
    let router = Router::start(&bench.lab);
    wait_recovered(&bench, &router);
    router.stop();
}

/// The port at the other end of the wire stops taking redirected frames, and the driver says nothing. A router in another
/// namespace, whose ports have the same numbers, has nothing to do with it.
#[test]
fn redirects_fail() {
    let Some(_machine) = machine() else { return };
    let (lab, beside) = (build("nat"), build("nat"));
    let number = |lab: &Lab| {
        let line = lab.router().tool("ip -o link show wan0").unwrap();
        line.split(':').next().unwrap().to_owned()
    };
    assert_eq!(number(&lab), number(&beside));
    let (router, other) = (Router::start(&lab), Router::start(&beside));
    let (near, far) = (
        udp(lab.client(), "192.0.2.2:40000".parse().unwrap()),
        udp(lab.server(), "198.51.100.2:5000".parse().unwrap()),
    );
    far.set_read_timeout(Some(Duration::from_millis(50)))
        .unwrap();
    let mut sent = 0u64;
    let mut exchange = || {
        sent += 1;
        near.send_to(&sent.to_be_bytes(), "198.51.100.2:5000")
            .unwrap();
        let mut room = [0; 16];
        loop {
            match far.recv(&mut room) {
                // a late one of before
                Ok(len) if room[..len] != sent.to_be_bytes() => {}
                Ok(_) => return true,
                Err(_) => return false,
            }
        }
    };
    let fast = || router.stats().fast();
    let wait_fast = |exchange: &mut dyn FnMut() -> bool| {
        until("fast", PATIENCE, || {
            let before = fast();
            let arrived = (0..50).filter(|_| exchange()).count();
            (arrived == 50 && fast() > before + 40).then_some(())
        });
    };
    wait_fast(&mut exchange);
    lab.server().tool("ethtool -K eth0 gro off").unwrap();
    let broken = Moment::now();
    let mut lost = 0;
    let mut good = 0;
    while good < 200 {
        match exchange() {
            true => good += 1,
            false => {
                lost += 1;
                good = 0;
            }
        }
        assert!(
            broken.elapsed() < PATIENCE,
            "{lost} lost\n{}",
            router.stats()
        );
    }
    let port = &router.status()["ports"][1];
    eprintln!("{lost} frames lost in {:?}: {port}", broken.elapsed());
    assert!(lost >= 1, "the redirects did fail");
    assert!(port["state"] != "fast" || port["path"] != "xdp", "{port}");
    assert!(port["redirect_failures"].as_u64().unwrap() > 0, "{port}");
    // the other one has looked at its counters since, which it does once a second
    thread::sleep(Duration::from_secs(3));
    let port = &other.status()["ports"][1];
    assert_eq!(
        (&port["redirect_failures"], &port["path"]),
        (&0.into(), &"xdp".into()),
        "{port}"
    );
    other.stop();
    router.wait_in_step();
    // The advice is followed.
    lab.server().tool("ethtool -K eth0 gro on").unwrap();
    wait_fast(&mut exchange);
    router.wait_in_step();
    router.stop();
}

/// More flows than the table has room for.
#[test]
fn table_full() {
    let Some(_machine) = machine() else { return };
    const ROOM: u64 = 64;
    let bench = site();
    let config = format!("[flows]\nmax = {ROOM}\nudp_idle_s = 1\n");
    let router = Router::start_with(&bench.lab, &config);
    let active = || router.status()["flows"]["active"].as_u64().unwrap();
    let ports = || -> BTreeSet<u64> {
        let flows = router.flows("");
        flows
            .iter()
            .map(|flow| flow["sport"].as_u64().unwrap())
            .collect()
    };
    let load = bench.load();
    until("a full table", PATIENCE, || {
        (active() == ROOM).then_some(())
    });
    let first = ports();
    thread::sleep(Duration::from_secs(2));
    let stayed = first.intersection(&ports()).count();
    // flows alike: only one of which two frames came close together takes a place
    assert!(stayed as u64 >= ROOM * 7 / 8, "{stayed} stayed in");
    until("the kernel has the others", PATIENCE, || {
        let share = bench.kernel_share_of_arrivals();
        eprintln!("the kernel has {share}");
        (0.5..0.9).contains(&share).then_some(())
    });
    let sent = bench.end(load);
    bench.check(&sent, 0);
    let refused = router.stats().0["refused"].as_array().unwrap().clone();
    let full = refused
        .iter()
        .find(|one| one["name"] == "table_full")
        .unwrap();
    assert!(full["count"].as_u64().unwrap() > 0, "{full}");
    // Others, when the first ones are idle.
    let others = FlowSpec {
        flows: 40,
        near_port: NEAR_PORT + 150,
        ..bench.lab.flows(Proto::Udp, FLOWS, 64)
    };
    let generator = Generator::new(bench.lab.client_port(), &others).unwrap();
    let wanted: BTreeSet<u64> = (0..40).map(|i| u64::from(others.near_port) + i).collect();
    until("the others are fast", PATIENCE, || {
        let load = Load::paced(Until::Elapsed(Duration::from_millis(200)), PPS);
        generator.run(&load).unwrap();
        (ports() == wanted && active() == 40).then_some(())
    });
    router.wait_in_step();
    router.stop();
}

/// Frames wait for a neighbour between the router's ingress and egress, more than there are slots to note them in: most
/// leave under a token that has become another frame's.
#[test]
fn slots_full() {
    let Some(_machine) = machine() else { return };
    const WAITING: u32 = 4000;
    let lab = build("nat");
    lab.prime(Proto::Udp, WAITING, Some(0)).unwrap();
    let router = Router::start(&lab);
    let sink = Sink::attach(
        lab.server_port(),
        SinkSpec {
            capture_every: 1,
            capture_limit: 8192,
            ..SinkSpec::thorough(WAITING)
        },
    )
    .unwrap();
    let generator = Generator::new(lab.client_port(), &lab.flows(Proto::Udp, WAITING, 64)).unwrap();
    let frames = |rounds: u32| {
        let frames = Until::Frames(u64::from(rounds * WAITING));
        generator
            .run(&Load::paced(frames, 100_000).on_cpu(0))
            .unwrap()
    };
    let queue = "net/ipv4/neigh/wan0/unres_qlen_bytes";
    lab.router().sysctl(queue, &(64 << 20).to_string()).unwrap();
    for round in 0..if long() { 20 } else { 3 } {
        lab.server().tool("ip link set eth0 arp off").unwrap();
        lab.router()
            .tool("ip neighbour del 198.51.100.2 dev wan0")
            .unwrap();
        let before = sink.counts().unwrap().frames;
        frames(1);
        assert_eq!(sink.counts().unwrap().frames, before, "they wait");
        let mac = "02:00:00:00:02:02 nud permanent";
        let line = format!("ip neighbour replace 198.51.100.2 lladdr {mac} dev wan0");
        lab.router().tool(&line).unwrap();
        until("all have left", PATIENCE, || {
            let now = sink.counts().unwrap().frames;
            (now == before + u64::from(WAITING)).then_some(())
        });
        for flow in router.flows("") {
            assert_eq!(flow["to_src"], "198.51.100.1", "round {round}: {flow}");
            assert_eq!(flow["to_sport"], flow["sport"], "round {round}: {flow}");
            assert_eq!(flow["to_dport"], flow["dport"], "round {round}: {flow}");
        }
        router.json(&["flush"]);
    }
    let stats = router.stats();
    let aliased = [
        "learn_changed",
        "learn_tuple",
        "learn_copies",
        "learn_checksum",
    ];
    let aliased: u64 = aliased.iter().map(|name| stats.reason(name)).sum();
    eprintln!("{aliased} frames left under another's token: {stats}");
    assert!(aliased > u64::from(WAITING) / 2, "{stats}");
    frames(4);
    // The masquerade keeps the port, which the payload tells.
    let captured = sink.captured().unwrap();
    assert!(captured.len() > 4000, "{}", captured.len());
    for frame in &captured {
        let bytes = &frame.bytes;
        let flow = u32::from_be_bytes(bytes[46..50].try_into().unwrap());
        let sport = u16::from_be_bytes([bytes[34], bytes[35]]);
        assert_eq!(
            u32::from(sport),
            u32::from(NEAR_PORT) + flow,
            "{bytes:02x?}"
        );
        assert_eq!(bytes[..12], [2, 0, 0, 0, 2, 2, 2, 0, 0, 0, 2, 1]);
    }
    let counts = sink.counts().unwrap();
    assert_eq!((counts.bad_ip_checksum, counts.bad_l4_checksum), (0, 0));
    router.wait_in_step();
    router.stop();
}

/// The daemon does not read while more flows are offered than the ring buffer has room for.
#[test]
fn ring_full() {
    let Some(_machine) = machine() else { return };
    const NEW: u32 = 24_000;
    let lab = build("nat");
    let router = Router::start(&lab);
    let sink = Sink::attach(lab.server_port(), SinkSpec::thorough(NEW)).unwrap();
    // of many hosts: one alone leaves half of the ring to others
    let flows = FlowSpec {
        near_each: true,
        ..lab.flows(Proto::Udp, NEW, 64)
    };
    let generator = Generator::new(lab.client_port(), &flows).unwrap();
    let frames = |rounds: u32| {
        let frames = Until::Frames(u64::from(rounds * NEW));
        let load = Load::paced(frames, 120_000).on_cpu(0);
        generator.run(&load).unwrap().frames
    };
    let lost = || router.stats().0["events"]["lost"].as_u64().unwrap();
    let mut sent = 0;
    // Past its deadline the data plane offers nothing, so a busy machine may be too slow for it.
    for _ in 0..5 {
        router.json(&["flush"]);
        router.signal(Signal::SIGSTOP);
        let stopped = Instant::now();
        sent += frames(2);
        let took = stopped.elapsed();
        router.signal(Signal::SIGCONT);
        eprintln!("{} candidates found no room within {took:?}", lost());
        if lost() > 0 {
            break;
        }
    }
    assert!(lost() > 0, "{}", router.stats());
    let resumed = Instant::now();
    until("all are fast", PATIENCE, || {
        sent += frames(1);
        let active = router.status()["flows"]["active"].as_u64().unwrap();
        (active >= u64::from(NEW) * 99 / 100).then_some(())
    });
    eprintln!("all are fast after {:?}", resumed.elapsed());
    until("all have arrived", PATIENCE, || {
        (sink.counts().unwrap().frames == sent).then_some(())
    });
    assert_eq!(sink.counts().unwrap().bad_l4_checksum, 0);
    router.wait_in_step();
    router.stop();
}

/// Thousands of route changes a second, and next to no room for their events.
#[test]
fn overrun() {
    let Some(_machine) = machine() else { return };
    let bench = site();
    let router = Router::start_with(&bench.lab, "[daemon]\nrcvbuf_bytes = 4096\n");
    let load = bench.load();
    bench.wait_fast(PATIENCE);
    let batch = |word: &str| -> String {
        let line = |i: u32| format!("route {word} 10.{}.{}.0/24 dev wan0\n", i / 256, i % 256);
        (0..10_000).map(line).collect()
    };
    let (add, del) = (batch("add"), batch("del"));
    let done = AtomicBool::new(false);
    let lab = &bench.lab;
    thread::scope(|scope| {
        let ends = Ends(&done);
        let storm = scope.spawn(|| {
            let (start, mut changes) = (Instant::now(), 0);
            while !done.load(Ordering::Relaxed) {
                for lines in [&add, &del] {
                    lab.router().tool_with_input("ip -batch -", lines).unwrap();
                    changes += 10_000;
                }
            }
            let rate = f64::from(changes) / start.elapsed().as_secs_f64();
            eprintln!("{changes} route changes, {rate:.0} a second");
        });
        for _ in 0..if long() { 20 } else { 3 } {
            thread::sleep(Duration::from_millis(300));
            lab.router()
                .tool("ip route add blackhole 198.51.100.2/32")
                .unwrap();
            let changed = Instant::now();
            let arrived = || bench.sink.counts().unwrap().frames;
            let silent = || {
                let before = arrived();
                thread::sleep(Duration::from_millis(50));
                arrived() == before
            };
            // for longer than a machine stands still
            let stays_silent = || (0..10).all(|_| silent());
            until("the change is obeyed", Duration::from_secs(3), || {
                stays_silent().then_some(())
            });
            eprintln!("obeyed within {:?}", changed.elapsed());
            assert!(stays_silent(), "and stays so");
            lab.router()
                .tool("ip route del blackhole 198.51.100.2/32")
                .unwrap();
            until("it is taken back", PATIENCE, || (!silent()).then_some(()));
        }
        // a daemon that always had its turn in time reads them all
        let netlink = until("events are lost", PATIENCE, || {
            let netlink = router.stats().0["netlink"].clone();
            (netlink["overruns"].as_u64().unwrap() > 0).then_some(netlink)
        });
        eprintln!("{netlink}");
        drop(ends);
        storm.join().unwrap();
    });
    bench.end(load);
    wait_recovered(&bench, &router);
    router.stop();
}

/// Anonymous memory of a process.
fn anonymous_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kib: u64 = line
        .unwrap()
        .split_whitespace()
        .next()
        .unwrap()
        .parse()
        .unwrap();
    kib * 1024
}

/// Flows come and go, each time others, and leave nothing.
#[test]
fn churn() {
    let Some(_machine) = machine() else { return };
    const GROUP: u32 = 2048;
    // the heap grows with the largest burst yet
    const GROWTH: u64 = 2 << 20;
    // octets: were so many lost with each flow, that would be more
    const LOST: u64 = 256;
    let groups = if long() { 4_900 } else { 49 };
    let lab = build_with(
        "nat",
        Options {
            conntrack_max: Some(if long() { 1 << 20 } else { 1 << 18 }),
            ..Options::default()
        },
    );
    for name in ["udp_timeout", "udp_timeout_stream", "tcp_timeout_close"] {
        let path = format!("net/netfilter/nf_conntrack_{name}");
        lab.router().sysctl(&path, "2").unwrap();
    }
    let router = Router::start_with(
        &lab,
        "[flows]\nmax = 16000\nudp_idle_s = 1\ntcp_idle_s = 1\n",
    );
    let pid = router.child.id();
    let base = lab.flows(Proto::Udp, GROUP, 64);
    let mut baseline = None;
    for group in 0..groups {
        if group % 16 == 0 && group < 16 * 4 {
            // TCP, with its preparation, closed in different ways
            lab.prime(Proto::Tcp, GROUP, None).unwrap();
            let _sink = Sink::attach(lab.server_port(), SinkSpec::default()).unwrap();
            for tcp_flags in [0x10, 0x04] {
                let spec = FlowSpec {
                    tcp_flags,
                    ..lab.flows(Proto::Tcp, GROUP, 128)
                };
                let generator = Generator::new(lab.client_port(), &spec).unwrap();
                let rounds = if tcp_flags == 0x10 { 12 } else { 1 };
                let frames = Until::Frames(u64::from(rounds * GROUP));
                generator.run(&Load::paced(frames, 200_000)).unwrap();
            }
        }
        let sink = Sink::attach(lab.server_port(), SinkSpec::default()).unwrap();
        let spec = FlowSpec {
            near_port: NEAR_PORT + (group % 16 * GROUP) as u16,
            far_port: 1024 + (group / 16) as u16,
            ..base
        };
        let generator = Generator::new(lab.client_port(), &spec).unwrap();
        let frames = Until::Frames(4 * u64::from(GROUP));
        generator.run(&Load::paced(frames, 200_000)).unwrap();
        drop(sink);
        // by then the table was full for the first time
        if group == groups / 2 {
            let learned = router.status()["learn"]["learned"].as_u64().unwrap();
            baseline = Some((anonymous_bytes(pid), Objects::steady(pid), learned));
        }
    }
    let status = until("all have left", PATIENCE, || {
        let status = router.status();
        let left = [
            &status["flows"]["active"],
            &status["connections"],
            &status["next_hops"],
        ];
        (left == [0, 0, 0] && router.flows("").is_empty()).then_some(status)
    });
    let learned = status["learn"]["learned"].as_u64().unwrap();
    let (memory, objects, learned_then) = baseline.unwrap();
    let now = anonymous_bytes(pid);
    eprintln!(
        "{learned} flows learned, {memory} bytes after half of them, {now} at the end\n{}",
        router.stats()
    );
    // the full table refuses the others
    assert!(
        learned > u64::from(groups * GROUP) / 4,
        "{}",
        router.stats()
    );
    assert!(
        (learned - learned_then) * LOST > GROWTH,
        "{learned_then}, then {learned}"
    );
    assert!(now < memory + GROWTH, "{memory} bytes became {now}");
    assert_eq!(Objects::steady(pid), objects);
    router.wait_in_step();
    router.stop();
}
