// SPDX-License-Identifier: MIT OR Apache-2.0
//! 802.1Q tags, none to two at the input and at the output: a tagged frame is forwarded as the untagged one, and what is not
//! forwarded is as it was. On the native target and in XDP, straight and step by step.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use freeway_abi::{FW_TAG_LEN, fw_control, fw_framing, fw_tag};
use freeway_datapath::Hook;
use support::frame::Frame;
use support::random::Random;
use support::state::{Flow, Tick};
use support::target::{Loaded, Native, Target};

/// The port of tagged frames, and that of each number of tags.
const BASE: u32 = 1;
const PORTS: [u32; 3] = [BASE, 7, 8];
/// Protocol and VLAN, outermost first.
const OUTER: (u16, u16) = (0x88a8, 5);
const INNER: (u16, u16) = (0x8100, 7);
const SINGLE: (u16, u16) = (0x8100, 9);
const LEAVES: (u16, u16) = (0x8100, 0xabc);

fn tags(list: &[(u16, u16)]) -> [fw_tag; 2] {
    let mut tags = [fw_tag::default(); 2];
    for (to, (tpid, vlan)) in tags.iter_mut().zip(list) {
        (to.tpid_be, to.tci_be) = (tpid.to_be(), vlan.to_be());
    }
    tags
}

/// Those of each port, and those that a frame leaves with, by their number.
const CAME_WITH: [&[(u16, u16)]; 3] = [&[], &[SINGLE], &[OUTER, INNER]];
const LEAVES_WITH: [&[(u16, u16)]; 3] = [&[], &[LEAVES], &[OUTER, LEAVES]];

/// A frame with tags of which the first has a priority.
fn tagged(frame: &[u8], tags: &[(u16, u16)], priority: u16) -> Vec<u8> {
    let mut bytes = frame[..12].to_vec();
    for (number, (tpid, vlan)) in tags.iter().enumerate() {
        let tci = if number == 0 { vlan | priority } else { *vlan };
        bytes.extend(tpid.to_be_bytes());
        bytes.extend(tci.to_be_bytes());
    }
    bytes.extend(&frame[12..]);
    bytes
}

fn flow(v6: bool, proto: u8, nat: bool) -> Flow {
    let address = |v4, v6_last| support::frame::address(v6, v4, v6_last);
    Flow {
        proto,
        src: address([192, 0, 2, 2], 2),
        dst: address([198, 51, 100, 2], 3),
        to_src: nat.then_some(address([203, 0, 113, 1], 4)),
        to_sport: nat.then_some(50000),
        ttl: 64,
        len_max: 1500,
        due: Tick("now+1000000".into()),
        ..Flow::default()
    }
}

fn prepare(target: &mut dyn Target, flow: &Flow, port: u32, leaves: &[(u16, u16)]) {
    let flow = Flow {
        port,
        ..flow.clone()
    };
    let state = flow.state(target.now(), target.hz());
    let mut nexthop = flow.nexthop(Loaded::SLOT);
    nexthop.tag = tags(leaves);
    nexthop.tags_len = leaves.len() as u32 * FW_TAG_LEN;
    target.remove(1);
    target.nexthop(1, nexthop);
    target.insert(1, &flow.record(1, false, state));
}

fn targets() -> Vec<Box<dyn Target>> {
    let mut targets: Vec<Box<dyn Target>> =
        vec![Box::new(Native::new(true)), Box::new(Native::new(false))];
    if nix::unistd::geteuid().is_root() {
        targets.push(Box::new(Loaded::new(Hook::Xdp, true)));
        targets.push(Box::new(Loaded::new(Hook::Xdp, false)));
    } else {
        println!("skipped: loading BPF programs needs root");
    }
    for target in &mut targets {
        target.control(&fw_control {
            deadline_tick: target.now().wrapping_add(1_000_000),
            on: 1,
            epoch: 1,
            ..Default::default()
        });
        for number in [1, 2] {
            let framing = fw_framing {
                port: BASE,
                tag: tags(CAME_WITH[number]),
            };
            target.framing(&framing, PORTS[number]);
        }
    }
    targets
}

#[test]
fn tagged_frames_are_forwarded_as_untagged_ones() {
    support::stay_on_this_cpu();
    let mut random = Random(0x7a65);
    for target in &mut targets() {
        let at = target.name();
        for case in 0..3 * 3 * 2 * 2 * 2 {
            let (came, left) = (case % 3, case / 3 % 3);
            let (v6, nat) = (case / 9 % 2 == 1, case / 36 % 2 == 1);
            let flow = flow(v6, [6, 17][case / 18 % 2], nat);
            let (came, leaves) = (CAME_WITH[came], LEAVES_WITH[left]);
            for padding in [0, 18] {
                let frame = Frame {
                    payload: random.pick(&[18, 40, 1000]),
                    padding,
                    ..flow.frame()
                }
                .bytes();
                prepare(&mut **target, &flow, BASE, &[]);
                let plain = target.run(&frame, BASE);
                assert!(plain.fast, "{at}: {frame:02x?}");
                let bytes = target.state(1).bytes;

                prepare(&mut **target, &flow, PORTS[came.len()], leaves);
                let priority = random.pick(&[0, 0x6000, 0x1000, 0xf000]);
                let sent = tagged(&frame, came, priority);
                let outcome = target.run(&sent, BASE);
                let case = format!("{at}: {came:x?} to {leaves:x?}: {sent:02x?}");
                assert!(outcome.fast, "{case}");
                assert_eq!(outcome.frame, tagged(&plain.frame, leaves, 0), "{case}");
                let state = target.state(1);
                assert_eq!(state.packets, 1, "{case}");
                assert_eq!(
                    state.bytes,
                    bytes + leaves.len() as u64 * u64::from(FW_TAG_LEN),
                    "{case}"
                );
            }
        }
    }
}

#[test]
fn what_is_not_forwarded_is_as_it_was() {
    support::stay_on_this_cpu();
    for target in &mut targets() {
        let at = target.name();
        let flow = flow(false, 17, true);
        let frame = flow.frame();
        let plain = frame.bytes();
        let other = |change: &dyn Fn(&mut Frame)| {
            let mut frame = flow.frame();
            change(&mut frame);
            frame.bytes()
        };
        let single = [SINGLE];
        let mut short = tagged(&plain, &single, 0);
        short.truncate(20);
        let cases = [
            ("no flow", tagged(&other(&|f| f.sport = 1), &single, 0x2000)),
            (
                "another TTL",
                tagged(&other(&|f| f.ttl = 1), &single, 0x2000),
            ),
            (
                "a fragment",
                tagged(&other(&|f| f.frag = 1), &single, 0xe000),
            ),
            ("another VLAN", tagged(&plain, &[(0x8100, 10)], 0)),
            ("another protocol", tagged(&plain, &[(0x88a8, SINGLE.1)], 0)),
            ("a tag of priority", tagged(&plain, &[(0x8100, 0)], 0x4000)),
            ("a tag too many", tagged(&plain, &[SINGLE, INNER], 0)),
            ("the outer one alone", tagged(&plain, &[OUTER], 0)),
            ("the inner one alone", tagged(&plain, &[INNER], 0)),
            ("three tags", tagged(&plain, &[OUTER, INNER, INNER], 0)),
            ("two of the other's", tagged(&plain, &[OUTER, INNER], 0)),
            ("no tag", plain.clone()),
            ("cut", short),
        ];
        for (what, sent) in cases {
            prepare(&mut **target, &flow, PORTS[1], &[LEAVES]);
            if sent.len() < target.shortest_frame() {
                continue;
            }
            let outcome = target.run(&sent, BASE);
            assert!(!outcome.fast && !outcome.dropped, "{at}: {what}");
            assert_eq!(outcome.frame, sent, "{at}: {what}");
            assert_eq!(target.state(1).packets, 0, "{at}: {what}");
        }
        prepare(&mut **target, &flow, PORTS[1], &[LEAVES]);
        assert!(target.run(&tagged(&plain, &single, 0), BASE).fast, "{at}");
    }
}
