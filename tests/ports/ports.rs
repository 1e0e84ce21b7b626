// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many ports in one router: each is attached or named with its reason, flows between them become fast, answers come
//! soon, and nothing is left. FREEWAY_PORTS says how many. And what a peer takes that is switched while it is down.
//!
//!   h0 ... h199, one host --- p0 ... p199 router, p200 ... p219 not said to be wires
//!
//! The host's kernel knows none of the addresses: frames are put on its wires, and what arrives is counted there.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::cell::Cell;
use std::fmt::Write;
use std::process::Command;
use std::time::{Duration, Instant};

use freeway_lab::frame::{mac_text, sum16};
use freeway_lab::{Injector, Lab, Netns, Port};
use freeway_testkit::objects::Objects;
use freeway_testkit::*;
use nix::sys::signal::Signal;
use serde_json::Value;

/// Veths that are said to be wires.
const PORTS: u32 = 200;
/// Veths that are not.
const UNFIT: u32 = 20;
/// Pairs of ports with a flow between them.
const PAIRS: u32 = 12;
/// Ports that lose their wire.
const CUT: u32 = 20;
/// The kernel detaches one after the other, each after RCU grace periods.
const DETACHED: Duration = Duration::from_secs(100);
/// An answer takes no longer, also of a debug build on a busy machine.
const ANSWER: Duration = Duration::from_secs(3);

fn ports() -> u32 {
    std::env::var("FREEWAY_PORTS").map_or(PORTS, |number| number.parse().unwrap())
}

/// An address of the network behind port `index`, of those that RFC 2544 reserves for such tests.
fn address(index: u32, host: u8) -> [u8; 4] {
    [198, 18 + (index >> 8) as u8, index as u8, host]
}

fn dotted(address: [u8; 4]) -> String {
    address.map(|byte| byte.to_string()).join(".")
}

/// MAC addresses: the router's port, and the host at it.
fn mac(index: u32, host: u8) -> [u8; 6] {
    [2, 0, host, 0, (index >> 8) as u8, index as u8]
}

/// Wires between router and host.
fn connect(lab: &Lab, from: u32, to: u32) {
    let (router, host) = (lab.router().name(), lab.server().name());
    let (mut links, mut settings) = (String::new(), String::new());
    for i in from..to {
        let (near, far) = (mac_text(mac(i, 1)), mac_text(mac(i, 2)));
        let (gateway, neighbour) = (dotted(address(i, 1)), dotted(address(i, 2)));
        writeln!(
            links,
            "link add p{i} netns {router} address {near} type veth peer name h{i} netns {host} address {far}"
        )
        .unwrap();
        writeln!(
            settings,
            "link set p{i} up\naddr add {gateway}/24 dev p{i}\n\
             neigh add {neighbour} lladdr {far} nud permanent dev p{i}"
        )
        .unwrap();
    }
    let range = format!("$(seq {from} {})", to - 1);
    let host_up: String = (from..to).map(|i| format!("link set h{i} up\n")).collect();
    lab.server().tool_with_input("ip -batch -", &links).unwrap();
    lab.server()
        .tool_with_input("ip -batch -", &host_up)
        .unwrap();
    lab.router()
        .tool_with_input("ip -batch -", &settings)
        .unwrap();
    let offloads = [
        (lab.server(), 'h', "gro on tso off gso off tx off"),
        (lab.router(), 'p', "gro on tso off gso off"),
    ];
    for (netns, letter, switches) in offloads {
        let script = format!("for i in {range}; do ethtool -K {letter}$i {switches}; done");
        let mut shell = Command::new("sh");
        let output = netns.run(shell.args(["-ec", &script])).unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

/// A datagram from the host at one port to the host at another.
fn datagram(from: u32, to: u32, sport: u16) -> Vec<u8> {
    let mut l4 = [sport.to_be_bytes(), 7000u16.to_be_bytes()].concat();
    // without a checksum
    l4.extend([0, 24, 0, 0]);
    l4.resize(24, 0);
    let mut ip = vec![0x45, 0, 0, 44, 0, 1, 0x40, 0, 64, 17, 0, 0];
    ip.extend(address(from, 2));
    ip.extend(address(to, 2));
    let sum = !sum16(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    [&mac(from, 1)[..], &mac(from, 2), &[8, 0], &ip, &l4].concat()
}

fn port(netns: &Netns, index: u32) -> Port {
    let name = format!("h{index}");
    Port {
        netns: netns.clone(),
        ifindex: netns.ifindex(&name).unwrap(),
        name,
        mac: mac(index, 2),
    }
}

/// How long a command takes.
fn answer(router: &Router, arguments: &[&str]) -> (Duration, Vec<u8>) {
    let (start, given) = (Instant::now(), Moment::now());
    let output = router.run(arguments);
    let took = start.elapsed();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    assert!(given.elapsed() < ANSWER, "{arguments:?} took {took:?}");
    (took, output.stdout)
}

fn with_state<'a>(status: &'a Value, state: &str) -> Vec<&'a Value> {
    let ports = status["ports"].as_array().unwrap();
    ports.iter().filter(|port| port["state"] == state).collect()
}

/// Processor time of a process, seconds.
fn cpu_s(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let ticks = fields.split_whitespace().skip(11).take(2);
    ticks.map(|t| t.parse::<f64>().unwrap()).sum::<f64>() / 100.0
}

#[test]
fn hundreds_of_ports_take_part() {
    let Some(_machine) = machine() else { return };
    let ports = ports();
    let lab = build("routed");
    for netns in [lab.router(), lab.server()] {
        netns
            .sysctl("net/ipv6/conf/default/disable_ipv6", "1")
            .unwrap();
    }
    connect(&lab, 0, ports + UNFIT);
    let mut config = lab.config_toml("");
    for i in 0..ports {
        writeln!(config, "[port.p{i}]\nwire_true = true\nroutes = false").unwrap();
    }
    for i in ports..ports + UNFIT {
        writeln!(config, "[port.p{i}]\npath = \"kernel\"").unwrap();
    }
    let names: Vec<_> = (0..ports + UNFIT).map(|i| format!("p{i}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();

    // fewer descriptors than the ports take, as where nobody has raised the usual limit
    let mut program = Command::new("prlimit");
    program
        .args(["--nofile=256:", &freeway_testkit::program("freeway")])
        .env("NO_COLOR", "1");
    let start = Instant::now();
    let attaching = Cell::new(0);
    let all = |status: &Value| {
        let waiting = with_state(status, "attaching");
        for port in &waiting {
            let reasons = port["reasons"].to_string();
            assert!(reasons.contains("about to be attached"), "{port:#}");
        }
        attaching.set(waiting.len().max(attaching.get()));
        with_state(status, "fast").len() == ports as usize
    };
    let mut router = Router::start_until(lab.router(), &config, program, &names, all);
    let started = start.elapsed();
    println!("at most {} ports wait for their programs", attaching.get());
    let pid = router.child.id();
    let objects = Objects::of(pid);
    assert_eq!(objects.links.len(), 3 * ports as usize + 2);

    let status = router.status();
    let kernel = with_state(&status, "kernel");
    assert_eq!(kernel.len(), UNFIT as usize);
    for port in kernel {
        let reasons = port["reasons"].to_string();
        assert!(reasons.contains("configuration"), "{port:#}");
    }
    println!(
        "{ports} ports: all fast {started:.1?} after the start, {:.1} MB of its own, {:.1} MB of maps",
        status["memory_rss_bytes"].as_f64().unwrap() / 1e6,
        status["memory_maps_bytes"].as_f64().unwrap() / 1e6
    );

    // the first, the last and others
    let step = ports / PAIRS;
    let pairs: Vec<_> = (0..PAIRS)
        .map(|pair| (pair * step, ports - 1 - pair * step))
        .collect();
    let send = || {
        for (sport, (from, to)) in (20_000..).zip(&pairs) {
            let injector = Injector::open(&port(lab.server(), *from)).unwrap();
            let frames = vec![datagram(*from, *to, sport); 20];
            injector
                .send_all(&frames, Duration::from_millis(5))
                .unwrap();
        }
    };
    let flows = router.wait_fast_while("proto udp", PAIRS as usize, 10, send);
    for (sport, (from, to)) in (20_000..).zip(&pairs) {
        let flow = flows.iter().find(|flow| flow["sport"] == sport).unwrap();
        assert_eq!(flow["port_in"], format!("p{from}"), "{flow:#}");
        assert_eq!(flow["port_out"], format!("p{to}"), "{flow:#}");
    }

    for arguments in [
        &["status"][..],
        &["stats"],
        &["top", "--once"],
        &["top", "--json"],
        &["doctor", "--json"],
    ] {
        let (took, page) = answer(&router, arguments);
        println!("{}: {took:.0?}, {} bytes", arguments.join(" "), page.len());
    }
    let before = cpu_s(pid);
    std::thread::sleep(Duration::from_secs(5));
    println!("idle: {:.1} % of a core", (cpu_s(pid) - before) * 20.0);

    // many wires at once
    let links = |switch: &str| -> String {
        (0..CUT)
            .map(|i| format!("link set h{i} {switch}\n"))
            .collect()
    };
    let fast = || with_state(&router.status(), "fast").len();
    for (switch, wanted) in [("down", ports - CUT), ("up", ports)] {
        let batch = lab.server().tool_with_input("ip -batch -", &links(switch));
        batch.unwrap();
        let start = Instant::now();
        until("all ports follow their wires", ANSWER, || {
            (fast() == wanted as usize).then_some(())
        });
        println!("{switch}: followed within {:.0?}", start.elapsed());
    }

    let start = Instant::now();
    router.signal(Signal::SIGTERM);
    let ended = until("the daemon's end", DETACHED, || {
        router.child.try_wait().unwrap()
    });
    assert!(ended.success(), "{ended}");
    println!("stopped within {:.1?}", start.elapsed());
    objects.wait_gone();
    let links = lab.router().tool("ip -d link show").unwrap();
    assert!(!links.contains("xdp"), "{links}");
}

/// Things that an operator does at the far end of `wan0`.
fn at_peer(lab: &Lab, lines: &[&str]) {
    for line in lines {
        lab.server().tool(line).unwrap();
    }
}

/// The reasons of `wan0`, and its path.
fn wan(router: &Router) -> (String, String) {
    let status = router.status();
    let mut ports = status["ports"].as_array().unwrap().iter();
    let port = ports.find(|port| port["name"] == "wan0").unwrap();
    (port["reasons"].to_string(), port["path"].to_string())
}

/// GRO of a veth's peer is switched while the peer is down, which the kernel takes no notice of: either way Freeway says what
/// cures it, loses no frame that is not counted, and follows the cure.
#[test]
fn gro_is_switched_while_the_peer_is_down() {
    const PATIENCE: Duration = Duration::from_secs(20);
    let Some(_machine) = machine() else { return };
    let lab = build("routed");
    let router = Router::start(&lab);
    if router.status()["ports"][1]["xdp_features"]
        .as_array()
        .is_none_or(Vec::is_empty)
    {
        println!("skipped: this kernel does not tell XDP features");
        return;
    }
    let (near, far) = udp_ends(&lab);
    far.set_read_timeout(Some(Duration::from_millis(50)))
        .unwrap();
    let number = Cell::new(0u64);
    // each is waited for, so that none is lost for want of room
    let exchange = || {
        number.set(number.get() + 1);
        let sent = number.get().to_be_bytes();
        near.send_to(&sent, SERVER).unwrap();
        let mut room = [0; 16];
        loop {
            match far.recv(&mut room) {
                Ok(len) if room[..len] != sent => {}
                Ok(_) => return true,
                Err(_) => return false,
            }
        }
    };
    let arrived = |count: usize| (0..count).filter(|_| exchange()).count();
    let wait_path = |path: &str, why: &str| {
        until(why, PATIENCE, || {
            let before = router.stats().fast();
            let whole = arrived(50) == 50 && router.stats().fast() > before + 40;
            let (reasons, now) = wan(&router);
            (whole && now.contains(path) && reasons.contains(why)).then_some(())
        });
    };
    wait_path("xdp", "");

    // switched on while down: NAPI is there, but not the flag
    at_peer(
        &lab,
        &[
            "ethtool -K eth0 gro off",
            "ip link set eth0 down",
            "ethtool -K eth0 gro on",
            "ip link set eth0 up",
        ],
    );
    wait_path("tc", "GRO off and on again there while it is up");
    let features = lab.server().tool("ethtool -k eth0").unwrap();
    assert!(
        features.contains("generic-receive-offload: on"),
        "{features}"
    );
    // tc takes all of it meanwhile
    assert_eq!(arrived(200), 200, "{}", router.stats());
    at_peer(&lab, &["ethtool -K eth0 gro off", "ethtool -K eth0 gro on"]);
    wait_path("xdp", "");

    // switched off while down: the flag is there, but not NAPI
    at_peer(
        &lab,
        &[
            "ip link set eth0 down",
            "ethtool -K eth0 gro off",
            "ip link set eth0 up",
        ],
    );
    let start = Moment::now();
    let (mut lost, mut good) = (0, 0);
    while good < 200 || !wan(&router).0.contains("set it down and up") {
        match exchange() {
            true => good += 1,
            false => (lost, good) = (lost + 1, 0),
        }
        assert!(
            start.elapsed() < PATIENCE,
            "{lost} lost, {:?}",
            wan(&router)
        );
    }
    let failures = router.status()["ports"][1]["redirect_failures"].clone();
    println!("{lost} frames did not arrive, {failures} redirects failed");
    // the first ones were lost while neighbours and routes came back; all others are counted
    assert!(failures.as_u64().unwrap() >= 8, "{failures}");
    wait_path("tc", "set it down and up");
    assert_eq!(arrived(200), 200, "{}", router.stats());
    at_peer(
        &lab,
        &[
            "ethtool -K eth0 gro on",
            "ip link set eth0 down",
            "ip link set eth0 up",
        ],
    );
    wait_path("xdp", "");
    router.wait_in_step();
    router.stop();
}
