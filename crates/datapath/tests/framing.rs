// SPDX-License-Identifier: MIT OR Apache-2.0
//! 802.1Q tags, none to two, and a PPPoE session within them or none, at the input and at the output: a frame is forwarded as
//! the plain one, and what is not forwarded is as it was. On the native target and in XDP, straight and step by step.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use freeway_abi::{
    FW_PPPOE_LEN, FW_SESSION, FW_TAG_LEN, fw_control, fw_framed, fw_framing, fw_nexthop, fw_tag,
};
use freeway_datapath::Hook;
use support::frame::Frame;
use support::random::Random;
use support::state::{Flow, Tick};
use support::target::{Loaded, Native, Target};

/// The port of all frames, that of each number of tags, and that of the session within each number.
const BASE: u32 = 1;
const PORTS: [u32; 3] = [BASE, 7, 8];
const SESSION_PORTS: [u32; 3] = [11, 12, 13];
/// Of the session that comes in, and of the one that leaves.
const SESSION_IN: u16 = 0x1234;
const SESSION_OUT: u16 = 0xfedc;
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

/// A frame as one of a session, whose other end has the frame's source address.
fn in_session(frame: &[u8], session: u16, len_l3: usize) -> Vec<u8> {
    let proto: u16 = if frame[12] == 0x86 { 0x57 } else { 0x21 };
    let header = [0x8864, 0x1100, session, len_l3 as u16 + 2, proto].map(u16::to_be_bytes);
    [&frame[..12], header.as_flattened(), &frame[14..]].concat()
}

fn len_l3(frame: &[u8]) -> usize {
    let field = |at: usize| usize::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
    if frame[12] == 0x86 {
        field(18) + 40
    } else {
        field(16)
    }
}

/// What comes out of a session has no link layer's header.
fn bare(flow: &Flow) -> Flow {
    let none = "00:00:00:00:00:00";
    Flow {
        src_mac: none.into(),
        dst_mac: none.into(),
        ..flow.clone()
    }
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

fn nexthop(flow: &Flow, leaves: &[(u16, u16)], session: Option<u16>) -> fw_nexthop {
    let mut nexthop = flow.nexthop(Loaded::SLOT);
    nexthop.tag = tags(leaves);
    nexthop.tags_len = leaves.len() as u16 * FW_TAG_LEN as u16;
    nexthop.outer_len = nexthop.tags_len + session.map_or(0, |_| FW_PPPOE_LEN as u16);
    nexthop.session = session.map_or(0, |session| FW_SESSION | u32::from(session));
    nexthop
}

fn prepare(
    target: &mut dyn Target,
    flow: &Flow,
    port: u32,
    leaves: &[(u16, u16)],
    session: Option<u16>,
) {
    let flow = Flow {
        port,
        ..flow.clone()
    };
    let state = flow.state(target.now(), target.hz());
    target.remove(1);
    target.nexthop(1, nexthop(&flow, leaves, session));
    target.insert(1, &flow.record(1, false, state));
}

/// The kernel gets each of them as it came; the flow is prepared anew at last.
fn untouched(target: &mut dyn Target, flow: &Flow, port: u32, cases: &[(&str, Vec<u8>)]) {
    let at = target.name();
    for (what, sent) in cases {
        prepare(target, flow, port, &[LEAVES], None);
        if sent.len() < target.shortest_frame() {
            continue;
        }
        let outcome = target.run(sent, BASE);
        assert!(!outcome.fast && !outcome.dropped, "{at}: {what}");
        assert_eq!(&outcome.frame, sent, "{at}: {what}");
        assert_eq!(target.state(1).packets, 0, "{at}: {what}");
    }
    prepare(target, flow, port, &[LEAVES], None);
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
        let plain = Flow::default().frame().bytes();
        for (number, port) in PORTS.iter().chain(&SESSION_PORTS).enumerate().skip(1) {
            let session = if number < PORTS.len() {
                0
            } else {
                FW_SESSION | u32::from(SESSION_IN)
            };
            let framing = fw_framing {
                port: BASE,
                tag: tags(CAME_WITH[number % PORTS.len()]),
                session,
            };
            let mut framed = fw_framed {
                port: *port,
                ..fw_framed::default()
            };
            if session != 0 {
                framed.macs.copy_from_slice(&plain[..12]);
            }
            target.framing(&framing, &framed);
        }
    }
    targets
}

#[test]
fn framed_packets_are_forwarded_as_plain_ones() {
    support::stay_on_this_cpu();
    let mut random = Random(0x7a65);
    for target in &mut targets() {
        let at = target.name();
        for case in 0..6 * 6 * 2 * 2 * 2 {
            let (came, left) = (case % 6, case / 6 % 6);
            let (v6, nat) = (case / 36 % 2 == 1, case / 144 % 2 == 1);
            let flow = flow(v6, [6, 17][case / 72 % 2], nat);
            let (came_in, leaves_in) = (came >= 3, left >= 3);
            let (came, leaves) = (CAME_WITH[came % 3], LEAVES_WITH[left % 3]);
            for padding in [0, 18] {
                let frame = Frame {
                    payload: random.pick(&[18, 40, 1000]),
                    padding,
                    ..flow.frame()
                }
                .bytes();
                prepare(&mut **target, &flow, BASE, &[], None);
                let plain = target.run(&frame, BASE);
                assert!(plain.fast, "{at}: {frame:02x?}");
                let bytes = target.state(1).bytes;

                let (session, outer_len) = match leaves_in {
                    true => (Some(SESSION_OUT), FW_PPPOE_LEN),
                    false => (None, 0),
                };
                let outer_len = u64::from(outer_len + leaves.len() as u32 * FW_TAG_LEN);
                let priority = random.pick(&[0, 0x6000, 0x1000, 0xf000]);
                let (flow, port, inner) = match came_in {
                    true => {
                        let inner = in_session(&frame, SESSION_IN, len_l3(&frame));
                        (bare(&flow), SESSION_PORTS[came.len()], inner)
                    }
                    false => (flow.clone(), PORTS[came.len()], frame.clone()),
                };
                prepare(&mut **target, &flow, port, leaves, session);
                let sent = tagged(&inner, came, priority);
                let outcome = target.run(&sent, BASE);
                let case = format!("{at}: {came:x?} to {leaves:x?} {session:?}: {sent:02x?}");
                assert!(outcome.fast, "{case}");
                let expected = match session {
                    Some(session) => in_session(&plain.frame, session, len_l3(&plain.frame)),
                    None => plain.frame.clone(),
                };
                assert_eq!(outcome.frame, tagged(&expected, leaves, 0), "{case}");
                let state = target.state(1);
                assert_eq!(state.packets, 1, "{case}");
                assert_eq!(state.bytes, bytes + outer_len, "{case}");
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
        untouched(&mut **target, &flow, PORTS[1], &cases);
        let sent = tagged(&plain, &single, 0);
        let gone = fw_nexthop {
            valid: 0,
            ..nexthop(&flow, &[LEAVES], None)
        };
        target.nexthop(1, gone);
        let outcome = target.run(&sent, BASE);
        assert!(!outcome.fast && outcome.frame == sent, "{at}: no next hop");
        prepare(&mut **target, &flow, PORTS[1], &[LEAVES], None);
        assert!(target.run(&tagged(&plain, &single, 0), BASE).fast, "{at}");
    }
}

#[test]
fn what_is_not_a_sessions_packet_is_as_it_was() {
    support::stay_on_this_cpu();
    for target in &mut targets() {
        let at = target.name();
        let flow = flow(false, 17, true);
        let plain = flow.frame().bytes();
        let session = in_session(&plain, SESSION_IN, len_l3(&plain));
        let other = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut frame = session.clone();
            change(&mut frame);
            frame
        };
        let ttl = Frame {
            ttl: 1,
            ..flow.frame()
        }
        .bytes();
        let cases = [
            ("another TTL", in_session(&ttl, SESSION_IN, len_l3(&ttl))),
            ("another session", other(&|f| f[17] ^= 1)),
            ("session 0", other(&|f| f[16..18].fill(0))),
            ("another sender", other(&|f| f[11] ^= 1)),
            ("to another", other(&|f| f[5] ^= 1)),
            ("discovery", other(&|f| f[13] = 0x63)),
            ("another version", other(&|f| f[14] = 0x21)),
            ("a code", other(&|f| f[15] = 0xa7)),
            ("shorter than its packet", other(&|f| f[19] -= 1)),
            ("longer than its packet", other(&|f| f[19] += 1)),
            ("LCP", other(&|f| f[20..22].copy_from_slice(&[0xc0, 0x21]))),
            ("a compressed protocol", other(&|f| f[20] = 0x21)),
            ("IPv6, it says", other(&|f| f[21] = 0x57)),
            ("within a tag", tagged(&session, &[SINGLE], 0x2000)),
            ("no session", plain.clone()),
            ("cut", session[..30].to_vec()),
        ];
        untouched(&mut **target, &bare(&flow), SESSION_PORTS[0], &cases);
        assert!(target.run(&session, BASE).fast, "{at}");
    }
}
