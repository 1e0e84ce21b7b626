// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recorded cases of the transparency suite (tests/transparency/record.rs): real frames that a kernel's router got,
//! and what it sent. A flow is learned from one of them; what the fast path then forwards has to be what the kernel sent, and what
//! it does not, it leaves as it was. It runs natively, without root.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use freeway_abi::{FW_R_FAST, fw_conn, fw_tuple};
use freeway_datapath::user::Pipeline;

use support::router::{inverse, learn_pair, pipeline};

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().map(|c| c.to_digit(16).unwrap()).collect();
    digits
        .chunks(2)
        .map(|pair| (pair[0] << 4 | pair[1]) as u8)
        .collect()
}

/// Addresses and ports of a plain IPv4 or IPv6 frame.
fn tuple(frame: &[u8]) -> fw_tuple {
    let word = |at: usize| u32::from_ne_bytes(frame[at..at + 4].try_into().unwrap());
    let port = |at: usize| u16::from_ne_bytes(frame[at..at + 2].try_into().unwrap());
    let v4 = frame[12..14] == [8, 0];
    let (saddr, daddr, l4) = if v4 { (26, 30, 34) } else { (22, 38, 54) };
    let address = |at: usize| match v4 {
        true => [word(at), 0, 0, 0],
        false => [0, 4, 8, 12].map(|offset| word(at + offset)),
    };
    fw_tuple {
        saddr_be: address(saddr),
        daddr_be: address(daddr),
        sport_be: port(l4),
        dport_be: port(l4 + 2),
    }
}

/// A pipeline that has learned the flow of a `learn` line.
fn learned(line: &str) -> (Pipeline, u32, u32) {
    let words: Vec<&str> = line.split(' ').collect();
    let ["learn", tracked, enter, came, ">", port, left] = words[..] else {
        panic!("{line}")
    };
    let (came, left) = (bytes(came), bytes(left));
    let port_of = |text: &str| text.parse::<u32>().unwrap() + 1;
    let (enter, port) = (port_of(enter), port_of(port));
    let mut pipeline = pipeline();
    if tracked == "tracked" {
        pipeline.set_conn(&fw_conn {
            orig: tuple(&came),
            // recorded of TCP and UDP alone
            reply: inverse(tuple(&left), 17),
            status: 0xe,
            timeout_ticks: 100_000,
            present: 1,
            tcp_state: 3,
            ..Default::default()
        });
    }
    learn_pair(&mut pipeline, (enter, &came), (port, &left));
    (pipeline, enter, port)
}

#[test]
fn recorded_frames_leave_as_the_kernel_sent_them() {
    let text = std::fs::read_to_string(support::directory().join("transparency.txt")).unwrap();
    let mut flow = None;
    let (mut frames, mut sent, mut fast) = (0, 0, 0);
    for line in text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        if line.starts_with("learn ") {
            flow = Some(learned(line));
            continue;
        }
        let (pipeline, enter, port) = flow.as_mut().unwrap();
        let (came, left) = line
            .strip_prefix("frame ")
            .unwrap()
            .split_once(" >")
            .unwrap();
        let came = bytes(came);
        let left: Vec<Vec<u8>> = left.split_whitespace().map(bytes).collect();
        frames += 1;
        sent += usize::from(!left.is_empty());
        let mut frame = came.clone();
        let verdict = pipeline.forward(&mut frame, *enter);
        if verdict.reason == FW_R_FAST {
            fast += 1;
            assert_eq!([frame], left[..], "{line}");
            assert_eq!(verdict.port_out, Some(*port), "{line}");
        } else {
            assert_eq!(frame, came, "the kernel's frame was touched: {line}");
        }
    }
    println!("{frames} frames, {sent} sent by the kernel, {fast} by the fast path");
    assert!(frames > 500 && fast * 10 > sent * 6 && fast < frames);
}
