// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames to groups on a bridge that knows who listens: XDP copies them to exactly the ports that the kernel's bridge
//! would, and follows who joins and leaves.
//!
//! ```text
//!   source     eth0 ---- lan0 \
//!   listeners  eth1 ---- lan1 -- br0  router
//!              ...               /
//!              eth4 ---- lan4 --/
//! ```
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::thread;
use std::time::{Duration, Instant};

use freeway_lab::frame::MAC_LAN;
use freeway_lab::{Capture, Injector, Lab, Options, Port};
use freeway_testkit::*;

const PATIENCE: Duration = Duration::from_secs(20);
const PORTS: usize = 5;
/// Earlier no revalidation stops a path: three of its frames have to stay away.
const REVALIDATED: Duration = Duration::from_millis(750);
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);

fn station(number: u8) -> [u8; 6] {
    [0x02, 0, 0, 0, 0x77, number]
}

/// Ones' complement sum of 16-bit words.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|c| u32::from(c[0]) << 8 | u32::from(*c.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn ip4(protocol: u8, options: &[u8], to: Ipv4Addr, payload: &[u8]) -> Vec<u8> {
    let header = 20 + options.len();
    let len = (header + payload.len()) as u16;
    let mut ip = vec![0x40 | (header / 4) as u8, 0];
    ip.extend(len.to_be_bytes());
    ip.extend([
        0,
        0,
        0,
        0,
        if protocol == 17 { 16 } else { 1 },
        protocol,
        0,
        0,
        10,
        9,
        0,
        1,
    ]);
    ip.extend(to.octets());
    ip.extend(options);
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    ip.extend(payload);
    ip
}

/// Ethernet addresses of a group, and of who sends to it.
fn link(group: IpAddr, from: u8, tag: Option<u16>) -> Vec<u8> {
    let mut frame = match group {
        IpAddr::V4(group) => {
            let [_, b, c, d] = group.octets();
            vec![0x01, 0, 0x5e, b & 0x7f, c, d]
        }
        IpAddr::V6(group) => [&[0x33, 0x33], &group.octets()[12..]].concat(),
    };
    frame.extend(station(from));
    if let Some(tci) = tag {
        frame.extend([0x81, 0x00]);
        frame.extend(tci.to_be_bytes());
    }
    let ethertype: u16 = if group.is_ipv4() { 0x0800 } else { 0x86dd };
    frame.extend(ethertype.to_be_bytes());
    frame
}

/// A packet of a stream: a number, so that it can be told, and octets of its own.
fn packet(group: IpAddr, tag: Option<u16>, number: u32, len: usize) -> Vec<u8> {
    let mut payload = number.to_be_bytes().to_vec();
    let octet = |at: usize| (at as u32).wrapping_mul(31).wrapping_add(number) as u8;
    payload.extend((4..len.max(24)).map(octet));
    let mut udp = [5000u16.to_be_bytes(), 5001u16.to_be_bytes()].concat();
    udp.extend((8 + payload.len() as u16).to_be_bytes());
    udp.extend([0, 0]);
    udp.extend(payload);
    let mut frame = link(group, 0, tag);
    frame.extend(match group {
        IpAddr::V4(group) => ip4(17, &[], group, &udp),
        IpAddr::V6(group) => {
            let mut ip = vec![0x60, 0, 0, 0];
            ip.extend((udp.len() as u16).to_be_bytes());
            ip.extend([17, 16]);
            ip.extend("fe80::9".parse::<Ipv6Addr>().unwrap().octets());
            ip.extend(group.octets());
            ip.extend(&udp);
            ip
        }
    });
    frame
}

/// The number of a packet that came without a tag.
fn number(frame: &[u8]) -> u32 {
    let at = if frame[12..14] == [0x86, 0xdd] {
        62
    } else {
        42
    };
    u32::from_be_bytes(frame[at..at + 4].try_into().unwrap())
}

/// IGMPv2: a listener's report, or its leave.
fn igmp(from: u8, joins: bool) -> Vec<u8> {
    let mut message = vec![if joins { 0x16 } else { 0x17 }, 0, 0, 0];
    message.extend(GROUP.octets());
    let sum = checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let to = if joins {
        GROUP
    } else {
        Ipv4Addr::new(224, 0, 0, 2)
    };
    let mut frame = link(to.into(), from, None);
    frame.extend(ip4(2, &[0x94, 4, 0, 0], to, &message));
    frame.resize(frame.len().max(60), 0);
    frame
}

/// IGMPv2: a general query, to be answered within 0.1 s.
fn query(from: u8) -> Vec<u8> {
    let mut message = vec![0x11, 1, 0, 0, 0, 0, 0, 0];
    let sum = checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let all = Ipv4Addr::new(224, 0, 0, 1);
    let mut frame = link(all.into(), from, None);
    frame.extend(ip4(2, &[0x94, 4, 0, 0], all, &message));
    frame.resize(frame.len().max(60), 0);
    frame
}

/// A router whose only ports are those of a bridge.
struct Site {
    // In this order: the daemon ends before its namespace.
    daemon: Router,
    injectors: Vec<Injector>,
    captures: Vec<Capture>,
    lab: Lab,
    number: u32,
}

impl Site {
    /// `options` of the bridge, which is a querier, and further commands before the daemon starts.
    fn new(options: &str, commands: &str) -> Option<Site> {
        let lab = build_with("nat", Options::default());
        let (client, router) = (lab.client(), lab.router());
        let mut batch = format!(
            "address flush dev lan0\n\
             link add br0 address {} type bridge mcast_query_response_interval 10 {options}\n\
             link set lan0 master br0\nlink set br0 up\n",
            freeway_lab::frame::mac_text(MAC_LAN)
        );
        for n in 1..PORTS {
            batch += &format!(
                "link add lan{n} type veth peer name eth{n} netns {}\n\
                 link set lan{n} master br0\nlink set lan{n} up\n",
                client.name()
            );
        }
        batch += "link set br0 type bridge mcast_querier 1\n";
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
        let mut config = lab.config_toml("");
        for n in 1..PORTS {
            let name = format!("eth{n}");
            for (netns, name) in [(client, &name), (router, &format!("lan{n}"))] {
                let line = format!(
                    "ethtool -K {name} tx off tso off gso off txvlan off rxvlan off gro on"
                );
                netns.tool(&line).unwrap();
            }
            client.tool(&format!("ip link set {name} up")).unwrap();
            config += &format!("[port.lan{n}]\nwire_true = true\n");
            ports.push(Port {
                netns: client.clone(),
                ifindex: client.ifindex(&name).unwrap(),
                name,
                mac: station(n as u8),
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
        let names = ["br0", "lan0", "lan1", "lan2", "lan3", "lan4"];
        let daemon = Router::start_in(lab.router(), &config, freeway(), &names);
        Some(Site {
            daemon,
            injectors,
            captures,
            lab,
            number: 0,
        })
    }

    fn tool(&self, line: &str) {
        self.lab.router().tool(line).unwrap();
    }

    /// Who listens from now on, of ports 1 to 4.
    fn listen(&self, group: impl Into<IpAddr>, ports: &[usize]) {
        let group = group.into();
        for n in 1..PORTS {
            // it may be so already
            let verb = if ports.contains(&n) { "add" } else { "del" };
            let line = format!("bridge mdb {verb} dev br0 port lan{n} grp {group} permanent");
            let _ = self.lab.router().tool(&line);
        }
    }

    fn send(&mut self, group: impl Into<IpAddr>) -> u32 {
        self.number += 1;
        let frame = packet(group.into(), None, self.number, 0);
        self.injectors[0].send(&frame).unwrap();
        self.number
    }

    /// What of the source's arrived at a port.
    fn arrived(&mut self, at: usize) -> Vec<Vec<u8>> {
        let wanted = |frame: &[u8]| frame[6..12] == station(0);
        let frames = self.captures[at]
            .drain(Duration::from_millis(60), wanted)
            .unwrap();
        assert_eq!(
            self.captures[at].dropped().unwrap(),
            0,
            "the test's own loss"
        );
        frames.into_iter().map(|frame| frame.bytes).collect()
    }

    fn clear(&mut self) {
        for at in 0..PORTS {
            self.arrived(at);
        }
    }

    fn fast(&self) -> u64 {
        let stats = self.daemon.json(&["stats"]);
        stats["bridged"]["packets"].as_u64().unwrap()
    }

    fn paths(&self) -> u64 {
        let stats = self.daemon.json(&["stats"]);
        stats["bridged"]["paths"].as_u64().unwrap()
    }

    fn refused(&self, name: &str) -> u64 {
        let stats = self.daemon.json(&["stats"]);
        let refused = stats["bridged"]["refused"].as_array().unwrap().clone();
        let mut refused = refused.into_iter();
        let refusal = refused.find(|refusal| refusal["name"] == name).unwrap();
        refusal["count"].as_u64().unwrap()
    }

    /// Sends until XDP copies.
    #[track_caller]
    fn warm(&mut self, group: impl Into<IpAddr>) {
        let group = group.into();
        let start = Moment::now();
        loop {
            let before = self.fast();
            for _ in 0..20 {
                self.send(group);
                thread::sleep(Duration::from_millis(1));
            }
            if self.fast() - before >= 18 {
                break;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "XDP does not copy: {}",
                self.daemon.stats()
            );
        }
        self.clear();
    }

    /// Sends `count` frames; each of these ports has each exactly once and as it is, no other port any. Returns how
    /// many were XDP's.
    #[track_caller]
    fn check(&mut self, group: impl Into<IpAddr>, ports: &[usize], count: u32) -> u64 {
        let group = group.into();
        self.clear();
        let before = self.fast();
        let mut sent = Vec::new();
        for _ in 0..count {
            self.number += 1;
            let len = (self.number as usize * 37) % 1400;
            let frame = packet(group, None, self.number, len);
            self.injectors[0].send(&frame).unwrap();
            sent.push(frame);
            thread::sleep(Duration::from_micros(200));
        }
        for at in 1..PORTS {
            let arrived = self.arrived(at);
            let wanted: &[Vec<u8>] = if ports.contains(&at) { &sent } else { &[] };
            assert_eq!(arrived.len(), wanted.len(), "at {at}, of {ports:?}");
            let mut sorted = arrived;
            sorted.sort_by_key(|frame| number(frame));
            assert!(sorted == wanted, "at {at}, of {ports:?}: other octets");
        }
        assert!(self.arrived(0).is_empty(), "back to the source");
        self.fast() - before
    }
}

/// A machine that pauses has the kernel send more: tried again, so often.
const TRIES: usize = 20;

impl Site {
    /// Checks copies, which are XDP's.
    #[track_caller]
    fn is_fast(&mut self, group: impl Into<IpAddr>, ports: &[usize]) -> bool {
        self.is_fast_while(group, ports, |_| {})
    }

    /// The same, with something ahead of each look.
    #[track_caller]
    fn is_fast_while(
        &mut self,
        group: impl Into<IpAddr>,
        ports: &[usize],
        ahead: impl Fn(&Self),
    ) -> bool {
        let group = group.into();
        (0..TRIES).any(|_| {
            ahead(self);
            self.check(group, ports, 100) >= 80
        })
    }
}

/// Each listener's port has a copy of each frame, byte for byte, and no other port has any.
#[test]
fn copies_go_to_those_who_listen() {
    let Some(_machine) = machine() else { return };
    let Some(mut site) = Site::new("", "") else {
        return;
    };
    let sets: [&[usize]; 5] = [&[1], &[1, 2], &[2, 4], &[1, 2, 3, 4], &[3]];
    for ports in sets {
        site.listen(GROUP, ports);
        site.warm(GROUP);
        let fast = site.check(GROUP, ports, 300);
        println!("row: {fast} of 300 were XDP's to {ports:?}");
        assert!(
            fast as f64 >= 300.0 * FAST_MIN,
            "{fast} {}",
            site.daemon.stats()
        );
    }
    // another group of the same address, and one that reaches no further than the link
    for (group, ports) in [("238.129.2.3", &[][..]), ("224.0.0.77", &[1, 2, 3, 4])] {
        let group: Ipv4Addr = group.parse().unwrap();
        assert_eq!(site.check(group, ports, 50), 0, "{group}");
    }
    // which leaves the first one what it was
    assert!(site.is_fast(GROUP, &[3]));
}

/// Whoever leaves has nothing any more, whoever joins has all soon, and others do not notice.
#[test]
fn joins_and_leaves_are_followed_under_load() {
    let Some(_machine) = machine() else { return };
    let Some(mut site) = Site::new("", "bridge link set dev lan2 fastleave on") else {
        return;
    };
    site.listen(GROUP, &[1]);
    let mut late = Vec::new();
    for round in 0..20 {
        // by hand, and by IGMP
        let by_igmp = round % 2 == 1;
        match by_igmp {
            true => drop(site.injectors[2].send(&igmp(2, true)).unwrap()),
            false => site.listen(GROUP, &[1, 2]),
        }
        site.warm(GROUP);
        assert!(site.is_fast(GROUP, &[1, 2]), "{by_igmp}");
        let first = site.number + 1;
        let mut sent = Vec::new();
        let mut left = None;
        for n in 0..200 {
            if n == 20 {
                match by_igmp {
                    true => drop(site.injectors[2].send(&igmp(2, false)).unwrap()),
                    false => site.tool(&format!(
                        "bridge mdb del dev br0 port lan2 grp {GROUP} permanent"
                    )),
                }
                left = Some(Instant::now());
            }
            site.send(GROUP);
            sent.push(left.map(|left: Instant| left.elapsed()));
            thread::sleep(Duration::from_micros(500));
        }
        let all: Vec<u32> = (first..=site.number).collect();
        let mut stays: Vec<u32> = site.arrived(1).iter().map(|frame| number(frame)).collect();
        stays.sort_unstable();
        assert_eq!(stays, all, "round {round}: who stays notices");
        let astray = site.arrived(2);
        let astray = astray.iter().map(|f| sent[(number(f) - first) as usize]);
        late.push(astray.flatten().max().unwrap_or_default());
        for at in [3, 4] {
            assert!(site.arrived(at).is_empty(), "round {round} at {at}");
        }
    }
    late.sort_unstable();
    println!("row: 20 leaves, frames to who has left for {late:?}");
    assert!(late[17] <= Duration::from_millis(10), "{late:?}");
    assert!(late[19] < REVALIDATED, "{late:?}");
}

/// What no listener's entry decides, and what the router itself is given, is the kernel's.
#[test]
fn what_the_bridge_floods_or_takes_itself_is_the_kernels() {
    let Some(_machine) = machine() else { return };
    let Some(mut site) = Site::new("", "") else {
        return;
    };
    // nobody is known to listen, and nobody asks
    assert_eq!(site.check(GROUP, &[], 50), 0);
    site.tool("ip link set br0 type bridge mcast_querier 0");
    let hosts = site.refused("host");
    assert_eq!(site.check(GROUP, &[1, 2, 3, 4], 100), 0);
    assert!(site.refused("host") > hosts, "{}", site.daemon.stats());
    site.tool("ip link set br0 type bridge mcast_querier 1");
    thread::sleep(Duration::from_millis(300));
    site.listen(GROUP, &[1, 2]);
    for (off, on, ports) in [
        (
            format!("bridge mdb add dev br0 port br0 grp {GROUP} temp"),
            format!("bridge mdb del dev br0 port br0 grp {GROUP} temp"),
            &[1, 2][..],
        ),
        (
            "ip link set br0 type bridge mcast_snooping 0".into(),
            "ip link set br0 type bridge mcast_snooping 1".into(),
            &[1, 2, 3, 4],
        ),
        (
            "ip link set br0 type bridge mcast_querier 0".into(),
            "ip link set br0 type bridge mcast_querier 1".into(),
            &[1, 2, 3, 4],
        ),
        (
            "ip link set br0 type bridge mcast_router 2".into(),
            "ip link set br0 type bridge mcast_router 1".into(),
            &[1, 2],
        ),
    ] {
        site.warm(GROUP);
        site.tool(&off);
        // the daemon has heard of it
        thread::sleep(Duration::from_millis(100));
        assert_eq!(site.check(GROUP, ports, 100), 0, "{off}");
        site.tool(&on);
        thread::sleep(Duration::from_millis(300));
    }
    site.warm(GROUP);
}

/// Who listened ahead of the daemon's start is known; and a port that shows nothing of what it sends keeps all groups
/// in the kernel.
#[test]
fn who_listened_before_is_known() {
    let Some(_machine) = machine() else { return };
    let before = format!("bridge mdb add dev br0 port lan1 grp {GROUP} permanent");
    let Some(mut site) = Site::new("", &before) else {
        return;
    };
    site.warm(GROUP);
    assert!(site.is_fast(GROUP, &[1]));
    site.tool("ip link add other0 type veth peer name other1");
    site.tool("ip link set other0 master br0 up");
    thread::sleep(Duration::from_millis(500));
    assert_eq!(site.check(GROUP, &[1], 100), 0, "beside such a port");
    site.tool("ip link del other0");
    site.warm(GROUP);
    assert!(site.is_fast(GROUP, &[1]));
}

/// Ports with routers have copies, too; what a port's settings change is followed.
#[test]
fn the_ports_settings_hold() {
    let Some(_machine) = machine() else { return };
    let Some(mut site) = Site::new("", "") else {
        return;
    };
    site.listen(GROUP, &[1, 2]);
    for (set, back, ports, fast) in [
        (
            "bridge link set dev lan3 mcast_router 2",
            "bridge link set dev lan3 mcast_router 1",
            &[1, 2, 3][..],
            true,
        ),
        (
            "bridge link set dev lan2 state 0",
            "bridge link set dev lan2 state 3",
            &[1],
            false,
        ),
        (
            "bridge link set dev lan2 isolated on\nbridge link set dev lan0 isolated on",
            "bridge link set dev lan2 isolated off\nbridge link set dev lan0 isolated off",
            &[1],
            false,
        ),
        (
            "ip link set lan2 nomaster",
            "ip link set lan2 master br0",
            &[1],
            true,
        ),
    ] {
        site.listen(GROUP, &[1, 2]);
        site.warm(GROUP);
        for line in set.lines() {
            site.tool(line);
        }
        thread::sleep(Duration::from_millis(100));
        match fast {
            true => {
                site.warm(GROUP);
                assert!(site.is_fast(GROUP, ports), "{set}: {}", site.daemon.stats());
            }
            false => assert_eq!(site.check(GROUP, ports, 100), 0, "{set}"),
        }
        for line in back.lines() {
            site.tool(line);
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// A port with a router behind it has all as soon as it is open again.
#[test]
fn a_routers_port_that_opens_misses_nothing() {
    let Some(_machine) = machine() else { return };
    let Some(mut site) = Site::new("", "bridge link set dev lan3 mcast_router 2") else {
        return;
    };
    site.listen(GROUP, &[1, 2]);
    for _ in 0..3 {
        site.tool("bridge link set dev lan3 state 0");
        thread::sleep(Duration::from_millis(100));
        site.warm(GROUP);
        assert!(site.is_fast(GROUP, &[1, 2]));
        site.tool("bridge link set dev lan3 state 3");
        // the daemon has heard of it
        thread::sleep(Duration::from_millis(50));
        site.check(GROUP, &[1, 2, 3], 100);
    }
}

/// Of a querier that has gone nobody tells: the kernel floods then, and a path to the one listener, whom the flood serves first, ends.
#[test]
fn a_querier_that_falls_silent_is_noticed() {
    let Some(_machine) = machine() else { return };
    // behind the source's port, which counts as no router's for that
    let commands = "ip link set br0 type bridge mcast_querier 0 mcast_querier_interval 1000\n\
                    bridge link set dev lan0 mcast_router 0";
    let Some(mut site) = Site::new("", commands) else {
        return;
    };
    site.listen(GROUP, &[4]);
    let asks = |site: &Site| {
        site.injectors[0].send(&query(9)).unwrap();
    };
    asks(&site);
    thread::sleep(Duration::from_millis(300));
    asks(&site);
    site.warm(GROUP);
    assert!(site.is_fast_while(GROUP, &[4], asks));
    // what has a path goes to the listener alone; the path may end a little before the kernel's own timer
    until("the flood", PATIENCE, || {
        site.clear();
        for _ in 0..50 {
            site.send(GROUP);
            thread::sleep(Duration::from_millis(2));
        }
        (site.paths() == 0 && !site.arrived(1).is_empty()).then_some(())
    });
    assert_eq!(site.check(GROUP, &[1, 2, 3, 4], 100), 0);
}

/// IPv6 as well, once the bridge has an address to ask from.
#[test]
fn groups_of_ipv6() {
    let Some(_machine) = machine() else { return };
    let commands = "sysctl -qw net.ipv6.conf.br0.disable_ipv6=0\n\
                    ip -6 address add fe80::1/64 dev br0 nodad\n\
                    ip link set br0 type bridge mcast_querier 0\n\
                    ip link set br0 type bridge mcast_querier 1";
    let Some(mut site) = Site::new("mcast_startup_query_interval 100", commands) else {
        return;
    };
    let group: Ipv6Addr = "ff0e::1:203".parse().unwrap();
    site.listen(group, &[2, 3]);
    // the bridge asks once it has an address
    let start = Moment::now();
    loop {
        site.clear();
        site.send(group);
        if site.arrived(1).is_empty() && site.arrived(2).len() == 1 {
            break;
        }
        if start.elapsed() > PATIENCE {
            println!("skipped: the bridge sends no queries of MLD");
            return;
        }
        thread::sleep(Duration::from_millis(200));
    }
    site.warm(group);
    let fast = site.check(group, &[2, 3], 300);
    assert!(fast as f64 >= 300.0 * FAST_MIN, "{fast}");
    // within the link
    let group: Ipv6Addr = "ff02::1:203".parse().unwrap();
    site.listen(group, &[2]);
    assert_eq!(site.check(group, &[2], 50), 0);
}

/// Copies have the tags of their ports.
#[test]
fn copies_have_the_tags_of_the_bridges_vlans() {
    let Some(_machine) = machine() else { return };
    let commands = "bridge vlan add dev lan0 vid 10 pvid untagged\n\
                    bridge vlan add dev lan1 vid 10\n\
                    bridge vlan add dev lan2 vid 10 pvid untagged\n\
                    bridge vlan add dev lan3 vid 10\n\
                    bridge vlan add dev lan4 vid 20 pvid untagged";
    let Some(mut site) = Site::new("vlan_filtering 1", commands) else {
        return;
    };
    for n in 1..4 {
        site.tool(&format!(
            "bridge mdb add dev br0 port lan{n} grp {GROUP} permanent vid 10"
        ));
    }
    site.warm(GROUP);
    let before = site.fast();
    let first = site.number + 1;
    for _ in 0..200 {
        site.send(GROUP);
        thread::sleep(Duration::from_micros(500));
    }
    for (at, tag) in [(1, Some(10)), (2, None), (3, Some(10))] {
        let arrived = site.arrived(at);
        assert_eq!(arrived.len(), 200, "at {at}");
        let mut wanted: Vec<_> = (first..=site.number)
            .map(|n| packet(GROUP.into(), tag, n, 0))
            .collect();
        let mut arrived = arrived;
        arrived.sort();
        wanted.sort();
        assert!(arrived == wanted, "at {at}");
    }
    assert!(site.arrived(4).is_empty());
    let fast = site.fast() - before;
    // most: in an emulated machine it takes tens of them to learn a list anew
    assert!(fast >= 100, "{fast} {}", site.daemon.stats());
    // a VLAN that the port is no member of any more
    site.tool("bridge vlan del dev lan3 vid 10");
    thread::sleep(Duration::from_millis(200));
    site.clear();
    for _ in 0..100 {
        site.send(GROUP);
    }
    assert_eq!([1, 2, 3].map(|at| site.arrived(at).len()), [100, 100, 0]);
}
