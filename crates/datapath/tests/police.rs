// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits of punts by reason: exactly the excess is dropped, other reasons and the table's flows are untouched.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use freeway_abi::{
    FW_R_FAST, FW_R_FRAGMENT, FW_R_ICMP, FW_R_MISS, FW_R_POLICED, fw_control, fw_flow,
};
use freeway_datapath::{Hook, LoadOptions};
use support::frame::Frame;
use support::state::Flow;
use support::target::{Loaded, Native, Target};

/// Packets a second, of which a tenth is the burst.
const FRAGMENTS_PER_S: u32 = 1000;
const BURST: u32 = FRAGMENTS_PER_S / 10;
/// Of a rate this low the burst is the least that there is.
const RARE_PER_S: u32 = 1;
const BURST_MIN: u32 = 64;

const LIMITS: [(u32, u32); 3] = [
    (FW_R_FRAGMENT, FRAGMENTS_PER_S),
    (FW_R_MISS, RARE_PER_S),
    (FW_R_ICMP, RARE_PER_S),
];

fn fragment() -> Frame {
    Frame {
        frag: 0x2000,
        ..Frame::default()
    }
}

fn icmp6(kind: u8, hop_limit: u8) -> Vec<u8> {
    let mut bytes = Frame {
        src: "fe80::1".parse().unwrap(),
        dst: "fe80::2".parse().unwrap(),
        proto: 58,
        ttl: hop_limit,
        ..Frame::default()
    }
    .bytes();
    bytes[14 + 40] = kind;
    bytes
}

fn native() -> Native {
    let mut target = Native::new(true);
    for (reason, rate) in LIMITS {
        target.0.set_limit(reason, rate);
    }
    switch_on(&mut target);
    target
}

fn switch_on(target: &mut dyn Target) {
    target.control(&fw_control {
        on: 1,
        epoch: 1,
        deadline_tick: target.now().wrapping_add(1_000_000),
        reval_budget: 1000,
        check_budget: 1000,
        ..Default::default()
    });
}

/// How many of so many equal frames the kernel was given; the others have to be dropped.
fn passed(target: &mut dyn Target, frame: &[u8], times: u32) -> u32 {
    (0..times)
        .map(|_| {
            let outcome = target.run(frame, 1);
            assert!(!outcome.fast);
            assert_eq!(outcome.frame, frame, "{}", target.name());
            u32::from(!outcome.dropped)
        })
        .sum()
}

fn count(target: &dyn Target, reason: u32) -> u64 {
    target.counts()[reason as usize]
}

#[test]
fn exactly_the_excess_is_dropped() {
    let mut target = native();
    let frame = fragment().bytes();
    assert_eq!(passed(&mut target, &frame, 300), BURST);
    assert_eq!(count(&target, FW_R_FRAGMENT), u64::from(BURST));
    assert_eq!(count(&target, FW_R_POLICED), 300 - u64::from(BURST));
    assert_eq!(target.0.policed(FW_R_FRAGMENT), 300 - u64::from(BURST));
    // the clock wraps meanwhile
    let per_tick = FRAGMENTS_PER_S / target.hz();
    let mut now = Native::NOW;
    for _ in 0..1000 {
        now = now.wrapping_add(1);
        target.0.set_now(now);
        target.0.control().deadline_tick = now.wrapping_add(1000);
        assert_eq!(passed(&mut target, &frame, 2 * per_tick), per_tick);
    }
    // after any pause, no more than the burst
    target.0.set_now(now.wrapping_add(1 << 20));
    target.0.control().deadline_tick = now.wrapping_add((1 << 20) + 1000);
    assert_eq!(passed(&mut target, &frame, 300), BURST);
}

#[test]
fn a_rate_below_a_packet_a_tick_is_kept() {
    let mut target = native();
    let mut miss = Flow::default().frame();
    miss.sport = 1;
    let frame = miss.bytes();
    assert_eq!(passed(&mut target, &frame, 1000), BURST_MIN);
    let hz = target.hz();
    let mut given = 0;
    for tick in 1..=10 * hz {
        let now = Native::NOW.wrapping_add(tick);
        target.0.set_now(now);
        target.0.control().deadline_tick = now.wrapping_add(1000);
        given += passed(&mut target, &frame, 3);
    }
    assert_eq!(given, 10 * RARE_PER_S);
}

/// What a flood of each limited reason leaves alone.
fn others_are_untouched(target: &mut dyn Target) {
    let flow = Flow::default();
    let state = flow.state(target.now(), target.hz());
    target.nexthop(1, flow.nexthop(Loaded::SLOT));
    let record: fw_flow = flow.record(1, target.is_tc(), state);
    target.insert(1, &record);
    let miss = Frame {
        sport: 1,
        ..flow.frame()
    };
    for frame in [fragment().bytes(), miss.bytes(), icmp6(128, 64)] {
        assert!(passed(target, &frame, 1000) < 1000);
    }
    assert!(target.run(&flow.frame().bytes(), 1).fast);
    let no_limit = Frame {
        version_ihl: 0x46,
        ..Frame::default()
    };
    let arp = Frame {
        ethertype: Some(0x0806),
        ..Frame::default()
    };
    for frame in [no_limit.bytes(), arp.bytes()] {
        assert_eq!(passed(target, &frame, 1000), 1000);
    }
    // neighbour discovery passes, and only that: one from afar is none
    for kind in 133..=137 {
        assert_eq!(passed(target, &icmp6(kind, 255), 200), 200, "{kind}");
        assert!(passed(target, &icmp6(kind, 64), 200) < 200, "{kind}");
    }
    for kind in [128, 132, 138] {
        assert!(passed(target, &icmp6(kind, 255), 200) < 200, "{kind}");
    }
}

#[test]
fn other_packets_are_untouched() {
    let mut target = native();
    others_are_untouched(&mut target);
    assert_eq!(target.0.count(FW_R_FAST), 1);
}

#[test]
fn other_packets_are_untouched_in_xdp() {
    let Some(mut target) = loaded(&LIMITS) else {
        return;
    };
    others_are_untouched(&mut target);
}

/// The programs on one CPU, whose buckets alone are used; nothing without root.
fn loaded(limits: &[(u32, u32)]) -> Option<Loaded> {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: loading BPF programs needs root");
        return None;
    }
    support::stay_on_this_cpu();
    let limits = LoadOptions {
        limits: limits.iter().copied().collect(),
        ..Loaded::options()
    };
    let mut target = Loaded::with(&limits, Hook::Xdp, true);
    switch_on(&mut target);
    Some(target)
}

#[test]
fn the_excess_is_dropped_in_xdp() {
    let Some(mut target) = loaded(&LIMITS) else {
        return;
    };
    let times = 5000;
    let frame = fragment().bytes();
    let start = target.now();
    let given = passed(&mut target, &frame, times);
    let ticks = target.now() - start;
    let most = BURST + (ticks + 1) * FRAGMENTS_PER_S / target.hz();
    println!("{given} of {times} within {ticks} ticks");
    assert!((BURST..=most).contains(&given), "{given} of at most {most}");
    let dropped = u64::from(times - given);
    assert_eq!(count(&target, FW_R_FRAGMENT), u64::from(given));
    assert_eq!(count(&target, FW_R_POLICED), dropped);
    assert_eq!(target.datapath.policed(FW_R_FRAGMENT).unwrap(), dropped);
    assert_eq!(target.datapath.policed(FW_R_MISS).unwrap(), 0);
}

#[test]
fn without_a_limit_nothing_is_dropped_and_nothing_is_in_the_way() {
    let (Some(mut none), Some(some)) = (loaded(&[]), loaded(&LIMITS)) else {
        return;
    };
    assert_eq!(passed(&mut none, &fragment().bytes(), 1000), 1000);
    assert_eq!(count(&none, FW_R_POLICED), 0);
    let [none, some] =
        [none, some].map(|target| target.datapath.size(Hook::Xdp).unwrap().instructions);
    println!("instructions of the XDP program: {none}, with limits {some}");
    assert!(none < some);
}
