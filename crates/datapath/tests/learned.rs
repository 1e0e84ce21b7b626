// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was learned from two packets of a flow does to the others what a slow, obvious router does,
//! which computes each checksum from all the bytes. And random bytes break nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use freeway_abi::{FW_R_COUNT, FW_R_FAST};
use proptest::prelude::*;
use support::frame::Frame;
use support::random::Random;
use support::router::{NOW, Router, learn, pipeline};

/// Groups are not learned like this: copies.rs.
fn address(v6: bool) -> BoxedStrategy<IpAddr> {
    let any = if v6 {
        any::<u128>()
            .prop_map(|bits| IpAddr::from(Ipv6Addr::from(bits)))
            .boxed()
    } else {
        any::<u32>()
            .prop_map(|bits| IpAddr::from(Ipv4Addr::from(bits)))
            .boxed()
    };
    any.prop_filter("a host's", |address| !address.is_multicast())
        .boxed()
}

/// A first packet, what the router does, and the packets that follow.
fn flow() -> impl Strategy<Value = (Frame, Router, Vec<Frame>)> {
    (any::<bool>(), any::<bool>()).prop_flat_map(|(v6, tcp)| {
        let side = move || (address(v6), any::<u16>());
        let parts = (side(), side(), side(), side(), any::<[bool; 4]>());
        let rest = (2..=255u8, any::<u8>(), prop::option::of(0..64u8));
        let more = prop::collection::vec(
            (
                any::<u16>(),
                any::<u32>(),
                0..4u8,
                0..1400usize,
                any::<u16>(),
                0..20usize,
                any::<bool>(),
            ),
            1..8,
        );
        (parts, rest, more).prop_map(move |(parts, (ttl, tos, dscp), more)| {
            let ((src, sport), (dst, dport), (new_src, new_sport), (new_dst, new_dport), nat) =
                parts;
            let first = Frame {
                src,
                dst,
                sport,
                dport,
                proto: if tcp { 6 } else { 17 },
                ttl,
                tos,
                flow_label: ((u32::from(tos) << 12) ^ u32::from(sport)) & 0xf_ffff,
                // the longest, so that length does not stop the others
                payload: 1400,
                ..Frame::default()
            };
            let pick = |change, new, old| if change { new } else { old };
            let router = Router {
                to: (
                    if nat[0] { new_src } else { src },
                    pick(nat[1], new_sport, sport),
                    if nat[2] { new_dst } else { dst },
                    pick(nat[3], new_dport, dport),
                ),
                tos: dscp,
            };
            let frames = more
                .into_iter()
                .map(|(id, label, ecn, payload, word, padding, unsummed)| Frame {
                    id,
                    frag: 0x4000 & id << 3,
                    seq: label,
                    ack: label ^ 0x5555,
                    window: word,
                    tcp_flags: 0x10 | (label >> 8) as u8 & 0xe8,
                    tos: first.tos & 0xfc | ecn,
                    payload,
                    payload_word: (payload >= 2).then_some(word),
                    padding,
                    l4_check: (unsummed && !tcp).then_some(0),
                    ..first.clone()
                })
                .collect();
            (first, router, frames)
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_learned_flow_does_what_the_router_does((first, router, frames) in flow()) {
        let mut pipeline = pipeline();
        learn(&mut pipeline, &first, &router);
        for frame in frames {
            // the check of a flow that was just entered is due at once; then it is not
            let mut bytes = frame.bytes();
            let verdict = pipeline.forward(&mut bytes, 1);
            prop_assert_eq!(verdict.reason, FW_R_FAST, "{:?}", frame);
            prop_assert_eq!(verdict.port_out, Some(2));
            prop_assert_eq!(bytes, router.route(&frame).bytes(), "{:?}", frame);
        }
    }
}

/// Random frames, and real ones damaged at random, through all three entries of the pipeline.
#[test]
fn random_frames_break_nothing() {
    let mut pipeline = pipeline();
    let mut random = Random(0x5eed_1234_5678_9abc);
    let udp6 = |proto| Frame {
        src: "2001:db8:1::2".parse().unwrap(),
        dst: "2001:db8:2::2".parse().unwrap(),
        proto,
        ..Frame::default()
    };
    let firsts = [
        Frame::default(),
        Frame {
            proto: 6,
            ..Frame::default()
        },
        udp6(17),
        udp6(6),
    ];
    let seeds: Vec<Vec<u8>> = firsts.iter().map(Frame::bytes).collect();
    let rounds = if cfg!(debug_assertions) {
        1_000_000
    } else {
        5_000_000
    };
    let mut fast = 0u64;
    for round in 0..rounds {
        // Damaged frames at egress contradict the flow, which then waits for good.
        if round % 500 == 0 {
            pipeline = support::router::pipeline();
            let first = &firsts[round / 500 % firsts.len()];
            let to = (first.src, first.sport, first.dst, first.dport);
            learn(&mut pipeline, first, &Router { to, tos: None });
        }
        let mut frame = if random.below(4) == 0 {
            let len = random.below(2001);
            let mut frame = vec![0; len];
            for chunk in frame.chunks_mut(8) {
                let bytes = random.next().to_ne_bytes();
                chunk.copy_from_slice(&bytes[..chunk.len()]);
            }
            frame
        } else {
            let mut frame = seeds[random.below(seeds.len())].clone();
            for _ in 0..random.below(4) {
                let at = random.below(frame.len());
                frame[at] = random.next() as u8;
            }
            let len = if random.below(2) == 0 {
                random.below(2001)
            } else {
                frame.len()
            };
            frame.resize(len, random.next() as u8);
            frame
        };
        // exactly as long as it is, so that a sanitizer sees each byte too many
        frame.shrink_to_fit();
        let before = frame.clone();
        let verdict = pipeline.forward(&mut frame, 1);
        assert!(verdict.reason < FW_R_COUNT);
        assert!(frame.len() <= before.len());
        if verdict.reason == FW_R_FAST {
            fast += 1;
        } else {
            assert_eq!(
                frame, before,
                "the kernel's frame was touched in round {round}"
            );
        }
        let mut other = before.clone();
        let token = pipeline.ingress(
            &mut other,
            1,
            random.below(2) as u32 * random.below(3000) as u32,
        );
        assert_eq!(other, before);
        // what leaves need not be what came in
        let gso = random.below(2) as u32 * random.below(3000) as u32;
        let token = if random.below(8) == 0 {
            random.next() as u32 & 0xffff
        } else {
            token
        };
        pipeline.egress(&mut frame, 2, gso, token);
        if round % 64 == 0 {
            pipeline.set_now(NOW.wrapping_add((round % 500) as u32));
        }
    }
    println!("{rounds} frames, {fast} of them fast");
    assert!(fast > 1000, "too few reached the rewriting");
}
