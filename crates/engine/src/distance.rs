// SPDX-License-Identifier: MIT OR Apache-2.0
//! How far apart two CPUs are: what a cache line takes from one to the other.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// Ways there and back of one measurement: some milliseconds.
const ROUNDS: u32 = 20_000;
/// Of so many the shortest counts: the others had a CPU taken away.
const TRIES: u32 = 5;

/// Alone in its cache lines: two are often fetched together.
#[repr(align(128))]
struct Line(AtomicU32);

fn bind(cpu: u32) -> Option<()> {
    let mut set = CpuSet::new();
    set.set(cpu as usize).ok()?;
    sched_setaffinity(Pid::from_raw(0), &set).ok()
}

/// Says `own` after each time that the other one has said `other`.
fn answer(line: &Line, other: u32, own: u32) {
    for _ in 0..ROUNDS {
        while line.0.load(Ordering::Acquire) != other {
            std::hint::spin_loop();
        }
        line.0.store(own, Ordering::Release);
    }
}

fn once(cpus: [u32; 2]) -> Option<f64> {
    let line = Line(AtomicU32::new(0));
    let line = &line;
    // both are bound, or none waits for the other
    let ready = AtomicU32::new(0);
    let ready = &ready;
    let side = move |cpu: u32, other: u32, own: u32| {
        let bound = bind(cpu);
        ready.fetch_add(if bound.is_some() { 1 } else { 1 << 16 }, Ordering::AcqRel);
        loop {
            match ready.load(Ordering::Acquire) {
                0 | 1 => thread::yield_now(),
                2 => break,
                _ => return None,
            }
        }
        let since = Instant::now();
        answer(line, other, own);
        Some(since.elapsed().as_nanos() as f64 / f64::from(2 * ROUNDS))
    };
    thread::scope(|scope| {
        let first = scope.spawn(move || side(cpus[0], 0, 1));
        let second = scope.spawn(move || side(cpus[1], 1, 0));
        let first = first.join().ok()?;
        second.join().ok()??;
        first
    })
}

/// Nanoseconds, or none: there is one CPU only, or it may not be used.
pub(crate) fn line_ns(cpus: [u32; 2]) -> Option<f64> {
    if cpus[0] == cpus[1] {
        return None;
    }
    let all = (0..TRIES).map_while(|_| once(cpus));
    all.min_by(f64::total_cmp)
}
