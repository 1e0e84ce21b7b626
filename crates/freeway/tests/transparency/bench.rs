// SPDX-License-Identifier: MIT OR Apache-2.0
//! Twins of which the second has a Freeway daemon, and a case run through both.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write;
use std::thread;
use std::time::{Duration, Instant};

use freeway_lab::twins::{PORTS, write_sysctls};
use freeway_lab::{Capture, Injector, Twins};
use serde_json::Value;

use crate::case::Case;
use crate::common::{Router, Stats, freeway};
use crate::flow::{Flow, TCP, UDP, Way};
use crate::frame::{Plan, Sum, View, number};
use crate::ruleset;
use crate::setup::{Pace, Setup, base_commands};

/// Without Freeway, and with it.
pub const KERNEL: usize = 0;
pub const FREEWAY: usize = 1;
const BOTH: [usize; 2] = [KERNEL, FREEWAY];
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
/// With a longer pause between frames brief connections may have ended.
const PAUSE_MAX: Duration = Duration::from_secs(4);

/// A frame that left a router at a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    pub port: usize,
    pub bytes: Vec<u8>,
}

/// What a case came to.
pub struct Outcome {
    pub left: [Vec<Left>; 2],
    /// How long frames with a number were in Freeway's router, nanoseconds.
    pub transit_ns: HashMap<u32, u64>,
    /// Frames that were sent, by number, as the router got them.
    pub sent: BTreeMap<u32, Vec<Vec<u8>>>,
    pub frames: usize,
    pub ways: Vec<[Option<Way>; 2]>,
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
    injectors: [Vec<Injector>; 2],
    captures: [Vec<Capture>; 2],
    undo: Vec<String>,
    v6: bool,
    threaded: bool,
}

impl Bench {
    pub fn build() -> Self {
        let twins = Twins::build().unwrap();
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
        let router = &twins.routers()[FREEWAY];
        let daemon = Router::start_in(router, &twins.config_toml(), freeway(), &PORTS);
        Self {
            twins,
            daemon,
            injectors,
            captures,
            undo: Vec::new(),
            v6: false,
            threaded: false,
        }
    }

    pub fn stop(self) {
        self.daemon.stop();
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
            sent_ns: HashMap::new(),
            transit_ns: HashMap::new(),
            frames: 0,
            sent_at: Instant::now(),
            pause: Duration::ZERO,
        };
        run.open();
        let before = run.bench.daemon.stats();
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
            transit_ns,
            frames,
            ways,
            pause,
            ..
        } = run;
        let last_fast = middle.is_some_and(|middle| after.fast() - middle.fast() == sent as u64);
        Outcome {
            left,
            transit_ns,
            sent: frames_sent,
            frames,
            ways,
            stalled: case.setup.brief && pause > PAUSE_MAX,
            fast: after.fast() - before.fast(),
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
        let threaded = setup.pace != Pace::Single;
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
        let wanted = generation(&self.twins.routers()[FREEWAY]);
        crate::common::until("the ruleset's analysis", Duration::from_secs(10), || {
            let status = self.daemon.status();
            (status["ruleset"]["generation"].as_u64() == Some(wanted)).then_some(())
        });
    }

    /// Takes what has arrived from a router, and when; waits until nothing has for so long.
    fn take(&mut self, router: usize, quiet: Duration, mut taken: impl FnMut(Left, u64)) {
        for (port, capture) in self.captures[router].iter_mut().enumerate() {
            for frame in capture.drain(quiet, forwarded).unwrap() {
                let bytes = frame.bytes;
                taken(Left { port, bytes }, frame.time_ns);
            }
        }
    }
}

/// The ruleset's number in the kernel.
fn generation(netns: &freeway_lab::Netns) -> u64 {
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
        // ICMPv6 errors are below 128.
        Some(view) if view.v6 && view.proto == 58 => {
            frame.len() > 55 && frame[54] < 128 && frame[54..56] != [3, 1]
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

/// A case on its way.
struct Run<'a> {
    bench: &'a mut Bench,
    setup: &'a Setup,
    flows: &'a [Flow],
    ways: Vec<[Option<Way>; 2]>,
    left: [Vec<Left>; 2],
    sent: BTreeMap<u32, Vec<Vec<u8>>>,
    /// When they were sent to Freeway's router, CLOCK_REALTIME.
    sent_ns: HashMap<u32, u64>,
    transit_ns: HashMap<u32, u64>,
    frames: usize,
    /// When frames were last sent, and the longest time without any.
    sent_at: Instant,
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
                self.bench.injectors[router][way.enter]
                    .send(&frame)
                    .unwrap();
            }
        }
        for quiet in [Duration::ZERO, Duration::from_millis(3)] {
            if seen.is_empty() {
                self.bench.take(KERNEL, quiet, |left, _| seen.push(left));
            }
        }
        self.left[KERNEL].extend(seen.iter().cloned());
        // An answer cannot come before what it answers has left.
        self.catch_up(before + seen.len(), Duration::from_secs(1));
        seen
    }

    fn take_kernel(&mut self, quiet: Duration) {
        let left = &mut self.left[KERNEL];
        self.bench.take(KERNEL, quiet, |frame, _| left.push(frame));
    }

    fn take_freeway(&mut self, quiet: Duration) {
        let left = &mut self.left[FREEWAY];
        let (sent_ns, transit_ns) = (&self.sent_ns, &mut self.transit_ns);
        self.bench.take(FREEWAY, quiet, |frame, time_ns| {
            let number = number(&frame.bytes);
            if let Some((number, sent_ns)) = number.and_then(|n| Some((n, sent_ns.get(&n)?))) {
                transit_ns.insert(number, time_ns.saturating_sub(*sent_ns));
            }
            left.push(frame);
        });
    }

    /// Takes Freeway's frames until there are so many in all, or none come.
    fn catch_up(&mut self, wanted: usize, patience: Duration) {
        let mut until = Instant::now() + patience;
        loop {
            let before = self.left[FREEWAY].len();
            self.take_freeway(Duration::ZERO);
            let now = self.left[FREEWAY].len();
            if now >= wanted || Instant::now() > until {
                return;
            }
            if now > before {
                until = Instant::now() + patience;
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
                    frames.push(((plan.flow, plan.back), plan.number, way.enter, bytes));
                }
            }
            self.frames += frames.len();
            self.pause = self.pause.max(self.sent_at.elapsed());
            self.sent_at = Instant::now();
            for (_, _, enter, bytes) in &frames {
                self.bench.injectors[KERNEL][*enter].send(bytes).unwrap();
            }
            self.take_kernel(Duration::ZERO);
            let gap = if self.setup.brief { GAP_BRIEF } else { GAP };
            let mut round = HashSet::new();
            for (direction, number, enter, bytes) in &frames {
                if self.setup.pace == Pace::Gaps && !round.insert(*direction) {
                    thread::sleep(gap);
                    round = HashSet::from([*direction]);
                }
                let injected = self.bench.injectors[FREEWAY][*enter].send(bytes).unwrap();
                self.sent_ns.insert(*number, injected.before_ns);
            }
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
        let quiet = Duration::from_millis(10);
        self.take_kernel(quiet);
        self.take_freeway(quiet);
        self.catch_up(self.left[KERNEL].len(), Duration::from_millis(200));
        for router in BOTH {
            for capture in &mut self.bench.captures[router] {
                assert_eq!(capture.dropped().unwrap(), 0, "a capture lost frames");
            }
        }
        self.frames - start
    }

    /// Until the daemon has prepared what it was offered.
    fn wait_learned(&self) {
        let end = Instant::now() + Duration::from_secs(3);
        let mut active = None;
        while Instant::now() < end {
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
