// SPDX-License-Identifier: MIT OR Apache-2.0
//! A full table is read, and changes again and again under load: each frame leaves by a route that the kernel had.
//!
//! `FREEWAY_LONG=1`: 1,000,000 routes, 1,000 changes a second for a minute, and how long they take is asserted.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use freeway_lab::clock::{monotonic_ns, realtime_ns};
use freeway_lab::{Capture, Injector, Lab};
use freeway_testkit::invalidation::netlink::{Netlink, Target, route_replace};
use freeway_testkit::*;

use super::{ON, active, client, left, neighbour, packet, routed, station, wait};

/// It takes its time, on a busy machine above all.
const PATIENCE: Duration = Duration::from_secs(120);
const LOADED: Duration = Duration::from_secs(3);
/// From the acknowledgement to the last frame by what was.
const LATE_P99_MS: f64 = 10.0;
/// Of a core.
const DAEMON_MAX: f64 = 0.5;
/// The last octet of the first next hop.
const HOP_FIRST: u8 = 10;
/// Prefixes that change, each of eight addresses.
const PREFIXES: usize = 20;

struct Size {
    routes: u32,
    changes: usize,
    /// Between two changes.
    gap: Duration,
    load_pps: u64,
    /// Next hops in turn: of a prefix's last turns, all but one of so many, each has its own.
    hops: usize,
}

impl Size {
    fn of_this_run() -> Self {
        match long() {
            true => Size {
                routes: 1_000_000,
                changes: 60_000,
                gap: Duration::from_millis(1),
                load_pps: 50_000,
                hops: 200,
            },
            false => Size {
                routes: 50_000,
                changes: 1500,
                gap: Duration::from_millis(2),
                load_pps: 10_000,
                hops: 100,
            },
        }
    }
}

fn prefix(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(203, 0, 113, 8 * number as u8)
}

/// A route by a next hop, from when it was asked for: CLOCK_REALTIME.
#[derive(Clone, Copy)]
struct Turn {
    hop: u8,
    before_ns: u64,
    acked_ns: u64,
}

/// What left: when, to which prefix, by which next hop.
struct Frame {
    at_ns: u64,
    prefix: usize,
    hop: u8,
}

/// What CLOCK_REALTIME, which frames have, is ahead of CLOCK_MONOTONIC: at least, and at most.
fn ahead_ns() -> (u64, u64) {
    let sample = |_| {
        let (before_ns, now_ns, after_ns) = (monotonic_ns(), realtime_ns(), monotonic_ns());
        (now_ns - after_ns, now_ns - before_ns)
    };
    // one in which nobody was held up
    let narrowest = (0..20).map(sample).min_by_key(|(least, most)| most - least);
    narrowest.unwrap()
}

fn change(netlink: &mut Netlink, wan: u32, number: usize, hop: u8) -> Turn {
    let gateway = Ipv4Addr::new(198, 51, 100, hop);
    let target = Target::Gateway(gateway, wan);
    let acked = netlink.change(route_replace((prefix(number), 29), &target));
    let (least_ns, most_ns) = ahead_ns();
    Turn {
        hop,
        before_ns: acked.before_ns + least_ns,
        acked_ns: acked.acked_ns + most_ns,
    }
}

fn frame_of(frame: &freeway_lab::Captured) -> Option<Frame> {
    let bytes = &frame.bytes;
    let of_load = bytes.len() > 38 && bytes[12..14] == [8, 0] && bytes[30..33] == [203, 0, 113];
    of_load.then(|| Frame {
        at_ns: frame.time_ns,
        prefix: usize::from(bytes[33] / 8),
        hop: bytes[5],
    })
}

/// Nanoseconds after the acknowledgement of the turn that ended it, and that turn; `Err`: the kernel did not have it yet, or
/// not for so many turns.
fn lateness(turns: &[Turn], frame: &Frame, hops: usize) -> Result<(u64, usize), String> {
    let begun = turns.partition_point(|turn| turn.before_ns <= frame.at_ns);
    // the one before these has the next turn's hop
    let lasts = begun.saturating_sub(hops - 1)..begun;
    let last = lasts.rev().find(|at| turns[*at].hop == frame.hop);
    let last = last.ok_or_else(|| {
        let had: Vec<u8> = (turns[..begun].iter().rev())
            .map(|turn| turn.hop)
            .take(8)
            .collect();
        format!(
            "by .{}, and the kernel had {had:?}, the last one first",
            frame.hop
        )
    })?;
    let end = turns.get(last + 1);
    let late_ns = end.map_or(0, |end| frame.at_ns.saturating_sub(end.acked_ns));
    Ok((late_ns, last + 1))
}

#[test]
fn a_full_table_changes_under_load() {
    let Some(_machine) = machine() else { return };
    let size = Size::of_this_run();
    let lab = build("routed");
    let hop = |turn: usize| HOP_FIRST + (turn % size.hops) as u8;
    (0..size.hops).for_each(|turn| neighbour(&lab, hop(turn)));
    let router = Router::start_with(&lab, ON);
    wait(&router, "prefix paths", active);
    load(&lab, &router, size.routes);

    let wan = lab.wan_port().ifindex;
    let mut netlink = Netlink::route(lab.router());
    let mut turns: Vec<Vec<Turn>> = (0..PREFIXES)
        .map(|number| vec![change(&mut netlink, wan, number, hop(number))])
        .collect();
    let frames: Vec<_> = (0..PREFIXES * 8)
        .map(|n| {
            packet(
                client(),
                Ipv4Addr::from(prefix(0).to_bits() + n as u32),
                n as u16,
            )
        })
        .collect();
    until("all next hops are confirmed", PATIENCE, || {
        let before = routed(&router);
        left(&lab, &frames);
        (routed(&router) - before > frames.len() as u64 * 9 / 10).then_some(())
    });

    let mut capture = Capture::open(lab.server_port()).unwrap();
    let injector = Injector::open(lab.client_port()).unwrap();
    let ended = AtomicBool::new(false);
    let (cpu_before, fast_before, start) = (daemon_ms(&router), routed(&router), Moment::now());
    let (sent, seen) = thread::scope(|threads| {
        let ends = Ends(&ended);
        let load = threads.spawn(|| send(&injector, &frames, size.load_pps, &ended));
        let watch = threads.spawn(|| watch(&mut capture, &ended));
        for number in 0..size.changes {
            let at = size.gap * number as u32;
            thread::sleep(at.saturating_sub(start.elapsed()));
            let turns = &mut turns[number % PREFIXES];
            let hop = hop(number % PREFIXES + turns.len());
            turns.push(change(&mut netlink, wan, number % PREFIXES, hop));
        }
        drop(ends);
        (load.join().unwrap(), watch.join().unwrap())
    });
    let took = start.elapsed();
    let cpu = (daemon_ms(&router) - cpu_before) as f64 / took.as_millis() as f64;
    let fast = routed(&router) - fast_before;

    // the last one of each never ends
    let mut late_ms: Vec<Vec<f64>> = turns
        .iter()
        .map(|turns| vec![0.0; turns.len() + 1])
        .collect();
    for frame in &seen {
        let judged = lateness(&turns[frame.prefix], frame, size.hops);
        let (late_ns, ended_by) =
            judged.unwrap_or_else(|error| panic!("to {}: {error}", prefix(frame.prefix)));
        let late = &mut late_ms[frame.prefix][ended_by];
        *late = late.max(late_ns as f64 / 1e6);
    }
    let mut late_ms: Vec<f64> = late_ms.into_iter().flatten().collect();
    late_ms.sort_by(f64::total_cmp);
    let quantile = |of: f64| late_ms[((late_ms.len() - 1) as f64 * of) as usize];
    let per_s = size.changes as f64 / took.as_secs_f64();
    println!(
        "{} changes, {per_s:.0} a second: last frame by what was {:.2} ms after the acknowledgement (median), {:.2} (p99), {:.2} (worst); \
         {sent} frames sent, {} seen, {fast} by prefixes; the daemon took {:.1} % of a core",
        size.changes,
        quantile(0.5),
        quantile(0.99),
        quantile(1.0),
        seen.len(),
        cpu * 100.0,
    );
    assert!(fast > 0, "nothing left by prefixes");
    // what is held up for long has the kernel take over
    if long() {
        assert!(fast > sent / 2, "{fast} of {sent}");
        assert_eq!(seen.len() as u64, sent, "lost");
        assert!(quantile(0.99) <= LATE_P99_MS);
        assert!(cpu < DAEMON_MAX);
    }
    // nothing was missed
    until("frames leave by the last routes", PATIENCE, || {
        let there = left(&lab, &frames);
        let as_last = |frame: &Vec<u8>| {
            let turns = &turns[usize::from(frame[33] / 8)];
            turns
                .last()
                .is_some_and(|turn| frame[..6] == station(turn.hop))
        };
        (there.len() == frames.len() && there.keys().all(as_last)).then_some(())
    });
    router.stop();
}

fn daemon_ms(router: &Router) -> u64 {
    cpu_ms(router.pid().as_raw().cast_unsigned())
}

/// Until all of the table is in force.
fn load(lab: &Lab, router: &Router, routes: u32) {
    lab.load_routes(routes).unwrap();
    let loaded = Moment::now();
    wait(router, "the whole table", |there| {
        active(there) && there["ipv4"]["routes"].as_u64() >= Some(routes.into())
    });
    let took = loaded.elapsed();
    println!("{routes} routes are in force {took:.2?} after the kernel had them");
    assert!(took <= LOADED || !long());
}

/// Until it has ended; how many.
fn send(injector: &Injector, frames: &[Vec<u8>], pps: u64, ended: &AtomicBool) -> u64 {
    let start = Moment::now();
    let mut all = frames.iter().cycle();
    let mut sent = 0;
    while !ended.load(Ordering::Relaxed) {
        let due = (start.elapsed().as_secs_f64() * pps as f64) as u64;
        for frame in all.by_ref().take((due - sent) as usize) {
            injector.send(frame).unwrap();
            sent += 1;
        }
        thread::sleep(Duration::from_micros(500));
    }
    sent
}

fn watch(capture: &mut Capture, ended: &AtomicBool) -> Vec<Frame> {
    let mut seen = Vec::new();
    loop {
        let last = ended.load(Ordering::Relaxed);
        let there = capture.collect(1 << 12, Duration::from_millis(200), |_| true);
        let there = there.unwrap();
        seen.extend(there.iter().filter_map(frame_of));
        if last && there.is_empty() {
            assert!(capture.dropped().unwrap() == 0 || !long());
            return seen;
        }
    }
}
