// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several workers of an engine between namespaces: an I/O core that hands frames to them, the device's own queues, and
//! changes from one to the other. The order of frames is `crates/engine/tests/worker/dispatch.rs`'s.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../cli/schema.rs"]
mod schema;

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use freeway_lab::Lab;
use freeway_testkit::engine::{Engine, share_ports, take_ports};
use freeway_testkit::*;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(20);
/// Enough that no secret puts all of them into buckets of one worker.
const FLOWS: u16 = 24;
/// All on one CPU, for the machine may have no other.
const CORES: &str = "cores = [0, 0]\nio_cores = [0]";

struct Site {
    router: Router,
    engine: Engine,
    clients: Vec<UdpSocket>,
    server: UdpSocket,
    _lab: Lab,
}

impl Site {
    /// `of_engine`: what [engine] says more; `change`: of the rest.
    fn build(of_engine: &str, change: impl Fn(&str) -> String) -> Site {
        let lab = build("nat");
        let config = change(&take_ports(&lab));
        let config = config.replace("core = 0", &format!("{CORES}\n{of_engine}"));
        let engine = Engine::start(&lab, &config);
        let router = Engine::daemon(lab.router(), "", &["lan0", "wan0"]);
        Self::of(lab, engine, router)
    }

    fn of(lab: Lab, engine: Engine, router: Router) -> Site {
        let client = |number| {
            let address = SocketAddr::new(address(CLIENT).ip(), 41000 + number);
            udp(lab.client(), address)
        };
        let clients: Vec<_> = (0..FLOWS).map(client).collect();
        let server = udp(lab.server(), address(SERVER));
        for socket in clients.iter().chain([&server]) {
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
        }
        Site {
            router,
            engine,
            clients,
            server,
            _lab: lab,
        }
    }

    /// A datagram of each client, and its answer: none may be lost.
    fn round(&self) {
        let mut room = [0; 64];
        for (number, client) in self.clients.iter().enumerate() {
            client.send_to(&[number as u8; 8], SERVER).unwrap();
        }
        for _ in &self.clients {
            let (len, from) = self.server.recv_from(&mut room).unwrap();
            self.server.send_to(&room[..len], from).unwrap();
        }
        for (number, client) in self.clients.iter().enumerate() {
            let len = client.recv(&mut room).unwrap();
            assert_eq!(room[..len], [number as u8; 8]);
        }
    }

    fn until_fast(&self) {
        until("the engine's flows", PATIENCE, || {
            self.round();
            let flows = self.router.flows("proto udp state active");
            let of_engine = flows.iter().filter(|flow| flow["path"] == "engine");
            (of_engine.count() == 2 * usize::from(FLOWS)).then_some(())
        });
    }

    fn counts(&self) -> Value {
        self.router.status()["engine"]["counts"].clone()
    }

    /// Rounds until each worker has had frames more.
    fn until_all_work(&self) -> Value {
        let packets = |counts: &Value| -> Vec<u64> {
            let workers = counts["workers"].as_array().unwrap();
            let packets = workers.iter().map(|of| of["packets"].as_u64().unwrap());
            packets.collect()
        };
        let before = packets(&until("the engine's counts", PATIENCE, || {
            let counts = self.counts();
            (packets(&counts).len() == 2).then_some(counts)
        }));
        until("frames at each worker", PATIENCE, || {
            self.round();
            let counts = self.counts();
            let now = packets(&counts);
            let more = now.iter().zip(&before).all(|(now, before)| now > before);
            more.then_some(counts)
        })
    }

    fn change(&self, port: &str, mode: &str) {
        let told = self.router.json(&["engine", "dispatch", port, mode]);
        let ports = told["ports"].as_array().unwrap();
        let of_port = ports.iter().find(|of| of["port"] == port).unwrap();
        assert_eq!(of_port["mode"], mode, "{told:#}");
    }

    /// The engine says itself that it is so.
    fn until_mode(&self, port: &str, mode: &str) {
        until("the mode", PATIENCE, || {
            let counts = self.counts();
            let ports = counts["dispatch"].as_array().unwrap();
            let is = |of: &&Value| of["port"] == port && of["mode"] == mode;
            ports.iter().find(is).map(|_| ())
        });
    }

    fn end(self) {
        let counts = self.counts();
        for name in ["exceptions_dropped", "tx_dropped", "dispatch_dropped"] {
            assert_eq!(counts[name], 0, "{counts:#}");
        }
        self.router.stop();
        self.engine.stop();
    }
}

#[test]
fn an_io_core_hands_flows_to_workers() {
    let Some(_machine) = machine() else { return };
    let site = Site::build("dispatch = \"dispatch\"", str::to_owned);
    site.until_fast();
    let counts = site.until_all_work();
    let io = &counts["io"][0];
    // it has read what they had, and sent what they sent: the devices have one queue each
    let by_workers = counts["forwarded"].as_u64();
    assert!(io["packets"].as_u64() >= by_workers, "{counts:#}");
    assert!(io["transmitted"].as_u64() >= by_workers, "{counts:#}");
    let documented = schema::Schema::read();
    documented.check("engine", &site.router.status()["engine"]);
    let all = site.router.json(&["engine", "dispatch"]);
    documented.check("engine dispatch", &all);
    site.change("lan0", "balanced");
    site.until_mode("lan0", "balanced");
    // one port is balanced, one dispatched; nothing of their devices wakes the I/O core
    site.engine.sleeps(&site.router, 256);
    site.round();
    let refused = site.router.run(&["engine", "dispatch", "lan0", "rss"]);
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success(), "{words}");
    assert!(words.contains("lan0 cannot be rss"), "{words}");
    let unknown = site.router.run(&["engine", "dispatch", "lan7", "rss"]);
    let words = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(words.contains("its ports are lan0, wan0"), "{words}");
    let text = String::from_utf8(site.router.run(&["engine", "dispatch"]).stdout).unwrap();
    assert!(text.contains("balanced"), "{text}");
    site.change("lan0", "dispatch");
    site.until_mode("lan0", "dispatch");
    site.until_all_work();
    site.end();
}

/// The devices have a queue for each worker; who reads them changes, and nothing is lost.
#[test]
fn a_port_changes_while_frames_come() {
    let Some(_machine) = machine() else { return };
    let with_queues = |config: &str| {
        let config = config.replace("iface=dlan0", "iface=dlan0,qpairs=2");
        config.replace("iface=dwan0", "iface=dwan0,qpairs=2")
    };
    let site = Site::build("transmit = \"worker\"", with_queues);
    site.until_fast();
    site.until_mode("lan0", "rss");
    site.until_all_work();
    for mode in ["dispatch", "rss", "balanced", "rss"] {
        for port in ["lan0", "wan0"] {
            site.change(port, mode);
            site.round();
            site.until_mode(port, mode);
        }
        site.until_all_work();
    }
    // each flow is still one, whose packets are all counted
    let flows = site.router.flows("proto udp");
    assert_eq!(flows.len(), 2 * usize::from(FLOWS), "{flows:#?}");
    site.end();
}

/// Sockets of shared ports are one core's: the I/O core's.
#[test]
fn an_io_core_reads_shared_ports() {
    let Some(_machine) = machine() else { return };
    let lab = build("nat");
    let config =
        share_ports(&lab).replace("core = 0", &format!("{CORES}\ndispatch = \"dispatch\""));
    let config = format!("{config}[[policy.steer]]\npath = \"engine\"\n");
    let router = Router::start_in(lab.router(), &config, freeway(), &["lan0", "wan0"]);
    let engine = Engine::spawn(lab.router(), &config);
    let site = Site::of(lab, engine, router);
    until("the engine", PATIENCE, || {
        let status = site.router.status();
        let ports = status["engine"]["ports"].as_array()?.len();
        (ports == 2).then_some(())
    });
    site.until_fast();
    site.until_all_work();
    site.engine.sleeps(&site.router, 10_000);
    site.round();
    site.end();
}

#[test]
fn what_does_not_fit_is_refused() {
    let Some(_machine) = machine() else { return };
    let lab = build("nat");
    let good = take_ports(&lab);
    let check = |cores: &str, code: i32, words: &str| {
        let config = good.replace("core = 0", cores);
        let (ended, text) = Engine::refuses(lab.router(), &config);
        assert_eq!(ended, Some(code), "{config}\n{text}");
        let last = text.lines().last().unwrap();
        assert!(last.contains(words), "{words}: {text}");
    };
    check("core = 0\ncores = [0]", 78, "remove one of both");
    check(
        "cores = [0, 4000]",
        78,
        "engine.cores = 4000: there is no such CPU",
    );
    check("io_cores = [4000]\ncore = 0", 78, "engine.io_cores = 4000");
    check(
        "core = 0\ndispatch = \"balanced\"",
        78,
        "name one in engine.io_cores",
    );
    check(
        "cores = [0, 0]",
        69,
        "rss takes one each for 2 workers; engine.io_cores and",
    );
    check(
        CORES,
        69,
        "rss takes one each for 2 workers; dispatch = \"dispatch\" takes one",
    );
    let by_worker = format!("{CORES}\ndispatch = \"dispatch\"\ntransmit = \"worker\"");
    check(&by_worker, 69, "fewer than the 2 workers");
    let links = lab.router().tool("ip -o link show").unwrap();
    assert!(!links.contains(" lan0:"), "{links}");
}
