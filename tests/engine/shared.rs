// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ports that XDP and the engine share: the kernel's, with Freeway's XDP program, which hands over what is the engine's.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::{SocketAddr, UdpSocket};
use std::process::Stdio;
use std::time::{Duration, Instant};

use freeway_lab::{Capture, Lab, Options};
use freeway_testkit::bench::{Bench, IN_FLIGHT};
use freeway_testkit::engine::{Engine, share_ports};
use freeway_testkit::*;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// All is the engine's.
const STEER: &str = "[[policy.steer]]\npath = \"engine\"\n";
const PATIENCE: Duration = Duration::from_secs(60);

struct Site {
    // dropped in order: the lab goes last
    router: Router,
    engine: Engine,
    lab: Lab,
}

impl Site {
    fn build(name: &str) -> Site {
        Self::of(build(name), STEER)
    }

    fn of(lab: Lab, steer: &str) -> Site {
        let mut config = share_ports(&lab) + steer;
        if steer.contains("routes = true") {
            config = config.replace("routes = false", "routes = true");
        }
        let router = Self::daemon(&lab, &config);
        let engine = Engine::spawn(lab.router(), &config);
        let site = Site {
            router,
            engine,
            lab,
        };
        site.until_there();
        site
    }

    fn daemon(lab: &Lab, config: &str) -> Router {
        Router::start_in(lab.router(), config, freeway(), &["lan0", "wan0"])
    }

    /// The daemon has the engine's sockets.
    #[track_caller]
    fn until_there(&self) {
        until("the engine at the daemon", PATIENCE, || {
            let ports = &self.router.status()["engine"]["ports"];
            (*ports == serde_json::json!(["lan0", "wan0"])).then_some(())
        });
    }

    fn ends(&self) -> (UdpSocket, UdpSocket) {
        patient(udp_ends(&self.lab))
    }

    #[track_caller]
    fn until_path(&self, ends: &(UdpSocket, UdpSocket), path: &str) {
        path::until_path(&self.router, ends, address(SERVER), path);
    }

    fn counts(&self) -> Value {
        self.router.status()["engine"]["counts"].clone()
    }
}

/// The frame that arrives at the server for a datagram, without the identification that its sender counts, and the checksum
/// over that, which is right.
fn frame_of(capture: &mut Capture, client: &UdpSocket, payload: &[u8]) -> Vec<u8> {
    client.send_to(payload, SERVER).unwrap();
    let is_it = |frame: &[u8]| frame.ends_with(payload);
    let frames = capture.collect(1, Duration::from_secs(10), is_it).unwrap();
    let mut frame = frames.first().expect("the datagram").bytes.clone();
    let words = frame[14..34]
        .chunks(2)
        .map(|w| u32::from(w[0]) << 8 | u32::from(w[1]));
    assert_eq!(words.sum::<u32>() % 0xffff, 0, "{frame:02x?}");
    frame[18..20].fill(0);
    frame[24..26].fill(0);
    frame
}

/// Numbers are as the engine has told the daemon, which is once a second.
fn until_counted(site: &Site, name: &str, least: u64) {
    until(name, PATIENCE, || {
        (site.counts()[name].as_u64() >= Some(least)).then_some(())
    });
}

#[test]
fn flows_are_handed_to_the_engine() {
    let Some(_machine) = machine() else { return };
    let site = Site::build("nat");
    let mut capture = Capture::open(site.lab.server_port()).unwrap();
    let ends = site.ends();
    site.router.run(&["off"]);
    path::send(&ends, address(SERVER), 5);
    let payloads: Vec<_> = [8, 64, 1472]
        .map(|len| (0..len).map(|i| (i * 7 + len) as u8).collect::<Vec<_>>())
        .into();
    let frames = |capture: &mut Capture| -> Vec<_> {
        let mut room = [0; 2048];
        let frame = |payload: &Vec<u8>| {
            let frame = frame_of(capture, &ends.0, payload);
            ends.1.recv(&mut room).unwrap();
            frame
        };
        payloads.iter().map(frame).collect()
    };
    let of_kernel = frames(&mut capture);
    site.router.run(&["on"]);
    site.until_path(&ends, "engine");
    // the longest one has to be seen before it may be fast
    for _ in 0..2 {
        frames(&mut capture);
    }
    let before = site.router.stats().reason("engine");
    let of_engine = frames(&mut capture);
    let handed = site.router.stats().reason("engine") - before;
    // but for one that the kernel confirms
    assert!(handed >= 2, "{handed}\n{}", site.router.stats());
    assert_eq!(of_kernel, of_engine);
    let before = site.router.stats();
    path::send(&ends, address(SERVER), 200);
    let after = site.router.stats();
    let handed = after.reason("engine") - before.reason("engine");
    assert!((300..=400).contains(&handed), "{handed}\n{after}");
    assert!(after.fast() - before.fast() >= 300, "{before}\n{after}");
    until_counted(&site, "forwarded", handed);
    let counts = site.counts();
    for name in ["exceptions_dropped", "tx_dropped", "sockets_dropped"] {
        assert_eq!(counts[name], 0, "{counts:#}");
    }
    let flows = site.router.flows("proto udp");
    assert_eq!(flows.len(), 2, "{flows:#?}");
    for flow in &flows {
        assert_eq!(
            (&flow["path"], &flow["connection"]),
            (&"engine".into(), &true.into())
        );
    }
    let explained = path::explain(&site.router, &ends, CLIENT, SERVER);
    assert_eq!(explained["verdict"], "fast", "{explained:#}");
    let summary = explained["summary"].as_str().unwrap();
    assert!(summary.contains("by the engine"), "{explained:#}");
    // its sockets wake it
    site.engine.sleeps(&site.router, 10_000);
    path::send(&ends, address(SERVER), 20);
    // one whose worker stands still is given nothing more
    site.engine.signal(Signal::SIGSTOP);
    until("the daemon's word of it", PATIENCE, || {
        let ports = &site.router.status()["engine"]["ports"];
        ports.as_array().unwrap().is_empty().then_some(())
    });
    until("the first datagram", PATIENCE, || {
        let mut room = [0; 64];
        ends.1
            .set_read_timeout(Some(Duration::from_millis(200)))
            .unwrap();
        ends.0.send_to(b"again", SERVER).unwrap();
        ends.1.recv_from(&mut room).ok()
    });
    ends.1
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    site.until_path(&ends, "xdp");
    site.engine.signal(Signal::SIGCONT);
    site.until_there();
    site.until_path(&ends, "engine");
    site.router.stop();
    site.engine.stop();
}

/// Segments that open and close are judged in XDP, as without the engine.
#[test]
fn connections_open_and_close_beside_the_engine() {
    let Some(_machine) = machine() else { return };
    let site = Site::build("nat");
    let to = address("198.51.100.2:7000");
    let listener = listen(site.lab.server(), to);
    for sport in [41000, 41001] {
        let from = SocketAddr::new(address(CLIENT).ip(), sport);
        let mut ends = pair((site.lab.client(), from), to, &listener);
        exchange_blocks(&mut ends, 200);
        let flows = site
            .router
            .wait_fast_while("proto tcp", 2, 20, || exchange_blocks(&mut ends, 20));
        assert!(
            flows.iter().all(|flow| flow["path"] == "engine"),
            "{flows:#?}"
        );
        let (client, mut server) = ends;
        drop(client);
        at_end(&mut server);
        drop(server);
        // the FIN went through the kernel, which has seen the connection close
        until("the flows' end", Duration::from_secs(10), || {
            site.router.flows("proto tcp").is_empty().then_some(())
        });
        let state = format!("{:?}", connections(&site.lab, 6));
        assert!(!state.contains("Established"), "{state}");
    }
    site.router.stop();
    site.engine.stop();
}

/// A router under a light load of numbered frames.
struct Loaded {
    // dropped in order
    router: Router,
    engine: Option<Engine>,
    config: String,
    bench: Bench,
}

const FLOWS: u32 = 16;

impl Loaded {
    fn build(steer: &str, pps: u64) -> Loaded {
        let bench = Bench::light(Options::default(), FLOWS, pps);
        let config = share_ports(&bench.lab) + steer;
        let router = Site::daemon(&bench.lab, &config);
        let engine = Some(Engine::spawn(bench.lab.router(), &config));
        Loaded {
            router,
            engine,
            config,
            bench,
        }
    }

    /// All flows to the server are of that path.
    #[track_caller]
    fn until_all(&self, path: &str) {
        until(path, PATIENCE, || {
            let flows = self.router.flows("proto udp port wan0");
            let from_client = flows.iter().filter(|flow| flow["port_in"] == "lan0");
            let of_path = |flow: &&Value| flow["path"] == path && flow["state"] == "active";
            (from_client.filter(of_path).count() == FLOWS as usize).then_some(())
        });
    }

    /// Frames that somebody has counted as dropped.
    fn counted(&self) -> u64 {
        let counts = &self.router.status()["engine"]["counts"];
        ["exceptions_dropped", "tx_dropped", "sockets_dropped"]
            .iter()
            .map(|name| counts[name].as_u64().unwrap_or(0))
            .sum()
    }

    /// How far a frame came behind a later one of its flow, at most, and how many did.
    fn displaced(&self) -> (u32, u64) {
        let flows = (0..FLOWS).map(|flow| self.bench.sink.flow(flow).unwrap());
        flows.fold((0, 0), |(most, all), flow| {
            (most.max(flow.extent_max), all + u64::from(flow.reordered))
        })
    }
}

/// Its sockets go with it, and XDP's fallback is the kernel: without a word of the daemon's.
#[test]
fn a_killed_engine_leaves_its_flows_to_the_kernel() {
    let Some(_machine) = machine() else { return };
    let pps = 1000;
    let mut site = Loaded::build(STEER, pps);
    let load = site.bench.load();
    let (mut counted, mut dying) = (0, Duration::ZERO);
    for round in 0..2 {
        site.until_all("engine");
        counted += site.counted();
        if round == 0 {
            site.router.signal(Signal::SIGSTOP);
        }
        let mut engine = site.engine.take().unwrap();
        let killed = Instant::now();
        engine.signal(Signal::SIGKILL);
        engine.wait();
        dying += killed.elapsed();
        counted += IN_FLIGHT;
        if round == 0 {
            site.bench.wait_share(PATIENCE, |share| share > 0.9);
            site.router.signal(Signal::SIGCONT);
        }
        // then they are XDP's
        site.until_all("xdp");
        site.engine = Some(Engine::spawn(site.bench.lab.router(), &site.config));
    }
    site.until_all("engine");
    let sent = site.bench.end(load);
    // while the kernel takes the process apart, frames still go to its sockets
    let meanwhile = (dying.as_secs_f64() * pps as f64) as u64;
    site.bench
        .check(&sent, counted + site.counted() + meanwhile);
    println!("row: displaced by {:?}", site.displaced());
    site.router.stop();
    site.engine.take().unwrap().stop();
}

#[test]
fn a_killed_daemon_leaves_all_to_the_kernel() {
    let Some(_machine) = machine() else { return };
    let mut site = Loaded::build(STEER, 1000);
    let load = site.bench.load();
    site.until_all("engine");
    // stopped: its deadline passes
    site.router.signal(Signal::SIGSTOP);
    site.bench.wait_share(PATIENCE, |share| share > 0.9);
    assert!(
        site.engine
            .as_mut()
            .unwrap()
            .child
            .try_wait()
            .unwrap()
            .is_none()
    );
    site.router.signal(Signal::SIGCONT);
    site.until_all("engine");
    let counted = site.counted();
    // killed: its programs go with it
    site.router.signal(Signal::SIGKILL);
    site.router.wait();
    site.bench.wait_kernel(PATIENCE);
    site.router = Site::daemon(&site.bench.lab, &site.config);
    site.until_all("engine");
    let sent = site.bench.end(load);
    // attaching and detaching replace the rings of two ports
    site.bench.check(&sent, counted + site.counted() + 4 * 256);
    site.router.stop();
    site.engine.take().unwrap().stop();
}

/// Back and forth on a running system: no frame is lost, none arrives twice.
#[test]
fn flows_are_steered_under_traffic() {
    let Some(_machine) = machine() else { return };
    let mut site = Loaded::build("", 4000);
    let load = site.bench.load();
    site.until_all("xdp");
    let steer = |words: &str, rules: usize| {
        let words: Vec<_> = ["steer"].into_iter().chain(words.split(' ')).collect();
        let steering = site.router.json(&words);
        assert_eq!(
            steering["rules"].as_array().unwrap().len(),
            rules,
            "{steering:#}"
        );
        assert_eq!(steering["ports"], serde_json::json!(["lan0", "wan0"]));
    };
    until("the engine at the daemon", PATIENCE, || {
        let ports = &site.router.json(&["steer", "list"])["ports"];
        (*ports == serde_json::json!(["lan0", "wan0"])).then_some(())
    });
    let rounds = if long() { 50 } else { 5 };
    for _ in 0..rounds {
        steer("add engine proto udp src 192.0.2.0/24", 1);
        site.until_all("engine");
        steer("add --at 1 xdp port wan0", 2);
        site.until_all("xdp");
        steer("delete 2", 1);
        steer("delete 1", 0);
    }
    let handed = site.router.stats().reason("engine");
    assert!(handed > 0, "{}", site.router.stats());
    let sent = site.bench.end(load);
    // what the engine has told is a second old at most
    std::thread::sleep(Duration::from_millis(1200));
    let counts = site.router.status()["engine"]["counts"].clone();
    site.bench.check(&sent, site.counted());
    let (extent, displaced) = site.displaced();
    println!(
        "row: {rounds} times to the engine and back, {} frames, {handed} by the engine, {displaced} displaced, by {extent} places at most; {counts}",
        sent.frames
    );
    site.router.stop();
    site.engine.take().unwrap().stop();
}

/// What rules give to the engine is not sent by prefixes ahead of it.
#[test]
fn steered_flows_have_no_prefix_paths() {
    let Some(_machine) = machine() else { return };
    let config = format!("{STEER}\n[policy]\nroutes = true\n");
    let site = Site::of(build("routed"), &config);
    site.until_path(&site.ends(), "engine");
    let routes = site.router.json(&["routes"]);
    assert_eq!(routes["ports"], serde_json::json!([]), "{routes}");
    let kept = routes["ports_kept"].as_array().unwrap();
    let by_engine = |port: &Value| port["reason"].as_str().unwrap().contains("the engine");
    assert!(kept.len() == 2 && kept.iter().all(by_engine), "{routes}");
}

#[test]
fn what_is_handed_is_captured_as_it_came_in() {
    let Some(_machine) = machine() else { return };
    let site = Site::build("nat");
    let ends = site.ends();
    site.until_path(&ends, "engine");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("handed");
    let mut capture = freeway();
    capture.args(["capture", "--json", "proto", "udp", "-i", "lan0", "-w"]);
    capture.arg(&file).stdout(Stdio::piped());
    let capture = site.lab.router().spawn(&mut capture).unwrap();
    let comment = b"engine: udp 192.0.2.2:40000 > 198.51.100.2:5000";
    until("a packet with its reason and flow", PATIENCE, || {
        ends.0.send_to(b"handed", SERVER).unwrap();
        let octets = std::fs::read(&file).unwrap_or_default();
        let found = octets.windows(comment.len()).any(|of| of == comment);
        found.then_some(())
    });
    kill(Pid::from_raw(capture.id().cast_signed()), Signal::SIGINT).unwrap();
    let output = capture.wait_with_output().unwrap();
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    // where the engine sends them XDP does not see
    assert!(
        said["packets"].as_u64() > Some(0) && said["packets"] == said["frames"],
        "{said}"
    );
}

/// One line, the right code.
#[test]
fn bad_input_is_named() {
    let Some(_machine) = machine() else { return };
    let lab = build("nat");
    let good = share_ports(&lab);
    let check = |config: &str, code: i32, words: &str| {
        let (ended, text) = Engine::refuses(lab.router(), config);
        assert_eq!(ended, Some(code), "{config}\n{text}");
        let last = text.lines().last().unwrap();
        assert!(last.contains(words), "{words}: {text}");
    };
    let wan = "[engine.port.wan0]\naf_xdp = true\n";
    let with = |other: &str| good.replace(wan, other);
    check(
        &with("[engine.port.wan7]\naf_xdp = true\n"),
        69,
        "engine.port.wan7: there is no such port",
    );
    check(
        &with("[engine.port.wan0]\naf_xdp = false\n"),
        78,
        "engine.port.wan0: it names no device; give it pci, vdev or af_xdp = true",
    );
    check(&format!("{good}mtu = 1400\n"), 78, "remove mac and mtu");
    check(&format!("{good}queues = 0\n"), 78, "unknown field `queues`");
    // a veth whose peer is no wire has no XDP
    let plain = good.replace("wire_true = true", "wire_true = false");
    let router = Site::daemon(&lab, &plain);
    check(&plain, 69, "engine.port.lan0: af_xdp needs XDP at lan0: ");
    router.stop();
}
