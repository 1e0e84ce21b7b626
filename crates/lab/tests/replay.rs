// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames of any addresses through a router, from both sides.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use common::{build_with, machine};
use freeway_lab::frame::sum16;
use freeway_lab::{Direction, Options, Player, Tally, Tape, Tempo};
use freeway_testkit::Moment;

/// UDP without checksum, or IPv6 of no next header.
fn packet(source: IpAddr, destination: IpAddr) -> (u16, Vec<u8>) {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut packet = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
            packet.extend(source.octets());
            packet.extend(destination.octets());
            let sum = !sum16(&packet);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
            packet.extend([0x10, 0, 0x20, 0, 0, 8, 0, 0]);
            (0x0800, packet)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let mut packet = vec![0x60, 0, 0, 0, 0, 0, 59, 64];
            packet.extend(source.octets());
            packet.extend(destination.octets());
            (0x86dd, packet)
        }
        _ => panic!("two families"),
    }
}

#[test]
fn frames_reach_the_other_side() {
    let Some(_machine) = machine() else {
        return;
    };
    // the topology's own addresses among them
    let near = ["10.1.2.3", "192.0.2.1", "2001:db8:7::1"].map(|text| text.parse().unwrap());
    let far = ["203.0.113.9", "192.0.2.2", "2001:db8:2::1"].map(|text| text.parse().unwrap());
    let lab = build_with(
        "routed",
        Options {
            wires: true,
            ..Options::default()
        },
    );
    lab.place(&near).unwrap();
    let tallies = [lab.server_port(), lab.client_port()].map(|port| Tally::attach(port).unwrap());
    let mut tape = Tape::default();
    for (at, (near, far)) in (0..).zip(near.into_iter().zip(far)) {
        let (ethertype, there) = packet(near, far);
        tape.push(Direction::Forward, at * 1_000_000, ethertype, &there);
        tape.push(Direction::Forward, at * 1_000_000, ethertype, &there);
        let (ethertype, back) = packet(far, near);
        tape.push(Direction::Reply, at * 1_000_000, ethertype, &back);
    }
    let player = Player::open(&lab).unwrap();
    let played = player.play(&tape, Tempo::Times(2.0), 3, 0).unwrap();
    assert_eq!((played.sent, played.refused), ([18, 9], 0));
    // two loops and their gaps, and the last one, at twice the speed
    assert!(played.elapsed_ns >= 3_000_000, "{played:?}");
    let patience = Moment::now() + Duration::from_secs(2);
    let arrived = || [0, 1].map(|at: usize| tallies[at].read().unwrap().frames);
    while arrived() != [18, 9] && Moment::now() < patience {
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(arrived(), [18, 9]);
    let bytes = tallies[1].read().unwrap().bytes;
    assert_eq!(bytes, 3 * (2 * 42 + 54));
}
