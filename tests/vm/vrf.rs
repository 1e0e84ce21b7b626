// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ports of VRFs: two customers of the same addresses and ports, by packet sockets, and NAT by sockets.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::SystemTime;

use freeway_kernel::probe::sends_through_bonds;
use freeway_lab::frame::{MAC_CLIENT, MAC_LAN, MAC_SERVER, MAC_WAN, mac_text, sum16};
use freeway_lab::{Injector, Port};
use freeway_testkit::Moment;

use super::*;

/// Of each customer: the near host, the router's port there, the router's other port, the far host.
const MACS: [[[u8; 6]; 4]; 2] = [
    [MAC_CLIENT, MAC_LAN, MAC_WAN, MAC_SERVER],
    [
        [2, 0, 0, 0, 1, 0x12],
        [2, 0, 0, 0, 1, 0x11],
        [2, 0, 0, 0, 2, 0x11],
        [2, 0, 0, 0, 2, 0x12],
    ],
];
/// Behind another of the first customer's gateways.
const MAC_OTHER: [u8; 6] = [2, 0, 0, 0, 2, 0x33];
const ADDRESSES: [[IpAddr; 2]; 2] = [
    [
        IpAddr::V4(Ipv4Addr::new(10, 1, 0, 2)),
        IpAddr::V4(Ipv4Addr::new(10, 9, 0, 9)),
    ],
    [
        IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 2)),
        IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 9, 0, 0, 0, 0, 9)),
    ],
];
const PORTS: [u16; 2] = [4000, 5000];
const MAGIC: &[u8] = b"a customer's ";

/// A datagram as a host sends it, or, with another TTL, as a router does.
fn udp(macs: [[u8; 6]; 2], ends: [(IpAddr, u16); 2], ttl: u8, payload: &[u8]) -> Vec<u8> {
    let [(src, sport), (dst, dport)] = ends;
    let octets = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let addresses = [octets(src), octets(dst)].concat();
    let len = 8 + payload.len() as u16;
    let mut l4 = [sport, dport, len, 0].map(u16::to_be_bytes).concat();
    l4.extend(payload);
    let mut pseudo = [addresses.as_slice(), &[0, 17], &len.to_be_bytes(), &l4].concat();
    pseudo.resize(pseudo.len().next_multiple_of(2), 0);
    l4[6..8].copy_from_slice(&(!sum16(&pseudo)).to_be_bytes());
    let (ethertype, ip) = match src {
        IpAddr::V4(_) => {
            let mut ip = vec![0x45, 0];
            ip.extend((20 + len).to_be_bytes());
            ip.extend([0, 7, 0x40, 0, ttl, 17, 0, 0]);
            ip.extend(addresses);
            let sum = !sum16(&ip);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
            ([8, 0], ip)
        }
        IpAddr::V6(_) => {
            let mut ip = vec![0x60, 0, 0, 0];
            ip.extend(len.to_be_bytes());
            ip.extend([17, ttl]);
            ip.extend(addresses);
            ([0x86, 0xdd], ip)
        }
    };
    [macs.concat(), ethertype.to_vec(), ip, l4].concat()
}

/// A host's port, and what arrives there.
struct End {
    sender: Injector,
    wire: Capture,
}

impl End {
    fn open(netns: &Netns, name: &str, mac: [u8; 6]) -> Self {
        let port = Port {
            netns: netns.clone(),
            name: name.into(),
            ifindex: netns.ifindex(name).unwrap(),
            mac,
        };
        Self {
            sender: Injector::open(&port).unwrap(),
            wire: Capture::open(&port).unwrap(),
        }
    }

    /// The datagrams that have arrived, and when.
    fn arrived(&mut self) -> Vec<(u64, Vec<u8>)> {
        // ICMP errors quote them
        let is_udp = |frame: &[u8]| frame[if frame[12..14] == [8, 0] { 23 } else { 20 }] == 17;
        let ours = |frame: &[u8]| is_udp(frame) && frame.windows(MAGIC.len()).any(|w| w == MAGIC);
        let frames = self.wire.drain(Duration::from_millis(500), ours).unwrap();
        frames.into_iter().map(|f| (f.time_ns, f.bytes)).collect()
    }
}

/// Both customers' hosts, near and far.
struct Customers([[End; 2]; 2]);

impl Customers {
    /// Puts the lab's ports into one VRF, and two more of the same addresses into another.
    fn build(lab: &Lab) -> Self {
        let router = lab.router();
        for (key, value) in [
            ("disable_ipv6", "0"),
            ("accept_dad", "0"),
            ("forwarding", "1"),
        ] {
            for of in ["default", "all", "lan0", "wan0"] {
                let path = format!("net/ipv6/conf/{of}/{key}");
                router.sysctl(&path, value).unwrap();
            }
        }
        let mut links = String::new();
        for (end, port, netns) in [("c1", "lan1", lab.client()), ("s1", "wan1", lab.server())] {
            let at = usize::from(port == "wan1");
            let [own, peer] = [MACS[1][1 + at], MACS[1][3 * at]].map(mac_text);
            links += &format!(
                "link add {port} address {own} type veth peer name {end} address {peer} netns {}\n",
                netns.name()
            );
        }
        for (i, [_, _, _, far]) in MACS.iter().enumerate() {
            let (n, far) = (i + 1, mac_text(*far));
            links += &format!(
                "link add vrf{n} type vrf table {n}00\nlink set vrf{n} up\n\
                 link set lan{i} master vrf{n}\nlink set wan{i} master vrf{n}\n\
                 link set lan{i} up\nlink set wan{i} up\n"
            );
            for (port, net) in [("lan", 1), ("wan", 2)] {
                links += &format!(
                    "address add 10.{net}.0.1/24 dev {port}{i}\n\
                     address add 2001:db8:{net}::1/64 dev {port}{i} nodad\n"
                );
            }
            let near = mac_text(MACS[i][0]);
            for (ip, mac, port) in [
                ("10.1.0.2", &near, "lan"),
                ("2001:db8:1::2", &near, "lan"),
                ("10.2.0.2", &far, "wan"),
                ("2001:db8:2::2", &far, "wan"),
            ] {
                links += &format!("neighbour replace {ip} lladdr {mac} dev {port}{i}\n");
            }
            links += &format!(
                "route add 10.9.0.0/24 vrf vrf{n} via 10.2.0.2\n\
                 route add 2001:db8:9::/64 vrf vrf{n} via 2001:db8:2::2\n"
            );
        }
        let other = mac_text(MAC_OTHER);
        links += &format!("neighbour replace 10.2.0.3 lladdr {other} dev wan0\n");
        router.tool_with_input("ip -batch -", &links).unwrap();
        for (netns, port) in [(lab.client(), "c1"), (lab.server(), "s1")] {
            netns.tool(&format!("ip link set {port} up")).unwrap();
        }
        let (client, server) = (lab.client(), lab.server());
        Self([
            [
                End::open(client, "eth0", MACS[0][0]),
                End::open(server, "eth0", MACS[0][3]),
            ],
            [
                End::open(client, "c1", MACS[1][0]),
                End::open(server, "s1", MACS[1][3]),
            ],
        ])
    }

    /// A datagram of a customer, from its near or far end: as it is sent, and as the router is to send it.
    fn datagram(customer: usize, from: usize, family: usize, number: u32) -> [Vec<u8>; 2] {
        let [near, lan, wan, far] = MACS[customer];
        let ends = [0, 1].map(|end| (ADDRESSES[family][end], PORTS[end]));
        let (came, left, ends) = match from {
            0 => ([lan, near], [far, wan], ends),
            _ => ([wan, far], [near, lan], [ends[1], ends[0]]),
        };
        let payload = [MAGIC, format!("{customer}, {from}, {number}").as_bytes()].concat();
        [(came, 64), (left, 63)].map(|(macs, ttl)| udp(macs, ends, ttl, &payload))
    }

    /// Each end of each customer sends so many datagrams of both families; they arrive, each once, where they should.
    #[track_caller]
    fn exchange(&mut self, rounds: u32) {
        let mut expected: [[Vec<Vec<u8>>; 2]; 2] = Default::default();
        for number in 0..rounds {
            for (family, customer, from) in (0..8).map(|i| (i & 1, i >> 1 & 1, i >> 2)) {
                let [sent, left] = Self::datagram(customer, from, family, number);
                self.0[customer][from].sender.send(&sent).unwrap();
                expected[customer][1 - from].push(left);
            }
            thread::sleep(Duration::from_millis(2));
        }
        for (customer, mut expected) in expected.into_iter().enumerate() {
            for (at, expected) in expected.iter_mut().enumerate() {
                let arrived = self.0[customer][at].arrived();
                let mut arrived: Vec<Vec<u8>> = arrived.into_iter().map(|(_, f)| f).collect();
                arrived.sort();
                expected.sort();
                let same = arrived == *expected;
                let foreign = arrived.iter().find(|frame| !expected.contains(frame));
                assert!(
                    same,
                    "customer {customer}, end {at}: {} of {}, and {foreign:02x?}",
                    arrived.len(),
                    expected.len()
                );
            }
        }
    }

    /// Until so many flows have had fast packets.
    #[track_caller]
    fn until_fast(&mut self, daemon: &Daemon, flows: usize) {
        let start = Moment::now();
        loop {
            let before = packets(daemon);
            self.exchange(10);
            let now = packets(daemon);
            let fast =
                |(key, packets): &(&String, &u64)| before.get(*key).is_some_and(|b| *packets > b);
            if now.iter().filter(fast).count() >= flows {
                println!("{flows} flows are fast after {:?}", start.elapsed());
                return;
            }
            assert!(start.elapsed() < PATIENCE, "{now:?}\n{}", daemon.dump());
        }
    }
}

/// Fast packets by port and destination.
fn packets(daemon: &Daemon) -> std::collections::BTreeMap<String, u64> {
    let flows = daemon.get(&["flows"]);
    let flows = flows["flows"].as_array().unwrap().iter();
    let shown = flows.map(|f| {
        let key = format!("{} to {} at {}", f["port_in"], f["dst"], f["port_out"]);
        (key, f["packets"].as_u64().unwrap())
    });
    shown.collect()
}

fn refused(daemon: &Daemon, name: &str) -> u64 {
    let stats = daemon.get(&["stats"]);
    let mut refused = stats["refused"].as_array().unwrap().iter();
    let of_name = refused.find(|r| r["name"] == name).unwrap();
    of_name["count"].as_u64().unwrap()
}

fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(now.unwrap().as_nanos()).unwrap()
}

/// Two VRFs with the same addresses and ports, one in XDP, one in tc: no frame of one is ever the other's; a route changes
/// in one table, a sniffer listens at one VRF, and routes lead from one to the other.
#[test]
fn vrfs_of_the_same_addresses_do_not_mix() {
    // conntrack has one connection for what both customers call the same
    for filter in [Filter::None, Filter::Tracked] {
        let options = Options {
            filter: Some(filter),
            ..Options::default()
        };
        let why = "this kernel may have no VRFs";
        let Some((_machine, lab)) = lab_in_vm(why, "routed", options) else {
            return;
        };
        let mut customers = Customers::build(&lab);
        let daemon = Daemon::start(&lab, "", &["lan1", "wan1"]);
        become_fast(&daemon, &mut customers);
        if filter == Filter::Tracked {
            change_a_route(&lab, &daemon, &mut customers);
            listen(&lab, &daemon, &mut customers);
            leak(&lab, &daemon, &mut customers);
            release(&lab, &daemon, &mut customers);
        }
        daemon.stop();
        leaves_nothing(&lab);
    }
}

fn become_fast(daemon: &Daemon, customers: &mut Customers) {
    customers.exchange(5);
    customers.until_fast(daemon, 8);
    let paths: std::collections::BTreeSet<(String, String)> = daemon.get(&["flows"])["flows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| (f["port_in"].to_string(), f["path"].to_string()))
        .collect();
    println!("{paths:?}");
    assert!(paths.contains(&("\"lan0\"".into(), "\"xdp\"".into())));
    assert!(paths.contains(&("\"lan1\"".into(), "\"tc\"".into())));
    customers.exchange(100);
}

/// A port that leaves its VRF is no way to the other end any more, and none is without the VRF.
fn release(lab: &Lab, daemon: &Daemon, customers: &mut Customers) {
    lab.router().tool("ip link set wan1 nomaster").unwrap();
    let [sent, _] = Customers::datagram(1, 0, 0, 0);
    thread::sleep(LATE_MAX);
    for _ in 0..20 {
        customers.0[1][0].sender.send(&sent).unwrap();
    }
    assert_eq!(customers.0[1][1].arrived().len(), 0, "{}", daemon.dump());
    let batch = "link set wan1 master vrf2\nroute replace 10.9.0.0/24 vrf vrf2 via 10.2.0.2 dev wan1\n\
                 address replace 2001:db8:2::1/64 dev wan1 nodad\n\
                 route replace 2001:db8:9::/64 vrf vrf2 via 2001:db8:2::2 dev wan1\n";
    lab.router().tool_with_input("ip -batch -", batch).unwrap();
    let far = mac_text(MACS[1][3]);
    for ip in ["10.2.0.2", "2001:db8:2::2"] {
        let line = format!("ip neighbour replace {ip} lladdr {far} dev wan1");
        lab.router().tool(&line).unwrap();
    }
    customers.until_fast(daemon, 8);
    lab.router().tool("ip link delete vrf2").unwrap();
    thread::sleep(LATE_MAX);
    for _ in 0..20 {
        customers.0[1][0].sender.send(&sent).unwrap();
    }
    assert_eq!(customers.0[1][1].arrived().len(), 0, "{}", daemon.dump());
}

/// The first customer's route leads to another gateway while both send.
fn change_a_route(lab: &Lab, daemon: &Daemon, customers: &mut Customers) {
    let send = |customers: &mut Customers, numbers: std::ops::Range<u32>| {
        for number in numbers {
            for customer in 0..2 {
                let [sent, _] = Customers::datagram(customer, 0, 0, number);
                customers.0[customer][0].sender.send(&sent).unwrap();
            }
            thread::sleep(Duration::from_millis(1));
        }
    };
    let (number, fast) = (2000, daemon.fast_packets());
    send(customers, 0..500);
    let line = "ip route replace 10.9.0.0/24 vrf vrf1 via 10.2.0.3";
    lab.router().tool(line).unwrap();
    let changed_ns = now_ns();
    send(customers, 500..number);
    let fast = daemon.fast_packets() - fast;
    let [first, second] = [0, 1].map(|customer: usize| customers.0[customer][1].arrived());
    let old = |(_, frame): &&(u64, Vec<u8>)| frame[..6] == MAC_SERVER;
    let new = first
        .iter()
        .filter(|(_, frame)| frame[..6] == MAC_OTHER)
        .count();
    let last_old = first.iter().filter(old).map(|(ns, _)| *ns).max().unwrap();
    let late = Duration::from_nanos(last_old.saturating_sub(changed_ns));
    println!(
        "{number} sent, {fast} fast, {new} by the new route; the last by the old one {late:?} late"
    );
    assert!(late < LATE_MAX, "{late:?}");
    assert!(new > 100 && fast > u64::from(number), "{}", daemon.dump());
    let whole = [0, 1].map(|customer: usize| {
        (0..number)
            .map(|n| Customers::datagram(customer, 0, 0, n)[1].clone())
            .map(|frame| frame[6..].to_vec())
            .collect::<Vec<_>>()
    });
    for (arrived, mut expected) in [first, second].into_iter().zip(whole) {
        let mut arrived: Vec<Vec<u8>> = arrived.into_iter().map(|(_, f)| f[6..].to_vec()).collect();
        arrived.sort();
        expected.sort();
        assert_eq!(arrived.len(), expected.len());
        assert!(arrived == expected, "frames differ");
    }
    let back = "ip route replace 10.9.0.0/24 vrf vrf1 via 10.2.0.2";
    lab.router().tool(back).unwrap();
    thread::sleep(LATE_MAX);
    customers.until_fast(daemon, 8);
}

/// A packet socket at a VRF is given what comes in at its ports, by the kernel alone; the other VRF stays fast.
fn listen(lab: &Lab, daemon: &Daemon, customers: &mut Customers) {
    let mut tcpdump = Command::new("tcpdump");
    tcpdump
        .args(["-i", "vrf1", "-n", "-l", "udp"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut tcpdump = lab.router().spawn(&mut tcpdump).unwrap();
    // its socket is there before it has its filter, and takes nothing until then
    let words = BufReader::new(tcpdump.stderr.take().unwrap()).lines();
    let mut words = words.map_while(Result::ok);
    assert!(words.any(|line| line.starts_with("listening on")));
    wait_for_reason(daemon, "lan0", "packet socket at its VRF");
    let before = packets(daemon);
    let rounds = 50;
    customers.exchange(rounds);
    let now = packets(daemon);
    assert!(!now.keys().any(|key| key.contains("lan0")), "{now:?}");
    let of_other = |packets: &std::collections::BTreeMap<String, u64>| -> u64 {
        let other = packets.iter().filter(|(key, _)| key.contains("lan1"));
        other.map(|(_, packets)| packets).sum()
    };
    assert!(of_other(&now) > of_other(&before), "{now:?}");
    thread::sleep(Duration::from_secs(2));
    let pid = nix::unistd::Pid::from_raw(tcpdump.id().cast_signed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    let mut text = String::new();
    let mut output = tcpdump.stdout.take().unwrap();
    output.read_to_string(&mut text).unwrap();
    tcpdump.wait().unwrap();
    let seen = text.lines().filter(|line| line.contains("UDP")).count();
    println!("tcpdump at the VRF saw {seen} of {}", 4 * rounds);
    assert!(seen >= 4 * rounds as usize, "{seen}");
    customers.until_fast(daemon, 8);
}

/// A route that names a port of another VRF is like any other; one to the VRF itself is the kernel's.
fn leak(lab: &Lab, daemon: &Daemon, customers: &mut Customers) {
    let routes = "route add 10.77.0.0/24 vrf vrf1 via 10.2.0.2 dev wan1 onlink\n\
                  route add 10.78.0.0/24 vrf vrf1 dev vrf2\n\
                  route add 10.78.0.0/24 vrf vrf2 via 10.2.0.2\n";
    lab.router().tool_with_input("ip -batch -", routes).unwrap();
    let [near, lan, ..] = MACS[0];
    let [.., wan, far] = MACS[1];
    let ends = |net: u8| {
        let to = IpAddr::from([10, net, 0, 9]);
        [(ADDRESSES[0][0], PORTS[0]), (to, PORTS[1])]
    };
    let start = Moment::now();
    loop {
        let mut expected = Vec::new();
        for number in 0..20 {
            for net in [77, 78] {
                let payload = [MAGIC, format!("{net}, {number}").as_bytes()].concat();
                let sent = udp([lan, near], ends(net), 64, &payload);
                customers.0[0][0].sender.send(&sent).unwrap();
                expected.push(udp([far, wan], ends(net), 63, &payload));
            }
            thread::sleep(Duration::from_millis(2));
        }
        let arrived = customers.0[1][1].arrived();
        let mut arrived: Vec<Vec<u8>> = arrived.into_iter().map(|(_, frame)| frame).collect();
        arrived.sort();
        expected.sort();
        assert_eq!(arrived.len(), expected.len());
        assert!(arrived == expected, "frames differ");
        let flows = packets(daemon);
        assert!(!flows.keys().any(|key| key.contains("10.78")), "{flows:?}");
        let of_port = flows.iter().find(|(key, _)| key.contains("10.77"));
        if of_port.is_some_and(|(_, packets)| *packets > 20) && refused(daemon, "leak") > 0 {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "{}", daemon.dump());
    }
    println!("{:?}", packets(daemon));
    // a route to the VRF itself takes that of a port away
    let line = "ip route replace 10.77.0.0/24 vrf vrf1 dev vrf2";
    lab.router().tool(line).unwrap();
    thread::sleep(LATE_MAX);
    let flows = packets(daemon);
    assert!(!flows.keys().any(|key| key.contains("10.77")), "{flows:?}");
}

#[track_caller]
fn wait_for_reason(daemon: &Daemon, port: &str, words: &str) {
    let start = Moment::now();
    loop {
        let status = daemon.get(&["status"]);
        let mut ports = status["ports"].as_array().unwrap().iter();
        let port = ports.find(|p| p["name"] == port).unwrap();
        if port["reasons"].to_string().contains(words) {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{}", daemon.dump());
        thread::sleep(Duration::from_millis(200));
    }
}

/// UDP and TCP through a masquerade between ports of a VRF, in XDP, and, before Linux 6.3, in tc from a bond. A rule for the VRF's name that must see
/// every packet keeps them in the kernel, and so does one for the port's before the VRF.
#[test]
fn flows_of_a_vrf_become_fast() {
    let why = "this kernel may have no bonds and VRFs";
    // the lab's own filter calls the input by its port's name, which it has not where packets are forwarded
    let options = Options {
        filter: Some(Filter::Tracked),
        ..Options::default()
    };
    let Some((_machine, lab)) = lab_in_vm(why, "nat", options) else {
        return;
    };
    let vrf = "link add vrf0 type vrf table 100\nlink set vrf0 up\n\
               link set lan0 master vrf0\nlink set wan0 master vrf0\n\
               link add bond0 address 02:00:00:00:07:01 type bond mode active-backup\n";
    lab.router().tool_with_input("ip -batch -", vrf).unwrap();
    let daemon = Daemon::start(&lab, "", &["bond0"]);
    exchange_in_xdp(&lab, &daemon, SERVER, "lan0");
    for (hook, name) in [
        ("forward", "vrf0"),
        ("prerouting", "vrf0"),
        ("prerouting", "lan0"),
    ] {
        let rules = format!(
            "table inet seen {{\nchain c {{\ntype filter hook {hook} priority -1\n\
             iifname \"{name}\" limit rate 1000000/second accept\n}}\n}}\n"
        );
        lab.router().tool_with_input("nft -f -", &rules).unwrap();
        let start = Moment::now();
        while !daemon.get(&["status"])["ruleset"]["findings"]
            .to_string()
            .contains("limit")
        {
            assert!(start.elapsed() < PATIENCE, "{}", daemon.dump());
        }
        let end = Arc::new(AtomicBool::new(false));
        let echo = udp_echo(lab.server(), &end);
        let client = udp_client(lab.client(), SERVER, &end);
        thread::sleep(Duration::from_secs(3));
        end.store(true, Ordering::Relaxed);
        let (sent, good) = client.join().unwrap();
        echo.join().unwrap();
        println!("{hook}, {name}: {good} of {sent} came back right");
        assert!(sent > 20 && sent - good <= 2, "{good} of {sent}");
        // by the port's name the rule sees what comes in there
        let kept: &[&str] = if name == "vrf0" {
            &["lan0", "wan0"]
        } else {
            &["lan0"]
        };
        let flows = packets(&daemon);
        let of = |port: &str| {
            flows
                .keys()
                .any(|key| key.starts_with(&format!("{port:?}")))
        };
        assert!(
            !kept.iter().any(|port| of(port)),
            "{hook}, {name}\n{}",
            daemon.dump()
        );
        lab.router().tool("nft delete table inet seen").unwrap();
    }
    let bond = "link set lan0 nomaster\nlink set lan0 down\nlink set lan0 master bond0\n\
                link set bond0 up\nlink set bond0 master vrf0\n\
                address flush dev lan0\naddress add 192.0.2.1/24 dev bond0\n";
    lab.router().tool_with_input("ip -batch -", bond).unwrap();
    lab.client()
        .tool("ip neighbour replace 192.0.2.1 lladdr 02:00:00:00:07:01 nud permanent dev eth0")
        .unwrap();
    if sends_through_bonds() {
        exchange_in_xdp(&lab, &daemon, SERVER, "bond0");
    } else {
        wait_for_path(&daemon, "bond0", "tc");
        exchange_in_tc(&lab, &daemon, SERVER);
    }
    wait_for_reason(&daemon, "lan0", "part of a bond");
    daemon.stop();
    leaves_nothing(&lab);
}
