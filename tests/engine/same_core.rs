// SPDX-License-Identifier: MIT OR Apache-2.0
//! Both directions of a translated connection in one bucket: what conntrack has, without a fast path and with a daemon.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Stdio;
use std::time::Duration;

use freeway_abi::{FW_PRECEDENT_PORT_MIN, FW_PRECEDENTS};
use freeway_datapath::{Attachment, Datapath, Hook, LoadOptions, Precedents, bucket};
use freeway_kernel::model::Connection;
use freeway_lab::topology::offset;
use freeway_lab::{Lab, Netns};
use freeway_testkit::*;
use nix::sched::{CloneFlags, setns};
use serde_json::Value;

const BUCKETS: u32 = 512;
const WORKERS: u32 = 4;
const UDP: u8 = 17;
const TCP: u8 = 6;
const WAN: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const SERVER_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);

/// The data plane at a router's ports, without a daemon.
struct Programs {
    // dropped in order: programs leave before they are unloaded
    _attached: Vec<Attachment>,
    precedents: Precedents,
    datapath: Datapath,
}

impl Programs {
    /// Enters the router for good, as a daemon would.
    fn attach(lab: &Lab, precedents: bool) -> Programs {
        let router = std::fs::File::open(lab.router().path()).unwrap();
        setns(router, CloneFlags::CLONE_NEWNET).unwrap();
        let options = LoadOptions {
            precedents,
            ..LoadOptions::default()
        };
        let datapath = Datapath::load(&options).unwrap();
        let now = datapath.clock.now_tick().unwrap();
        datapath.control.set_on(true);
        datapath.control.set_epoch(1);
        datapath.control.set_deadline(now.wrapping_add(1 << 30));
        let lan = lab.lan_port().ifindex;
        let attached = vec![datapath.attach(lan, Hook::IngressAlone).unwrap()];
        Programs {
            _attached: attached,
            precedents: datapath.precedents().unwrap(),
            datapath,
        }
    }

    /// What comes in at the LAN is translated to these addresses.
    fn translate(&self, lab: &Lab, addresses: &[IpAddr]) {
        let addresses: Vec<_> = addresses.iter().copied().zip(0..).collect();
        for (address, table) in &addresses {
            self.precedents.set_table(*table, *address).unwrap();
        }
        let lan = lab.lan_port().ifindex;
        self.precedents.set_origin(lan, &addresses).unwrap();
    }

    fn buckets(&self, connection: &Connection) -> [u32; 2] {
        [connection.orig, connection.reply].map(|tuple| {
            let ends = [(tuple.src, tuple.sport), (tuple.dst, tuple.dport)];
            let [from, to] = ends.map(SocketAddr::from);
            bucket(self.datapath.config(), from, to)
        })
    }

    /// The sources of those whose directions are in two buckets, as they were opened.
    fn apart(&self, connections: &[Connection]) -> BTreeSet<(u16, IpAddr)> {
        let apart = connections.iter().filter(|connection| {
            let [to, from] = self.buckets(connection);
            to != from
        });
        apart.map(|of| (of.orig.sport, of.orig.src)).collect()
    }

    /// Of these connections the share with both directions on one of four workers, and in one bucket.
    fn shares(&self, connections: &[Connection]) -> (f64, f64) {
        let both = connections
            .iter()
            .map(|connection| self.buckets(connection));
        let both: Vec<_> = both.collect();
        let worker = |bucket: u32| bucket * WORKERS / BUCKETS;
        let of_worker = both
            .iter()
            .filter(|[to, from]| worker(*to) == worker(*from));
        let of_bucket = both.iter().filter(|[to, from]| to == from);
        let share = |count: usize| count as f64 / both.len() as f64;
        (share(of_worker.count()), share(of_bucket.count()))
    }
}

/// The n-th host of the LAN that the lab's client is.
fn host(n: usize) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, 2 + n as u8)
}

/// Sources: several hosts with the same ports, so that some have to be given others.
fn sources(lab: &Lab, count: usize) -> impl Iterator<Item = SocketAddr> + use<> {
    const HOSTS: usize = 32;
    let first = lab.topology().family.plan().client;
    (0..count).map(move |n| {
        let address = offset(first, (n % HOSTS) as u32);
        SocketAddr::from((address, (2048 + n / HOSTS * 3) as u16))
    })
}

fn datagram(netns: &Netns, from: SocketAddr, to: SocketAddr, payload: &[u8]) {
    let sent = netns.enter(|| UdpSocket::bind(from).unwrap().send_to(payload, to));
    sent.unwrap().unwrap();
}

/// Opens so many connections to a port of the server, each answered; what conntrack has of them.
fn open(lab: &Lab, proto: u8, dport: u16, count: usize) -> Vec<Connection> {
    let to = SocketAddr::from((lab.topology().family.plan().server, dport));
    if proto == TCP {
        let listener = listen(lab.server(), to);
        for from in sources(lab, count) {
            drop(pair((lab.client(), from), to, &listener));
        }
        return to_port(connections(lab, TCP), dport);
    }
    let server = udp(lab.server(), to);
    let patience = Some(Duration::from_secs(10));
    server.set_read_timeout(patience).unwrap();
    lab.client()
        .enter(|| {
            for from in sources(lab, count) {
                let client = UdpSocket::bind(from).unwrap();
                client.set_read_timeout(patience).unwrap();
                client.send_to(&from.port().to_be_bytes(), to).unwrap();
                let mut room = [0; 8];
                let (len, seen) = server.recv_from(&mut room).unwrap();
                server.send_to(&room[..len], seen).unwrap();
                assert_eq!(client.recv(&mut room).unwrap(), 2);
                assert_eq!(room[..2], from.port().to_be_bytes());
            }
        })
        .unwrap();
    to_port(connections(lab, UDP), dport)
}

fn to_port(mut all: Vec<Connection>, dport: u16) -> Vec<Connection> {
    all.retain(|connection| connection.orig.dport == dport);
    all
}

/// Of a connection what no other one has: how it is answered.
fn answers(connections: &[Connection]) -> BTreeSet<String> {
    let answers = connections.iter().map(|of| format!("{}", of.reply));
    answers.collect()
}

fn both_directions_share_a_worker(topology: &str, proto: u8) {
    let Some(_machine) = machine() else { return };
    freeway_datapath::raise_descriptor_limit().unwrap();
    let count = if long() { 10_000 } else { 1000 };
    let lab = build(topology);
    let wan = lab.topology().family.plan().wan;
    let programs = Programs::attach(&lab, true);
    let by_chance = open(&lab, proto, 5000, count);
    assert_eq!(by_chance.len(), count);
    let (of_worker, of_bucket) = programs.shares(&by_chance);
    println!(
        "row: {proto}: {count} connections, by chance {of_worker:.4} on one worker, {of_bucket:.4} in one bucket"
    );
    // a quarter, but the same for all connections of a host: what its translation adds to its end is a constant
    assert!(of_worker < 0.6 && of_bucket < 0.1, "{of_worker}");
    assert_eq!(programs.precedents.counts().unwrap().made, 0);

    // the same sources, which the kernel has translated before
    programs.translate(&lab, &[wan]);
    let steered = open(&lab, proto, 5001, count);
    assert_eq!(steered.len(), count);
    let (of_worker, of_bucket) = programs.shares(&steered);
    let counts = programs.precedents.counts().unwrap();
    println!(
        "row: {proto}: {count} connections, steered {of_worker:.4} on one worker, {of_bucket:.4} in one bucket, {counts:?}"
    );
    assert!(
        of_worker >= 0.999 && of_bucket >= 0.999,
        "{of_worker} {of_bucket} {counts:?}, not in one bucket: {:?}",
        programs.apart(&steered)
    );
    // in a bucket of many sources all the ports that are tried may be others'
    assert_eq!(counts.made + counts.taken, count as u64, "{counts:?}");
    assert!(counts.taken <= count as u64 / 1000, "{counts:?}");
    assert_eq!(counts.refused, 0);
    assert_eq!(answers(&steered).len(), count);
    for of in &steered {
        assert_eq!(of.reply.dst, wan, "{of:?}");
    }
}

#[test]
fn udp_connections_share_a_worker() {
    both_directions_share_a_worker("nat", UDP);
}

#[test]
fn tcp_connections_share_a_worker() {
    both_directions_share_a_worker("nat", TCP);
}

#[test]
fn ipv6_udp_connections_share_a_worker() {
    both_directions_share_a_worker("nat6", UDP);
}

#[test]
fn ipv6_tcp_connections_share_a_worker() {
    both_directions_share_a_worker("nat6", TCP);
}

/// What a ruleset can do to a connection's first packet, each with a counter.
const RULES: &str = r"
flush ruleset
table ip t {
	chain prerouting {
		type nat hook prerouting priority dstnat;
		udp dport 6000 counter dnat to 192.0.2.30:5000
	}
	chain forward {
		type filter hook forward priority filter + 10;
		ct state new counter
		ct state established counter
		udp dport 7777 counter drop
	}
	chain postrouting {
		type nat hook postrouting priority srcnat;
		ip saddr 192.0.2.5 counter accept
		ip saddr 192.0.2.6 counter snat to 198.51.100.9
		oifname lan0 counter masquerade
		udp dport 5001 counter masquerade to :2000-2999
		udp dport 5002 counter masquerade random
		oifname wan0 counter masquerade
	}
}
";

/// The ruleset's counters, packets, in their order.
fn counters(lab: &Lab) -> Vec<u64> {
    let listed = lab.router().tool("nft -j list table ip t").unwrap();
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let mut counters = Vec::new();
    for object in listed["nftables"].as_array().unwrap() {
        let expressions = object["rule"]["expr"].as_array();
        for expression in expressions.into_iter().flatten() {
            counters.extend(expression["counter"]["packets"].as_u64());
        }
    }
    counters
}

fn number(lab: &Lab, sysctl: &str) -> usize {
    let path = format!("/proc/sys/net/netfilter/{sysctl}");
    let read = lab
        .router()
        .enter(|| std::fs::read_to_string(path).unwrap());
    read.unwrap().trim().parse().unwrap()
}

/// Connections that conntrack may count and not list.
fn precedents_max() -> usize {
    let cpus = std::thread::available_parallelism().unwrap().get();
    cpus * FW_PRECEDENTS as usize
}

/// What a router made of the same traffic.
struct Seen {
    connections: BTreeMap<String, Connection>,
    counters: Vec<u64>,
    /// Of conntrack: what kind of event, of which first packet, how often.
    events: BTreeMap<String, usize>,
    delivered: BTreeSet<(u16, Vec<u8>)>,
    counted: usize,
    same: (f64, f64),
}

impl Seen {
    /// Ports 5000 to 5002 of the server, one that is forwarded back into the LAN, and one that is dropped, from each of ten
    /// hosts.
    fn of(steered: bool) -> Seen {
        let lab = build("nat");
        let router = lab.router();
        router
            .tool("ip address add 198.51.100.9/32 dev wan0")
            .unwrap();
        // what is not translated is answered, too
        let route = "ip route add 192.0.2.0/24 via 198.51.100.1";
        lab.server().tool(route).unwrap();
        let programs = Programs::attach(&lab, steered);
        if steered {
            programs.translate(&lab, &[WAN.into()]);
        }
        let mut monitor = std::process::Command::new("conntrack");
        monitor.args(["-E", "-p", "udp", "-e", "NEW,DESTROY", "-b", "4194304"]);
        monitor.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut monitor = router.spawn(&mut monitor).unwrap();
        let any = |port: u16| SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
        let servers = [5000, 5001, 5002].map(|port| (port, udp(lab.server(), any(port))));
        let hairpin = udp(
            lab.client(),
            SocketAddr::from((Ipv4Addr::new(192, 0, 2, 30), 5000)),
        );
        until_listening(&lab, &mut monitor);
        router.tool_with_input("nft -f -", RULES).unwrap();
        for n in 0..10 {
            for sport in [2048, 40000, 50000] {
                let from = SocketAddr::from((host(n), sport));
                for dport in [5000, 5001, 5002, 7777] {
                    let payload = format!("{from} {dport}");
                    let to = SocketAddr::from((SERVER_ADDRESS, dport));
                    datagram(lab.client(), from, to, payload.as_bytes());
                }
                let payload = format!("{from} back");
                let to = SocketAddr::from((WAN, 6000));
                datagram(lab.client(), from, to, payload.as_bytes());
            }
        }
        let mut delivered = BTreeSet::new();
        for (port, socket) in servers.iter().chain([&(6000, hairpin)]) {
            let mut room = [0; 128];
            // what is not translated the host would take for a martian of its own
            let count = if *port == 6000 { 27 } else { 30 };
            for _ in 0..count {
                let (len, _) = socket.recv_from(&mut room).unwrap();
                delivered.insert((*port, room[..len].to_vec()));
            }
        }
        let counted = number(&lab, "nf_conntrack_count");
        let mut all = connections(&lab, UDP);
        all.retain(|of| of.orig.dport != FIRST);
        let translated: Vec<_> = all
            .iter()
            .filter(|of| of.orig.dport == 5000 && of.reply.dst == IpAddr::V4(WAN))
            .cloned()
            .collect();
        let events = end_of(&lab, monitor);
        Seen {
            same: programs.shares(&translated),
            connections: all
                .into_iter()
                .map(|of| (of.orig.to_string(), of))
                .collect(),
            counters: counters(&lab),
            events,
            delivered,
            counted,
        }
    }
}

/// Where the monitor's first events are of.
const FIRST: u16 = 4999;

/// Waits until the monitor tells of what is new.
#[track_caller]
fn until_listening(lab: &Lab, monitor: &mut std::process::Child) {
    use std::os::fd::AsRawFd;
    let stdout = monitor.stdout.as_ref().unwrap().as_raw_fd();
    let mut sport = 1100;
    until("a first event", Duration::from_secs(20), || {
        // of a port below those that are looked at
        sport += 1;
        let from = SocketAddr::from((host(20), sport));
        datagram(
            lab.client(),
            from,
            SocketAddr::from((SERVER_ADDRESS, FIRST)),
            b"",
        );
        let mut waiting = libc::pollfd {
            fd: stdout,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one structure, during the call.
        (unsafe { libc::poll(&raw mut waiting, 1, 200) } == 1).then_some(())
    });
}

/// Ends it once it has told of a last connection; its events without the translated ports, and without those that it began
/// and ended with.
fn end_of(lab: &Lab, mut monitor: std::process::Child) -> BTreeMap<String, usize> {
    const LAST: u16 = 1099;
    let from = SocketAddr::from((host(20), LAST));
    let to = SocketAddr::from((SERVER_ADDRESS, FIRST));
    datagram(lab.client(), from, to, b"");
    let mut text = String::new();
    let mut stdout = BufReader::new(monitor.stdout.take().unwrap());
    while !text.contains(&format!("sport={LAST} ")) {
        assert!(stdout.read_line(&mut text).unwrap() > 0, "it ended: {text}");
    }
    monitor.kill().unwrap();
    monitor.wait().unwrap();
    let mut events = BTreeMap::new();
    for line in text
        .lines()
        .filter(|line| !line.contains(&format!("dport={FIRST}")))
    {
        let (orig, _) = line.split_once("[UNREPLIED]").unwrap_or((line, ""));
        // between them is how long the connection lasts
        let (kind, rest) = orig.trim().split_once(' ').unwrap();
        let (_, tuple) = rest.split_once("src=").unwrap();
        *events.entry(format!("{kind} {tuple}")).or_default() += 1;
    }
    events
}

/// A router whose connections are steered does what one does whose are not, but for the ports: filters, counters, events,
/// addresses, exceptions and forwarded ports.
#[test]
fn rules_decide_as_they_did() {
    let Some(_machine) = machine() else { return };
    let in_thread = |steered| {
        std::thread::spawn(move || Seen::of(steered))
            .join()
            .unwrap()
    };
    let [without, with] = [false, true].map(in_thread);
    assert_eq!(without.delivered, with.delivered);
    assert_eq!(without.delivered.len(), 117);
    assert_eq!(without.counters, with.counters);
    // each rule was met
    assert!(
        with.counters
            .iter()
            .enumerate()
            .all(|(at, packets)| at == 2 || *packets > 0),
        "{:?}",
        with.counters
    );
    assert_eq!(without.events, with.events);
    assert!(with.events.len() >= 120, "{:#?}", with.events);
    let of_keys = |of: &Seen| of.connections.keys().cloned().collect::<Vec<_>>();
    assert_eq!(of_keys(&without), of_keys(&with));
    for (orig, before) in &without.connections {
        let after = &with.connections[orig];
        let fixed = |of: &Connection| {
            (
                of.reply.src,
                of.reply.sport,
                of.reply.dst,
                of.status,
                of.mark,
                of.zone,
            )
        };
        assert_eq!(fixed(before), fixed(after));
        let (was, is) = (before.reply.dport, after.reply.dport);
        match after.orig.dport {
            // another address than the one that is steered to, or none: the port is kept where it is free
            _ if after.reply.dst != IpAddr::V4(WAN) => {
                assert!(
                    was == is || was != before.orig.sport,
                    "{before:?} {after:?}"
                );
            }
            5000 => assert!(u32::from(is) >= FW_PRECEDENT_PORT_MIN, "{after:?}"),
            // a range, and what is to be random, are the rule's
            5001 => assert!((2000..3000).contains(&is), "{after:?}"),
            _ => assert_eq!(after.orig.dport, 5002),
        }
    }
    // nothing stays of what was dropped
    let dropped = |of: &Seen| {
        of.connections
            .values()
            .filter(|c| c.orig.dport == 7777)
            .count()
    };
    assert_eq!((dropped(&without), dropped(&with)), (0, 0));
    let bound = without.counted + precedents_max();
    assert!(with.counted <= bound, "{} {bound}", with.counted);
    assert!(with.same.1 > 0.999, "{:?}", with.same);
    assert!(without.same.1 < 0.3, "{:?}", without.same);
}

/// A source keeps its port towards another destination, also where the first of its bucket's ports was another's.
#[test]
fn a_source_has_one_port() {
    let Some(_machine) = machine() else { return };
    let lab = build("nat");
    let programs = Programs::attach(&lab, true);
    programs.translate(&lab, &[WAN.into()]);
    let count = if long() { 10_000 } else { 2000 };
    let sources: Vec<_> = sources(&lab, count).collect();
    let send = |dport: u16, sources: Vec<SocketAddr>| {
        let to = SocketAddr::from((SERVER_ADDRESS, dport));
        lab.client()
            .enter(|| {
                for from in sources {
                    UdpSocket::bind(from).unwrap().send_to(b"", to).unwrap();
                }
            })
            .unwrap();
    };
    send(5000, sources.clone());
    // of two with the same first port another one comes first
    send(5001, sources.into_iter().rev().collect());
    let mut ports: BTreeMap<(IpAddr, u16), BTreeSet<u16>> = BTreeMap::new();
    // Ahead of listing them, for which the kernel takes away what has expired. What was taken away may be counted until it is freed.
    until(
        "no more precedents than CPUs have",
        Duration::from_secs(30),
        || {
            let counted = number(&lab, "nf_conntrack_count");
            (counted <= 2 * count + precedents_max()).then_some(())
        },
    );
    let all = connections(&lab, UDP);
    assert_eq!(all.len(), 2 * count);
    for of in &all {
        let source = (of.orig.src, of.orig.sport);
        ports.entry(source).or_default().insert(of.reply.dport);
    }
    let several = ports.values().filter(|ports| ports.len() > 1).count();
    println!("row: {several} of {count} sources have two ports");
    // the kernel chooses where another CPU took the precedent away
    assert!(several <= count / 1000, "{several} of {count}");
}

/// Switched off, or with a daemon that no longer says that it lives, the kernel chooses.
#[test]
fn nothing_is_preceded_without_a_daemon() {
    let Some(_machine) = machine() else { return };
    let lab = build("nat");
    let programs = Programs::attach(&lab, true);
    programs.translate(&lab, &[WAN.into()]);
    let control = &programs.datapath.control;
    let now = programs.datapath.clock.now_tick().unwrap();
    let made = || programs.precedents.counts().unwrap().made;
    open(&lab, UDP, 5000, 8);
    assert_eq!(made(), 8);
    control.set_on(false);
    open(&lab, UDP, 5001, 8);
    control.set_on(true);
    control.set_deadline(now);
    open(&lab, UDP, 5002, 8);
    assert_eq!(made(), 8);
    control.set_deadline(now.wrapping_add(1 << 30));
    open(&lab, UDP, 5003, 8);
    assert_eq!(made(), 16);
}

/// A client that opens the same connection again, while conntrack still has the one before.
#[test]
fn a_connection_that_is_opened_again_has_its_port() {
    let Some(_machine) = machine() else { return };
    let lab = build("nat");
    let programs = Programs::attach(&lab, true);
    programs.translate(&lab, &[WAN.into()]);
    let to = SocketAddr::from((SERVER_ADDRESS, 5000));
    let listener = listen(lab.server(), to);
    let mut ports = BTreeSet::new();
    for from in sources(&lab, 16) {
        for _ in 0..3 {
            let (mut client, server) = pair((lab.client(), from), to, &listener);
            // the side that closes first waits, and it is not to be the client's
            drop(server);
            at_end(&mut client);
            drop(client);
            let all = connections(&lab, TCP);
            let mut of_client = all.iter().filter(|of| of.orig.src == from.ip());
            let of_client = of_client.next().unwrap();
            assert_eq!(
                programs.shares(std::slice::from_ref(of_client)).1,
                1.0,
                "{of_client:?}"
            );
            ports.insert((from, of_client.reply.dport));
        }
    }
    assert_eq!(ports.len(), 16, "{ports:?}");
}

/// Where a bucket's ports are all taken, the kernel chooses; nobody has another's port, and nothing is lost.
#[test]
fn without_a_free_port_the_kernel_chooses() {
    let Some(_machine) = machine() else { return };
    let lab = build("nat");
    let programs = Programs::attach(&lab, true);
    programs.translate(&lab, &[WAN.into()]);
    let nobody = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let worth = |source: SocketAddr| bucket(programs.datapath.config(), source, nobody);
    let of_bucket =
        (0..32).flat_map(|n| (1024..=65535).map(move |port| SocketAddr::from((host(n), port))));
    let crowd: Vec<_> = of_bucket
        .filter(|source| worth(*source) == 77)
        .take(300)
        .collect();
    assert_eq!(crowd.len(), 300);
    let to = SocketAddr::from((SERVER_ADDRESS, 5000));
    lab.client()
        .enter(|| {
            for from in &crowd {
                UdpSocket::bind(from).unwrap().send_to(b"", to).unwrap();
            }
        })
        .unwrap();
    let all = connections(&lab, UDP);
    assert_eq!(all.len(), crowd.len());
    assert_eq!(answers(&all).len(), crowd.len());
    let counts = programs.precedents.counts().unwrap();
    assert_eq!(counts.made + counts.taken, crowd.len() as u64, "{counts:?}");
    assert!(counts.taken >= 100, "{counts:?}");
    let (_, of_bucket) = programs.shares(&all);
    let steered = counts.made as f64 / crowd.len() as f64;
    // by chance one of 512 more
    assert!(
        (steered..steered + 0.03).contains(&of_bucket),
        "{of_bucket} {counts:?}"
    );
}

const SAME_CORE: &str = "[engine]\nsame_core = true\n[engine.port.lan0]\naf_xdp = true\n[engine.port.wan0]\naf_xdp = true\n";

/// The daemon sees to what addresses connections are translated, and has the next ones steered.
#[test]
fn a_daemon_learns_the_addresses() {
    let Some(_machine) = machine() else { return };
    let lab = build("nat");
    let router = Router::start_with(&lab, SAME_CORE);
    let status = router.status();
    assert_eq!(
        status["same_core"]["ports"],
        serde_json::json!([]),
        "{status:#}"
    );
    let to = SocketAddr::from((SERVER_ADDRESS, 5000));
    let listener = listen(lab.server(), to);
    let known = serde_json::json!([{"name": "lan0", "addresses": ["198.51.100.1"]}]);
    let first = SocketAddr::from((host(0), 45000));
    let mut first = pair((lab.client(), first), to, &listener);
    until("the translated address", Duration::from_secs(30), || {
        exchange_blocks(&mut first, 5);
        (router.status()["same_core"]["ports"] == known).then_some(())
    });
    let before = router.status()["same_core"].clone();
    let count = |of: &Value, name: &str| of[name].as_u64().unwrap();
    let ends = sources(&lab, 32).map(|from| pair((lab.client(), from), to, &listener));
    let mut ends: Vec<_> = ends.collect();
    let after = until("the next connections", Duration::from_secs(30), || {
        for pair in &mut ends {
            exchange_blocks(pair, 5);
        }
        let now = router.status()["same_core"].clone();
        (count(&now, "together") >= 32).then_some(now)
    });
    assert_eq!(
        count(&after, "apart"),
        count(&before, "apart"),
        "{before:#}{after:#}"
    );
    assert!(count(&after, "precedents") >= 32, "{after:#}");
    let text = router.run(&["status"]).stdout;
    let text = String::from_utf8_lossy(&text).into_owned();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        text.contains("have both directions on one core; lan0 to 198.51.100.1"),
        "{text}"
    );
    // an address that is the router's no longer is nobody's
    let replace = "ip address add 198.51.100.7/24 dev wan0";
    lab.router().tool(replace).unwrap();
    lab.router()
        .tool("ip address del 198.51.100.1/24 dev wan0")
        .unwrap();
    until(
        "the address to be forgotten",
        Duration::from_secs(30),
        || {
            let ports = router.status()["same_core"]["ports"].clone();
            (!ports.to_string().contains("198.51.100.1\"")).then_some(())
        },
    );
    router.stop();
    assert_eq!(precedents_of(&lab), 0);
}

/// Connections to nowhere, which a listing would have to show.
fn precedents_of(lab: &Lab) -> usize {
    let nowhere = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let all = connections(lab, UDP)
        .into_iter()
        .chain(connections(lab, TCP));
    all.filter(|of| of.orig.dst == nowhere).count()
}
