// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prefix paths while Debian's FRR feeds and flaps routes, by nexthop objects as is its way.
//!
//! The router has zebra and bgpd, the server a bgpd that announces and has no kernel of its own. Its next hops are nobody: their
//! MAC addresses say by which route a frame left.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use freeway_lab::{Lab, Netns};
use freeway_testkit::random::Random;
use freeway_testkit::*;
use nix::unistd::{User, chown};
use serde_json::Value;

use super::{Left, ON, active, client, left, neighbour, packet, routed, station, wait};

/// FRR may wait for timers of its own, and a large table takes its time.
const PATIENCE: Duration = Duration::from_secs(120);
const DAEMONS: &str = "/usr/lib/frr";
/// Next hops: the last octet of each.
const HOPS: [u8; 6] = [10, 11, 12, 13, 14, 15];
/// What is announced changes by parts: the covering prefixes are the first one, the others divide what is within them.
const PARTS: usize = 4;
/// How long the data plane may go on by what was.
const LATE: Duration = Duration::from_millis(10);

/// The next hop of each part; `None`: it is not announced.
type Announced = [Option<u8>; PARTS];
const NOTHING: Announced = [None; PARTS];

/// /16s, and in each so many /24s from its start.
#[derive(Clone, Copy)]
struct Table {
    blocks: u32,
    within: u32,
}

impl Table {
    fn block(number: u32) -> u32 {
        (20 << 24) + (number << 16)
    }

    /// All prefixes, with their parts.
    fn prefixes(self) -> Vec<(String, usize)> {
        let mut all = Vec::new();
        for block in (0..self.blocks).map(Self::block) {
            all.push((format!("{}/16", Ipv4Addr::from(block)), 0));
            for inner in 0..self.within {
                let prefix = format!("{}/24", Ipv4Addr::from(block + (inner << 8)));
                all.push((prefix, Self::part(inner)));
            }
        }
        all
    }

    fn part(inner: u32) -> usize {
        1 + inner as usize % (PARTS - 1)
    }

    /// What the kernel has once all has arrived.
    fn routes(self, announced: &Announced) -> BTreeMap<String, u8> {
        let all = self.prefixes().into_iter();
        all.filter_map(|(prefix, part)| Some((prefix, announced[part]?)))
            .collect()
    }

    fn address(self, random: &mut Random) -> u32 {
        let block = random.below(self.blocks as usize) as u32;
        // also beyond what is within
        let inner = random.below((self.within as usize + 10).min(256)) as u32;
        Self::block(block) + (inner << 8) + random.below(256) as u32
    }

    /// Next hops that the kernel may have for an address while its prefixes are now as one of these has them, now as another.
    fn possible(self, address: u32, states: &[Announced]) -> BTreeSet<Option<u8>> {
        let of = |part: usize| states.iter().map(move |announced| announced[part]);
        let inner = address >> 8 & 255;
        let mut possible = BTreeSet::new();
        for cover in of(0) {
            if inner < self.within {
                possible.extend(of(Self::part(inner)).map(|hop| hop.or(cover)));
            } else {
                possible.insert(cover);
            }
        }
        possible
    }
}

/// Daemons of one side, in a directory. They end with this value.
struct Frr<'a> {
    netns: &'a Netns,
    directory: PathBuf,
    children: Vec<Child>,
}

impl<'a> Frr<'a> {
    fn new(netns: &'a Netns, directory: &Path, name: &str) -> Self {
        let directory = directory.join(name);
        fs::create_dir(&directory).unwrap();
        own(&directory);
        Self {
            netns,
            directory,
            children: Vec::new(),
        }
    }

    fn start(&mut self, daemon: &str, config: &str, more: &[&str]) {
        let at = |end: &str| self.directory.join(end);
        let file = at(&format!("{daemon}.conf"));
        fs::write(&file, config).unwrap();
        own(&file);
        let mut command = Command::new(format!("{DAEMONS}/{daemon}"));
        command.arg("-f").arg(file);
        command.arg("-i").arg(at(&format!("{daemon}.pid")));
        command.arg("-z").arg(at("zserv"));
        command.arg("--vty_socket").arg(&self.directory);
        // no terminals by TCP
        command.args(["-A", "127.0.0.1", "-P", "0"]).args(more);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::null());
        self.children.push(self.netns.spawn(&mut command).unwrap());
        let socket = at(&format!("{daemon}.vty"));
        until("a daemon of FRR", PATIENCE, || {
            socket.exists().then_some(())
        });
    }

    /// Commands of bgpd, one a line.
    fn bgp(&self, lines: &str) {
        let mut command = Command::new("vtysh");
        command.arg("--vty_socket").arg(&self.directory);
        command.args(["-d", "bgpd"]);
        command.args(lines.lines().flat_map(|line| ["-c", line]));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{lines}: {output:?}");
    }
}

impl Drop for Frr<'_> {
    fn drop(&mut self) {
        for child in self.children.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// FRR's daemons run as a user of their own.
fn own(path: &Path) {
    let user = User::from_name("frr").unwrap().unwrap();
    chown(path, Some(user.uid), Some(user.gid)).unwrap();
}

fn session(near: &str, far: &str) -> String {
    let [(near, near_as), (far, far_as)] = [near, far].map(|end| end.split_once(' ').unwrap());
    format!(
        "router bgp {near_as}\n bgp router-id {near}\n bgp route-map delay-timer 0\n\
         no bgp ebgp-requires-policy\n no bgp network import-check\n\
         neighbor {far} remote-as {far_as}\n neighbor {far} timers connect 1\n\
         neighbor {far} advertisement-interval 0\n"
    )
}

/// What bgpd does with the parts.
fn policy(announced: &Announced) -> String {
    let mut lines = String::new();
    for (part, hop) in announced.iter().enumerate() {
        let what = if hop.is_some() { "permit" } else { "deny" };
        lines += &format!(
            "route-map OUT {what} {}\nmatch community C{part}\n",
            part + 1
        );
        if let Some(hop) = hop {
            lines += &format!("set ip next-hop 198.51.100.{hop}\n");
        }
    }
    lines
}

fn start_far(far: &mut Frr, table: Table) {
    let mut config = String::new();
    for part in 0..PARTS {
        config += &format!("bgp community-list standard C{part} permit 65002:{part}\n");
        config += &format!("route-map PART{part} permit 10\n set community 65002:{part}\n");
    }
    config += &policy(&NOTHING);
    config += &session("198.51.100.2 65002", "198.51.100.1 65001");
    config += "address-family ipv4 unicast\n neighbor 198.51.100.1 route-map OUT out\n";
    for (prefix, part) in table.prefixes() {
        config += &format!(" network {prefix} route-map PART{part}\n");
    }
    far.start("bgpd", &config, &["-Z"]);
}

/// What bgpd's routes are in the kernel.
fn in_kernel(lab: &Lab) -> BTreeMap<String, u8> {
    let lines = lab.router().tool("ip -4 route show proto bgp").unwrap();
    let route = |line: &str| {
        let (prefix, rest) = line.split_once(' ')?;
        let via = rest.split_once("via 198.51.100.")?.1;
        assert!(rest.starts_with("nhid "), "{line}");
        Some((prefix.to_owned(), via.split(' ').next()?.parse().ok()?))
    };
    lines.lines().filter_map(route).collect()
}

struct Test<'a> {
    lab: &'a Lab,
    router: Router,
    far: Frr<'a>,
    table: Table,
    announced: Announced,
    random: Random,
    number: u16,
    burst: usize,
}

impl Test<'_> {
    fn frames(&mut self) -> Vec<Vec<u8>> {
        let table = self.table;
        (0..self.burst)
            .map(|_| {
                self.number = self.number.wrapping_add(1);
                packet(
                    client(),
                    table.address(&mut self.random).into(),
                    self.number,
                )
            })
            .collect()
    }

    /// Sends to addresses at random. Each frame leaves as one of these has it; how many did not leave although all have it leave.
    fn burst(&mut self, states: &[Announced]) -> Result<usize, String> {
        let frames = self.frames();
        let left = left(self.lab, &frames);
        self.judge(&frames, &left, states)
    }

    fn judge(
        &self,
        frames: &[Vec<u8>],
        left: &Left,
        states: &[Announced],
    ) -> Result<usize, String> {
        let mut by_packet = BTreeMap::new();
        for (frame, count) in left {
            if *count != 1 {
                return Err(format!("{count} times: {frame:02x?}"));
            }
            by_packet.insert(&frame[26..], &frame[..6]);
        }
        let mut lost = 0;
        for frame in frames {
            let address = u32::from_be_bytes(frame[30..34].try_into().unwrap());
            let possible = self.table.possible(address, states);
            match by_packet.get(&frame[26..]) {
                None => lost += usize::from(!possible.contains(&None)),
                Some(mac) if possible.iter().flatten().any(|hop| station(*hop) == **mac) => {}
                Some(mac) => {
                    let to = Ipv4Addr::from(address);
                    return Err(format!("{to} left to {mac:02x?}, possible: {possible:?}"));
                }
            }
        }
        Ok(lost)
    }

    /// Announces something else; frames that are sent meanwhile leave by what was or what will be, and later by what is.
    fn announce(&mut self, announced: Announced) {
        let before = std::mem::replace(&mut self.announced, announced);
        let lines = format!(
            "configure terminal\n{}end\nclear bgp * soft out",
            policy(&announced)
        );
        self.far.bgp(&lines);
        self.flap(before);
    }

    /// All is withdrawn, and comes again.
    fn clear(&mut self) {
        self.far.bgp("clear bgp *");
        self.flap(self.announced);
    }

    fn flap(&mut self, before: Announced) {
        // bgpd may withdraw what it then announces by another next hop: for seconds the kernel has the covering prefix alone, or none
        let states = [before, self.announced, NOTHING];
        let wanted = self.table.routes(&self.announced);
        let mut bursts = 0;
        // a session that ended has not yet taken its routes with it
        let mut gone = before != self.announced;
        until("the kernel has what is announced", PATIENCE, || {
            self.burst(&states).unwrap();
            bursts += 1;
            let there = in_kernel(self.lab);
            gone |= there != wanted || bursts > 20;
            (gone && there == wanted).then_some(())
        });
        thread::sleep(LATE);
        let settled = [self.announced];
        let seen = self.burst(&settled);
        if long() {
            assert_eq!(seen, Ok(0), "after {LATE:?}");
        }
        until("frames leave by what is announced", PATIENCE, || {
            (self.burst(&settled) == Ok(0)).then_some(())
        });
        let routes = wait(&self.router, "prefix paths", active);
        println!(
            "{:?}: {} routes, {bursts} bursts meanwhile; {}",
            self.announced,
            wanted.len(),
            brief(&routes)
        );
        if long() {
            self.agree();
        }
    }

    /// Most frames leave by prefixes again, and the kernel says the same of addresses.
    fn agree(&mut self) {
        let settled = [self.announced];
        let share = until("frames leave by prefixes", PATIENCE, || {
            let before = routed(&self.router);
            let frames = self.frames();
            let there = left(self.lab, &frames);
            assert_eq!(self.judge(&frames, &there, &settled), Ok(0));
            let fast = (routed(&self.router) - before) as f64 / there.len() as f64;
            (fast >= FAST_MIN).then_some(fast)
        });
        println!("{:.1} % by prefixes", share * 100.0);
        let mut fast = 0;
        for _ in 0..20 {
            let address = Ipv4Addr::from(self.table.address(&mut self.random));
            let answer = &self.router.json(&["routes", &address.to_string()])["answer"];
            assert_eq!(answer["agrees"], true, "{answer}");
            fast += usize::from(answer["fast"] == true);
        }
        println!("{fast} of 20 addresses are fast");
        assert!(fast > 0);
    }

    /// The kernel alone sends the same.
    fn compare(&mut self) {
        let frames = self.frames();
        let by_routes = left(self.lab, &frames);
        assert!(self.router.run(&["off"]).status.success());
        let by_kernel = left(self.lab, &frames);
        assert!(self.router.run(&["on"]).status.success());
        assert!(by_kernel == by_routes);
        wait(&self.router, "prefix paths", active);
    }
}

/// What a failure is looked at for.
fn brief(routes: &Value) -> String {
    let of = |of: &Value, name: &str| format!("{name} {}", of[name]);
    let ipv4 = ["routes", "prefixes", "withdrawn"].map(|name| of(&routes["ipv4"], name));
    let all = ["confirmed", "contradicted"].map(|name| of(routes, name));
    [&ipv4[..], &all].concat().join(", ")
}

#[test]
fn routes_of_frr_are_the_kernels_while_they_flap() {
    let Some(_machine) = machine() else { return };
    let lab = build("routed");
    for hop in HOPS {
        neighbour(&lab, hop);
    }
    let directory = tempfile::tempdir().unwrap();
    own(directory.path());
    let router = Router::start_with(&lab, ON);
    wait(&router, "prefix paths", active);
    let table = match long() {
        true => Table {
            blocks: 392,
            within: 255,
        },
        false => Table {
            blocks: 4,
            within: 100,
        },
    };
    let mut near = Frr::new(lab.router(), directory.path(), "near");
    near.start("zebra", "", &[]);
    let config = session("198.51.100.1 65001", "198.51.100.2 65002");
    near.start("bgpd", &config, &[]);
    let mut far = Frr::new(lab.server(), directory.path(), "far");
    start_far(&mut far, table);
    let mut test = Test {
        lab: &lab,
        router,
        far,
        table,
        announced: NOTHING,
        random: Random(0xf44),
        number: 0,
        burst: if long() { 3000 } else { 500 },
    };
    test.announce([Some(10), Some(11), Some(12), Some(13)]);
    test.announce([Some(10), Some(12), None, Some(14)]);
    test.announce([Some(15), Some(11), Some(11), Some(14)]);
    test.clear();
    let mut random = Random(0xf45);
    for _ in 0..if long() { 4 } else { 0 } {
        // the covering prefixes stay, and one part in six is withdrawn
        let mut hop = |_| Some(random.of(&HOPS)).filter(|hop| *hop != HOPS[0]);
        let mut announced = [0; PARTS].map(&mut hop);
        announced[0] = announced[0].or(Some(HOPS[0]));
        test.announce(announced);
    }
    test.agree();
    test.compare();
    // A packet that asks the kernel while its route changes may be answered by the new one before the event is read.
    let routes = test.router.json(&["routes"]);
    let count = |name: &str| routes[name].as_u64().unwrap();
    assert!(count("contradicted") * 4 <= count("asked"), "{routes}");
    test.router.stop();
}
