// SPDX-License-Identifier: MIT OR Apache-2.0
//! Against a real kernel: whatever changes, what the table sends somewhere the kernel would send there too
//! (`ip route get`). Both families.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::io::Write;
use std::net::IpAddr;
use std::process::{Command, Stdio};

use freeway_kernel::mirror::Mirror;
use freeway_kernel::model::Event;
use freeway_routing::{Answer, EngineExit, Exit, Ip, LEAF_UNICAST, Routing, Told};

const ROUNDS: u32 = 40;

/// What is tried in a family.
struct Net {
    /// As `ip` is told of it.
    family: &'static str,
    prefixes: [&'static str; 10],
    addresses: [&'static str; 12],
    /// Of v0 and w0, without the host.
    links: [&'static str; 2],
    length: u8,
    /// Two of this machine's hosts there.
    own: [&'static str; 2],
    rule: &'static str,
}

static IPV4: Net = Net {
    family: "-4",
    prefixes: [
        "default",
        "10.0.0.0/8",
        "10.1.0.0/16",
        "10.1.2.0/24",
        "10.1.2.3",
        "192.0.2.0/24",
        "192.0.2.0/25",
        "192.0.2.7",
        "198.51.100.0/24",
        "127.5.0.0/16",
    ],
    addresses: [
        "10.9.9.9",
        "10.1.9.9",
        "10.1.2.9",
        "10.1.2.3",
        "192.0.2.7",
        "192.0.2.99",
        "192.0.2.199",
        "198.51.100.9",
        "172.16.0.2",
        "172.16.0.9",
        "172.17.0.2",
        "127.5.0.1",
    ],
    links: ["172.16.0.", "172.17.0."],
    length: 24,
    own: ["1", "100"],
    rule: "from 203.0.113.1",
};

static IPV6: Net = Net {
    family: "-6",
    prefixes: [
        "default",
        "2001:db8::/32",
        "2001:db8:1::/48",
        "2001:db8:1:2::/64",
        "2001:db8:1:2::3",
        "2001:db8:1:2:8000::/65",
        "2a00::/16",
        "2a00:5::7",
        "2001::/16",
        "fe80:5::/64",
    ],
    addresses: [
        "2600::9",
        "2001:db8:9::9",
        "2001:db8:1:9::9",
        "2001:db8:1:2::3",
        "2001:db8:1:2::4",
        "2001:db8:1:2:8000::4",
        "2a00:5::7",
        "2a00:5::8",
        "2001:5::8",
        "fd00:16::2",
        "fd00:16::9",
        "fe80:5::9",
    ],
    links: ["fd00:16::", "fd00:17::"],
    length: 64,
    own: ["1", "100"],
    rule: "from 2001:db8:ffff::/48",
};

/// Numbers that look random, the same each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % sides
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.roll(of.len())]
    }
}

/// Has `ip` do what can be done of this.
fn feed(net: &Net, commands: &str) {
    let mut ip = Command::new("ip");
    ip.args([net.family, "-force", "-batch", "-"]);
    ip.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut ip = ip.stderr(Stdio::null()).spawn().unwrap();
    ip.stdin
        .take()
        .unwrap()
        .write_all(commands.as_bytes())
        .unwrap();
    ip.wait().unwrap();
}

/// The gateway and the device of a unicast route.
type Got<A> = (Option<A>, String);

fn get<A: Ip>(net: &Net, address: &str, tos: &str) -> Option<Got<A>> {
    let mut ip = Command::new("ip");
    ip.args([net.family, "route", "get", address]);
    if net.family == "-4" {
        ip.args(["tos", tos]);
    }
    let output = ip.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let words: Vec<&str> = text.split_whitespace().collect();
    if words.first() != Some(&address) {
        return None;
    }
    let after = |word| {
        let at = words.iter().position(|other| *other == word)?;
        words.get(at + 1).copied()
    };
    let gateway = after("via").map(|via| A::of(via.parse::<IpAddr>().unwrap()).unwrap());
    Some((gateway, after("dev").unwrap().to_owned()))
}

fn change(dice: &mut Dice, net: &Net) -> String {
    let device = dice.one(&["v0", "w0"]);
    let link = net.links[usize::from(device == "w0")];
    let other = net.links[0];
    let length = net.length;
    let [own, second] = net.own;
    let host = dice.one(&["2", "3", "4"]);
    let mac = dice.one(&["02:00:00:00:00:11", "02:00:00:00:00:22"]);
    let id = dice.one(&["7", "8"]);
    match dice.roll(40) {
        0 => format!("link set {device} down"),
        1..=3 => format!("link set {device} up"),
        4 => format!("link set {} down", dice.one(&["v1", "w1"])),
        5..=7 => format!("link set {} up", dice.one(&["v1", "w1"])),
        8 => format!("addr del {link}{own}/{length} dev {device}"),
        9 => format!("addr del {link}{second}/{length} dev {device}"),
        10..=12 => format!("addr add {link}{own}/{length} dev {device}"),
        13 => format!("addr add {link}{second}/{length} dev {device}"),
        14 => format!("nexthop del id {id}"),
        15 | 16 => format!("nexthop replace id {id} via {link}{host} dev {device}"),
        17 => format!("neigh del {link}{host} dev {device}"),
        18..=20 => format!("neigh replace {link}{host} lladdr {mac} dev {device} nud permanent"),
        21..=24 => format!("route del {}", dice.one(&net.prefixes)),
        _ => {
            let how = dice.one(&["add", "replace", "replace", "append", "prepend"]);
            let prefix = dice.one(&net.prefixes);
            let rest = match dice.roll(14) {
                0 => format!("nhid {id}"),
                1 => format!("dev {device}"),
                2 => format!("via {link}{host} src {link}{own}"),
                3 => format!("via {link}{host} tos 4"),
                4 => format!("via {link}{host} table default"),
                5 => format!("nexthop via {other}2 nexthop via {link}3"),
                6 => return format!("route {how} {} {prefix}", dice.one(&["throw", "blackhole"])),
                7 => return format!("route {how} local {prefix} dev lo table local"),
                8 => return format!("route del local {prefix} dev lo table local"),
                9 => format!("via {link}{host} metric {}", dice.one(&["1", "2"])),
                _ => format!("via {link}{host}"),
            };
            format!("route {how} {prefix} {rest}")
        }
    }
}

struct World<A: Ip> {
    net: &'static Net,
    mirror: Mirror,
    routing: Routing<A>,
    confirmed: u32,
}

impl<A: Ip> World<A> {
    fn new(net: &'static Net) -> Self {
        let mirror = Mirror::open().unwrap();
        let mut routing = Routing::new();
        let there = mirror.snapshot();
        let of_routes = |event: &Event| matches!(event, Event::RouteChanged(..));
        for event in there.iter().filter(|event| !of_routes(event)) {
            routing.event(event);
        }
        let ports: BTreeMap<u32, Exit> = mirror
            .links()
            .values()
            .filter_map(|link| {
                let mac = link.mac?.0;
                Some((
                    link.ifindex,
                    Exit {
                        mac,
                        mtu: link.mtu,
                        in_xdp: true,
                        in_tc: true,
                        engine: EngineExit::Routes,
                        vlan: 0,
                    },
                ))
            })
            .collect();
        routing.set_ports(&ports);
        Self {
            net,
            mirror,
            routing,
            confirmed: 0,
        }
    }

    fn hear(&mut self) {
        let mut events = Vec::new();
        self.mirror.read(&mut events).unwrap();
        for event in &events {
            self.routing.event(event);
        }
        self.routing.changes();
    }

    fn load(&mut self) {
        self.hear();
        self.routing.begin_load();
        // what another reads is read from the kernel
        let other = Mirror::open().unwrap();
        let routes = other.routes().unwrap().iter();
        self.routing.load(routes.filter_map(Told::of));
        self.hear();
        self.routing.end_load(true);
    }

    fn check(&mut self) {
        self.hear();
        for address in self.net.addresses {
            for tos in ["0", "4"] {
                let answer = self.answer(address);
                let told = get(self.net, address, tos);
                if self.agree(address, &answer, &told) {
                    continue;
                }
                // links lose their carrier when they like
                self.hear();
                let now = self.answer(address);
                assert_ne!(answer, now, "{address}: the kernel says {told:?}");
            }
        }
    }

    fn answer(&self, address: &str) -> Option<Answer<A>> {
        let answer = self.routing.lookup(bits(address));
        answer.filter(|answer| answer.leaf >= LEAF_UNICAST)
    }

    fn agree(&mut self, address: &str, answer: &Option<Answer<A>>, told: &Option<Got<A>>) -> bool {
        let Some(answer) = answer else { return true };
        let Some((gateway, device)) = told else {
            return false;
        };
        let Some(hop) = answer.hop else { return true };
        self.confirmed += 1;
        let link = &self.mirror.links()[&hop.oif];
        (hop.gateway, &link.name) == (gateway.unwrap_or(bits(address)), device)
    }
}

fn bits<A: Ip>(address: &str) -> A {
    A::of(address.parse().unwrap()).unwrap()
}

fn against_the_kernel<A: Ip>(net: &'static Net, seed: u64) -> u32 {
    let mut setup = String::from("link set lo up\n");
    let (length, [own, _]) = (net.length, net.own);
    for (device, link) in ["v", "w"].into_iter().zip(net.links) {
        setup += &format!("link add {device}0 type veth peer name {device}1\n");
        setup += &format!("link set {device}0 up\nlink set {device}1 up\n");
        setup += &format!("addr add {link}{own}/{length} dev {device}0\n");
        for host in 2..4 {
            let mac = "02:00:00:00:00:11";
            setup += &format!("neigh add {link}{host} lladdr {mac} dev {device}0\n");
        }
    }
    feed(net, &setup);
    let mut dice = Dice(seed);
    let mut world = World::<A>::new(net);
    world.load();
    for round in 0..ROUNDS {
        // both tables are one until there is a rule
        if round == ROUNDS / 2 {
            let rule = net.rule;
            feed(
                net,
                &format!("rule add {rule} table 9\nrule del {rule} table 9\n"),
            );
        }
        let changes: String = (0..dice.roll(6))
            .map(|_| change(&mut dice, net) + "\n")
            .collect();
        feed(net, &changes);
        if world.routing.wants_load() && dice.roll(3) == 0 {
            world.load();
        }
        world.check();
    }
    for _ in 0..2 {
        world.load();
    }
    assert!(world.routing.ready() && !world.routing.wants_load());
    world.check();
    world.confirmed
}

fn of_family<A: Ip>(net: &'static Net) {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: needs root to make a network namespace");
        return;
    }
    let seeds: u64 = match std::env::var_os("FREEWAY_LONG") {
        Some(_) => 30,
        None => 2,
    };
    let mut confirmed = 0;
    for seed in 1..=seeds {
        // a namespace lives as long as the thread that made it
        let thread = std::thread::spawn(move || {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            println!("seed {seed}");
            against_the_kernel::<A>(net, seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
        });
        match thread.join() {
            Ok(some) => confirmed += some,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
    println!("{confirmed} answers");
    assert!(confirmed > 20, "{confirmed}");
}

#[test]
fn the_kernel_would_do_the_same() {
    of_family::<u32>(&IPV4);
}

#[test]
fn the_kernel_would_do_the_same_of_ipv6() {
    of_family::<u128>(&IPV6);
}
