// SPDX-License-Identifier: MIT OR Apache-2.0
//! The straight way of a plain hit or miss does what the pipeline does step by step: the same frames, near to a hit
//! and broken in every field, through both. `FREEWAY_SEED` replays a run.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::net::IpAddr;

use freeway_abi::{FW_R_FAST, FW_R_MISS, fw_flow, fw_nexthop};
use freeway_datapath::user::Pipeline;
use support::frame::Frame;
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
    let mut frame = Frame {
        tos: flow.dscp | random.pick(&[0, 1, 2, 3]),
        id: random.next() as u16,
        frag: random.pick(&[0, 0x4000]),
        tcp_flags: random.pick(&[0x10, 0x18, 0xd0]),
        seq: random.next() as u32,
        ack: random.next() as u32,
        payload: random.pick(&[0, 1, 2, 6, 18, 40, 64, 1000]),
        padding: random.pick(&[0, 0, 6, 18]),
        ..flow.frame()
    };
    if random.one_in(4) {
        frame.sport ^= 2;
    }
    if random.one_in(2) {
        match random.below(18) {
            0 => frame.dst_mac = "02:00:00:00:00:77".into(),
            1 => frame.src_mac = "02:00:00:00:00:77".into(),
            2 => frame.version_ihl = random.pick(&[0x44, 0x46, 0x55, 0x65]),
            3 => frame.version = 4,
            4 => frame.tos ^= random.pick(&[0x04, 0x80]),
            5 => frame.frag = random.pick(&[0x2000, 1, 0x8000, 0x1fff]),
            6 => frame.ttl = random.pick(&[0, 1, 63, 65]),
            7 => frame.ip_check = Some(random.next() as u16),
            8 => frame.ip_len = Some(random.pick(&[0, 7, 8, 19, 20, 27, 28, 39, 40, 200, 65535])),
            9 => frame.proto = random.pick(&[0, 1, 6, 17, 44, 50, 58]),
            10 => frame.sport ^= 1,
            11 => frame.dport ^= 0x100,
            12 => frame.doff = random.pick(&[0, 4, 5, 6, 15]),
            13 => frame.tcp_flags = random.next() as u8,
            14 => frame.udp_len = Some(random.pick(&[0, 7, 8, 9, 65535])),
            16 => frame.flow_label ^= 1 << random.below(20),
            15 => frame.l4_check = Some(random.pick(&[0, 1, 0xffff])),
            _ => frame.ethertype = Some(random.pick(&[0x0800, 0x86dd, 0x8100, 0x0806])),
        }
    }
    let mut bytes = frame.bytes();
    if random.one_in(16) && !bytes.is_empty() {
        let at = random.below(bytes.len());
        bytes[at] ^= 1 << random.below(8);
    }
    if random.one_in(16) {
        bytes.truncate(random.below(bytes.len() + 1));
    }
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
