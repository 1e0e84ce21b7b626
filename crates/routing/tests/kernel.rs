// SPDX-License-Identifier: MIT OR Apache-2.0
//! Against a real kernel: whatever changes, what the table sends somewhere the kernel would send there too
//! (`ip route get`).

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::io::Write;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

use freeway_kernel::mirror::Mirror;
use freeway_kernel::model::Event;
use freeway_routing::{Answer, Exit, LEAF_UNICAST, Route4, Routing};

const ROUNDS: u32 = 40;
const PREFIXES: [&str; 10] = [
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
];
const ADDRESSES: [&str; 12] = [
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
];

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
fn feed(commands: &str) {
    let mut ip = Command::new("ip");
    ip.args(["-force", "-batch", "-"]);
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
type Told = (Option<u32>, String);

fn get(address: &str, tos: &str) -> Option<Told> {
    let mut ip = Command::new("ip");
    let output = ip
        .args(["route", "get", address, "tos", tos])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let words: Vec<&str> = text.split_whitespace().collect();
    if words.first() != Some(&address) {
        return None;
    }
    let after = |word| {
        let at = words.iter().position(|other| *other == word)?;
        words.get(at + 1).copied()
    };
    let gateway = after("via").map(|via| via.parse::<Ipv4Addr>().unwrap().to_bits());
    Some((gateway, after("dev").unwrap().to_owned()))
}

fn change(dice: &mut Dice) -> String {
    let device = dice.one(&["v0", "w0"]);
    let link = if device == "v0" {
        "172.16.0"
    } else {
        "172.17.0"
    };
    let host = dice.one(&["2", "3", "4"]);
    let mac = dice.one(&["02:00:00:00:00:11", "02:00:00:00:00:22"]);
    let id = dice.one(&["7", "8"]);
    match dice.roll(40) {
        0 => format!("link set {device} down"),
        1..=3 => format!("link set {device} up"),
        4 => format!("link set {} down", dice.one(&["v1", "w1"])),
        5..=7 => format!("link set {} up", dice.one(&["v1", "w1"])),
        8 => format!("addr del {link}.1/24 dev {device}"),
        9 => format!("addr del {link}.100/24 dev {device}"),
        10..=12 => format!("addr add {link}.1/24 dev {device}"),
        13 => format!("addr add {link}.100/24 dev {device}"),
        14 => format!("nexthop del id {id}"),
        15 | 16 => format!("nexthop replace id {id} via {link}.{host} dev {device}"),
        17 => format!("neigh del {link}.{host} dev {device}"),
        18..=20 => format!("neigh replace {link}.{host} lladdr {mac} dev {device} nud permanent"),
        21..=24 => format!("route del {}", dice.one(&PREFIXES)),
        _ => {
            let how = dice.one(&["add", "replace", "replace", "append", "prepend"]);
            let prefix = dice.one(&PREFIXES);
            let rest = match dice.roll(14) {
                0 => format!("nhid {id}"),
                1 => format!("dev {device}"),
                2 => format!("via {link}.{host} src {link}.1"),
                3 => format!("via {link}.{host} tos 4"),
                4 => format!("via {link}.{host} table default"),
                5 => format!("nexthop via 172.16.0.2 nexthop via {link}.3"),
                6 => return format!("route {how} {} {prefix}", dice.one(&["throw", "blackhole"])),
                7 => return format!("route {how} local {prefix} dev lo table local"),
                8 => return format!("route del local {prefix} dev lo table local"),
                9 => format!("via {link}.{host} metric {}", dice.one(&["1", "2"])),
                _ => format!("via {link}.{host}"),
            };
            format!("route {how} {prefix} {rest}")
        }
    }
}

struct World {
    mirror: Mirror,
    routing: Routing,
    confirmed: u32,
}

impl World {
    fn new() -> Self {
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
                Some((link.ifindex, Exit { mac, mtu: link.mtu }))
            })
            .collect();
        routing.set_ports(&ports);
        Self {
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
        self.routing.load(routes.filter_map(Route4::of));
        self.hear();
        self.routing.end_load(true);
    }

    fn check(&mut self) {
        self.hear();
        for address in ADDRESSES {
            for tos in ["0", "4"] {
                let answer = self.answer(address);
                let told = get(address, tos);
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

    fn answer(&self, address: &str) -> Option<Answer> {
        let address: Ipv4Addr = address.parse().unwrap();
        let answer = self.routing.lookup(address.to_bits());
        answer.filter(|answer| answer.leaf >= LEAF_UNICAST)
    }

    fn agree(&mut self, address: &str, answer: &Option<Answer>, told: &Option<Told>) -> bool {
        let Some(answer) = answer else { return true };
        let Some((gateway, device)) = told else {
            return false;
        };
        let Some(hop) = answer.hop else { return true };
        self.confirmed += 1;
        let address: Ipv4Addr = address.parse().unwrap();
        let link = &self.mirror.links()[&hop.oif];
        (hop.gateway, &link.name) == (gateway.unwrap_or(address.to_bits()), device)
    }
}

fn against_the_kernel(seed: u64) -> u32 {
    let mut setup = String::from("link set lo up\n");
    for (device, link) in [("v", "172.16.0"), ("w", "172.17.0")] {
        setup += &format!("link add {device}0 type veth peer name {device}1\n");
        setup += &format!("link set {device}0 up\nlink set {device}1 up\n");
        setup += &format!("addr add {link}.1/24 dev {device}0\n");
        for host in 2..4 {
            let mac = "02:00:00:00:00:11";
            setup += &format!("neigh add {link}.{host} lladdr {mac} dev {device}0\n");
        }
    }
    feed(&setup);
    let mut dice = Dice(seed);
    let mut world = World::new();
    world.load();
    for round in 0..ROUNDS {
        // both tables are one until there is a rule
        if round == ROUNDS / 2 {
            feed("rule add from 203.0.113.1 table 9\nrule del from 203.0.113.1 table 9\n");
        }
        let changes: String = (0..dice.roll(6))
            .map(|_| change(&mut dice) + "\n")
            .collect();
        feed(&changes);
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

#[test]
fn the_kernel_would_do_the_same() {
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
            against_the_kernel(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
        });
        match thread.join() {
            Ok(some) => confirmed += some,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
    println!("{confirmed} answers");
    assert!(confirmed > 20, "{confirmed}");
}
