// SPDX-License-Identifier: MIT OR Apache-2.0
//! A station that moves between two ports of the LAN's bridge while frames go both ways: the first frame that it sends
//! at its new port moves what goes to it.
//!
//! ```text
//!   station, here   eth0 ---- lan0 \
//!                                    br0  router  wan0 ---- eth0   server
//!        or there   eth1 ---- lan1 /
//! ```
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::thread;
use std::time::{Duration, Instant};

use freeway_lab::frame::{Direction, FlowSpec, MAC_LAN, Proto, mac_text};
use freeway_lab::{Capture, Filter, Injector, Lab, Options, Port};
use freeway_testkit::*;

const STATION_MAC: [u8; 6] = [0x02, 0, 0, 0, 0x01, 0x77];
const EVERY: Duration = Duration::from_micros(250);
/// Frames to and from the station between two moves.
const ROUNDS: u32 = 200;
/// XDP has the flows so long after the last move.
const SETTLED_MAX: Duration = Duration::from_secs(10);

/// Puts a bridge with two ports into the place of the LAN's port; the second one's other end.
fn bridge(lab: &Lab, router: &str, station: IpAddr) -> Port {
    let client = lab.client();
    let commands = format!(
        "address flush dev lan0\n\
         link add br0 address {mac} type bridge\n\
         link set lan0 master br0\n\
         link add lan1 type veth peer name eth1 netns {}\n\
         link set lan1 master br0\nlink set lan1 up\nlink set br0 up\n\
         address add dev br0 {router}\n\
         neighbour replace {station} lladdr {} nud permanent dev br0\n",
        client.name(),
        mac_text(STATION_MAC),
        mac = mac_text(MAC_LAN)
    );
    lab.router()
        .tool_with_input("ip -batch -", &commands)
        .unwrap();
    lab.router().show_bridged(false);
    client.tool("ip link set eth1 up").unwrap();
    Port {
        netns: client.clone(),
        ifindex: client.ifindex("eth1").unwrap(),
        name: "eth1".into(),
        mac: STATION_MAC,
    }
}

/// The numbers of the flow's frames that arrived.
fn rounds(capture: &mut Capture, spec: &FlowSpec, header: usize) -> Vec<u32> {
    let (_, to) = spec.tuple(0);
    let dport = to.port().to_be_bytes();
    let wanted = |frame: &[u8]| {
        frame.len() >= 14 + header + 12
            && frame[14 + header + 2..][..2] == dport
            && frame[0] & 1 == 0
    };
    let frames = capture.drain(Duration::from_millis(100), wanted).unwrap();
    let round =
        |frame: &[u8]| u32::from_be_bytes(frame[14 + header + 8..][..4].try_into().unwrap());
    frames.iter().map(|frame| round(&frame.bytes)).collect()
}

/// Who forwards each of the flows.
fn paths(daemon: &Router) -> Vec<String> {
    let flows = daemon.json(&["flows"]);
    let paths = flows["flows"].as_array().unwrap().iter();
    paths
        .map(|flow| flow["path"].as_str().unwrap().to_owned())
        .collect()
}

/// `second`: the second port has XDP.
fn roams(topology: &str, router: &str, station: IpAddr, second: bool) {
    let moves = if long() { 200 } else { 20 };
    let options = Options {
        filter: Some(Filter::Tracked),
        ..Options::default()
    };
    let lab = build_with(topology, options);
    let other = bridge(&lab, router, station);
    let ports = [lab.client_port(), &other];
    let injectors = ports.map(|port| Injector::open(port).unwrap());
    let server = Injector::open(lab.server_port()).unwrap();
    let mut captures = ports.map(|port| Capture::open(port).unwrap());
    let mut at_server = Capture::open(lab.server_port()).unwrap();
    let config = format!("{}[port.lan1]\nwire_true = {second}\n", lab.config_toml(""));
    let used: &[&str] = match second {
        true => &["br0", "lan0", "lan1", "wan0"],
        false => &["br0", "lan0", "wan0"],
    };
    let daemon = Router::start_in(lab.router(), &config, freeway(), used);
    let header = if station.is_ipv6() { 40 } else { 20 };
    let up = FlowSpec {
        mac_source: STATION_MAC,
        near: station,
        ..lab.flows(Proto::Udp, 1, 100)
    };
    let mut down = lab.reply_flows(Proto::Udp, 1, 100);
    assert_eq!(down.direction, Direction::Reply);
    if station.is_ipv6() {
        down.near = station;
    }
    let exchange = |at: usize, round: u32| {
        injectors[at].send(&up.frame(0, round)).unwrap();
        server.send(&down.frame(0, round)).unwrap();
    };
    let flows = daemon.wait_fast_while("proto udp", 2, 1, || {
        for _ in 0..10 {
            exchange(0, 0);
            thread::sleep(Duration::from_millis(1));
        }
    });
    for capture in captures.iter_mut().chain([&mut at_server]) {
        capture.drain(Duration::from_millis(100), |_| true).unwrap();
    }

    let before = daemon.stats().fast();
    // of each frame to the station: how long it is there, and where
    let mut sent = Vec::new();
    for number in 0..moves {
        let at = 1 - number % 2;
        let moved = Instant::now();
        for n in 0..ROUNDS {
            let round = number as u32 * ROUNDS + n;
            // ahead of what goes to it: it has shown itself
            injectors[at].send(&up.frame(0, round)).unwrap();
            sent.push((moved.elapsed(), at));
            server.send(&down.frame(0, round)).unwrap();
            thread::sleep(EVERY);
        }
    }
    let fast = daemon.stats().fast() - before;
    for capture in captures.iter_mut().chain([&mut at_server]) {
        assert_eq!(capture.dropped().unwrap(), 0, "the test's own loss");
    }
    let arrived = captures
        .each_mut()
        .map(|capture| rounds(capture, &down, header));
    let mut at_server = rounds(&mut at_server, &up, header);
    at_server.sort_unstable();
    let all: Vec<u32> = (0..sent.len() as u32).collect();
    assert!(
        at_server == all,
        "{} of {} frames of the station's",
        at_server.len(),
        all.len()
    );
    let mut everywhere = arrived.concat();
    everywhere.sort_unstable();
    assert!(
        everywhere == all,
        "{} of {} frames to the station",
        everywhere.len(),
        all.len()
    );
    let mut astray = 0;
    let mut late = vec![Duration::ZERO; moves];
    for (port, rounds) in arrived.iter().enumerate() {
        for round in rounds {
            let (after, at) = sent[*round as usize];
            if at != port {
                astray += 1;
                let late = &mut late[(round / ROUNDS) as usize];
                *late = after.max(*late);
            }
        }
    }
    late.sort_unstable();
    let worst = late[moves - 1];
    let share = fast as f64 / (2 * all.len()) as f64;
    println!(
        "row: {moves} moves, {} frames each way: {} went to where the station had been, for {worst:?} at most; \
         {:.1} % of all were fast, in {}",
        all.len(),
        astray,
        100.0 * share,
        flows[0]["path"]
    );
    let (median_max, worst_max) = late_max();
    assert!(
        late[moves / 2] <= median_max && worst <= worst_max,
        "{late:?}"
    );
    assert!(share >= FAST_MIN, "{share}\n{}", daemon.stats());
    if second {
        let at = 1 - (moves - 1) % 2;
        // where the station is, the daemon may learn late on a busy machine
        until("both flows in XDP", SETTLED_MAX, || {
            exchange(at, 0);
            (paths(&daemon) == ["xdp"; 2]).then_some(())
        });
    }
    daemon.stop();
}

#[test]
fn a_station_roams() {
    let Some(_machine) = machine() else { return };
    roams(
        "nat",
        "192.0.2.1/24",
        Ipv4Addr::new(192, 0, 2, 77).into(),
        true,
    );
}

#[test]
fn a_station_roams_with_ipv6() {
    let Some(_machine) = machine() else { return };
    let station = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 0x77);
    roams("routed6", "2001:db8:1::1/64 nodad", station.into(), true);
}

/// From XDP to tc and back.
#[test]
fn a_station_roams_to_a_port_without_xdp() {
    let Some(_machine) = machine() else { return };
    let station = Ipv4Addr::new(192, 0, 2, 77);
    roams("nat", "192.0.2.1/24", station.into(), false);
}
