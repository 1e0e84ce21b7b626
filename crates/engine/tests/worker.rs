// SPDX-License-Identifier: MIT OR Apache-2.0
//! A worker between rings does what the native pipeline does, one frame at a time and in bursts: the same reasons, bytes,
//! states and counters; and what the vectors of tests/vectors say. `FREEWAY_SEED` replays a run.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../datapath/tests/support/mod.rs"]
mod support;

#[path = "worker/buckets.rs"]
mod buckets;
#[path = "worker/copies.rs"]
mod copies;
#[path = "worker/dispatch.rs"]
mod dispatch;
#[path = "worker/flood.rs"]
mod flood;
#[path = "worker/hits.rs"]
mod hits;
#[path = "worker/mirrors.rs"]
mod mirrors;
#[path = "worker/rings.rs"]
mod rings;
#[path = "worker/routes.rs"]
mod routes;
#[path = "worker/rows.rs"]
mod rows;
#[path = "worker/schedule.rs"]
mod schedule;
#[path = "worker/sleep.rs"]
mod sleep;
#[path = "worker/vectors.rs"]
mod vectors;

use std::net::IpAddr;

use freeway_abi::{
    FW_R_COUNT, FW_R_FAST, FW_R_MISS, FW_ST_ACTIVE, fw_control, fw_framed, fw_framing, fw_nexthop,
    fw_tag,
};
use freeway_datapath::user::Pipeline;
use freeway_engine::ffi;
use rings::{Between, HZ, NOW, PORTS, ROOM, alone};
use support::frame::Frame;
use support::near;
use support::random::Random;
use support::state::{Flow, Tick};

const FRAMES: usize = 120_000;
const BURST: usize = 32;
/// Flows of a batch, each with a next hop.
const FLOWS: u32 = 8;
/// A VLAN at the first port.
const VLAN_PORT: u32 = 9;
const VLAN: u16 = 77;

fn tag(vlan: u16) -> fw_tag {
    fw_tag {
        tpid_be: 0x8100u16.to_be(),
        tci_be: vlan.to_be(),
    }
}

fn framing() -> (fw_framing, fw_framed) {
    let mut framing = fw_framing {
        port: PORTS[0],
        ..Default::default()
    };
    framing.tag[0] = tag(VLAN);
    let framed = fw_framed {
        port: VLAN_PORT,
        ..Default::default()
    };
    (framing, framed)
}

fn control(on: u32, deadline_tick: u32) -> fw_control {
    fw_control {
        on: if on == 0 { 0 } else { FW_ST_ACTIVE },
        epoch: 1,
        deadline_tick,
        learn: 1,
        reval_budget: 1000,
        check_budget: 1000,
        ..Default::default()
    }
}

fn flow(random: &mut Random, number: u32) -> Flow {
    let v6 = random.one_in(2);
    let address = |v4, v6_last| support::frame::address(v6, v4, v6_last);
    let nat = random.one_in(2);
    let to = |address: IpAddr| nat.then_some(address);
    let tick = |text: &str| Tick(text.into());
    Flow {
        port: random.pick(&[PORTS[0], PORTS[0], PORTS[0], VLAN_PORT]),
        proto: random.pick(&[6, 17, 17]),
        src: address([192, 0, 2, 2], 2),
        dst: address([198, 51, 100, 2], 3),
        sport: 40000 + number as u16,
        to_src: to(address([203, 0, 113, 1], 4)),
        to_sport: nat.then_some(50000),
        to_port: random.pick(&[PORTS[1], PORTS[1], PORTS[2]]),
        dscp: random.pick(&[0, 0, 0x28, 0xb8]),
        to_dscp: random.pick(&[0, 0, 0x28]),
        nexthop_valid: !random.one_in(16),
        own: !random.one_in(16),
        status: random
            .pick(&[
                "active",
                "active",
                "active",
                "active",
                "active",
                "preparing",
                "suspended",
            ])
            .into(),
        epoch: random.pick(&[1, 1, 1, 1, 1, 1, 2, 0]),
        len_max: random.pick(&[40, 100, 1500, 1500, 1500, 1500]),
        due: tick(random.pick(&["now+1000000", "now+1000000", "now+1000000", "now+1", "now"])),
        reval: tick(random.pick(&["now+1000000", "now+1000000", "now-1"])),
        ..Flow::default()
    }
}

/// Where a flow leaves: every fourth with a tag, or two.
fn nexthop(random: &mut Random, flow: &Flow) -> fw_nexthop {
    let mut nexthop = flow.nexthop(7);
    let tags = random.pick(&[0, 0, 0, 0, 0, 0, 1, 2]);
    for number in 0..tags {
        nexthop.tag[number] = tag(100 + number as u16);
    }
    nexthop.tags_len = 4 * tags as u16;
    nexthop.outer_len = nexthop.tags_len;
    nexthop
}

fn frame(random: &mut Random, flow: &Flow) -> Vec<u8> {
    let mut frame = near::plain(random, flow);
    if random.one_in(8) {
        frame.sport ^= 0x40;
    }
    if random.one_in(3) {
        near::spoil(random, &mut frame);
    }
    let mut bytes = frame.bytes();
    if (flow.port == VLAN_PORT) != random.one_in(32) && bytes.len() >= 14 {
        let vlan = VLAN ^ u16::from(random.one_in(16));
        bytes.splice(12..12, [0x81, 0, 0, vlan as u8]);
    }
    near::damage(random, &mut bytes);
    bytes
}

/// Of a frame: why, and what it is then, with the port where it leaves.
type Outcome = (u32, Vec<u8>, Option<u32>);

fn expected(native: &mut Pipeline, frames: &[Vec<u8>]) -> Vec<Outcome> {
    let one = |sent: &Vec<u8>| {
        let mut frame = sent.clone();
        let verdict = native.forward(&mut frame, PORTS[0]);
        (verdict.reason, frame, verdict.port_out)
    };
    frames.iter().map(one).collect()
}

/// Each frame of the batch left as it should, in order, and nothing else did.
fn hold(engine: &mut Between, frames: &[Vec<u8>], wanted: &[Outcome], at: &str) {
    for (number, (reason, frame, port)) in wanted.iter().enumerate() {
        let words = || format!("{at}, frame {number} of the batch: {:02x?}", frames[number]);
        match port {
            Some(port) => {
                let out = engine.take(port - 1);
                assert_eq!(out.as_ref(), Some(frame), "{}", words());
            }
            None => {
                let out = engine.exceptions.pop_front();
                assert_eq!(out, Some((frames[number].clone(), *reason)), "{}", words());
                assert_eq!(*frame, frames[number], "{}", words());
            }
        }
    }
    assert!(engine.exceptions.is_empty(), "{at}");
    assert!((0..3).all(|port| engine.take(port).is_none()), "{at}");
}

fn random_frames(rings: *mut ffi::fwe_rings, burst: usize, seed: u64) {
    let mut random = Random(seed);
    let mut engine = Between::new(rings, burst as u32);
    let mut native = Pipeline::new(FLOWS, FLOWS).unwrap();
    native.set_now(NOW);
    native.set_leaves_closing(true);
    let (framing, framed) = framing();
    assert!(native.set_framing(&framing, &framed));
    engine.set_framing(&framing, &framed);
    for batch in 0..FRAMES / BURST {
        let flows: Vec<_> = (0..FLOWS).map(|number| flow(&mut random, number)).collect();
        let records: Vec<_> = (1..)
            .zip(&flows)
            .map(|(number, flow)| {
                let record = flow.record(number, false, flow.state(NOW, HZ));
                (record, nexthop(&mut random, flow))
            })
            .collect();
        let on = u32::from(!random.one_in(32));
        let deadline = NOW.wrapping_add(random.pick(&[0, 1, 500, 500, 500, 500]));
        let frames: Vec<_> = (0..BURST)
            .map(|_| {
                let flow = &flows[random.below(flows.len())];
                frame(&mut random, flow)
            })
            .collect();
        *native.control() = control(on, deadline);
        *engine.control = control(on, deadline);
        for (number, (record, nexthop)) in (1..).zip(&records) {
            *native.nexthop(number).unwrap() = *nexthop;
            *native.flow(number).unwrap() = *record;
            assert!(native.insert(number));
        }
        engine.insert_all(&records);
        let wanted = expected(&mut native, &frames);
        for frame in &frames {
            // of longer ones the headers are in the first segment
            assert!(engine.put(0, frame, random.pick(&[4000, 4000, 4000, 512])));
        }
        let turns = BURST.div_ceil(burst);
        let came: u32 = (0..turns).map(|_| engine.turn()).sum();
        assert_eq!(came as usize, BURST);
        let at = format!("seed {seed}, burst {burst}, batch {batch}, on {on}");
        hold(&mut engine, &frames, &wanted, &at);
        let states: Vec<_> = (1..=FLOWS)
            .map(|number| {
                let state = format!("{:?}", native.flow(number).unwrap().state);
                native.remove(number);
                state
            })
            .collect();
        assert_eq!(engine.end(), states, "{at}");
        assert_eq!(engine.events(), 0);
    }
    let stats = engine.stats();
    for reason in 0..FW_R_COUNT {
        assert_eq!(
            stats.reasons[reason as usize],
            native.count(reason),
            "reason {reason}"
        );
    }
    let fast = stats.reasons[FW_R_FAST as usize];
    println!(
        "burst {burst}: {FRAMES} frames, {fast} fast, {} of them straight, {} exceptions",
        stats.hits, stats.exceptions
    );
    assert_eq!(stats.packets, FRAMES as u64);
    assert_eq!(stats.sent, fast);
    assert_eq!(stats.sent + stats.exceptions, stats.packets);
    assert_eq!(stats.bursts, (FRAMES / burst) as u64);
    assert_eq!(stats.hits, native.straight_hits());
    assert!(fast > FRAMES as u64 / 10, "{fast} fast");
    assert!(stats.hits > fast / 2, "{} of {fast} straight", stats.hits);
    assert!(stats.reasons[FW_R_MISS as usize] > 0);
    assert_eq!(engine.missing(), 0);
}

/// What an output has no room for is freed, and counted at that output.
fn full_output(rings: *mut ffi::fwe_rings) {
    let mut engine = Between::new(rings, BURST as u32);
    let flow = Flow::default();
    let record = flow.record(1, false, flow.state(NOW, HZ));
    *engine.control = control(1, NOW.wrapping_add(500));
    engine.insert_all(&[(record, flow.nexthop(7))]);
    let frame = flow.frame().bytes();
    for _ in 0..2 {
        for _ in 0..ROOM {
            assert!(engine.put(0, &frame, 4000));
        }
        while engine.turn() > 0 {}
    }
    let stats = engine.stats();
    assert_eq!(stats.packets, 2 * u64::from(ROOM));
    assert_eq!(stats.sent, u64::from(ROOM));
    assert_eq!(stats.tx_dropped, u64::from(ROOM));
    assert_eq!(stats.tx_dropped_at[1], u64::from(ROOM));
    assert_eq!(stats.reasons[FW_R_FAST as usize], 2 * u64::from(ROOM));
    assert_eq!(engine.missing(), ROOM);
    while engine.take(1).is_some() {}
    assert_eq!(engine.missing(), 0);
}

/// A next hop at a port that is not the engine's: the frame is the kernel's, as it was.
fn foreign_output(rings: *mut ffi::fwe_rings) {
    let mut engine = Between::new(rings, BURST as u32);
    let flow = Flow {
        to_port: 5,
        ..Flow::default()
    };
    let record = flow.record(1, false, flow.state(NOW, HZ));
    *engine.control = control(1, NOW.wrapping_add(500));
    engine.insert_all(&[(record, flow.nexthop(7))]);
    let frame = flow.frame().bytes();
    assert!(engine.put(0, &frame, 4000));
    assert_eq!(engine.turn(), 1);
    let reason = freeway_abi::FW_R_NEXTHOP;
    assert_eq!(engine.exceptions.pop_front(), Some((frame, reason)));
    assert_eq!(engine.missing(), 0);
}

/// What closes a connection is the kernel's as it came, and its flow stays as it is: tc, which knows more, judges at the TAP
/// whether it is the sender's.
fn closing(rings: *mut ffi::fwe_rings) {
    let mut engine = Between::new(rings, BURST as u32);
    let flow = Flow {
        proto: 6,
        ..Flow::default()
    };
    let record = flow.record(1, false, flow.state(NOW, HZ));
    *engine.control = control(1, NOW.wrapping_add(500));
    engine.insert_all(&[(record, flow.nexthop(7))]);
    for tcp_flags in [0x11, 0x14, 0x04] {
        let frame = Frame {
            tcp_flags,
            ..flow.frame()
        };
        let frame = frame.bytes();
        assert!(engine.put(0, &frame, 4000));
        assert_eq!(engine.turn(), 1);
        let reason = freeway_abi::FW_R_CLOSING;
        assert_eq!(engine.exceptions.pop_front(), Some((frame, reason)));
    }
    assert_eq!(engine.events(), 0);
    let state = flow.state(NOW, HZ);
    assert_eq!(state.status, FW_ST_ACTIVE);
    let states = engine.end();
    let index = format!("{:?}", freeway_abi::fw_state { index: 1, ..state });
    assert_eq!(states.first(), Some(&index));
}

#[test]
fn a_worker_does_what_the_pipeline_does() {
    let seed = std::env::var("FREEWAY_SEED").map_or(0x5eed, |text| text.parse().unwrap());
    alone(full_output);
    alone(foreign_output);
    alone(closing);
    alone(move |rings| random_frames(rings, 1, seed));
    for count in 0..3 {
        alone(move |rings| random_frames(rings, BURST, seed + count));
    }
}
