// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is dropped ahead of the fast path, against a slow model: addresses, prefixes, concatenations, conditions, times;
//! and what is never dropped.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use freeway_abi::{
    FW_SCRUB_CLASS_FIRST, FW_SCRUB_PAIR_DPORT, FW_SCRUB_PAIR_IP4, FW_SCRUB_PAIR_PROTO,
    FW_SCRUB_PAIR_SHIFT, fw_scrub_here, fw_scrub_rule,
};
use freeway_datapath::{Datapath, LoadOptions, ScrubKey, Scrubber};
use freeway_testkit::Moment;
use support::frame::{Frame, mac};
use support::random::Random;
use support::target::Loaded;

/// `lo`, where test runs come in.
const PORT: u32 = 1;
const MAC: &str = "02:00:00:00:00:01";
const PLAIN: u32 = FW_SCRUB_CLASS_FIRST;
/// A second of the programs, which no test sees the end of.
const LONG: u32 = 1_000_000;
const PATIENCE: Duration = Duration::from_secs(30);
const SSH: u32 = FW_SCRUB_CLASS_FIRST + 1;

struct Bench {
    datapath: Datapath,
    scrubber: Scrubber,
}

impl Bench {
    fn new() -> Option<Bench> {
        if !nix::unistd::geteuid().is_root() {
            println!("skipped: loading BPF programs needs root");
            return None;
        }
        let options = LoadOptions {
            hz: Some(LONG),
            ..Loaded::options()
        };
        let datapath = Datapath::load(&options).unwrap();
        let scrubber = datapath.scrubber([100, 100]).unwrap();
        let mut bench = Bench { datapath, scrubber };
        bench.datapath.control.set_on(true);
        bench
            .datapath
            .control
            .set_deadline(bench.tick(LONG.cast_signed()));
        // no packet is due for the kernel
        let rule = fw_scrub_rule {
            due_tick: bench.tick(LONG.cast_signed()),
            ..fw_scrub_rule::default()
        };
        bench.scrubber.set_rule(0, rule);
        let mut ssh = fw_scrub_rule {
            proto: 6,
            dports: 2,
            ..rule
        };
        (ssh.dport_first[0], ssh.dport_last[0]) = (80, 80);
        (ssh.dport_first[1], ssh.dport_last[1]) = (22, 23);
        bench.scrubber.set_rule(1, ssh);
        bench.scrubber.set_class(PLAIN, 1);
        bench.scrubber.set_class(SSH, 2);
        bench.scrubber.set_valid(true);
        Some(bench)
    }

    fn tick(&self, later: i32) -> u32 {
        let now = self.datapath.clock.now_tick().unwrap();
        now.wrapping_add_signed(later)
    }

    fn drops_here(&mut self, frame: &[u8], here: fw_scrub_here) -> bool {
        let prog = self.scrubber.at(PORT, here).unwrap();
        let (verdict, out) = run(prog.as_fd(), frame, 1);
        assert!(out.ends_with(frame), "the kernel's frames stay as they are");
        verdict == 1
    }

    fn drops(&mut self, frame: &Frame) -> bool {
        self.drops_here(&frame.bytes(), here())
    }

    fn set(&mut self, addr: &str, class: u32, until_tick: u32) {
        assert!(self.scrubber.set(&key(addr), class, until_tick));
    }
}

/// Runs a program so often: it drops the frame, or passes it.
fn run(prog: BorrowedFd<'_>, frame: &[u8], repeat: i32) -> (u32, Vec<u8>) {
    let (verdict, out) = support::run::run(prog, frame, repeat);
    assert!([1, 2].contains(&verdict), "{verdict}");
    (verdict, out)
}

fn here() -> fw_scrub_here {
    fw_scrub_here {
        by_source: u64::MAX,
        mac: mac(MAC),
        ..fw_scrub_here::default()
    }
}

fn key(addr: &str) -> ScrubKey {
    ScrubKey {
        addr: addr.parse().unwrap(),
        pair: 0,
    }
}

fn from(src: &str) -> Frame {
    Frame::from_source(src.parse().unwrap())
}

#[test]
fn addresses_with_times_and_conditions() {
    let Some(mut bench) = Bench::new() else {
        return;
    };
    for (addr, other) in [
        ("192.0.2.66", "192.0.2.67"),
        ("2001:db8::66", "2001:db8::67"),
    ] {
        assert!(!bench.drops(&from(addr)));
        bench.set(addr, PLAIN, 0);
        assert!(bench.drops(&from(addr)));
        assert!(!bench.drops(&from(other)));
        let mut to = from(other);
        to.dst = addr.parse().unwrap();
        assert!(!bench.drops(&to), "the rule looks at sources");
        let by_destination = fw_scrub_here {
            by_source: 0,
            by_destination: u64::MAX,
            ..here()
        };
        assert!(bench.drops_here(&to.bytes(), by_destination));
        assert!(!bench.drops_here(&from(addr).bytes(), by_destination));
        bench.scrubber.remove(&key(addr));
        assert!(!bench.drops(&from(addr)));
        // a time that has not come, and one that has
        let later = bench.tick(LONG.cast_signed());
        bench.set(addr, PLAIN, later);
        assert!(bench.drops(&from(addr)));
        let past = bench.tick(0);
        bench.set(addr, PLAIN, past);
        assert!(!bench.drops(&from(addr)));
        bench.set(addr, SSH, 0);
        let ssh = |proto, dport| Frame {
            proto,
            dport,
            ..from(addr)
        };
        let dropped = [(6, 22), (6, 23), (6, 80), (6, 24), (6, 21), (17, 22)];
        let dropped = dropped.map(|(proto, dport)| bench.drops(&ssh(proto, dport)));
        assert_eq!(dropped, [true, true, true, false, false, false]);
    }
}

#[test]
fn what_is_not_plain_is_the_kernels() {
    let Some(mut bench) = Bench::new() else {
        return;
    };
    bench.set("192.0.2.66", PLAIN, 0);
    bench.set("2001:db8::66", PLAIN, 0);
    let (four, six) = (from("192.0.2.66"), from("2001:db8::66"));
    for frame in [&four, &six] {
        assert!(bench.drops(frame));
        for dst_mac in [
            "02:00:00:00:00:09",
            "ff:ff:ff:ff:ff:ff",
            "01:00:5e:00:00:01",
        ] {
            let frame = Frame {
                dst_mac: dst_mac.into(),
                ..frame.clone()
            };
            assert!(!bench.drops(&frame), "{dst_mac}");
        }
        let tagged = Frame {
            ethertype: Some(0x8100),
            ..frame.clone()
        };
        assert!(!bench.drops(&tagged));
        let cut = |cut| Frame {
            cut: Some(cut),
            ..frame.clone()
        };
        for length in 14..frame.bytes().len() {
            assert!(!bench.drops(&cut(length)), "{length}");
        }
        let padded = Frame {
            padding: 7,
            ..frame.clone()
        };
        assert!(bench.drops(&padded));
    }
    for frag in [0x2000, 1, 0x2001] {
        assert!(!bench.drops(&Frame {
            frag,
            ..four.clone()
        }));
    }
    let odd = [
        Frame {
            version_ihl: 0x46,
            ..four.clone()
        },
        Frame {
            ip_check: Some(0x1234),
            ..four.clone()
        },
        Frame {
            ip_len: Some(19),
            ..four.clone()
        },
        Frame {
            version: 4,
            ..six.clone()
        },
    ];
    for frame in odd {
        assert!(!bench.drops(&frame), "{frame:?}");
    }
    for proto in [0, 43, 44, 51, 60, 135] {
        assert!(
            !bench.drops(&Frame {
                proto,
                ..six.clone()
            }),
            "{proto}"
        );
    }
    // any other protocol is dropped
    for proto in [1, 6, 17, 47, 50, 132, 255] {
        assert!(
            bench.drops(&Frame {
                proto,
                ..four.clone()
            }),
            "{proto}"
        );
    }
}

#[test]
fn the_daemon_lives_and_the_kernel_confirms() {
    let Some(mut bench) = Bench::new() else {
        return;
    };
    bench.set("192.0.2.66", PLAIN, 0);
    let frame = from("192.0.2.66");
    assert!(bench.drops(&frame));
    let past = bench.tick(0);
    bench.datapath.control.set_deadline(past);
    assert!(!bench.drops(&frame), "the daemon has gone");
    bench
        .datapath
        .control
        .set_deadline(bench.tick(LONG.cast_signed()));
    bench.datapath.control.set_on(false);
    assert!(!bench.drops(&frame), "it is switched off");
    bench.datapath.control.set_on(true);
    bench.scrubber.set_valid(false);
    assert!(!bench.drops(&frame), "the rules changed");
    bench.scrubber.set_valid(true);
    assert!(bench.drops(&frame));
    let count = bench.scrubber.count(PORT, 0);
    assert_eq!((count.dropped, count.passed), (2, 0));
    assert_eq!(count.bytes, 2 * frame.bytes().len() as u64);
    bench.scrubber.clear_counts(0);
    // from its time on a rule gives the kernel one packet
    let due = fw_scrub_rule {
        due_tick: bench.tick(0),
        ..fw_scrub_rule::default()
    };
    bench.scrubber.set_rule(0, due);
    assert!(!bench.drops(&frame));
    let dropped = (0..20).filter(|_| bench.drops(&frame)).count();
    let count = bench.scrubber.count(PORT, 0);
    assert_eq!(count.dropped, dropped as u64);
    assert_eq!(count.dropped + count.passed, 21);
    assert!(dropped > 0);
}

/// Whatever comes and goes: what is dropped is what a list of all that there is says.
#[test]
fn as_a_model_says() {
    let Some(mut bench) = Bench::new() else {
        return;
    };
    let mut random = Random(0x5c2b);
    let kind = FW_SCRUB_PAIR_PROTO | FW_SCRUB_PAIR_DPORT;
    bench
        .scrubber
        .set_pairs(1 << kind | 1 << (kind | FW_SCRUB_PAIR_IP4));
    let addr = |number: u64| -> IpAddr {
        match number % 2 {
            0 => [10, 0, (number >> 6) as u8 & 1, (number >> 1) as u8 & 31].into(),
            _ => {
                let last = (number >> 1) as u16 & 63;
                [0x2001, 0xdb8, 0, 0, 0, 0, 0, last].into()
            }
        }
    };
    let pair = |addr: IpAddr, proto: u8, port: u16| {
        let kind = kind | if addr.is_ipv4() { FW_SCRUB_PAIR_IP4 } else { 0 };
        kind << FW_SCRUB_PAIR_SHIFT | u32::from(proto) << 16 | u32::from(port)
    };
    let mut keys: BTreeMap<ScrubKey, bool> = BTreeMap::new();
    let mut nets: BTreeMap<(IpAddr, u8), bool> = BTreeMap::new();
    let (past, later) = (bench.tick(-1), bench.tick(LONG.cast_signed()));
    for _ in 0..4000 {
        let a = addr(random.next());
        let alive = !random.next().is_multiple_of(4);
        let until = [if alive { later } else { past }, 0]
            [usize::from(alive && random.next().is_multiple_of(2))];
        match random.next() % 8 {
            0 | 1 => {
                let pair = [0, pair(a, 6, 22)][(random.next() % 2) as usize];
                let key = ScrubKey { addr: a, pair };
                assert!(bench.scrubber.set(&key, PLAIN, until));
                keys.insert(key, alive);
            }
            2 => {
                let pair = [0, pair(a, 6, 22)][(random.next() % 2) as usize];
                let key = ScrubKey { addr: a, pair };
                bench.scrubber.remove(&key);
                keys.remove(&key);
            }
            3 => {
                let len = if a.is_ipv4() { 30 } else { 126 };
                let net = masked(a, 2);
                match random.next() % 3 {
                    0 => {
                        bench.scrubber.set_net(net, len, PLAIN, until).unwrap();
                        nets.insert((net, len), alive);
                    }
                    _ => {
                        bench.scrubber.remove_net(net, len).unwrap();
                        nets.remove(&(net, len));
                    }
                }
            }
            _ => {
                let proto = [6, 17][(random.next() % 2) as usize];
                let dport = [22, 23][(random.next() % 2) as usize];
                let frame = Frame {
                    proto,
                    dport,
                    ..from(&a.to_string())
                };
                let has = |pair| keys.get(&ScrubKey { addr: a, pair }) == Some(&true);
                let len = if a.is_ipv4() { 30 } else { 126 };
                let in_net = nets.get(&(masked(a, 2), len)) == Some(&true);
                let wanted = has(0) || has(pair(a, proto, dport)) || in_net;
                assert_eq!(bench.drops(&frame), wanted, "{frame:?}");
            }
        }
        if random.next().is_multiple_of(1000) {
            bench.scrubber.clear().unwrap();
            keys.clear();
            nets.clear();
        }
    }
}

/// The same of the table of IPv4 when it is crowded and overfull.
#[test]
fn crowded_as_a_model_says() {
    let Some(mut bench) = Bench::new() else {
        return;
    };
    let mut random = Random(0x77d1);
    let room = u64::from(bench.scrubber.room()[0]);
    let addr = |number: u64| IpAddr::V4((0x0a00_0000 + number as u32 * 3).into());
    let (past, later) = (bench.tick(-1), bench.tick(LONG.cast_signed()));
    let mut known: BTreeMap<IpAddr, (u32, u32)> = BTreeMap::new();
    let mut refused = 0;
    // more and more, then fewer and fewer
    for step in 0..24_000u64 {
        let a = addr(random.next() % (3 * room));
        let key = ScrubKey { addr: a, pair: 0 };
        let growing = step < 14_000;
        let set = random.next() % 8 < if growing { 7 } else { 2 };
        if set {
            let until = [0, later, past][(random.next() % 3) as usize];
            let class = [PLAIN, SSH][(random.next() % 2) as usize];
            let placed = bench.scrubber.set(&key, class, until);
            assert!(placed || !known.contains_key(&a));
            match placed {
                true => drop(known.insert(a, (class, until))),
                false => refused += 1,
            }
        } else {
            bench.scrubber.remove(&key);
            known.remove(&a);
        }
        assert_eq!(bench.scrubber.used()[0] as usize, known.len());
        let probe = match random.next() % 2 {
            0 => a,
            _ => addr(random.next() % (3 * room)),
        };
        let had = bench.scrubber.get(&ScrubKey {
            addr: probe,
            pair: 0,
        });
        let wanted = known.get(&probe).copied();
        assert_eq!(had, wanted, "{probe}");
        if step % 4 == 0 {
            let frame = from(&probe.to_string());
            let alive = wanted.is_some_and(|(class, until)| class == PLAIN && until != past);
            assert_eq!(bench.drops(&frame), alive, "{probe}: {wanted:?}");
        }
    }
    println!("{refused} had no place");
    assert!(refused > 0, "it was never full");
}

/// An end is kept by the tick: of lines only the last second is known.
#[test]
fn the_end_comes_with_its_tick() {
    let Some(mut bench) = Bench::new() else {
        return;
    };
    let (frame, began) = (from("192.0.2.66"), Moment::now());
    for ticks in [1, 2, 5, 20] {
        let until = bench.tick(ticks);
        bench.set("192.0.2.66", PLAIN, until);
        let mut over = false;
        while !over {
            let reached = |now: u32| now.wrapping_sub(until).cast_signed() >= 0;
            let before = bench.tick(0);
            let dropped = bench.drops(&frame);
            let after = bench.tick(0);
            assert!(dropped || reached(after), "{ticks}: too early");
            over = reached(before);
            assert!(!dropped || !over, "{ticks}: too late");
            assert!(began.elapsed() < PATIENCE, "the ticks stand still");
        }
    }
}

/// Places change hands while packets come: nobody is dropped by what is said of another.
#[test]
fn who_is_let_be_is_never_taken_for_another() {
    let Some(mut bench) = Bench::new() else {
        return;
    };
    // UDP of the odd ones is nobody's; all together they are a few to a line
    let addr = |number: u64| IpAddr::V4((0x0a00_0000 + number as u32).into());
    let prog = bench.scrubber.at(PORT, here()).unwrap();
    let prog = prog.as_fd().try_clone_to_owned().unwrap();
    let Bench {
        datapath,
        mut scrubber,
    } = bench;
    let ended = std::sync::atomic::AtomicBool::new(false);
    let end = || ended.load(std::sync::atomic::Ordering::Relaxed);
    let scrubber = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut random = Random(0x31a7);
            while !end() {
                let number = random.next() % 600;
                let addr = addr(number);
                let key = ScrubKey { addr, pair: 0 };
                match random.next() % 2 {
                    0 => scrubber.remove(&key),
                    _ => {
                        let class = [PLAIN, SSH][(number % 2) as usize];
                        scrubber.set(&key, class, 0);
                    }
                }
            }
            scrubber
        });
        for number in (1..600).step_by(2) {
            let frame = Frame {
                proto: 17,
                ..from(&addr(number).to_string())
            };
            run(prog.as_fd(), &frame.bytes(), 3_000);
        }
        ended.store(true, std::sync::atomic::Ordering::Relaxed);
        writer.join().unwrap()
    });
    for rule in [0, 1] {
        assert_eq!(scrubber.count(PORT, rule).dropped, 0, "rule {rule}");
    }
    drop(datapath);
}

fn masked(addr: IpAddr, free: u32) -> IpAddr {
    match addr {
        IpAddr::V4(a) => IpAddr::V4((u32::from(a) >> free << free).into()),
        IpAddr::V6(a) => IpAddr::V6((u128::from(a) >> free << free).into()),
    }
}

#[test]
fn a_table_grows_with_what_is_in_it() {
    let Some(mut bench) = Bench::new() else {
        return;
    };
    let addr = |number: u32| ScrubKey {
        addr: IpAddr::V4((0x0a00_0000 + number * 7).into()),
        pair: 0,
    };
    let room = bench.scrubber.room()[0];
    let mut refused = Vec::new();
    for number in 0..2 * room {
        if !bench.scrubber.set(&addr(number), PLAIN, 0) {
            refused.push(number);
        }
    }
    let used = bench.scrubber.used()[0];
    println!("{} of {} had no place", refused.len(), 2 * room);
    assert_eq!(used as usize + refused.len(), 2 * room as usize);
    assert!(!refused.is_empty(), "it was full");
    let frame = |number: u32| from(&addr(number).addr.to_string());
    bench.drops(&frame(0));
    for number in &refused[..refused.len().min(20)] {
        assert!(!bench.drops(&frame(*number)));
    }
    let mut larger = bench
        .datapath
        .larger_scrubber(&bench.scrubber, [4 * room, 100])
        .unwrap();
    for number in &refused {
        assert!(larger.set(&addr(*number), PLAIN, 0));
    }
    larger.at(PORT, here()).unwrap();
    larger.carry_counts(&bench.scrubber);
    let before = bench.scrubber.count(PORT, 0);
    bench.scrubber = larger;
    assert_eq!(bench.scrubber.count(PORT, 0), before);
    assert_eq!(bench.scrubber.used()[0], 2 * room);
    for number in 0..2 * room {
        assert!(bench.drops(&frame(number)), "{number}");
    }
    let counted = bench.scrubber.count(PORT, 0).dropped;
    assert_eq!(counted, before.dropped + u64::from(2 * room));
}
