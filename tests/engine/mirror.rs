// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies for who looks on: a port of the engine's has what is on the wire of another one, whoever forwards it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use freeway_lab::Lab;
use freeway_lab::Port;
use freeway_lab::capture::Capture;
use freeway_lab::frame::{MAC_LAN, MAC_WAN};
use freeway_testkit::engine::{Device, Engine, take_ports_of};
use freeway_testkit::*;
use nix::sys::signal::Signal;

const PATIENCE: Duration = Duration::from_secs(20);
const MAC_IDS: [u8; 6] = [2, 0, 0, 0, 0, 0x77];

/// A lab whose router's ports are an engine's, with one more to which somebody listens.
struct Site {
    // dropped in order: the lab goes last
    router: Router,
    capture: Capture,
    engine: Engine,
    config: String,
    lab: Lab,
}

impl Site {
    /// `rules`: of the daemon's configuration.
    fn build(rules: &str) -> Site {
        let lab = build("nat");
        let (router, looker) = (lab.router(), lab.client());
        let tool = |line: &str| router.tool(line).unwrap();
        tool(&format!(
            "ip link add ids0 type veth peer name look0 netns {}",
            looker.name()
        ));
        looker
            .tool("ip link set look0 arp off addrgenmode none up")
            .unwrap();
        let faces = [
            ("lan0".into(), MAC_LAN),
            ("wan0".into(), MAC_WAN),
            ("ids0".into(), MAC_IDS),
        ];
        let config = take_ports_of(router, 0, Device::AfPacket, &faces);
        let engine = Engine::start(&lab, &config);
        until("the mirror's TAP", PATIENCE, || {
            router.tool("ip link set ids0 addrgenmode none up").ok()
        });
        let port = Port {
            netns: looker.clone(),
            name: "look0".into(),
            ifindex: looker.ifindex("look0").unwrap(),
            mac: [0; 6],
        };
        let capture = Capture::open(&port).unwrap();
        let router = Self::daemon(&lab, &config, rules);
        Site {
            router,
            capture,
            engine,
            config,
            lab,
        }
    }

    fn daemon(lab: &Lab, config: &str, rules: &str) -> Router {
        let config = format!("{config}\n{rules}");
        Engine::daemon(lab.router(), &config, &["lan0", "wan0"])
    }

    fn ends(&self) -> (UdpSocket, UdpSocket) {
        patient(udp_ends(&self.lab))
    }

    /// The engine goes by so many rules.
    #[track_caller]
    fn until_rules(&self, count: u64) {
        until("the engine's mirrors", PATIENCE, || {
            let status = self.router.status();
            let counts = &status["engine"]["counts"];
            // it has said something to this daemon
            let workers = counts["workers"].as_array().map_or(0, Vec::len);
            (workers > 0 && counts["mirrors"] == count).then_some(())
        });
    }

    fn steer(&self, words: &str) {
        let arguments: Vec<_> = ["steer"].into_iter().chain(words.split(' ')).collect();
        let output = self.router.run(&arguments);
        assert!(output.status.success(), "{output:?}");
    }

    fn refuses(&self, words: &str) -> String {
        let arguments: Vec<_> = ["steer"].into_iter().chain(words.split(' ')).collect();
        let output = self.router.run(&arguments);
        assert!(!output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Sends numbered datagrams from that number on, with answers, and looks whether each was copied once each way, as it
    /// is on the LAN's wire.
    #[track_caller]
    fn copies(&mut self, ends: &(UdpSocket, UdpSocket), from: u64, wanted: bool) {
        const DATAGRAMS: u64 = 50;
        let numbers = from..from + DATAGRAMS;
        let mut room = [0; 64];
        for number in numbers.clone() {
            ends.0.send_to(&number.to_be_bytes(), SERVER).unwrap();
            let (len, to) = ends.1.recv_from(&mut room).unwrap();
            ends.1.send_to(&room[..len], to).unwrap();
            ends.0.recv(&mut room).unwrap();
        }
        let expected = if wanted { 2 * DATAGRAMS as usize } else { 1 };
        // a copy is sent ahead of its frame, which has arrived
        let patience = if wanted {
            PATIENCE
        } else {
            Duration::from_millis(300)
        };
        let ours = |frame: &[u8]| {
            let number = datagram(frame).map(|(_, _, number)| number);
            number.is_some_and(|number| numbers.contains(&number))
        };
        let frames = self.capture.collect(expected, patience, ours).unwrap();
        let mut seen: BTreeMap<_, usize> = BTreeMap::new();
        for frame in &frames {
            *seen.entry(datagram(&frame.bytes).unwrap()).or_default() += 1;
        }
        let (client, server) = (address(CLIENT), address(SERVER));
        let mut all = BTreeMap::new();
        for number in numbers.filter(|_| wanted) {
            all.insert((client, server, number), 1);
            all.insert((server, client, number), 1);
        }
        assert_eq!(seen, all);
    }
}

/// Sender, receiver and number of a datagram of a test's.
fn datagram(frame: &[u8]) -> Option<(SocketAddr, SocketAddr, u64)> {
    if frame.len() < 50 || frame[12..14] != [8, 0] || frame[23] != 17 {
        return None;
    }
    let end = |address: usize, port: usize| {
        let octets: [u8; 4] = frame[address..address + 4].try_into().unwrap();
        let port = u16::from_be_bytes([frame[port], frame[port + 1]]);
        SocketAddr::from((octets, port))
    };
    let number = u64::from_be_bytes(frame[42..50].try_into().unwrap());
    Some((end(26, 34), end(30, 36), number))
}

#[test]
fn what_is_on_a_ports_wire_is_copied() {
    let Some(_machine) = machine() else { return };
    let rule = "[[policy.steer]]\nmirror = \"ids0\"\nport = [\"lan0\"]\nproto = \"udp\"\n";
    let mut site = Site::build(rule);
    let ends = site.ends();
    let server = address(SERVER);
    // the kernel forwards the first ones, the engine what follows
    site.until_rules(1);
    site.copies(&ends, 1000, true);
    path::until_path(&site.router, &ends, server, "engine");
    site.copies(&ends, 2000, true);
    let list = site.router.run(&["steer", "list"]);
    let list = String::from_utf8(list.stdout).unwrap();
    assert!(
        list.contains("1  mirror ids0  proto udp port lan0"),
        "{list}"
    );
    until("the engine's counts", PATIENCE, || {
        let status = site.router.status();
        let counts = &status["engine"]["counts"];
        assert_eq!(counts["not_mirrored"], 0, "{counts:#}");
        (counts["mirrored"].as_u64() >= Some(200)).then_some(())
    });

    // what is no frame of a rule's, and no rule
    site.steer("delete 1");
    site.until_rules(0);
    site.copies(&ends, 3000, false);
    site.steer("mirror ids0 port lan0 dport 9");
    site.until_rules(1);
    site.copies(&ends, 4000, false);
    site.steer("delete 1");
    let refused = |words: &str, why: &str| {
        let error = site.refuses(words);
        assert!(error.contains(why), "{error}");
    };
    refused("mirror ids0 proto udp", "names in port");
    refused("mirror ids1 port lan0", "[engine.port.ids1]");
    refused("mirror ids0 port ids0", "copies as well");

    // a daemon that goes leaves the engine its rules, until another one says otherwise
    site.until_rules(0);
    site.steer("mirror ids0 port lan0 dport 5000");
    site.until_rules(1);
    site.copies(&ends, 5000, true);
    site.router.signal(Signal::SIGKILL);
    site.router.wait();
    // the kernel forwards once its deadline has passed
    site.copies(&ends, 6000, true);
    site.router = Site::daemon(&site.lab, &site.config, "");
    path::until_path(&site.router, &ends, server, "engine");
    site.until_rules(0);
    site.copies(&ends, 7000, false);
    site.router.stop();
    site.engine.stop();
}
