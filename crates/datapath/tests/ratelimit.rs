// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits of sources: exactly the excess is dropped, of nobody else, and of no other kind.
//!
//! The code is run natively with a clock that is set, against a slow model, and as the program in XDP.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::HashMap;
use std::os::fd::AsFd;

use freeway_abi::{
    FW_RATELIMIT_ICMP, FW_RATELIMIT_OTHER, FW_RATELIMIT_SYN, FW_RATELIMIT_TCP, FW_RATELIMIT_UDP,
    FW_SCRUB_CLASS_FIRST, fw_ratelimit_here, fw_scrub_here, fw_scrub_rule,
};
use freeway_datapath::{
    Datapath, LoadOptions, NativeLimiter, Offender, RateLimiter, ScrubKey, SourceRate,
};
use support::frame::{Frame, mac};
use support::random::Random;
use support::target::Loaded;

const PORT: u32 = 1;
const MAC: &str = "02:00:00:00:00:01";
const HZ: u32 = 250;
/// Any, but large: a router that has been up for years.
const NOW: u64 = 1 << 37;
const RATE: SourceRate = SourceRate {
    packets_per_s: 1000,
    burst: 100,
    prefix_len4: 32,
    prefix_len6: 64,
};
/// What comes within one tick beside the burst.
const PER_TICK: u32 = RATE.packets_per_s / HZ;

/// Enough to exceed the rare limit.
const SENT: u32 = 60;

/// The limits of every kind, as bits.
fn everywhere(limits: u32) -> fw_ratelimit_here {
    fw_ratelimit_here {
        limits: [limits; 5],
        mac: mac(MAC),
        ..fw_ratelimit_here::default()
    }
}

fn of(src: &str) -> Vec<u8> {
    Frame::from_source(src.parse().unwrap()).bytes()
}

fn passed(limiter: &mut NativeLimiter, frame: &[u8], times: u32, tick: u64) -> u32 {
    (0..times)
        .map(|_| u32::from(!limiter.drops(frame, tick)))
        .sum()
}

#[test]
fn the_excess_is_dropped_and_no_more() {
    for (source, same, other) in [
        ("192.0.2.1", "192.0.2.1", "192.0.2.2"),
        ("2001:db8::1", "2001:db8::ffff:0:0:2", "2001:db8:0:1::1"),
    ] {
        let mut limiter = NativeLimiter::new(everywhere(1), HZ);
        limiter.set(0, &RATE);
        let [source, same, other] = [source, same, other].map(of);
        let at_once = RATE.burst + PER_TICK;
        assert_eq!(passed(&mut limiter, &source, at_once, NOW), at_once);
        assert_eq!(passed(&mut limiter, &same, 500, NOW), 0);
        let count = limiter.count(0);
        assert_eq!((count.dropped, count.forgotten), (500, 0));
        assert_eq!(count.bytes, 500 * source.len() as u64);
        assert_eq!(passed(&mut limiter, &other, at_once, NOW), at_once);
        for tick in 1..1000 {
            let given = passed(&mut limiter, &source, 3 * PER_TICK, NOW + tick);
            assert_eq!(given, PER_TICK);
        }
        // after any pause, no more than the burst
        let later = NOW + (1 << 33);
        assert_eq!(passed(&mut limiter, &source, 1000, later), at_once);
    }
}

#[test]
fn a_prefix_is_one_source() {
    let wide = SourceRate {
        prefix_len4: 24,
        prefix_len6: 128,
        ..RATE
    };
    let mut limiter = NativeLimiter::new(everywhere(1), HZ);
    limiter.set(0, &wide);
    let mut given = |frame: Vec<u8>| passed(&mut limiter, &frame, 1000, NOW);
    let at_once = RATE.burst + PER_TICK;
    let sources = [
        "192.0.2.1",
        "192.0.2.255",
        "192.0.3.0",
        "2001:db8::1",
        "2001:db8::2",
    ];
    let given = sources.map(|source| given(of(source)));
    assert_eq!(given, [at_once, 0, at_once, at_once, at_once]);
}

/// A bucket as one is described: credit that grows with time up to its depth.
#[derive(Clone, Copy)]
struct Model {
    credit: u64,
    tick: u64,
}

#[test]
fn verdicts_are_a_token_buckets() {
    const SHARES: u64 = 1 << 24;
    let rates = [(1, 1), (7, 3), (20, 1), (60, 10), (1_000_000, 3)];
    let rates = rates.map(|(packets_per_s, burst)| SourceRate {
        packets_per_s,
        burst,
        prefix_len4: 30,
        prefix_len6: 64,
    });
    let mut random = Random(0x1234_5678_9abc_def1);
    for hz in [100, 250, 1000] {
        // protocol, flags of TCP, and the limits of such packets
        let kinds = [
            (50, 0, 0b00101),
            (6, 0x10, 0b00010),
            (6, 0x02, 0b01100),
            (17, 0, 0b01000),
            (1, 0, 0b11000),
        ];
        let here = fw_ratelimit_here {
            limits: kinds.map(|(_, _, limits)| limits),
            ..everywhere(0)
        };
        let mut limiter = NativeLimiter::new(here, hz);
        for (number, rate) in (0..).zip(&rates) {
            limiter.set(number, rate);
        }
        let mut models: HashMap<(usize, u32), Model> = HashMap::new();
        let mut tick = NOW;
        let mut dropped = 0;
        for _ in 0..20_000 {
            if random.one_in(20) {
                let step = random.pick(&[1, 1, 1, 1, 50]);
                tick += random.below(step) as u64 + 1;
            }
            let last = random.below(16) as u32;
            let (proto, tcp_flags, limits) = random.pick(&kinds);
            let frame = Frame {
                proto,
                tcp_flags,
                ..Frame::from_source([192, 0, 2, last as u8].into())
            };
            let mut expected = false;
            let asked = |(number, _): &(usize, _)| limits >> number & 1 != 0;
            for (number, rate) in rates.iter().enumerate().filter(asked) {
                let cost = u64::from(hz) * SHARES / u64::from(rate.packets_per_s);
                let depth = u64::from(rate.burst) * cost + SHARES;
                let model = models.entry((number, last / 4)).or_insert(Model {
                    credit: depth,
                    tick,
                });
                model.credit = depth.min(model.credit + (tick - model.tick) * SHARES);
                model.tick = tick;
                if model.credit < cost {
                    expected = true;
                    break;
                }
                model.credit -= cost;
            }
            assert_eq!(limiter.drops(&frame.bytes(), tick), expected);
            dropped += u32::from(expected);
        }
        println!("{dropped} dropped");
        assert!((2000..19_500).contains(&dropped), "{dropped}");
    }
}

/// Many more sources than there are buckets: the steady one is never dropped, and the greedy one is held.
#[test]
fn a_flood_of_sources_costs_nobody_else() {
    let rate = SourceRate {
        packets_per_s: 10,
        burst: 20,
        ..RATE
    };
    let mut limiter = NativeLimiter::new(everywhere(1), HZ);
    limiter.set(0, &rate);
    let mut random = Random(0xfeed_beef_dead_cafe);
    let (steady, greedy) = (of("192.0.2.1"), of("192.0.2.2"));
    let mut given = 0;
    let seconds = 20;
    for second in 0..seconds {
        for step in 0..10 {
            let tick = NOW + second * u64::from(HZ) + step * 25;
            for _ in 0..500 {
                let source = random.next() as u32 | 1 << 31;
                let spoofed = Frame::from_source(source.to_be_bytes().into()).bytes();
                limiter.drops(&spoofed, tick);
            }
            assert!(
                !limiter.drops(&steady, tick),
                "second {second}, step {step}"
            );
            given += u64::from(passed(&mut limiter, &greedy, 30, tick));
        }
    }
    assert!(limiter.count(0).forgotten > 0);
    let most = u64::from(rate.burst) + seconds * u64::from(rate.packets_per_s) + 1;
    assert!(given <= most, "{given} of at most {most}");
}

struct Bench {
    datapath: Datapath,
    limiter: RateLimiter,
}

impl Bench {
    /// A limit so low that a test's time adds next to nothing.
    const RARE: SourceRate = SourceRate {
        packets_per_s: 1,
        burst: 10,
        ..RATE
    };

    fn new() -> Option<Bench> {
        Self::with(&Loaded::options())
    }

    fn with(options: &LoadOptions) -> Option<Bench> {
        if !nix::unistd::geteuid().is_root() {
            println!("skipped: loading BPF programs needs root");
            return None;
        }
        let datapath = Datapath::load(options).unwrap();
        let limiter = datapath.rate_limiter().unwrap();
        let bench = Bench { datapath, limiter };
        bench.datapath.control.set_on(true);
        let now = bench.datapath.clock.now_tick().unwrap();
        bench
            .datapath
            .control
            .set_deadline(now.wrapping_add(1 << 24));
        Some(bench)
    }

    fn verdict(&self, port: u32, frame: &[u8]) -> u32 {
        let front = self.limiter.front(port).unwrap();
        let (verdict, out) = support::run::run(front.prog(), frame, 1);
        assert!(out.ends_with(frame), "frames stay as they are");
        verdict
    }

    /// How many of so many go on.
    fn passed(&self, port: u32, frame: &[u8], times: u32) -> u32 {
        (0..times)
            .map(|_| u32::from(self.verdict(port, frame) != 1))
            .sum()
    }

    /// It is held to the rare limit: its burst, and what the time since `start` brings.
    fn is_held(&self, frame: &[u8]) -> bool {
        let start = self.datapath.clock.now_tick().unwrap();
        let given = self.passed(PORT, frame, SENT);
        let ticks = self.datapath.clock.now_tick().unwrap() - start;
        let most = Bench::RARE.burst + ticks / self.datapath.clock.hz() + 2;
        assert!(
            given == SENT || (Bench::RARE.burst..=most).contains(&given),
            "{given}"
        );
        given < SENT
    }
}

#[test]
fn kinds_of_packets_in_xdp() {
    let Some(mut bench) = Bench::new() else {
        return;
    };
    let here = |kinds: &[u32]| {
        let mut here = everywhere(0);
        for kind in kinds {
            here.limits[*kind as usize] = 1;
        }
        here
    };
    let limits: [&[u32]; 5] = [
        &[FW_RATELIMIT_UDP],
        &[FW_RATELIMIT_TCP, FW_RATELIMIT_SYN],
        &[FW_RATELIMIT_SYN],
        &[FW_RATELIMIT_ICMP],
        &[0, 1, 2, 3, 4],
    ];
    assert_eq!(FW_RATELIMIT_OTHER, 0);
    for six in [false, true] {
        let source = if six { "2001:db8::1" } else { "192.0.2.1" };
        let frame = |proto, tcp_flags| Frame {
            proto,
            tcp_flags,
            ..Frame::from_source(source.parse().unwrap())
        };
        let icmp = if six { 58 } else { 1 };
        let options = Frame {
            version_ihl: 0x46,
            ..frame(17, 0)
        };
        let mut cases = vec![
            (frame(17, 0).bytes(), [true, false, false, false, true]),
            (frame(6, 0x10).bytes(), [false, true, false, false, true]),
            (frame(6, 0x02).bytes(), [false, true, true, false, true]),
            // with ECN, and an answer
            (frame(6, 0xc2).bytes(), [false, true, true, false, true]),
            (frame(6, 0x12).bytes(), [false, true, false, false, true]),
            (frame(icmp, 0).bytes(), [false, false, false, true, true]),
            (frame(50, 0).bytes(), [false, false, false, false, true]),
            (of(source)[..14].to_vec(), [false; 5]),
        ];
        let elsewhere = |dst_mac: &str| Frame {
            dst_mac: dst_mac.into(),
            ..frame(17, 0)
        };
        let none = ["02:00:00:00:00:09", "ff:ff:ff:ff:ff:ff"].map(elsewhere);
        cases.extend(none.map(|frame| (frame.bytes(), [false; 5])));
        let arp = Frame {
            ethertype: Some(0x0806),
            ..frame(17, 0)
        };
        cases.push((arp.bytes(), [false; 5]));
        if six {
            let mut nd = Frame {
                ttl: 255,
                ..frame(58, 0)
            }
            .bytes();
            nd[14 + 40] = 135;
            cases.push((nd.clone(), [false; 5]));
            // from afar it is none
            nd[14 + 7] = 64;
            cases.push((nd, [false, false, false, true, true]));
        } else {
            cases.push((options.bytes(), [true, false, false, false, true]));
            // a further fragment has no flags
            let fragment = Frame {
                frag: 3,
                ..frame(6, 0x02)
            };
            cases.push((fragment.bytes(), [false, true, false, false, true]));
        }
        for (bytes, expected) in cases {
            for (kinds, expected) in limits.iter().zip(expected) {
                bench.limiter.set(0, &Bench::RARE);
                bench.limiter.at(PORT, here(kinds)).unwrap();
                let held = bench.is_held(&bytes);
                assert_eq!(held, expected, "{kinds:?} {bytes:x?}");
            }
        }
    }
}

#[test]
fn ports_share_buckets_and_count_apart() {
    let Some(mut bench) = Bench::new() else {
        return;
    };
    bench.limiter.set(3, &Bench::RARE);
    for port in [PORT, 2] {
        bench.limiter.at(port, everywhere(1 << 3)).unwrap();
    }
    let frame = of("192.0.2.1");
    let start = bench.datapath.clock.now_tick().unwrap();
    let given = [PORT, 2].map(|port| bench.passed(port, &frame, 100));
    let ticks = bench.datapath.clock.now_tick().unwrap() - start;
    let most = Bench::RARE.burst + ticks / bench.datapath.clock.hz() + 2;
    assert!((10..=most).contains(&given.iter().sum()), "{given:?}");
    for (port, given) in [PORT, 2].into_iter().zip(given) {
        let count = bench.limiter.count(port, 3);
        assert_eq!(count.dropped, u64::from(100 - given));
        assert_eq!(count.bytes, count.dropped * frame.len() as u64);
        assert_eq!(bench.limiter.count(port, 2).dropped, 0);
    }
    let dropped = 200 - given.iter().sum::<u32>();
    let offender = Offender {
        number: 3,
        addr: "192.0.2.1".parse().unwrap(),
        dropped,
    };
    assert_eq!(bench.limiter.offenders().collect::<Vec<_>>(), [offender]);
    // time passes
    bench.limiter.pass(5 * bench.datapath.clock.hz());
    assert!(bench.passed(PORT, &frame, 5) == 5);
    // others have sent nothing
    assert_eq!(bench.passed(PORT, &of("192.0.2.2"), 10), 10);
    // a limit that is made anew knows nobody
    bench.limiter.set(3, &Bench::RARE);
    assert_eq!(bench.limiter.offenders().count(), 0);
    assert_eq!(bench.passed(PORT, &frame, 10), 10);
    bench.limiter.clear_counts(3);
    assert_eq!(bench.limiter.count(PORT, 3).dropped, 0);
}

#[test]
fn without_a_daemon_nothing_is_dropped() {
    let Some(mut bench) = Bench::new() else {
        return;
    };
    bench.limiter.set(0, &Bench::RARE);
    bench.limiter.at(PORT, everywhere(1)).unwrap();
    let frame = of("192.0.2.1");
    assert!(bench.is_held(&frame));
    bench.datapath.control.set_on(false);
    assert_eq!(bench.passed(PORT, &frame, 100), 100);
    bench.datapath.control.set_on(true);
    assert_eq!(bench.verdict(PORT, &frame), 1);
    let now = bench.datapath.clock.now_tick().unwrap();
    bench.datapath.control.set_deadline(now);
    assert_eq!(bench.passed(PORT, &frame, 100), 100);
}

#[test]
fn what_is_within_the_limit_goes_on_to_what_is_behind() {
    // no packet comes to be due for the kernel
    let options = LoadOptions {
        hz: Some(1 << 24),
        ..Loaded::options()
    };
    let Some(mut bench) = Bench::with(&options) else {
        return;
    };
    let mut scrubber = bench.datapath.scrubber([100, 100]).unwrap();
    let due_tick = bench
        .datapath
        .clock
        .now_tick()
        .unwrap()
        .wrapping_add(1 << 24);
    let rule = fw_scrub_rule {
        due_tick,
        ..fw_scrub_rule::default()
    };
    scrubber.set_rule(0, rule);
    scrubber.set_class(FW_SCRUB_CLASS_FIRST, 1);
    let banned = ScrubKey {
        addr: "192.0.2.66".parse().unwrap(),
        pair: 0,
    };
    assert!(scrubber.set(&banned, FW_SCRUB_CLASS_FIRST, 0));
    scrubber.set_valid(true);
    let here = fw_scrub_here {
        by_source: 1,
        mac: mac(MAC),
        ..fw_scrub_here::default()
    };
    let behind = scrubber.at(PORT, here).unwrap().try_clone().unwrap();
    bench.limiter.set(0, &Bench::RARE);
    bench.limiter.at(PORT, everywhere(1)).unwrap();
    let front = bench.limiter.front(PORT).unwrap();
    assert_eq!(
        bench.verdict(PORT, &of("192.0.2.66")),
        2,
        "nothing is behind"
    );
    front.lead_to(behind.as_fd()).unwrap();
    assert_eq!(bench.verdict(PORT, &of("192.0.2.66")), 1);
    assert_eq!(bench.verdict(PORT, &of("192.0.2.67")), 2);
    assert_eq!(scrubber.count(PORT, 0).dropped, 1);
}
