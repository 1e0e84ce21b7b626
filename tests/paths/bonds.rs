// SPDX-License-Identifier: MIT OR Apache-2.0
//! A bond of two parts in the place of the LAN's port: XDP takes its frames at the parts that it takes them at itself, and they
//! leave by the part that the kernel would choose. Needs a kernel with bonds that tells of devices what they do for XDP
//! (Linux 6.3): the virtual machine (tests/vm) has one.
//!
//! ```text
//!   host  eth0 ---- lan0 \
//!                          bo0  router  wan0 ---- eth0   server
//!         eth1 ---- lan1 /
//! ```
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use freeway_kernel::probe::sends_through_bonds;
use freeway_lab::frame::{FlowSpec, MAC_CLIENT, MAC_LAN, Proto, mac_text};
use freeway_lab::{Capture, Filter, Injector, Lab, Options, Port};
use freeway_testkit::*;

const EVERY: Duration = Duration::from_micros(500);
const QUIET: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(30);
/// Frames of each way between two changes of the active part.
const ROUNDS: u32 = 100;
const VLAN: u16 = 5;

/// How the bond is, and what is above it.
#[derive(Clone, Copy)]
struct Kind<'a> {
    /// As `ip link` has it, from the mode on.
    mode: &'a str,
    vlan: Option<u16>,
}

/// The router, and the two ends of its bond.
struct Bond {
    lab: Lab,
    up: FlowSpec,
    down: FlowSpec,
    ends: [Injector; 2],
    captures: [Capture; 2],
    server: Injector,
    at_server: Capture,
    v6: bool,
}

impl Bond {
    /// `None`: this kernel has no bonds.
    fn build(topology: &str, kind: Kind<'_>, flows: u32) -> Option<Self> {
        let options = Options {
            filter: Some(Filter::Tracked),
            ..Options::default()
        };
        let lab = build_with(topology, options);
        let (router, client) = (lab.router(), lab.client());
        let v6 = topology.ends_with('6');
        let addresses = router
            .tool("ip -o address show dev lan0 scope global")
            .unwrap();
        let family = if v6 { "inet6 " } else { "inet " };
        let address = addresses.split(family).nth(1).unwrap();
        let address = address.split_whitespace().next().unwrap();
        let up = FlowSpec {
            vlan: kind.vlan,
            ..lab.flows(Proto::Udp, flows, 100)
        };
        let above = kind.vlan.map_or("bo0", |_| "bo0v");
        let vlan = kind.vlan.map_or_else(String::new, |id| {
            format!("link add link bo0 name bo0v type vlan id {id}\nlink set bo0v up\n")
        });
        let made = router.tool_with_input(
            "ip -batch -",
            &format!(
                "link add bo0 address {} type bond mode {} miimon 10\n",
                mac_text(MAC_LAN),
                kind.mode
            ),
        );
        if let Err(error) = made {
            assert!(error.to_string().contains("Unknown device type"), "{error}");
            println!("skipped: this kernel has no bonds: {error}");
            return None;
        }
        let commands = format!(
            "address flush dev lan0\nlink set lan0 down\n\
             link add lan1 type veth peer name eth1 netns {}\n\
             link set lan0 master bo0\nlink set lan1 master bo0\nlink set bo0 up\n{vlan}\
             address add dev {above} {address}\n\
             neighbour replace {} lladdr {} nud permanent dev {above}\n",
            client.name(),
            up.near,
            mac_text(MAC_CLIENT),
        );
        router.tool_with_input("ip -batch -", &commands).unwrap();
        router
            .tool("ethtool -K lan1 tx off tso off gso off gro on")
            .unwrap();
        let inline = "txvlan off tx-vlan-stag-hw-insert off";
        for port in ["lan0", "lan1"] {
            router.tool(&format!("ethtool -K {port} {inline}")).unwrap();
        }
        client.tool("ip link set eth1 up").unwrap();
        client
            .tool("ethtool -K eth1 tx off tso off gso off gro on")
            .unwrap();
        if kind.mode.starts_with("802.3ad") {
            let peer = format!(
                "link add bo1 type bond mode {} miimon 10\nlink set eth0 down\nlink set eth1 down\n\
                 link set eth0 master bo1\nlink set eth1 master bo1\nlink set bo1 up\n",
                kind.mode
            );
            client.tool_with_input("ip -batch -", &peer).unwrap();
            until("the link is aggregated", PATIENCE, || {
                let parts = ["lan0", "lan1"].map(|part| {
                    let shown = router.tool(&format!("ip -d link show {part}")).unwrap();
                    shown.contains("state ACTIVE") && shown.contains("ad_aggregator_id 1")
                });
                parts.iter().all(|active| *active).then_some(())
            });
        }
        let other = Port {
            netns: client.clone(),
            ifindex: client.ifindex("eth1").unwrap(),
            name: "eth1".into(),
            mac: MAC_CLIENT,
        };
        let ports = [lab.client_port(), &other];
        let ends = ports.map(|port| Injector::open(port).unwrap());
        let captures = ports.map(|port| Capture::open(port).unwrap());
        let server = Injector::open(lab.server_port()).unwrap();
        let at_server = Capture::open(lab.server_port()).unwrap();
        let down = lab.reply_flows(Proto::Udp, flows, 100);
        Some(Self {
            lab,
            up,
            down,
            ends,
            captures,
            server,
            at_server,
            v6,
        })
    }

    fn start(&self) -> Router {
        let config = self.lab.config_toml("") + "[port.lan1]\nwire_true = true\n";
        let mut ports = vec!["bo0", "lan0", "lan1", "wan0"];
        ports.extend(self.up.vlan.map(|_| "bo0v"));
        Router::start_in(self.lab.router(), &config, freeway(), &ports)
    }

    /// A frame of each flow each way, the host's at one of the ends.
    fn exchange(&self, end: usize, round: u32) {
        for flow in 0..self.up.flows {
            self.ends[end].send(&self.up.frame(flow, round)).unwrap();
            self.server.send(&self.down.frame(flow, round)).unwrap();
        }
        thread::sleep(EVERY);
    }

    /// All flows of both ways on a path.
    fn wait_for(&self, daemon: &Router, end: usize, path: &str) {
        self.wait_for_both(daemon, end, [path; 2]);
    }

    /// All flows from the bond and to it on these paths.
    fn wait_for_both(&self, daemon: &Router, end: usize, paths: [&str; 2]) {
        until(&paths.join(", "), PATIENCE, || {
            for _ in 0..5 {
                self.exchange(end, 0);
            }
            let flows = daemon.json(&["flows"]);
            let flows = flows["flows"].as_array().unwrap();
            let on = flows.iter().filter(|flow| {
                let path = paths[usize::from(flow["port_in"] == "wan0")];
                flow["path"] == path && flow["state"] == "active"
            });
            (on.count() == 2 * self.up.flows as usize).then_some(())
        });
    }

    fn drain(&mut self) {
        for capture in self.captures.iter_mut().chain([&mut self.at_server]) {
            capture.drain(QUIET, |_| true).unwrap();
        }
    }

    /// Flow and round of each of the frames that arrived at the ends.
    fn at_ends(&mut self) -> [Vec<(u32, u32)>; 2] {
        let (_, first) = self.down.tuple(0);
        let (v6, flows, base) = (self.v6, self.up.flows, first.port());
        self.captures
            .each_mut()
            .map(|capture| arrived(capture, v6, flows, |_, dport| dport.wrapping_sub(base)))
    }

    /// The same of those at the server.
    fn at_server(&mut self) -> Vec<(u32, u32)> {
        let (first, _) = self.up.tuple(0);
        let base = first.port();
        let flows = self.up.flows;
        arrived(&mut self.at_server, self.v6, flows, |sport, _| {
            sport.wrapping_sub(base)
        })
    }
}

/// `flow`: its number, below `flows`, by source and destination port.
fn arrived(
    capture: &mut Capture,
    v6: bool,
    flows: u32,
    flow: impl Fn(u16, u16) -> u16,
) -> Vec<(u32, u32)> {
    let header = if v6 { 40 } else { 20 };
    let of = |frame: &[u8]| {
        let tagged = frame.get(12..14) == Some(&[0x81, 0]);
        let at = 14 + if tagged { 4 } else { 0 } + header;
        let l4 = frame.get(at..at + 12)?;
        let u16_at = |at: usize| u16::from_be_bytes([l4[at], l4[at + 1]]);
        let round = u32::from_be_bytes(l4[8..].try_into().unwrap());
        let flow = u32::from(flow(u16_at(0), u16_at(2)));
        (frame[0] & 1 == 0 && flow < flows).then_some((flow, round))
    };
    let frames = capture.drain(QUIET, |frame| of(frame).is_some()).unwrap();
    assert_eq!(capture.dropped().unwrap(), 0, "the test's own loss");
    frames.iter().filter_map(|frame| of(&frame.bytes)).collect()
}

/// Bonds in XDP need it.
fn fits() -> bool {
    let fits = sends_through_bonds();
    if !fits {
        println!("skipped: bonds are tc's before Linux 6.3");
    }
    fits
}

/// The active part changes under load, and with it where frames leave and what is let in.
fn the_active_part_is_followed(topology: &str, vlan: Option<u16>) {
    let moves = if long() { 100 } else { 10 };
    let kind = Kind {
        mode: "active-backup",
        vlan,
    };
    let Some(mut bond) = Bond::build(topology, kind, 1) else {
        return;
    };
    let daemon = bond.start();
    let router = bond.lab.router().clone();
    let activate = |at: usize| {
        router
            .tool(&format!("ip link set bo0 type bond active_slave lan{at}"))
            .unwrap();
    };
    activate(0);
    bond.wait_for(&daemon, 0, "xdp");
    bond.drain();
    let before = daemon.stats().fast();
    for number in 0..moves {
        let at = 1 - number % 2;
        activate(at);
        for n in 1..=ROUNDS {
            bond.exchange(at, number as u32 * ROUNDS + n);
        }
    }
    let fast = daemon.stats().fast() - before;
    let all: Vec<(u32, u32)> = (1..=moves as u32 * ROUNDS)
        .map(|round| (0, round))
        .collect();
    let mut at_server = bond.at_server();
    at_server.sort_unstable();
    assert!(at_server == all, "{} of {}", at_server.len(), all.len());
    let ends = bond.at_ends();
    for (end, frames) in ends.iter().enumerate() {
        // what was on its way at a change leaves by the new part
        let astray = frames.iter().filter(|(_, round)| {
            let (number, n) = ((round - 1) / ROUNDS, (round - 1) % ROUNDS);
            1 - number as usize % 2 != end && n < ROUNDS / 2
        });
        assert_eq!(astray.count(), 0, "left by the part that was active before");
    }
    let mut at_ends = ends.concat();
    at_ends.sort_unstable();
    assert!(at_ends == all, "{} of {}", at_ends.len(), all.len());
    let share = fast as f64 / (2 * all.len()) as f64;
    println!(
        "row: {topology}, {vlan:?}: {moves} changes, {} frames each way, {:.1} % fast",
        all.len(),
        100.0 * share
    );
    assert!(share >= FAST_MIN, "{share}\n{}", daemon.stats());

    // the kernel drops what comes in at the other part
    daemon.wait_in_step();
    let active = 1 - (moves - 1) % 2;
    for round in 0..50 {
        bond.ends[1 - active]
            .send(&bond.up.frame(0, round))
            .unwrap();
    }
    assert_eq!(bond.at_server(), [], "the inactive part's frames");

    // a part that is lost, and comes back
    router
        .tool(&format!("ip link set lan{active} down"))
        .unwrap();
    until("the other part is active", PATIENCE, || {
        let shown = router.tool("ip -d link show bo0").unwrap();
        shown
            .contains(&format!("active_slave lan{}", 1 - active))
            .then_some(())
    });
    bond.drain();
    for round in 1..=ROUNDS {
        bond.exchange(1 - active, round);
    }
    assert_eq!(bond.at_server().len(), ROUNDS as usize);
    assert_eq!(bond.at_ends()[1 - active].len(), ROUNDS as usize);
    bond.wait_for(&daemon, 1 - active, "xdp");

    // frames that find no part at all are lost, and forgotten once there is one
    for part in ["lan0", "lan1"] {
        router.tool(&format!("ip link set {part} down")).unwrap();
        for round in 0..50 {
            bond.server.send(&bond.down.frame(0, round)).unwrap();
        }
    }
    thread::sleep(QUIET);
    for part in ["lan0", "lan1"] {
        router.tool(&format!("ip link set {part} up")).unwrap();
    }
    activate(1);
    bond.wait_for(&daemon, 1, "xdp");
    daemon.stop();
}

#[test]
fn the_active_part() {
    let Some(_machine) = machine() else { return };
    if fits() {
        the_active_part_is_followed("nat", None);
    }
}

#[test]
fn the_active_part_of_a_vlans_bond() {
    let Some(_machine) = machine() else { return };
    if fits() {
        the_active_part_is_followed("routed6", Some(VLAN));
    }
}

/// By which end each flow's frames leave.
fn chosen(bond: &mut Bond) -> BTreeMap<u32, usize> {
    let flows = bond.up.flows;
    for flow in 0..flows {
        bond.server.send(&bond.down.frame(flow, 1)).unwrap();
        thread::sleep(EVERY);
    }
    let ends = bond.at_ends();
    let chosen = ends.iter().enumerate();
    let chosen = chosen.flat_map(|(end, frames)| frames.iter().map(move |(flow, _)| (*flow, end)));
    let chosen: Vec<_> = chosen.collect();
    assert_eq!(chosen.len(), flows as usize, "{chosen:?}");
    let chosen: BTreeMap<u32, usize> = chosen.into_iter().collect();
    assert_eq!(chosen.len(), flows as usize);
    chosen
}

/// XDP's frames leave by the part that the kernel's own left by.
#[test]
fn flows_keep_to_their_part() {
    let Some(_machine) = machine() else { return };
    if !fits() {
        return;
    }
    let mut rows = vec![
        ("routed", "balance-xor xmit_hash_policy layer3+4"),
        (
            "routed6",
            "802.3ad lacp_rate fast xmit_hash_policy layer3+4",
        ),
    ];
    if long() {
        rows.extend([
            ("routed", "balance-xor xmit_hash_policy layer2"),
            ("routed6", "balance-xor xmit_hash_policy layer2+3"),
            ("routed", "balance-xor xmit_hash_policy encap2+3"),
            ("routed", "802.3ad lacp_rate fast xmit_hash_policy layer2+3"),
        ]);
    }
    for (topology, mode) in rows {
        let Some(mut bond) = Bond::build(topology, Kind { mode, vlan: None }, 16) else {
            return;
        };
        bond.exchange(0, 0);
        bond.drain();
        let kernel = chosen(&mut bond);
        let daemon = bond.start();
        bond.wait_for(&daemon, 1, "xdp");
        bond.drain();
        let before = daemon.stats().fast();
        let fast = chosen(&mut bond);
        assert!(daemon.stats().fast() - before >= 12, "{}", daemon.stats());
        let second = kernel.values().filter(|end| **end == 1).count();
        println!(
            "row: {topology}, {mode}: {second} of {} by the second part",
            kernel.len()
        );
        assert_eq!(fast, kernel, "{mode}");
        assert!(
            !mode.contains("layer3") || (1..16).contains(&second),
            "{second}"
        );
        daemon.stop();
    }
}

/// What must see a part's frames does, and what cannot be as the kernel would have it is tc's.
#[test]
fn what_a_part_has_is_respected() {
    let Some(_machine) = machine() else { return };
    if !fits() {
        return;
    }
    let kind = Kind {
        mode: "balance-xor",
        vlan: None,
    };
    let Some(mut bond) = Bond::build("routed", kind, 1) else {
        return;
    };
    let router = bond.lab.router().clone();
    let vlan = "link add link bo0 name bo0v type vlan id 5\nlink set bo0v up\n";
    router.tool_with_input("ip -batch -", vlan).unwrap();
    let config = bond.lab.config_toml("") + "[port.lan1]\nwire_true = true\n";
    let ports = ["bo0", "bo0v", "lan0", "lan1", "wan0"];
    router
        .tool("ip link add lan2 type veth peer name eth2")
        .unwrap();
    let daemon = Router::start_in(&router, &config, freeway(), &ports);
    bond.wait_for(&daemon, 0, "xdp");
    let reasons = |port: &str| {
        let status = daemon.status();
        let mut ports = status["ports"].as_array().unwrap().iter();
        let port = ports.find(|of| of["name"] == port).unwrap();
        port["reasons"].to_string()
    };
    assert!(
        reasons("bo0v").contains("chooses its part"),
        "{}",
        reasons("bo0v")
    );
    for (begin, end, port, reason, paths) in [
        (
            "tc qdisc add dev lan1 root tbf rate 100mbit burst 32k latency 10ms",
            "tc qdisc del dev lan1 root",
            "lan1",
            "qdisc tbf",
            ["xdp", "tc"],
        ),
        (
            "nft add table netdev t { chain c { type filter hook ingress device lan1 priority 0; counter; }; }",
            "nft delete table netdev t",
            "bo0",
            "its part lan1",
            ["tc"; 2],
        ),
        (
            "ip link set lan2 master bo0",
            "ip link set lan2 nomaster",
            "bo0",
            "its part lan2",
            ["tc"; 2],
        ),
        (
            "ip link set lan1 type bond_slave queue_id 2",
            "ip link set lan1 type bond_slave queue_id 0",
            "lan1",
            "queue_id",
            ["tc"; 2],
        ),
        (
            "ip link add link lan0 name lan0v type vlan id 5",
            "ip link del lan0v",
            "lan0",
            "ahead of the bond",
            ["tc"; 2],
        ),
    ] {
        router.tool(begin).unwrap();
        until(reason, PATIENCE, || {
            bond.exchange(0, 0);
            reasons(port).contains(reason).then_some(())
        });
        bond.wait_for_both(&daemon, 0, paths);
        router.tool(end).unwrap();
        bond.wait_for(&daemon, 0, "xdp");
    }
    let part = Port {
        netns: router.clone(),
        ifindex: router.ifindex("lan0").unwrap(),
        name: "lan0".into(),
        mac: MAC_LAN,
    };
    // a part is no port of a bridge
    router
        .tool("nft add table bridge b { chain c { type filter hook forward priority 0; }; }")
        .unwrap();
    bond.wait_for(&daemon, 0, "xdp");
    router.tool("nft delete table bridge b").unwrap();
    let sniffer = Capture::open(&part).unwrap();
    bond.wait_for(&daemon, 0, "tc");
    assert!(
        reasons("lan0").contains("packet socket"),
        "{}",
        reasons("lan0")
    );
    drop(sniffer);
    bond.wait_for(&daemon, 0, "xdp");
    bond.drain();
    // what leaves the bond is a port's like others, with Freeway's program
    for (part, other) in [("lan0", 1), ("lan1", 0)] {
        router
            .tool(&format!("ip link set {part} nomaster"))
            .unwrap();
        bond.wait_for(&daemon, other, "xdp");
        router
            .tool_with_input(
                "ip -batch -",
                &format!("link set {part} down\nlink set {part} master bo0\n"),
            )
            .unwrap();
        bond.wait_for(&daemon, 1 - other, "xdp");
    }
    daemon.stop();
}
