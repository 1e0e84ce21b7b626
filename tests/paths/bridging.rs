// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames that the router's bridge passes on between two stations: XDP takes them where the bridge does, as they are,
//! and follows the bridge at once.
//!
//! ```text
//!   stations  eth0 ---- lan0 \
//!             eth1 ---- lan1 -- br0  router
//!             eth2 ---- lan2 /
//! ```
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use freeway_lab::frame::MAC_LAN;
use freeway_lab::{Capture, Injector, Lab, Options, Port};
use freeway_testkit::*;

const PATIENCE: Duration = Duration::from_secs(10);
/// Earlier no revalidation stops a path: three of its frames have to stay away.
const REVALIDATED: Duration = Duration::from_millis(750);

fn station(number: u8) -> [u8; 6] {
    [0x02, 0, 0, 0, 0x77, number]
}

/// A frame between stations: a number, so that it can be told, and octets of its own.
fn frame(to: u8, from: u8, tag: Option<u16>, ethertype: u16, number: u32, len: usize) -> Vec<u8> {
    let mut frame = [station(to), station(from)].concat();
    if let Some(tci) = tag {
        frame.extend([0x81, 0x00]);
        frame.extend(tci.to_be_bytes());
    }
    frame.extend(ethertype.to_be_bytes());
    frame.extend(number.to_be_bytes());
    let octet = |at: usize| (at as u32).wrapping_mul(31).wrapping_add(number) as u8;
    frame.extend((frame.len()..len.max(60)).map(octet));
    frame
}

const OTHER: u16 = 0x88b5;

/// A router whose only ports are three of a bridge.
struct Site {
    // In this order: the daemon ends before its namespace.
    daemon: Router,
    injectors: Vec<Injector>,
    captures: Vec<Capture>,
    lab: Lab,
    /// The daemon's configuration.
    file: tempfile::NamedTempFile,
}

impl Site {
    /// `options` of the bridge, and further commands of ip, before the daemon starts; `config` beside what the ports need.
    fn new(options: &str, commands: &str, config: &str) -> Option<Site> {
        let lab = build_with("nat", Options::default());
        let (client, router) = (lab.client(), lab.router());
        let mut batch = format!(
            "address flush dev lan0\n\
             link add br0 address {} type bridge {options}\n\
             link set lan0 master br0\nlink set br0 up\n",
            freeway_lab::frame::mac_text(MAC_LAN)
        );
        for n in [1, 2] {
            batch += &format!(
                "link add lan{n} type veth peer name eth{n} netns {}\n\
                 link set lan{n} master br0\nlink set lan{n} up\n",
                client.name()
            );
        }
        if let Err(error) = router.tool_with_input("ip -batch -", &batch) {
            println!("skipped: {error}");
            return None;
        }
        for line in commands.lines() {
            if let Err(error) = router.tool(line) {
                println!("skipped: {error}");
                return None;
            }
        }
        router.show_bridged(false);
        let mut ports = vec![lab.client_port().clone()];
        for n in [1, 2] {
            let name = format!("eth{n}");
            for (netns, name) in [(client, &name), (router, &format!("lan{n}"))] {
                let line = format!(
                    "ethtool -K {name} tx off tso off gso off txvlan off rxvlan off gro on"
                );
                netns.tool(&line).unwrap();
            }
            client.tool(&format!("ip link set {name} up")).unwrap();
            ports.push(Port {
                netns: client.clone(),
                ifindex: client.ifindex(&name).unwrap(),
                name,
                mac: station(n),
            });
        }
        let injectors = ports
            .iter()
            .map(|port| Injector::open(port).unwrap())
            .collect();
        let captures = ports
            .iter()
            .map(|port| Capture::open(port).unwrap())
            .collect();
        let config = lab.config_toml("")
            + "[port.lan1]\nwire_true = true\n[port.lan2]\nwire_true = true\n"
            + "[daemon]\ninterfaces = [\"br0\", \"lan0\", \"lan1\", \"lan2\"]\n"
            + config;
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), config).unwrap();
        let daemon = Router::start_by(lab.router(), file.path(), |status| {
            let ports = status["ports"].as_array().unwrap();
            ports.len() == 4 && ports.iter().all(|port| port["state"] == "fast")
        });
        Some(Site {
            daemon,
            injectors,
            captures,
            lab,
            file,
        })
    }

    /// Has the daemon read its configuration again, with more at the end.
    fn reload(&self, extra: &str) {
        let before = std::fs::read_to_string(self.file.path()).unwrap();
        std::fs::write(self.file.path(), before.clone() + extra).unwrap();
        self.daemon.json(&["reload"]);
        std::fs::write(self.file.path(), before).unwrap();
    }

    fn plain() -> Site {
        Site::new("", "", "").unwrap()
    }

    fn send(&self, at: usize, frame: &[u8]) {
        self.injectors[at].send(frame).unwrap();
    }

    /// What of the stations' arrived at a port.
    fn arrived(&mut self, at: usize) -> Vec<Vec<u8>> {
        let wanted = |frame: &[u8]| frame[..5] == station(0)[..5];
        let frames = self.captures[at]
            .drain(Duration::from_millis(100), wanted)
            .unwrap();
        assert_eq!(
            self.captures[at].dropped().unwrap(),
            0,
            "the test's own loss"
        );
        frames.into_iter().map(|frame| frame.bytes).collect()
    }

    fn bridged(&self) -> (u64, u64) {
        let stats = self.daemon.json(&["stats"]);
        let of = |name: &str| stats["bridged"][name].as_u64().unwrap();
        (of("packets"), of("paths"))
    }

    /// Has two stations talk until XDP bridges both ways; `tags`: of their frames.
    #[track_caller]
    fn warm(&mut self, (a, b): (usize, usize), tags: [Option<u16>; 2]) {
        let stations = (a as u8, b as u8);
        until("XDP bridges", PATIENCE, || {
            let before = self.bridged().0;
            for _ in 0..20 {
                self.send(a, &frame(stations.1, stations.0, tags[0], OTHER, 0, 0));
                self.send(b, &frame(stations.0, stations.1, tags[1], OTHER, 0, 0));
                thread::sleep(Duration::from_millis(1));
            }
            (self.bridged().0 - before >= 36).then_some(())
        });
        for at in 0..3 {
            self.arrived(at);
        }
    }
}

/// How often each frame is in a list.
fn counted(frames: &[Vec<u8>]) -> BTreeMap<&[u8], u32> {
    let mut counts = BTreeMap::new();
    for frame in frames {
        *counts.entry(frame.as_slice()).or_default() += 1;
    }
    counts
}

/// Frames of any kind arrive as they are, once, and nowhere else.
#[test]
fn frames_are_passed_on_as_they_are() {
    let Some(_machine) = machine() else { return };
    let mut site = Site::plain();
    site.warm((0, 1), [None; 2]);
    let before = site.bridged().0;
    let rounds = 1000;
    let mut sent = [Vec::new(), Vec::new()];
    for number in 0..rounds {
        let ethertype = [0x0800, 0x86dd, OTHER, 0x8864, 0x0000][number as usize % 5];
        let len = 60 + (number as usize * 37) % 1455;
        for (from, to) in [(0u8, 1u8), (1, 0)] {
            let frame = frame(to, from, None, ethertype, number, len);
            site.send(from.into(), &frame);
            sent[usize::from(to)].push(frame);
        }
        thread::sleep(Duration::from_micros(100));
    }
    for to in [0, 1] {
        let arrived = site.arrived(to);
        assert_eq!(counted(&arrived), counted(&sent[to]), "at {to}");
    }
    assert!(site.arrived(2).is_empty());
    let fast = site.bridged().0 - before;
    let share = fast as f64 / f64::from(2 * rounds);
    println!(
        "row: {:.1} % of {} frames were XDP's",
        share * 100.0,
        2 * rounds
    );
    assert!(share >= FAST_MIN, "{share}\n{}", site.daemon.stats());
}

/// What a bridge decides by more than its table, and what is for all, is the kernel's.
#[test]
fn frames_for_all_and_arp_are_the_kernels() {
    let Some(_machine) = machine() else { return };
    let mut site = Site::plain();
    site.warm((0, 1), [None; 2]);
    let before = site.bridged().0;
    for number in 0..200 {
        let mut group = frame(0, 0, None, 0x0800, number, 100);
        group[..6].copy_from_slice(&[0x01, 0, 0x5e, 1, 2, 3]);
        site.send(0, &group);
        site.send(0, &frame(1, 0, None, 0x0806, number, 60));
        // nobody has this address: it goes to all
        site.send(0, &frame(9, 0, None, OTHER, number, 60));
    }
    assert_eq!(site.bridged().0, before, "{}", site.daemon.stats());
    let unknown = |frames: Vec<Vec<u8>>| frames.iter().filter(|f| f[5] == 9).count();
    assert_eq!([1, 2].map(|at| unknown(site.arrived(at))), [200; 2]);
}

/// A station shows itself at another port: what is sent to it goes there.
#[test]
fn a_station_moves() {
    let Some(_machine) = machine() else { return };
    let mut site = Site::plain();
    site.warm((0, 1), [None; 2]);
    let mut number = 0;
    let mut worst = Duration::ZERO;
    let mut late = Vec::new();
    for round in 0..20 {
        let at = 2 - round % 2;
        let other = 3 - at;
        let moved = Instant::now();
        let mut sent = Vec::new();
        for _ in 0..200 {
            number += 1;
            site.send(at, &frame(0, 1, None, OTHER, number, 60));
            sent.push(moved.elapsed());
            site.send(0, &frame(1, 0, None, OTHER, number, 60));
            thread::sleep(Duration::from_micros(250));
        }
        let first = number - 199;
        let (here, there) = (site.arrived(at), site.arrived(other));
        let index = |frame: &Vec<u8>| u32::from_be_bytes(frame[14..18].try_into().unwrap()) - first;
        assert_eq!(
            here.len() + there.len(),
            200,
            "none is lost, none is copied"
        );
        let astray = there.iter().map(|frame| sent[index(frame) as usize]).max();
        late.push(astray.unwrap_or_default());
        worst = worst.max(astray.unwrap_or_default());
        let back = site.arrived(0);
        assert_eq!(back.len(), 200, "from the station");
    }
    late.sort_unstable();
    println!("row: 20 moves, frames to where the station had been for {worst:?} at most");
    let (median_max, worst_max) = late_max();
    assert!(late[10] <= median_max && worst <= worst_max, "{late:?}");
}

/// Sends from station 0 to 1 until the kernel's answer to a change holds; how many arrive then.
fn until_arrives(site: &mut Site, what: &str, wanted: bool) -> Duration {
    let start = Instant::now();
    until(what, PATIENCE, || {
        for number in 0..20 {
            site.send(0, &frame(1, 0, None, OTHER, number, 60));
        }
        let arrived = site.arrived(1).len();
        (arrived == if wanted { 20 } else { 0 }).then(|| start.elapsed())
    })
}

/// Isolation, spanning tree, a port that leaves: frames stop where the kernel's do, and go again.
#[test]
fn the_bridges_settings_hold() {
    let Some(_machine) = machine() else { return };
    let mut site = Site::plain();
    let mut late = 0;
    let mut followed = |off: &str, on: &str| {
        site.warm((0, 1), [None; 2]);
        for line in off.lines() {
            site.lab.router().tool(line).unwrap();
        }
        let after = until_arrives(&mut site, off, false);
        for line in on.lines() {
            site.lab.router().tool(line).unwrap();
        }
        println!("{off}: after {after:?}");
        after < REVALIDATED
    };
    for (off, on) in [
        (
            "bridge link set dev lan1 isolated on\nbridge link set dev lan0 isolated on",
            "bridge link set dev lan1 isolated off\nbridge link set dev lan0 isolated off",
        ),
        (
            "bridge link set dev lan1 state 0",
            "bridge link set dev lan1 state 3",
        ),
        ("ip link set lan1 nomaster", "ip link set lan1 master br0"),
        ("ip link set br0 down", "ip link set br0 up"),
    ] {
        if !followed(off, on) {
            late += 1;
            assert!(
                followed(off, on),
                "{off}: followed by a revalidation alone, and again"
            );
        }
    }
    site.warm((0, 1), [None; 2]);
    // but for a pause of the machine
    assert!(
        late <= 1,
        "{late} changes were followed by a revalidation alone"
    );
}

/// Who must see bridged frames does.
#[test]
fn frames_that_somebody_must_see_are_the_kernels() {
    let Some(_machine) = machine() else { return };
    let mut site = Site::plain();
    let router = site.lab.router().clone();
    let nft = router.tool("nft add table bridge t");
    let mut cases = vec![("ip link set br0 promisc on", "ip link set br0 promisc off")];
    if nft.is_ok() {
        cases.push((
            "nft add chain bridge t c { type filter hook forward priority 0; }",
            "nft delete chain bridge t c",
        ));
    } else {
        println!("skipped: nft of bridges: {nft:?}");
    }
    // it adds its address to the bridge's, which takes all frames from then on, and nothing tells
    let macvlan = "ip link add mv0 link br0 type macvlan";
    match router.tool(macvlan) {
        Ok(_) => {
            router.tool("ip link del mv0").unwrap();
            cases.push((macvlan, "ip link del mv0"));
        }
        Err(error) => println!("skipped: {error}"),
    }
    for (on, off) in cases {
        site.warm((0, 1), [None; 2]);
        router.tool(on).unwrap();
        until(on, PATIENCE, || {
            let before = site.bridged().0;
            for number in 0..20 {
                site.send(0, &frame(1, 0, None, OTHER, number, 60));
            }
            assert_eq!(site.arrived(1).len(), 20, "{on}");
            (site.bridged().0 == before).then_some(())
        });
        router.tool(off).unwrap();
    }
    site.warm((0, 1), [None; 2]);
}

/// XDP's frames keep their stations alive: the bridge never forgets one, and floods nothing.
#[test]
fn stations_that_talk_are_not_forgotten() {
    let Some(_machine) = machine() else { return };
    // hundredths of a second
    let mut site = Site::new("ageing_time 400", "", "").unwrap();
    site.warm((0, 1), [None; 2]);
    let before = site.bridged().0;
    let start = Instant::now();
    let mut sent = 0;
    while start.elapsed() < Duration::from_secs(10) {
        site.send(0, &frame(1, 0, None, OTHER, sent, 60));
        site.send(1, &frame(0, 1, None, OTHER, sent, 60));
        sent += 1;
        thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(
        [0, 1, 2].map(|at| site.arrived(at).len() as u32),
        [sent, sent, 0]
    );
    let share = (site.bridged().0 - before) as f64 / f64::from(2 * sent);
    assert!(share >= FAST_MIN, "{share}\n{}", site.daemon.stats());
}

/// Access and trunk ports: tags are put on, taken off, and kept.
#[test]
fn tags_are_those_of_the_bridges_vlans() {
    let Some(_machine) = machine() else { return };
    let commands = "bridge vlan add dev lan0 vid 10 pvid untagged\n\
                    bridge vlan add dev lan1 vid 10\n\
                    bridge vlan add dev lan2 vid 10";
    let Some(mut site) = Site::new("vlan_filtering 1", commands, "") else {
        return;
    };
    for (a, b, tags) in [(0, 1, [None, Some(10)]), (1, 2, [Some(10); 2])] {
        site.warm((a, b), tags);
        let before = site.bridged().0;
        let mut wanted = [Vec::new(), Vec::new()];
        for number in 0..200 {
            let len = 60 + number as usize * 7;
            let (to_b, to_a) = ((b as u8, a as u8), (a as u8, b as u8));
            site.send(a, &frame(to_b.0, to_b.1, tags[0], OTHER, number, len));
            site.send(b, &frame(to_a.0, to_a.1, tags[1], OTHER, number, len));
            wanted[0].push((tags[0], number));
            wanted[1].push((tags[1], number));
        }
        for (at, tag, list) in [(a, tags[0], &wanted[0]), (b, tags[1], &wanted[1])] {
            let arrived = site.arrived(at);
            assert_eq!(arrived.len(), list.len(), "at {at}");
            for frame in arrived {
                let tagged = frame[12..14] == [0x81, 0];
                let vlan = tagged.then(|| u16::from_be_bytes(frame[14..16].try_into().unwrap()));
                assert_eq!(vlan, tag, "at {at}: {frame:02x?}");
            }
        }
        let share = (site.bridged().0 - before) as f64 / 400.0;
        assert!(share >= FAST_MIN, "{share}\n{}", site.daemon.stats());
    }
    // a VLAN that the port is no member of
    site.lab
        .router()
        .tool("bridge vlan del dev lan1 vid 10")
        .unwrap();
    until("the VLAN is gone", PATIENCE, || {
        for number in 0..20 {
            site.send(0, &frame(1, 0, None, OTHER, number, 60));
        }
        site.arrived(1).is_empty().then_some(())
    });
}

/// The configuration may leave it to the kernel.
#[test]
fn bridging_can_be_switched_off() {
    let Some(_machine) = machine() else { return };
    let lab = build_with("nat", Options::default());
    lab.router()
        .tool_with_input(
            "ip -batch -",
            "address flush dev lan0\nlink add br0 type bridge\nlink set lan0 master br0\nlink set br0 up\n",
        )
        .unwrap();
    lab.router().show_bridged(false);
    let config = lab.config_toml("") + "[policy]\nbridging = false\n";
    let daemon = Router::start_until(
        lab.router(),
        &config,
        freeway(),
        &["br0", "lan0"],
        |status| status["ports"].as_array().unwrap().len() == 2,
    );
    let status = daemon.status();
    let port = status["ports"]
        .as_array()
        .unwrap()
        .iter()
        .find(|p| p["name"] == "lan0")
        .unwrap();
    assert_eq!(port["path"], "kernel", "{port:#}");
    assert!(
        port["reasons"].to_string().contains("configuration"),
        "{port:#}"
    );
    daemon.stop();
}

/// The same of a daemon that runs, and back again.
#[test]
fn bridging_is_switched_while_the_daemon_runs() {
    let Some(_machine) = machine() else { return };
    let mut site = Site::plain();
    site.warm((0, 1), [None; 2]);
    site.reload("[policy]\nbridging = false\n");
    let before = site.bridged();
    assert_eq!(before.1, 0, "paths");
    let frames: Vec<_> = (0..50).map(|n| frame(1, 0, None, OTHER, n, 0)).collect();
    for frame in &frames {
        site.send(0, frame);
    }
    assert_eq!(counted(&site.arrived(1)), counted(&frames));
    assert_eq!(site.bridged(), before);
    site.reload("");
    site.warm((0, 1), [None; 2]);
    site.daemon.stop();
}
