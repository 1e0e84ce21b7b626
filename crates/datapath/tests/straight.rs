// SPDX-License-Identifier: MIT OR Apache-2.0
//! The straight way of a plain hit or miss does what the pipeline does step by step: the same frames, near to a hit
//! and broken in every field, through both. `FREEWAY_SEED` replays a run.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::net::IpAddr;

use freeway_abi::{FW_R_FAST, FW_R_MISS, fw_flow, fw_nexthop};
use freeway_datapath::user::Pipeline;
use support::near;
use support::random::Random;
use support::state::{Flow, Tick};
use support::target::Native;

const FRAMES: u32 = 300_000;

fn flow(random: &mut Random) -> Flow {
    let v6 = random.one_in(2);
    let address = |v4, v6_last| support::frame::address(v6, v4, v6_last);
    let nat = random.one_in(2);
    let to = |address: IpAddr| nat.then_some(address);
    let tick = |text: &str| Tick(text.into());
    Flow {
        proto: random.pick(&[6, 17]),
        src: address([192, 0, 2, 2], 2),
        dst: address([198, 51, 100, 2], 3),
        to_src: to(address([203, 0, 113, 1], 4)),
        to_sport: nat.then_some(50000),
        ttl: 64,
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
        len_max: random.pick(&[40, 60, 100, 1500, 1500, 1500]),
        due: tick(random.pick(&[
            "now+1000000",
            "now+1000000",
            "now+1000000",
            "now+1",
            "now",
            "now-1",
        ])),
        ..Flow::default()
    }
}

fn frame(random: &mut Random, flow: &Flow) -> Vec<u8> {
    let mut frame = near::plain(random, flow);
    if random.one_in(4) {
        frame.sport ^= 2;
    }
    if random.one_in(2) {
        near::spoil(random, &mut frame);
    }
    let mut bytes = frame.bytes();
    near::damage(random, &mut bytes);
    bytes
}

struct Side(Pipeline);

impl Side {
    fn new(straight: bool) -> Self {
        Self(Native::new(straight).0)
    }

    fn prepare(&mut self, record: &fw_flow, nexthop: fw_nexthop, on: u32, deadline: u32) {
        let control = self.0.control();
        (control.on, control.deadline_tick) = (on, deadline);
        *self.0.nexthop(1).unwrap() = nexthop;
        *self.0.flow(1).unwrap() = *record;
        assert!(self.0.insert(1));
    }
}

#[test]
fn straight_hits_are_the_pipelines() {
    let seed = std::env::var("FREEWAY_SEED").map_or(0x5eed, |text| text.parse().unwrap());
    let mut random = Random(seed);
    let (mut straight, mut stepwise) = (Side::new(true), Side::new(false));
    let (mut fast, mut missed) = (0, 0);
    for number in 0..FRAMES {
        let flow = flow(&mut random);
        let state = flow.state(Native::NOW, 250);
        let record = flow.record(1, false, state);
        let on = u32::from(!random.one_in(32));
        let deadline = Native::NOW.wrapping_add(random.pick(&[0, 1, 500, 500, 500, 500]));
        let mut frames = [frame(&mut random, &flow), Vec::new()];
        frames[1] = frames[0].clone();
        let sent = frames[0].clone();
        let mut verdicts = Vec::new();
        let mut after = Vec::new();
        for (side, frame) in [&mut straight, &mut stepwise].into_iter().zip(&mut frames) {
            side.prepare(&record, flow.nexthop(7), on, deadline);
            verdicts.push(side.0.forward(frame, flow.port));
            after.push(side.0.flow(1).unwrap().state);
            side.0.remove(1);
        }
        let at = || format!("seed {seed}, frame {number}: {sent:02x?}\n{flow:?}\non {on}");
        assert_eq!(verdicts[0], verdicts[1], "{}", at());
        assert_eq!(frames[0], frames[1], "{}", at());
        assert_eq!(
            format!("{:?}", after[0]),
            format!("{:?}", after[1]),
            "{}",
            at()
        );
        fast += u64::from(verdicts[0].reason == FW_R_FAST);
        missed += u64::from(verdicts[0].reason == FW_R_MISS);
    }
    let hits = straight.0.straight_hits();
    println!("{FRAMES} frames, {fast} fast, {hits} of them straight");
    assert!(fast > u64::from(FRAMES) / 20, "{fast} fast");
    // the rest are due
    assert!(hits > fast / 2, "{hits} of {fast} straight");
    let misses = straight.0.straight_misses();
    println!("{missed} of no flow, {misses} of them told straight");
    assert!(missed > u64::from(FRAMES) / 50, "{missed} missed");
    assert!(misses > missed / 2, "{misses} of {missed} straight");
    assert_eq!(stepwise.0.straight_hits() + stepwise.0.straight_misses(), 0);
}

/// An IPv4 header is summed up by words of 64 bits, and what they carry counts.
#[test]
fn a_header_whose_sum_carries_goes_straight() {
    let mut side = Side::new(true);
    let addresses = [[192, 0, 2, 2], [10, 0, 255, 255], [223, 255, 255, 255]];
    for [src, dst] in addresses.map(|address| [address, addresses[2]]) {
        let flow = Flow {
            src: IpAddr::from(src),
            dst: IpAddr::from(dst),
            ..Flow::default()
        };
        let record = flow.record(1, false, flow.state(Native::NOW, 250));
        side.prepare(&record, flow.nexthop(7), 1, Native::NOW.wrapping_add(500));
        for (id, frag) in [(0, 0), (0xffff, 0x4000), (0x1234, 0x4000)] {
            let mut frame = flow.frame();
            (frame.id, frame.frag) = (id, frag);
            let hits = side.0.straight_hits();
            let verdict = side.0.forward(&mut frame.bytes(), flow.port);
            assert_eq!(verdict.reason, FW_R_FAST, "{flow:?}");
            assert_eq!(side.0.straight_hits(), hits + 1, "{flow:?}");
        }
        side.0.remove(1);
    }
}
