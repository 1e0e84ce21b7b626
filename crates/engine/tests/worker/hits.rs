// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a plain hit costs a worker, in machine instructions as callgrind counts them, with all that is of a burst.

use std::process::Command;

use freeway_engine::ffi;

use crate::rings::{Between, alone};
use crate::support::state::Flow;

const BURST: usize = 32;
const BURSTS: u64 = 100;
/// Bursts that wait for a turn: one, or as many as a turn has.
const ROWS: [usize; 2] = [1, 4];
/// Kinds of hits, translated: protocol, IPv6, and what one may take as clang 19 makes it on x86-64, of each row.
const KINDS: [(&str, u8, bool, [u64; 2]); 4] = [
    ("udp4", 17, false, [215, 216]),
    ("tcp4", 6, false, [263, 269]),
    ("udp6", 17, true, [298, 304]),
    ("tcp6", 6, true, [315, 321]),
];
/// Names the kind that is run, and its row.
const KIND: &str = "FREEWAY_HIT";
const ROW: &str = "FREEWAY_HIT_ROW";

fn hits(rings: *mut ffi::fwe_rings, proto: u8, v6: bool, row: usize) {
    let mut between = Between::new(rings, BURST as u32);
    let mut flow = Flow {
        proto,
        to_src: Some("203.0.113.1".parse().unwrap()),
        to_sport: Some(50000),
        ..Flow::default()
    };
    if v6 {
        flow.src = "2001:db8:1::2".parse().unwrap();
        flow.dst = "2001:db8:2::2".parse().unwrap();
        flow.to_src = Some("2001:db8:3::1".parse().unwrap());
    }
    between.admit(&flow);
    let frame = flow.frame().bytes();
    for _ in 0..BURSTS / row as u64 {
        for _ in 0..BURST * row {
            assert!(between.put(0, &frame, 4000));
        }
        assert_eq!(between.turn(), (BURST * row) as u32);
        for _ in 0..BURST * row {
            assert!(between.take(1).is_some());
        }
    }
    assert_eq!(between.stats().hits, BURSTS * BURST as u64);
}

/// Run by the other one, under callgrind, for one kind and row.
#[test]
fn hits_alone() {
    let wanted = std::env::var(KIND);
    for (name, proto, v6, _) in KINDS {
        if wanted.as_deref().unwrap_or(name) == name {
            let row = std::env::var(ROW).map_or(1, |row| row.parse().unwrap());
            alone(move |rings| hits(rings, proto, v6, row));
        }
    }
}

/// What a hit takes; nothing without valgrind.
fn instructions(kind: &str, row: usize) -> Option<u64> {
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg("--toggle-collect=fwe_worker_turn")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "hits::hits_alone", "--test-threads=1"])
        .env(KIND, kind)
        .env(ROW, row.to_string());
    let output = valgrind.output().ok()?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let collected = said
        .lines()
        .find_map(|line| line.split("Collected : ").nth(1));
    let all: u64 = collected.unwrap().trim().parse().unwrap();
    Some(all / BURSTS / BURST as u64)
}

#[test]
fn a_hit_is_short() {
    if !cfg!(target_arch = "x86_64") || std::env::var_os("CLANG").is_some() {
        println!("skipped: how long a hit is is known of clang 19 for x86-64");
        return;
    }
    for (name, _, _, known) in KINDS {
        for (row, most) in ROWS.into_iter().zip(known) {
            let Some(each) = instructions(name, row) else {
                println!("skipped: there is no valgrind");
                return;
            };
            println!("{name}, {row} bursts a turn: {each} instructions a hit");
            assert!(
                each <= most,
                "{name}, {row} bursts a turn: {each} instructions a hit, and {most} are known"
            );
            assert!(each > 100, "{each} instructions are no hit");
        }
    }
}
