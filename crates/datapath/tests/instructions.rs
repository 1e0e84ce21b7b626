// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a plain hit costs in the native pipeline, in machine instructions as callgrind counts them: kinds of ports that
//! a flow does not use must not make it longer.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::process::Command;

use freeway_abi::FW_R_FAST;
use support::state::{Flow, Tick};
use support::target::Native;

const HITS: u64 = 1000;
/// IPv6 or not, protocol, translated or not; instructions of a hit when there was nothing but plain frames, as clang 19
/// makes them on x86-64.
const BEFORE: [(bool, u8, bool, u64); 4] = [
    (false, 17, false, 207),
    (false, 6, true, 230),
    (true, 17, false, 227),
    (true, 6, true, 250),
];
/// What all other kinds of frames may cost it.
const MORE_MAX: u64 = 12;
/// And noting what a TCP segment says.
const TCP_MORE_MAX: u64 = 6;

fn hit(v6: bool, proto: u8, nat: bool) {
    let address = |v4, v6_last| support::frame::address(v6, v4, v6_last);
    let flow = Flow {
        proto,
        src: address([192, 0, 2, 2], 2),
        dst: address([198, 51, 100, 2], 3),
        to_src: nat.then_some(address([203, 0, 113, 1], 4)),
        to_sport: nat.then_some(50000),
        ttl: 64,
        len_max: 1500,
        due: Tick("now+1000000".into()),
        ..Flow::default()
    };
    let mut pipeline = Native::new(true).0;
    let control = pipeline.control();
    (control.on, control.deadline_tick) = (1, Native::NOW.wrapping_add(500));
    *pipeline.nexthop(1).unwrap() = flow.nexthop(1);
    *pipeline.flow(1).unwrap() = flow.record(1, false, flow.state(Native::NOW, 250));
    assert!(pipeline.insert(1));
    let frame = flow.frame().bytes();
    for _ in 0..HITS {
        assert_eq!(pipeline.forward(&mut frame.clone(), 1).reason, FW_R_FAST);
    }
    assert_eq!(pipeline.straight_hits(), HITS);
}

/// Run by the other one, under callgrind.
#[test]
fn hits() {
    if let Some((v6, proto, nat, _)) = std::env::var("FREEWAY_HITS")
        .ok()
        .map(|number| BEFORE[number.parse::<usize>().unwrap()])
    {
        hit(v6, proto, nat);
    }
}

#[test]
fn a_plain_hit_is_as_short_as_before() {
    if env!("FREEWAY_USER_BUILD") != "clang 19 x86_64" {
        println!("skipped: how long a hit was is known of plain builds for x86-64");
        return;
    }
    let mut longer = Vec::new();
    for (number, (v6, proto, nat, before)) in BEFORE.iter().enumerate() {
        let mut valgrind = Command::new("valgrind");
        valgrind
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg("--toggle-collect=fw_user_forward")
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "hits", "--test-threads=1"])
            .env("FREEWAY_HITS", number.to_string());
        let Ok(output) = valgrind.output() else {
            println!("skipped: there is no valgrind here");
            return;
        };
        let text = String::from_utf8_lossy(&output.stderr);
        let ran = String::from_utf8_lossy(&output.stdout).contains("1 passed");
        assert!(output.status.success() && ran, "{text}");
        let collected = text
            .lines()
            .find_map(|line| line.split_once("Collected : "));
        let (_, collected) = collected.unwrap_or_else(|| panic!("{text}"));
        let now = collected.trim().parse::<u64>().unwrap() / HITS;
        println!(
            "row: IPv{}, protocol {proto}, translated {nat}: {now} instructions, {before} before",
            if *v6 { 6 } else { 4 }
        );
        assert!(now > before / 2, "{now}: not all of it was counted");
        let more_max = MORE_MAX + if *proto == 6 { TCP_MORE_MAX } else { 0 };
        longer.extend((now > before + more_max).then_some(number));
    }
    assert!(longer.is_empty(), "rows {longer:?}");
}
