// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nothing dies that would live in the kernel alone, and nothing lives that would die. Each case runs by the kernel
//! alone and with Freeway, with conntrack's timeouts shrunk to seconds; what arrived and what conntrack shows are
//! compared step by step.
//!
//! ```text
//!      client                     router                     server
//!  +------------+         +---------------------+         +------------+
//!  |  segments  |---------| lan0           wan0 |---------|  segments  |
//!  +------------+         +---------------------+         +------------+
//!   192.0.2.200            forward: established,related     198.51.100.200
//!                          accept, invalid drop, ...
//!                       postrouting: masquerade on wan0
//! ```
//!
//! The cases run side by side over connections of their own, both routers at once. `FREEWAY_CASE=NAME` runs one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use freeway_kernel::model::{Connection, TCP_FLAG_MAXACK_SET, TcpState};
use freeway_lab::{Lab, Options, Port};
use freeway_testkit::wire::Side::{Far, Near};
use freeway_testkit::wire::{ACK, FIN, NEAR, PSH, RST, SYN, Segment, Side, TCP, Talk, UDP, Wire};
use freeway_testkit::*;

/// Conntrack's timeouts, seconds. An interval of revalidation is a quarter of them.
const TIMEOUTS: [(&str, u32); 12] = [
    ("tcp_timeout_established", ESTABLISHED_S),
    ("tcp_timeout_unacknowledged", ESTABLISHED_S),
    ("tcp_timeout_max_retrans", ESTABLISHED_S),
    ("tcp_timeout_syn_sent", 3),
    ("tcp_timeout_syn_recv", 3),
    ("tcp_timeout_fin_wait", 3),
    ("tcp_timeout_close_wait", 3),
    ("tcp_timeout_last_ack", 3),
    ("tcp_timeout_time_wait", 3),
    ("tcp_timeout_close", 3),
    ("udp_timeout", UDP_S),
    ("udp_timeout_stream", UDP_S),
];
const ESTABLISHED_S: u32 = 5;
const UDP_S: u32 = 5;
/// A pause that a connection survives, and would not if conntrack thought that it had begun half an interval earlier.
const PAUSE: Duration = Duration::from_millis(4400);
/// A longer one tells nothing.
const PAUSE_MAX: Duration = Duration::from_millis(4700);
/// Seconds by which what conntrack shows may differ: an interval, and rounding.
const SLACK_S: u32 = 2;

fn busy_time() -> Duration {
    Duration::from_secs(if long() { 120 } else { 14 })
}

/// Between two learned packets, and until a change is obeyed: only a fault takes so long.
const LEARNED: Duration = Duration::from_secs(60);
/// A case is tried so often if what differs is a matter of time.
const ATTEMPTS: usize = 5;

/// What a case saw.
#[derive(Clone, Debug)]
enum Seen {
    Is(String),
    /// Whether something arrived a moment before it would be too late.
    InTime(bool),
    /// Seconds, which may differ a little.
    Seconds(u32),
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Seen::Is(text) => f.write_str(text),
            Seen::InTime(arrived) => write!(f, "{arrived}"),
            Seen::Seconds(seconds) => write!(f, "{seconds} s"),
        }
    }
}

#[derive(Debug, Default)]
struct Record(Vec<(String, Seen)>, Late);

/// The machine was too busy for a pause to be as long as it should be.
type Late = bool;

impl Record {
    fn is(&mut self, what: impl Into<String>, value: impl fmt::Debug) {
        self.0.push((what.into(), Seen::Is(format!("{value:?}"))));
    }

    /// Waits for [`PAUSE`] and makes sure that something arrives then.
    fn pause(&mut self, what: impl Into<String>, arrives: impl FnOnce() -> bool) {
        let start = Instant::now();
        thread::sleep(PAUSE);
        self.1 |= start.elapsed() > PAUSE_MAX;
        self.0.push((what.into(), Seen::InTime(arrives())));
    }

    fn seconds(&mut self, what: impl Into<String>, seconds: u32) {
        self.0.push((what.into(), Seen::Seconds(seconds)));
    }

    /// What differs from what the kernel alone did.
    fn compare(&self, kernel: &Record) -> Differences {
        let mut differences = Differences {
            // a busy machine may be the reason
            of_time: self.1 || kernel.1,
            ..Differences::default()
        };
        let steps = self.0.len().max(kernel.0.len());
        for step in 0..steps {
            let pair = (kernel.0.get(step), self.0.get(step));
            match pair {
                (Some((what, Seen::Is(a))), Some((same, Seen::Is(b))))
                    if what == same && a == b => {}
                (Some((what, Seen::InTime(a))), Some((same, Seen::InTime(b))))
                    if what == same && a == b => {}
                (Some((what, Seen::Seconds(a))), Some((same, Seen::Seconds(b))))
                    if what == same && a.abs_diff(*b) <= SLACK_S => {}
                (kernel, freeway) => {
                    let tell = |side: Option<&(String, Seen)>| {
                        side.map_or("nothing".into(), |(what, seen)| format!("{what}: {seen}"))
                    };
                    differences.of_time |= matches!(
                        pair,
                        (
                            Some((_, Seen::InTime(_) | Seen::Seconds(_))),
                            Some((_, Seen::InTime(_) | Seen::Seconds(_)))
                        )
                    );
                    differences.lines.push(format!(
                        "step {step}: kernel: {}; Freeway: {}",
                        tell(kernel),
                        tell(freeway)
                    ));
                }
            }
        }
        differences
    }
}

/// Of two records.
#[derive(Debug, Default)]
struct Differences {
    lines: Vec<String>,
    /// They judge how long something took, or follow from that.
    of_time: bool,
}

/// A router by itself, or with Freeway.
struct Site {
    // In this order: the daemon ends before its namespace.
    router: Option<Router>,
    wire: Wire,
    lab: Lab,
}

impl Site {
    fn lab() -> Lab {
        let lab = build_with(
            "nat",
            Options {
                router_tx_checksum: false,
                ..Options::default()
            },
        );
        for (name, seconds) in TIMEOUTS {
            let path = format!("net/netfilter/nf_conntrack_{name}");
            lab.router().sysctl(&path, &seconds.to_string()).unwrap();
        }
        lab
    }

    fn new(freeway: bool) -> Site {
        let lab = Self::lab();
        let wire = Wire::open(&lab);
        let router = freeway.then(|| Router::start(&lab));
        Site { router, wire, lab }
    }

    fn connection(&self, proto: u8, sport: u16) -> Option<Connection> {
        connection_from(&self.lab, proto, sport)
    }

    /// State, status and time left.
    fn look(&self, record: &mut Record, when: &str, proto: u8, sport: u16) {
        let connection = self.connection(proto, sport);
        let shown = connection
            .as_ref()
            .map(|c| (c.tcp.map(|tcp| tcp.state), c.status));
        record.is(format!("{when}: conntrack"), shown);
        if let Some(seconds) = connection.and_then(|c| c.timeout_s) {
            record.seconds(format!("{when}: time left"), seconds);
        }
    }

    /// How long until conntrack has no more of it, counted from a moment.
    fn until_gone(&self, record: &mut Record, since: Instant, proto: u8, sport: u16) {
        let id = self.connection(proto, sport).map(|c| c.id);
        until("conntrack forgets", LEARNED, || {
            let now = self.connection(proto, sport).map(|c| c.id);
            (now.is_none() || now != id).then_some(())
        });
        record.seconds("lived on for", since.elapsed().as_secs_f64().round() as u32);
    }

    /// Packets that the fast path forwarded, both ways.
    fn fast(&self, proto: u8, sport: u16) -> [u64; 2] {
        let Some(router) = &self.router else {
            return [u64::MAX; 2];
        };
        let name = if proto == TCP { "tcp" } else { "udp" };
        ["sport", "dport"].map(|end| {
            let flows = router.flows(&format!("proto {name} {end} {sport}"));
            let packets = flows.iter().filter(|flow| flow["state"] == "active");
            packets.map(|flow| flow["packets"].as_u64().unwrap()).sum()
        })
    }

    /// Exchanges until both directions are fast.
    #[track_caller]
    fn warm(&self, talk: &mut Talk<'_>) {
        let end = Moment::now() + LEARNED;
        loop {
            for _ in 0..10 {
                assert!(talk.exchange(), "while it is learned");
            }
            let fast = self.fast(TCP, talk.ports.0);
            if fast.iter().all(|packets| *packets >= 10) {
                return;
            }
            let stats = self.router.as_ref().map(Router::stats);
            assert!(Moment::now() < end, "{fast:?}\n{}", stats.unwrap());
        }
    }

    /// Waits until conntrack has been told of what the last packet that it saw did to its view.
    fn told(&self, sport: u16) {
        thread::sleep(Duration::from_millis(600));
        if self.router.is_none() {
            return;
        }
        until("conntrack is told", LEARNED, || {
            let tcp = self.connection(TCP, sport)?.tcp?;
            let strict = TCP_FLAG_MAXACK_SET & (tcp.flags_orig | tcp.flags_reply);
            (strict == 0).then_some(())
        });
    }

    /// A connection, fast both ways if there is a fast path.
    #[track_caller]
    fn talk(&self, sport: u16) -> Talk<'_> {
        let isn = [0x1000_0000 + u32::from(sport), 0x9000_0000];
        let mut talk = Talk::open(&self.wire, (sport, 7000), isn);
        self.warm(&mut talk);
        talk
    }
}

type Case = fn(&Site, &mut Record);

/// Busy for many times the timeout, then idle.
fn busy(site: &Site, record: &mut Record) {
    let mut talk = site.talk(20_000);
    let id = site.connection(TCP, 20_000).unwrap().id;
    let before = site.fast(TCP, 20_000);
    let (start, mut lost) = (Instant::now(), 0);
    let fast = || {
        let after = site.fast(TCP, 20_000);
        (0..2).all(|i| after[i] == u64::MAX || after[i] > before[i] + 50)
    };
    while start.elapsed() < busy_time() || !fast() {
        assert!(start.elapsed() < LEARNED, "it is not fast");
        lost += u32::from(!talk.exchange());
        thread::sleep(Duration::from_millis(50));
    }
    let last = Instant::now();
    record.is("lost", lost);
    record.is(
        "the same",
        site.connection(TCP, 20_000).map(|c| c.id) == Some(id),
    );
    site.look(record, "busy", TCP, 20_000);
    site.until_gone(record, last, TCP, 20_000);
    // Nobody knows the connection: a packet from outside is for nobody.
    record.is(
        "after the end, from outside",
        talk.say(Far, ACK | PSH, b"late"),
    );
    record.is(
        "after the end, from inside",
        talk.say(Near, ACK | PSH, b"late"),
    );
}

/// A burst, then a pause that is a little shorter than the timeout, again and again.
fn sparse(site: &Site, record: &mut Record) {
    let mut talk = site.talk(20_001);
    let id = site.connection(TCP, 20_001).unwrap().id;
    for round in 0..3 {
        for _ in 0..60 {
            record.is(format!("burst {round}"), talk.exchange());
        }
        // from outside, so that the connection cannot be picked up anew
        record.pause(format!("after pause {round}"), || {
            talk.say(Far, ACK | PSH, b"still there?")
        });
        record.is("answer", talk.say(Near, ACK, b""));
        let same = site.connection(TCP, 20_001).map(|c| c.id) == Some(id);
        record.is("the same connection", same);
    }
    let last = Instant::now();
    site.until_gone(record, last, TCP, 20_001);
}

fn datagram(sport: u16, payload: &[u8]) -> Segment {
    Segment {
        proto: UDP,
        ports: (sport, 7000),
        payload: payload.to_vec(),
        ..Segment::default()
    }
}

/// UDP that nobody answers, and then somebody does after all.
fn one_way_udp(site: &Site, record: &mut Record) {
    let question = datagram(20_002, b"question");
    for round in 0..3 {
        let start = Instant::now();
        let mut lost = 0;
        let fast = || site.router.is_none() || site.fast(UDP, 20_002)[0] > 20;
        while start.elapsed() < busy_time() / 3 || !fast() {
            assert!(start.elapsed() < LEARNED, "round {round}: it is not fast");
            lost += u32::from(!site.wire.deliver(Near, &question));
            thread::sleep(Duration::from_millis(20));
        }
        record.is(format!("lost {round}"), lost);
        if site.router.is_some() {
            assert_eq!(site.fast(UDP, 20_002)[1], 0, "nobody has answered");
        }
        site.look(record, "one way", UDP, 20_002);
        record.pause("there after a pause", || {
            site.connection(UDP, 20_002).is_some()
        });
    }
    let last = Instant::now();
    record.is(
        "the answer",
        site.wire.deliver(Far, &datagram(20_002, b"answer")),
    );
    site.look(record, "answered", UDP, 20_002);
    site.until_gone(record, last, UDP, 20_002);
    record.is(
        "too late",
        site.wire.deliver(Far, &datagram(20_002, b"late")),
    );
}

/// UDP both ways, with pauses.
fn udp_both_ways(site: &Site, record: &mut Record) {
    let start = Instant::now();
    let mut lost = 0;
    let fast = || site.fast(UDP, 20_003).iter().all(|packets| *packets > 20);
    while start.elapsed() < busy_time() || !fast() {
        assert!(start.elapsed() < LEARNED, "it is not fast");
        for from in [Near, Far] {
            lost += u32::from(!site.wire.deliver(from, &datagram(20_003, b"ping or pong")));
        }
        thread::sleep(Duration::from_millis(30));
    }
    record.is("lost", lost);
    site.look(record, "busy", UDP, 20_003);
    let id = site.connection(UDP, 20_003).map(|c| c.id);
    record.pause("after a pause", || {
        site.wire.deliver(Far, &datagram(20_003, b"still there?"))
    });
    let last = Instant::now();
    record.is("the same", site.connection(UDP, 20_003).map(|c| c.id) == id);
    site.until_gone(record, last, UDP, 20_003);
    record.is(
        "too late",
        site.wire.deliver(Far, &datagram(20_003, b"late")),
    );
}

/// Nobody answers a SYN.
fn unanswered(site: &Site, record: &mut Record) {
    let talk = Talk {
        wire: &site.wire,
        ports: (20_004, 7000),
        next: [77, 0],
        options: Vec::new(),
    };
    for _ in 0..3 {
        record.is("SYN", talk.say_at(Near, SYN, 77, 0, b""));
    }
    site.look(record, "asked", TCP, 20_004);
    site.until_gone(record, Instant::now(), TCP, 20_004);
}

/// One end has forgotten the connection, and opens another one with the same tuple.
fn half_open(site: &Site, record: &mut Record) {
    let mut talk = site.talk(20_005);
    site.told(20_005);
    let isn = talk.next[0].wrapping_add(0x4000_0000);
    record.is("SYN in the connection", talk.say_at(Near, SYN, isn, 0, b""));
    site.look(record, "SYN", TCP, 20_005);
    record.is("challenge", talk.say(Far, ACK, b""));
    let expected = talk.next[0];
    record.is("RST", talk.say_at(Near, RST, expected, 0, b""));
    site.look(record, "RST", TCP, 20_005);
    talk.next = [isn, 0x2222_0000];
    record.is("a new handshake", talk.handshake());
    site.look(record, "new", TCP, 20_005);
    site.warm(&mut talk);
    record.is("it works", talk.exchange());
}

/// One direction closes, the other goes on for long.
fn half_closed(site: &Site, record: &mut Record) {
    for (sport, closer) in [(20_006, Near), (20_007, Far)] {
        let mut talk = site.talk(sport);
        record.is("FIN", talk.finish(closer));
        site.look(record, "FIN", TCP, sport);
        record.is("its ACK", talk.say(closer.other(), ACK, b""));
        site.look(record, "half closed", TCP, sport);
        let start = Instant::now();
        while start.elapsed() < busy_time() / 2 {
            record_lost(
                record,
                talk.say(closer.other(), PSH | ACK, b"there is more"),
            );
            record_lost(record, talk.say(closer, ACK, b""));
            thread::sleep(Duration::from_millis(100));
        }
        site.look(record, "half closed for long", TCP, sport);
        record.is("the other FIN", talk.finish(closer.other()));
        site.look(record, "both FINs", TCP, sport);
        record.is("last ACK", talk.say(closer, ACK, b""));
        let last = Instant::now();
        site.look(record, "closed", TCP, sport);
        site.until_gone(record, last, TCP, sport);
    }
}

/// Losses are told, deliveries are not counted: their number depends on the time.
fn record_lost(record: &mut Record, arrived: bool) {
    if !arrived {
        record.is("lost", true);
    }
}

fn simultaneous_close(site: &Site, record: &mut Record) {
    let talk = site.talk(20_008);
    let [near, far] = talk.next;
    record.is("FIN", talk.say_at(Near, FIN | ACK, near, far, b""));
    record.is("FIN at once", talk.say_at(Far, FIN | ACK, far, near, b""));
    site.look(record, "FINs", TCP, 20_008);
    let (near, far) = (near.wrapping_add(1), far.wrapping_add(1));
    record.is("ACK", talk.say_at(Near, ACK, near, far, b""));
    record.is("ACK", talk.say_at(Far, ACK, far, near, b""));
    let last = Instant::now();
    site.look(record, "closed", TCP, 20_008);
    site.until_gone(record, last, TCP, 20_008);
}

/// The exact RST of each end closes.
fn reset(site: &Site, record: &mut Record) {
    for (sport, from) in [(20_009, Near), (20_010, Far)] {
        let talk = site.talk(sport);
        site.told(sport);
        record.is(
            "RST",
            talk.say_at(from, RST, talk.next[from as usize], 0, b""),
        );
        let last = Instant::now();
        site.look(record, "reset", TCP, sport);
        site.until_gone(record, last, TCP, sport);
        record.is(
            "after it",
            talk.say_at(Far, ACK, talk.next[1], talk.next[0], b"late"),
        );
    }
}

/// Somebody else's RST: in the window, but not the number that is due. The receiver ignores it (RFC 5961).
fn stray_reset(site: &Site, record: &mut Record) {
    for (sport, from) in [(20_011, Near), (20_012, Far)] {
        let mut talk = site.talk(sport);
        let id = site.connection(TCP, sport).unwrap().id;
        site.told(sport);
        let number = talk.next[from as usize].wrapping_add(1000);
        let arrived = talk.say_at(from, RST, number, 0, b"");
        if let Some(router) = site.router.as_ref().filter(|_| !arrived) {
            // such a one goes the fast way or none, and flows may have left the table for a moment
            record.1 = true;
            let flows = router.flows(&format!("proto tcp sport {sport}"));
            let ports = &router.status()["ports"];
            eprintln!("no stray RST: {}\n{flows:?}\n{ports}", router.stats());
        }
        record.is("stray RST", arrived);
        record.is("challenge", talk.say(from.other(), ACK, b""));
        let start = Instant::now();
        while start.elapsed() < busy_time() / 2 {
            record_lost(record, talk.exchange());
            thread::sleep(Duration::from_millis(100));
        }
        let same = site.connection(TCP, sport).map(|c| c.id) == Some(id);
        record.is("the same", same);
        // Conntrack alone keeps the state, and liberal it does not: docs/limits.md.
        let state = site.connection(TCP, sport).and_then(|c| c.tcp);
        let living = [TcpState::Established, TcpState::Close].map(Some);
        record.is("living", living.contains(&state.map(|tcp| tcp.state)));
        thread::sleep(Duration::from_millis(2000));
        record.is("later", talk.say(Far, ACK | PSH, b"still there?"));
    }
}

/// The same tuple again, at once, after each way to end.
fn reused(site: &Site, record: &mut Record) {
    let mut talk = site.talk(20_013);
    for round in 0..6u32 {
        site.told(20_013);
        match round % 3 {
            0 => {
                record.is("FIN", talk.finish(Near));
                record.is("FIN", talk.finish(Far));
                record.is("ACK", talk.say(Near, ACK, b""));
            }
            1 => record.is("RST", talk.say_at(Near, RST, talk.next[0], 0, b"")),
            _ => record.is("RST", talk.say_at(Far, RST, talk.next[1], 0, b"")),
        }
        talk.next = [round << 28, 0x5000_0000 + (round << 20)];
        record.is(format!("handshake {round}"), talk.handshake());
        site.look(record, "opened", TCP, 20_013);
        site.warm(&mut talk);
    }
}

/// SACK and timestamps, numbers that wrap, and with Freeway tens of gigabytes that conntrack has not seen.
fn gigabytes(site: &Site, record: &mut Record) {
    let ports = (20_014, 7000);
    let isn = [u32::MAX - 40_000, u32::MAX - 300];
    let mut talk = Talk::open(&site.wire, ports, isn);
    site.warm(&mut talk);
    let stride = if site.router.is_some() { 900 << 20 } else { 0 };
    let mut clock = 1u32;
    let mut stamped = |sack: Option<(u32, u32)>| {
        clock += 1;
        let mut options = vec![1, 1, 8, 10];
        options.extend(clock.to_be_bytes());
        options.extend((clock - 1).to_be_bytes());
        if let Some((left, right)) = sack {
            options.extend([1, 1, 5, 10]);
            options.extend(left.to_be_bytes());
            options.extend(right.to_be_bytes());
        }
        options
    };
    let mut segments = |talk: &mut Talk<'_>, from: Side| {
        let to = from.other();
        let start = talk.next[from as usize];
        let payload = [0x5a; 500];
        talk.options = stamped(None);
        let mut arrived = talk.say(from, ACK, &payload) && talk.say(from, ACK, &payload);
        // the first one is missing, then everything is there
        let (seq, ends) = (talk.next[to as usize], talk.next[from as usize]);
        talk.options = stamped(Some((start.wrapping_add(500), ends)));
        arrived &= talk.say_at(to, ACK, seq, start, b"");
        talk.options = stamped(None);
        arrived && talk.say_at(to, ACK, seq, ends, b"")
    };
    let rounds = if long() { 400 } else { 40 };
    for round in 0..rounds {
        record.is(format!("segments {round}"), segments(&mut talk, Near));
        record.is(format!("segments back {round}"), segments(&mut talk, Far));
        // The kernel alone would have had to see every number.
        talk.next = talk.next.map(|next| next.wrapping_add(stride));
    }
    if site.router.is_some() {
        // a daemon that stands still learns them anew
        let fast = site.fast(TCP, ports.0);
        record.1 |= fast.iter().any(|packets| *packets <= 50);
    }
    // Out of use for a moment, the flow leaves: the kernel sees the next segments.
    thread::sleep(Duration::from_millis(2200));
    for _ in 0..3 {
        record.is("by the kernel", segments(&mut talk, Near));
        record.is("by the kernel, back", segments(&mut talk, Far));
    }
    site.look(record, "all the bytes", TCP, ports.0);
    talk.options = Vec::new();
    record.is("FIN", talk.finish(Far));
    record.is("FIN", talk.finish(Near));
    record.is("ACK", talk.say(Far, ACK, b""));
    let last = Instant::now();
    site.look(record, "closed", TCP, ports.0);
    site.until_gone(record, last, TCP, ports.0);
}

/// Connections that are older than the daemon: the kernel tells nothing of their end.
fn older(freeway: bool) -> Record {
    let mut record = Record::default();
    let mut site = Site::new(false);
    let sports = [21_000, 21_001];
    let open = |sport| {
        let mut talk = Talk::open(&site.wire, (sport, 7000), [1, 2]);
        assert!(talk.exchange());
        talk.next
    };
    let next = sports.map(open);
    site.router = freeway.then(|| Router::start(&site.lab));
    let mut talks = [0, 1].map(|i| Talk {
        wire: &site.wire,
        ports: (sports[i], 7000),
        next: next[i],
        options: Vec::new(),
    });
    for talk in &mut talks {
        site.warm(talk);
    }
    let line = format!("conntrack -D -p tcp --orig-port-src {}", sports[1]);
    site.lab.router().tool(&line).unwrap();
    let start = Instant::now();
    while start.elapsed() < busy_time() {
        record_lost(&mut record, talks[0].exchange());
        thread::sleep(Duration::from_millis(100));
    }
    let last = Instant::now();
    site.look(&mut record, "busy", TCP, sports[0]);
    // Freeway has had its second
    record.is(
        "deleted, from outside",
        talks[1].say(Far, ACK | PSH, b"late"),
    );
    site.look(&mut record, "deleted", TCP, sports[1]);
    site.until_gone(&mut record, last, TCP, sports[0]);
    record.is(
        "expired, from outside",
        talks[0].say(Far, ACK | PSH, b"late"),
    );
    record
}

/// A station moves to another port of the router, and back.
fn moved(freeway: bool) -> Record {
    let mut record = Record::default();
    let lab = Site::lab();
    let (client, router) = (lab.client(), lab.router());
    let line = format!(
        "ip link add lan1 address 02:00:00:00:01:11 type veth peer name eth1 \
         address 02:00:00:00:01:12 netns {}",
        client.name()
    );
    for line in [
        line.as_str(),
        "ip link set lan1 up",
        "ethtool -K lan1 tx off tso off gso off txvlan off gro on",
    ] {
        router.tool(line).unwrap();
    }
    client
        .tool("ethtool -K eth1 tx off tso off gso off txvlan off gro on")
        .unwrap();
    client.tool("ip link set eth1 up").unwrap();
    let near = Port {
        ifindex: client.ifindex("eth1").unwrap(),
        name: "eth1".into(),
        mac: [2, 0, 0, 0, 1, 0x12],
        ..lab.client_port().clone()
    };
    let line =
        format!("ip neighbour replace {NEAR} lladdr 02:00:00:00:01:12 nud permanent dev lan1");
    router.tool(&line).unwrap();
    let config = "[port.lan1]\nwire_true = true\n";
    let daemon = freeway.then(|| {
        Router::start_as(
            &lab,
            config,
            freeway_testkit::freeway(),
            &["lan0", "wan0", "lan1"],
        )
    });
    let site = Site {
        router: daemon,
        wire: Wire::open(&lab),
        lab,
    };
    let there = Wire::open_from(&site.lab, &near, [2, 0, 0, 0, 1, 0x11]);
    let ports = (22_000, 7000);
    let mut talk = Talk::open(&site.wire, ports, [1, 2]);
    site.warm(&mut talk);
    let id = site.connection(TCP, ports.0).unwrap().id;
    for (name, wire) in [("lan1", &there), ("lan0", &site.wire), ("lan1", &there)] {
        let line = format!("ip route replace {NEAR}/32 dev {name}");
        site.lab.router().tool(&line).unwrap();
        talk.wire = wire;
        // how soon the change is obeyed: tests/invalidation.rs
        until("the move is known", LEARNED, || {
            talk.exchange().then_some(())
        });
        for _ in 0..20 {
            record.is(format!("at {name}"), talk.exchange());
        }
        site.warm(&mut talk);
        // a late event of the route takes away what was learned since
        if let Some(router) = &site.router {
            until("its flows are at the port", LEARNED, || {
                talk.exchange();
                let from = router.flows("proto tcp sport 22000");
                let to = router.flows("proto tcp dport 22000");
                let is_there = from.iter().any(|flow| flow["port_in"] == name)
                    && !to.is_empty()
                    && to.iter().all(|flow| flow["port_out"] == name);
                is_there.then_some(())
            });
        }
        let same = site.connection(TCP, ports.0).map(|c| c.id) == Some(id);
        record.is("the same connection", same);
        site.look(&mut record, "moved", TCP, ports.0);
    }
    record
}

/// The next hop's entry lives while packets use it, and dies with the next hop.
fn neighbours(freeway: bool) -> Record {
    let mut record = Record::default();
    let lab = build_with(
        "nat",
        Options {
            static_neighbours: false,
            ..Options::default()
        },
    );
    for (name, value) in [
        ("base_reachable_time_ms", "1500"),
        ("delay_first_probe_time", "1"),
        ("retrans_time_ms", "300"),
    ] {
        let path = format!("net/ipv4/neigh/wan0/{name}");
        lab.router().sysctl(&path, value).unwrap();
    }
    let path = "net/netfilter/nf_conntrack_udp_timeout";
    lab.router().sysctl(path, &UDP_S.to_string()).unwrap();
    let router = freeway.then(|| Router::start(&lab));
    let near = udp(lab.client(), "192.0.2.2:40000".parse().unwrap());
    let far = udp(lab.server(), "198.51.100.2:5000".parse().unwrap());
    far.set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    let mut number = 0u32;
    let mut arrives_within = |patience: Duration| {
        number += 1;
        near.send_to(&number.to_be_bytes(), "198.51.100.2:5000")
            .unwrap();
        thread::sleep(Duration::from_millis(20));
        let end = Instant::now() + patience;
        let mut got = [0; 4];
        while far.recv(&mut got).is_ok() || Instant::now() < end {
            if got == number.to_be_bytes() {
                return true;
            }
        }
        false
    };
    let (soon, surely) = (Duration::from_millis(60), Duration::from_secs(2));
    let entry = || {
        lab.router()
            .tool("ip neighbour show 198.51.100.2 dev wan0")
            .unwrap()
    };
    assert!(arrives_within(surely));
    let start = Instant::now();
    let fast = || {
        let router = router.as_ref();
        router.is_none_or(|router| router.stats().fast() > 20)
    };
    while start.elapsed() < busy_time() || !fast() {
        assert!(start.elapsed() < LEARNED, "it is not fast");
        record_lost(&mut record, arrives_within(surely));
        let entry = entry();
        let valid = entry.contains("lladdr 02:00:00:00:02:02") && !entry.contains("FAILED");
        assert!(valid, "while it is used: {entry}");
    }
    lab.server().tool("ip link set eth0 arp off").unwrap();
    let dead = Instant::now();
    let end = Duration::from_secs(20);
    until("what nobody answers for is not sent", end, || {
        (0..3).all(|_| !arrives_within(soon)).then_some(())
    });
    // reachable for 2.3 s at most, a delay of 1 s, three probes; with Freeway an interval later
    let took = dead.elapsed();
    eprintln!("a dead next hop: {took:?}");
    let in_time = Seen::InTime(took < Duration::from_secs(8));
    record.0.push(("it stopped".into(), in_time));
    record.is("the entry", entry().contains("lladdr"));
    lab.server().tool("ip link set eth0 arp on").unwrap();
    until("it goes on", end, || arrives_within(soon).then_some(()));
    record
}

type Apart = fn(bool) -> Record;

/// Cases with namespaces of their own.
const APART: [(&str, Apart); 3] = [
    ("older", older),
    ("moved", moved),
    ("neighbours", neighbours),
];

/// Runs cases by the kernel alone and with Freeway, all at once; a case that panics has no record.
fn run_apart(cases: &[(&'static str, Apart)]) -> Vec<[Option<Record>; 2]> {
    thread::scope(|scope| {
        let running: Vec<_> = cases
            .iter()
            .map(|(_, case)| [false, true].map(|freeway| scope.spawn(move || case(freeway))))
            .collect();
        let ended = running.into_iter();
        ended
            .map(|threads| threads.map(|thread| thread.join().ok()))
            .collect()
    })
}

const CASES: [(&str, Case); 12] = [
    ("busy", busy),
    ("sparse", sparse),
    ("one_way_udp", one_way_udp),
    ("udp", udp_both_ways),
    ("unanswered", unanswered),
    ("half_open", half_open),
    ("half_closed", half_closed),
    ("simultaneous_close", simultaneous_close),
    ("reset", reset),
    ("stray_reset", stray_reset),
    ("reused", reused),
    ("gigabytes", gigabytes),
];

/// Runs cases side by side, by the kernel alone and with Freeway at once.
fn run_beside(cases: &[(&'static str, Case)]) -> Vec<[Option<Record>; 2]> {
    let [kernel, freeway] = thread::scope(|scope| {
        [false, true]
            .map(|freeway| {
                scope.spawn(move || {
                    let site = Site::new(freeway);
                    let mut records = run(&site, cases);
                    if let Some(router) = &site.router {
                        let stats = router.stats();
                        eprintln!("{stats}");
                        // a daemon that did not run for two seconds: the kernel alone was the router
                        let late = stats.reason("deadline") > 0;
                        records
                            .iter_mut()
                            .flatten()
                            .for_each(|record| record.1 |= late);
                    }
                    records
                })
            })
            .map(|thread| thread.join().unwrap())
    });
    let pairs = kernel.into_iter().zip(freeway);
    pairs.map(|(kernel, freeway)| [kernel, freeway]).collect()
}

/// Runs cases side by side at one site; a case that panics has no record.
fn run(site: &Site, cases: &[(&'static str, Case)]) -> Vec<Option<Record>> {
    thread::scope(|scope| {
        let running: Vec<_> = cases
            .iter()
            .map(|(_, case)| {
                scope.spawn(move || {
                    let mut record = Record::default();
                    case(site, &mut record);
                    record
                })
            })
            .collect();
        running.into_iter().map(|case| case.join().ok()).collect()
    })
}

/// Tries cases until they differ in nothing, or in more than times; returns how.
fn compare<C: Copy>(
    cases: &[(&'static str, C)],
    run: impl Fn(&[(&'static str, C)]) -> Vec<[Option<Record>; 2]>,
) -> Vec<String> {
    let wanted = std::env::var("FREEWAY_CASE").unwrap_or_default();
    let mut rest: Vec<_> = cases
        .iter()
        .copied()
        .filter(|(name, _)| wanted.is_empty() || *name == wanted)
        .collect();
    let mut faults = Vec::new();
    for attempt in 1..=ATTEMPTS {
        let mut again = Vec::new();
        for (case, pair) in rest.iter().zip(run(&rest)) {
            let name = case.0;
            let (lines, of_time) = match pair {
                [Some(kernel), Some(freeway)] => {
                    eprintln!("{name}: {} steps", kernel.0.len());
                    let differences = freeway.compare(&kernel);
                    (differences.lines, differences.of_time)
                }
                // what the kernel alone cannot do either is no fault of Freeway
                [kernel, _] => (vec!["did not come to its end".into()], kernel.is_none()),
            };
            let lines: Vec<_> = lines.iter().map(|line| format!("{name}: {line}")).collect();
            if of_time && attempt < ATTEMPTS {
                eprintln!(
                    "{name}: once more, the machine was too busy\n{}",
                    lines.join("\n")
                );
                again.push(*case);
            } else if of_time && lines.is_empty() {
                faults.push(format!("{name}: the machine is too busy"));
            } else {
                faults.extend(lines);
            }
        }
        rest = again;
        if rest.is_empty() {
            break;
        }
    }
    faults
}

#[test]
fn connections_live_as_long_as_in_the_kernel() {
    let Some(_machine) = machine() else { return };
    let faults = thread::scope(|scope| {
        let apart = scope.spawn(|| compare(&APART, run_apart));
        let mut faults = compare(&CASES, run_beside);
        faults.extend(apart.join().unwrap());
        faults
    });
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
