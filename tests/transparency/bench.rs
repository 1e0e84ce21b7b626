// SPDX-License-Identifier: MIT OR Apache-2.0
//! Twins of which the second has a Freeway daemon, and a case run through both.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write;
use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use freeway_lab::twins::{Kind, PORTS, host_mac, router_mac, write_sysctls};
use freeway_lab::{Capture, Injector, Netns, Twins};
use freeway_testkit::Moment;
use serde_json::Value;

use crate::case::Case;
use crate::flow::{Flow, TCP, UDP, Way};
use crate::frame::{Plan, Sum, View};
use crate::ruleset::{self, Rule};
use crate::setup::{Pace, Setup, base_commands, lan, uplink};
use freeway_testkit::engine::{Device, Engine, Face, TOLD, take_ports_of};
use freeway_testkit::{Router, Stats, freeway};

/// Without Freeway, and with it.
pub const KERNEL: usize = 0;
pub const FREEWAY: usize = 1;
const BOTH: [usize; 2] = [KERNEL, FREEWAY];
/// The ports.
const ALL: [usize; 3] = [0, 1, 2];
/// The daemon has read what it was offered.
const LEARN: Duration = Duration::from_millis(50);
/// A veth holds 256 frames.
const CHUNK: usize = 96;
/// A packet at an age of two seconds makes a UDP connection assured.
const ASSURED: Duration = Duration::from_millis(2100);
/// Between two frames of a flow, under [`Pace::Gaps`].
const GAP: Duration = Duration::from_micros(1100);
/// The same where flows are to be revalidated meanwhile.
const GAP_BRIEF: Duration = Duration::from_millis(11);
/// With a longer pause between a flow's frames its brief connection may have ended.
const PAUSE_MAX: Duration = Duration::from_secs(6);
/// For a router to answer: a machine under load, not a broken one.
const PATIENCE: Duration = Duration::from_secs(20);

/// Who forwards at Freeway's router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The configuration's `path` of all ports.
    Path(&'static str),
    /// An engine that has the ports.
    Engine,
    /// The kernel's routes, without flows, where they can; the `path` of all ports.
    Routes(&'static str),
    /// The same by an engine that has the ports.
    EngineRoutes,
}

impl By {
    /// The path of ports that tc and the kernel are not left alone with.
    pub fn served(self) -> &'static str {
        match self {
            By::Path(_) | By::Routes(_) => "xdp",
            By::Engine | By::EngineRoutes => "engine",
        }
    }

    /// The `path` of ports.
    fn path(self) -> &'static str {
        match self {
            By::Path(path) | By::Routes(path) => path,
            By::Engine | By::EngineRoutes => "auto",
        }
    }

    /// What has no flow may leave by routes.
    pub fn is_routes(self) -> bool {
        self == By::Routes(self.path()) || self == By::EngineRoutes
    }

    /// An engine has the ports.
    fn is_engine(self) -> bool {
        self == By::Engine || self == By::EngineRoutes
    }

    /// Whose frames are told as fast.
    pub fn whose(self) -> &'static str {
        match self {
            By::Path(_) | By::Routes(_) => "Freeway's",
            By::Engine | By::EngineRoutes => "the engine's",
        }
    }
}

/// A frame that left a router at a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    pub port: usize,
    pub bytes: Vec<u8>,
}

/// What a case came to.
pub struct Outcome {
    /// The ports.
    pub kinds: [Kind; 3],
    pub left: [Vec<Left>; 2],
    /// Frames that were sent, by number, as the router got them.
    pub sent: BTreeMap<u32, Vec<Vec<u8>>>,
    pub frames: usize,
    pub ways: Vec<[Option<Way>; 2]>,
    /// By the path that is looked at.
    pub fast: u64,
    /// The machine was so slow that connections may have timed out.
    pub stalled: bool,
    /// The last ones took the fast path, all of them.
    pub last_fast: bool,
    /// Refusals and reasons, by name, with their counts.
    pub reasons: Vec<(String, u64)>,
}

pub struct Bench {
    twins: Twins,
    daemon: Router,
    by: By,
    engine: Option<Engine>,
    /// What tc forwards is as fast.
    pub counts_all: bool,
    injectors: [Vec<Injector>; 2],
    captures: [Vec<Capture>; 2],
    undo: Vec<String>,
    v6: bool,
    threaded: bool,
    polled: bool,
    /// Questions asked so far.
    asked: u32,
}

impl Bench {
    /// The number is this bench's among those of the machine.
    pub fn build(by: By, number: usize, kinds: [Kind; 3]) -> Self {
        let mut engine = None;
        let mut take = |router: &Netns, ports: &[Face]| {
            engine = by.is_engine().then(|| take_wires(router, number, ports));
        };
        let twins = Twins::build_with(kinds, &mut take).unwrap();
        for router in twins.routers() {
            router
                .tool_with_input("ip -batch -", &base_commands())
                .unwrap();
        }
        let open = |router: usize| (0..PORTS.len()).map(move |port| (router, port));
        let injectors = BOTH.map(|router| {
            open(router)
                .map(|(router, port)| Injector::open(twins.end(router, port)).unwrap())
                .collect()
        });
        // They make redirects to the hosts possible, which the daemon looks at.
        let captures = BOTH.map(|router| {
            open(router)
                .map(|(router, port)| Capture::open(twins.end(router, port)).unwrap())
                .collect()
        });
        let router = twins.routers()[FREEWAY];
        let path = by.path();
        let routes = by.is_routes();
        let config = twins.config_toml(&format!("path = \"{path}\"\nroutes = {routes}\n"));
        let links = twins.links();
        let links: Vec<&str> = links.iter().map(String::as_str).collect();
        let daemon = match by {
            By::Path(_) | By::Routes(_) => Router::start_in(router, &config, freeway(), &links),
            By::Engine | By::EngineRoutes => {
                let wires = twins.wires();
                let wires: Vec<&str> = wires.iter().map(String::as_str).collect();
                Engine::daemon_for(router, &config, &links, &wires)
            }
        };
        Self {
            twins,
            daemon,
            by,
            engine,
            counts_all: !by.is_engine(),
            injectors,
            captures,
            undo: Vec::new(),
            v6: false,
            threaded: false,
            polled: by == By::Path("auto") && kinds == [Kind::Wire; 3],
            asked: 0,
        }
    }

    /// How many frames left by routes.
    pub fn stop(self) -> u64 {
        let stats = self.daemon.stats();
        let (mut routed, flows) = (stats.reason("routed"), stats.fast());
        if self.by == By::EngineRoutes {
            // the rest is tc's, at the TAPs
            std::thread::sleep(TOLD);
            let status = self.daemon.status();
            let by_engine = status["engine"]["counts"]["routed"].as_u64().unwrap();
            println!("row: of {routed} by routes the engine had {by_engine}");
            routed = by_engine;
        }
        if self.by.is_routes() {
            println!("row: {routed} frames by routes, {flows} by flows");
        }
        self.daemon.stop();
        if let Some(engine) = self.engine {
            engine.stop();
        }
        routed
    }

    /// Frames that were fast, all of them or the engine's.
    fn fast(&self) -> u64 {
        let stats = self.daemon.stats();
        let fast = stats.fast() + stats.reason("routed");
        if self.counts_all {
            return fast;
        }
        let end = Instant::now() + TOLD;
        loop {
            let status = self.daemon.status();
            let forwarded = status["engine"]["counts"]["forwarded"].as_u64().unwrap();
            // those of tc are in the table, too
            if forwarded >= fast || Instant::now() > end {
                return forwarded;
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Names of the ports that XDP, or the engine, serves.
    pub fn served(&self) -> Vec<String> {
        let status = self.daemon.status();
        let ports = status["ports"].as_array().unwrap().iter();
        let served = ports.filter(|port| port["path"] == self.by.served());
        served
            .map(|port| port["name"].as_str().unwrap().to_owned())
            .collect()
    }

    /// The path of each active flow from a port to another.
    pub fn paths(&self, from: &str, to: &str) -> Vec<String> {
        let between = |flow: &Value| {
            let ports = [&flow["port_in"], &flow["port_out"]];
            flow["state"] == "active" && ports == [from, to]
        };
        let flows = self.daemon.flows("").into_iter().filter(between);
        flows
            .map(|flow| flow["path"].as_str().unwrap().to_owned())
            .collect()
    }

    /// The ports as the daemon judges them.
    pub fn ports(&self) -> String {
        self.daemon.status()["ports"].to_string()
    }

    /// Runs a case through both.
    pub fn run(&mut self, case: &Case) -> Outcome {
        self.configure(&case.setup);
        let mut run = Run {
            bench: self,
            setup: &case.setup,
            flows: &case.flows,
            ways: vec![[None, None]; case.flows.len()],
            left: [Vec::new(), Vec::new()],
            sent: BTreeMap::new(),
            frames: 0,
            sent_at: HashMap::new(),
            pause: Duration::ZERO,
        };
        run.open();
        let before = run.bench.daemon.stats();
        let fast_before = run.bench.fast();
        run.send(&case.traffic.first);
        run.wait_learned();
        run.send(&case.traffic.rest);
        let middle = match case.setup.pace {
            Pace::Burst => Some(run.bench.daemon.stats()),
            _ => None,
        };
        let sent = run.send(&case.traffic.last);
        let after = run.bench.daemon.stats();
        let Run {
            left,
            sent: frames_sent,
            frames,
            ways,
            pause,
            ..
        } = run;
        let last_fast = middle.is_some_and(|middle| after.fast() - middle.fast() == sent as u64);
        let fast = self.fast() - fast_before;
        Outcome {
            kinds: self.twins.kinds(),
            left,
            sent: frames_sent,
            frames,
            ways,
            stalled: case.setup.brief && pause > PAUSE_MAX,
            fast,
            last_fast,
            reasons: reasons(&before, &after),
        }
    }

    fn configure(&mut self, setup: &Setup) {
        let undo = std::mem::replace(&mut self.undo, setup.undo());
        let was_v6 = std::mem::replace(&mut self.v6, setup.v6);
        let rules = ruleset::text(setup);
        let sysctls = setup.sysctls();
        let sysctls: Vec<(&str, &str)> = sysctls.iter().map(|(p, v)| (&**p, &**v)).collect();
        for router in self.twins.routers() {
            // A rule without an address needs the family said, a nexthop group must not have one.
            let batch = |v6: bool, lines: &[String]| {
                for rules in [false, true] {
                    let lines = lines
                        .iter()
                        .filter(|line| line.starts_with("rule ") == rules);
                    let text: String = lines.map(|line| format!("{line}\n")).collect();
                    let family = if rules && v6 { "-6 " } else { "" };
                    if !text.is_empty() {
                        let tool = format!("ip {family}-batch -");
                        router.tool_with_input(&tool, &text).unwrap();
                    }
                }
            };
            batch(was_v6, &undo);
            write_sysctls(router, &sysctls).unwrap();
            if let Err(error) = router.tool_with_input("nft -f -", &rules) {
                panic!("{setup}: {error}\n{rules}");
            }
            batch(setup.v6, &setup.commands());
            router.tool("conntrack -F").unwrap();
        }
        // without XDP and GRO a veth is not polled
        let threaded = self.polled && setup.pace != Pace::Single;
        if threaded != self.threaded {
            self.twins.set_threaded(FREEWAY, threaded).unwrap();
            self.threaded = threaded;
        }
        self.wait_for_rules();
        // Whatever the change itself made the routers send.
        for router in BOTH {
            for capture in &mut self.captures[router] {
                capture.drain(Duration::ZERO, |_| true).unwrap();
            }
        }
    }

    /// Until the daemon has read the ruleset in force.
    fn wait_for_rules(&self) {
        let wanted = generation(self.twins.routers()[FREEWAY]);
        freeway_testkit::until("the ruleset's analysis", Duration::from_secs(10), || {
            let status = self.daemon.status();
            (status["ruleset"]["generation"].as_u64() == Some(wanted)).then_some(())
        });
    }

    /// Takes what has arrived from a router; waits until nothing has for so long.
    fn take(&mut self, router: usize, quiet: Duration, left: &mut Vec<Left>) {
        let kinds = self.twins.kinds();
        for (port, capture) in self.captures[router].iter_mut().enumerate() {
            let kind = kinds[port];
            let wanted = |frame: &[u8]| forwarded(&kind.unframed(port, frame));
            for frame in capture.drain(quiet, wanted).unwrap() {
                let bytes = kind.unframed(port, &frame.bytes);
                left.push(Left { port, bytes });
            }
        }
    }

    /// Waits until a router has taken up everything that was sent to these ports: it answers in the order in which
    /// it is asked. Takes what arrives there meanwhile.
    fn settle(&mut self, router: usize, ports: &[usize], left: &mut Vec<Left>) {
        self.asked += 1;
        for port in ports {
            let question = question(*port, self.asked);
            self.inject(router, *port, &question);
        }
        for port in ports {
            let kind = self.twins.kinds()[*port];
            let answers = |frame: &[u8]| answers(&kind.unframed(*port, frame), self.asked);
            let capture = &mut self.captures[router][*port];
            let frames = capture.drain_until(PATIENCE, answers);
            let frames = frames.unwrap().expect("the router does not answer");
            let frames = frames
                .iter()
                .map(|frame| kind.unframed(*port, &frame.bytes));
            left.extend(
                frames
                    .filter(|bytes| forwarded(bytes))
                    .map(|bytes| Left { port: *port, bytes }),
            );
        }
    }

    /// A frame to a router's port.
    fn inject(&self, router: usize, port: usize, frame: &[u8]) {
        let framed = self.twins.kinds()[port].framed(port, frame);
        self.injectors[router][port].send(&framed).unwrap();
    }

    /// The same for all ports, and until what left is there: answers do not overtake it either.
    fn settle_all(&mut self, router: usize, left: &mut Vec<Left>) {
        for _ in 0..2 {
            self.settle(router, &ALL, left);
        }
    }
}

/// An engine takes the wires of a router.
fn take_wires(router: &Netns, number: usize, ports: &[Face]) -> Engine {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let config = take_ports_of(router, number % cpus, Device::AfXdp, ports);
    Engine::start_in(router, &config, ports)
}

/// The hardware address that a question is asked for.
fn asker(number: u32) -> [u8; 6] {
    let [a, b, c, d] = number.to_be_bytes();
    [0x02, 0xaa, a, b, c, d]
}

/// An ARP probe (RFC 5227) for a router's address at a port. It is answered, and nothing is learned from it.
fn question(port: usize, number: u32) -> Vec<u8> {
    let address = match port {
        0 => lan(false, 1),
        _ => uplink(false, port, 1),
    };
    let IpAddr::V4(address) = address else {
        unreachable!()
    };
    let mut frame = [router_mac(port), host_mac(port)].concat();
    frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    frame.extend(asker(number));
    frame.extend([0; 10]);
    frame.extend(address.octets());
    frame.resize(60, 0);
    frame
}

fn answers(frame: &[u8], number: u32) -> bool {
    frame.len() >= 42 && frame[12..14] == [8, 6] && frame[32..38] == asker(number)
}

/// The ruleset's number in the kernel.
fn generation(netns: &Netns) -> u64 {
    let rules = netns.enter(freeway_kernel::nft::Ruleset::read).unwrap();
    rules.unwrap().generation.into()
}

/// IPv4 and IPv6 without neighbour discovery, group membership and the like, without ICMP redirects, of which there are
/// fewer with Freeway, and without complaints about fragments that wait in vain, which come in the middle of a later
/// case.
fn forwarded(frame: &[u8]) -> bool {
    if frame.len() < 14 || frame[0] & 1 == 1 {
        return false;
    }
    match View::of(frame) {
        // Errors are below 128, echoes 128 and 129.
        Some(view) if view.v6 && view.proto == 58 => {
            frame.len() > 55 && frame[54] < 130 && frame[54..56] != [3, 1]
        }
        Some(view) if !view.v6 && view.proto == 1 => {
            let kind = frame.get(view.l4..view.l4 + 2);
            kind.is_some_and(|kind| kind[0] != 5 && kind != [11, 1])
        }
        Some(_) => true,
        None => frame[12..14] != [8, 6],
    }
}

fn reasons(before: &Stats, after: &Stats) -> Vec<(String, u64)> {
    let list = |stats: &Stats, name: &str, count: &str| -> Vec<(String, u64)> {
        let list = stats.0[name].as_array().unwrap();
        let pair = |value: &Value| {
            let name = value["name"].as_str().unwrap().to_owned();
            (name, value[count].as_u64().unwrap())
        };
        list.iter().map(pair).collect()
    };
    let mut counts = Vec::new();
    for (name, count) in [("refused", "count"), ("reasons", "packets")] {
        let prefix = if name == "refused" { "refused: " } else { "" };
        let before = list(before, name, count);
        for ((reason, after), (_, before)) in list(after, name, count).into_iter().zip(before) {
            if after > before {
                counts.push((format!("{prefix}{reason}"), after - before));
            }
        }
    }
    counts
}

/// A frame to be sent.
struct Sent {
    direction: (usize, bool),
    enter: usize,
    bytes: Vec<u8>,
}

/// A case on its way.
struct Run<'a> {
    bench: &'a mut Bench,
    setup: &'a Setup,
    flows: &'a [Flow],
    ways: Vec<[Option<Way>; 2]>,
    left: [Vec<Left>; 2],
    sent: BTreeMap<u32, Vec<Vec<u8>>>,
    frames: usize,
    /// When frames of a flow were last sent to a router, and the longest time without any.
    sent_at: HashMap<(usize, usize), Instant>,
    pause: Duration,
}

impl Run<'_> {
    /// Opens the connections by frames of both ends. What the answers are to look like, the kernel's router shows.
    fn open(&mut self) {
        self.soil();
        for index in 0..self.flows.len() {
            let flow = &self.flows[index];
            let way = flow.way(None);
            let flags = if flow.proto == TCP { 0x02 } else { 0 };
            let seen = self.opening(index, false, &way, flags, 0);
            let forward = seen.iter().find_map(|left| {
                let view = View::of(&left.bytes)?;
                let tuple = view.tuple().filter(|_| view.proto == flow.proto)?;
                // What the router itself answers.
                let own = tuple.1 == flow.src && tuple.0 == flow.dst;
                (!own).then_some((left.port, left.bytes[..6].try_into().unwrap(), tuple))
            });
            let Some((port, next_hop, tuple)) = forward else {
                self.ways[index] = [Some(way), None];
                continue;
            };
            let way = flow.way(Some(tuple));
            let back = flow.way_back(port, next_hop, tuple);
            self.ways[index] = [Some(way), flow.answered.then_some(back)];
            if !flow.answered {
                continue;
            }
            self.opening(index, true, &back, 0x12, 0);
            if flow.proto == TCP {
                self.opening(index, false, &way, 0x10, 1);
            }
        }
        if !self.setup.tracked() {
            return;
        }
        thread::sleep(ASSURED);
        for index in 0..self.flows.len() {
            if self.flows[index].proto == UDP {
                for back in [false, true] {
                    if let Some(way) = self.ways[index][usize::from(back)] {
                        self.opening(index, back, &way, 0, 0);
                    }
                }
            }
        }
    }

    /// What conntrack calls invalid is no pattern for what comes after it.
    fn soil(&mut self) {
        let mut any = false;
        for (index, flow) in self
            .flows
            .iter()
            .enumerate()
            .filter(|(_, flow)| flow.soiled)
        {
            let way = flow.way(None);
            for id in 0..4 {
                let plan = Plan {
                    id,
                    l4_sum: Sum::Wrong,
                    ..self.opening_plan(index, false)
                };
                self.pass(&plan, &way);
                any = true;
            }
        }
        if any {
            thread::sleep(LEARN);
        }
    }

    fn opening_plan(&self, index: usize, back: bool) -> Plan {
        let flow = &self.flows[index];
        let i = usize::from(back);
        Plan {
            ttl: flow.ttl[i],
            tos: flow.dscp[i] << 2,
            label: flow.label[i],
            payload: if flow.proto == UDP { 6 } else { 0 },
            ..Plan::plain(index, back, 0, flow.proto, flow.v6())
        }
    }

    /// One frame through both routers; returns what left the kernel's.
    fn opening(&mut self, index: usize, back: bool, way: &Way, flags: u8, seq: u32) -> Vec<Left> {
        let plan = Plan {
            tcp_flags: flags,
            seq,
            ..self.opening_plan(index, back)
        };
        self.pass(&plan, way)
    }

    fn pass(&mut self, plan: &Plan, way: &Way) -> Vec<Left> {
        let mut seen = Vec::new();
        let before = self.left[FREEWAY].len();
        for frame in plan.frames(way) {
            for router in BOTH {
                self.bench.inject(router, way.enter, &frame);
            }
        }
        for router in BOTH {
            self.noticed(router, plan.flow);
        }
        self.bench.settle_all(KERNEL, &mut seen);
        self.take_into(KERNEL, &mut seen);
        self.left[KERNEL].extend(seen.iter().cloned());
        self.settle_all(FREEWAY);
        // An answer cannot come before what it answers has left.
        self.catch_up(before + seen.len(), Duration::from_secs(1));
        seen
    }

    fn take_into(&mut self, router: usize, left: &mut Vec<Left>) {
        self.bench.take(router, Duration::ZERO, left);
    }

    fn take(&mut self, router: usize, quiet: Duration) {
        self.bench.take(router, quiet, &mut self.left[router]);
    }

    fn settle(&mut self, router: usize, ports: &[usize]) {
        self.bench.settle(router, ports, &mut self.left[router]);
    }

    fn settle_all(&mut self, router: usize) {
        self.bench.settle_all(router, &mut self.left[router]);
        self.take(router, Duration::ZERO);
    }

    /// A frame of a flow is sent.
    fn noticed(&mut self, router: usize, flow: usize) {
        let now = Instant::now();
        if let Some(before) = self.sent_at.insert((router, flow), now) {
            self.pause = self.pause.max(now - before);
        }
    }

    /// Takes Freeway's frames until there are so many in all, or none come.
    fn catch_up(&mut self, wanted: usize, patience: Duration) {
        let mut until = Moment::now() + patience;
        loop {
            let before = self.left[FREEWAY].len();
            self.take(FREEWAY, Duration::ZERO);
            let now = self.left[FREEWAY].len();
            if now >= wanted || Moment::now() > until {
                return;
            }
            if now > before {
                until = Moment::now() + patience;
            } else {
                thread::sleep(Duration::from_micros(200));
            }
        }
    }

    /// Sends frames to both routers; returns how many there were.
    fn send(&mut self, plans: &[Plan]) -> usize {
        let start = self.frames;
        for chunk in plans.chunks(CHUNK) {
            let mut frames = Vec::new();
            for plan in chunk {
                let Some(way) = self.ways[plan.flow][usize::from(plan.back)] else {
                    continue;
                };
                // A port drops what is longer than its MTU and a tag.
                let longest = 18
                    + if way.enter == 0 {
                        1500
                    } else {
                        usize::from(self.setup.mtu)
                    };
                for bytes in plan.frames(&way) {
                    if bytes.len() > longest {
                        continue;
                    }
                    self.sent
                        .entry(plan.number)
                        .or_default()
                        .push(bytes.clone());
                    frames.push(Sent {
                        direction: (plan.flow, plan.back),
                        enter: way.enter,
                        bytes,
                    });
                }
            }
            self.frames += frames.len();
            for frame in &frames {
                self.inject(KERNEL, frame);
            }
            self.settle_all(KERNEL);
            let gap = if self.setup.brief { GAP_BRIEF } else { GAP };
            let mut round = HashSet::new();
            for frame in &frames {
                if self.setup.pace == Pace::Gaps && !round.insert(frame.direction) {
                    // The gap begins when what came before it has been taken up.
                    self.settle(FREEWAY, &ALL);
                    thread::sleep(gap);
                    round = HashSet::from([frame.direction]);
                }
                self.inject(FREEWAY, frame);
            }
            self.settle(FREEWAY, &ALL);
            if self.setup.pace == Pace::Gaps {
                thread::sleep(gap);
            }
            let patience = if self.setup.pace == Pace::Single {
                1
            } else {
                20
            };
            self.catch_up(self.left[KERNEL].len(), Duration::from_millis(patience));
        }
        for router in BOTH {
            self.settle_all(router);
            self.take(router, Duration::from_millis(3));
        }
        self.catch_up(self.left[KERNEL].len(), Duration::from_millis(500));
        for router in BOTH {
            for capture in &mut self.bench.captures[router] {
                assert_eq!(capture.dropped().unwrap(), 0, "a capture lost frames");
            }
        }
        self.frames - start
    }

    fn inject(&mut self, router: usize, frame: &Sent) {
        let (flow, enter) = (frame.direction.0, frame.enter);
        self.noticed(router, flow);
        self.bench.inject(router, enter, &frame.bytes);
        // What becomes of the next one, at whatever port, depends on this one. Of two that open a connection at a time
        // one is lost (`__nf_conntrack_confirm`).
        let opens = self.ways[flow][1].is_none();
        if opens || self.flows[flow].odd || self.setup.rules.iter().any(Rule::counts) {
            self.settle(router, &[enter]);
        }
    }

    /// Until the daemon has prepared what it was offered.
    fn wait_learned(&self) {
        let end = Moment::now() + Duration::from_secs(3);
        let mut active = None;
        while Moment::now() < end {
            thread::sleep(Duration::from_millis(30));
            let status = self.bench.daemon.status();
            let flows = &status["flows"];
            if flows["preparing"] == 0 && active.as_ref() == Some(&flows["active"]) {
                return;
            }
            active = Some(flows["active"].clone());
        }
    }
}

/// What a person would type to have the setup.
pub fn describe(setup: &Setup) -> String {
    let mut text = format!("{setup}\n");
    for line in setup.commands() {
        let _ = writeln!(
            text,
            "ip {}{line}",
            if setup.v6 && line.starts_with("rule ") {
                "-6 "
            } else {
                ""
            }
        );
    }
    text + &ruleset::text(setup)
}
