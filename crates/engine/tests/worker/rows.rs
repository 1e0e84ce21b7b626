// SPDX-License-Identifier: MIT OR Apache-2.0
//! Full bursts, of which a turn takes several in a row.

use freeway_engine::ffi;

use crate::rings::{Between, Scheduler, alone};
use crate::support::frame::Frame;
use crate::support::state::Flow;

const BURST: u32 = 16;
/// Bursts of a turn at most.
const MOST: u32 = 4;
/// Where a frame's number is: behind Ethernet, IPv4 and UDP.
const NUMBER: usize = 42;

struct Rows {
    between: Between,
    flow: Flow,
    put: u16,
    taken: u16,
}

impl Rows {
    /// A worker with one flow.
    fn new(rings: *mut ffi::fwe_rings) -> Self {
        let mut between = Between::new(rings, BURST);
        let flow = Flow::default();
        between.admit(&flow);
        Self {
            between,
            flow,
            put: 0,
            taken: 0,
        }
    }

    /// So many frames more, each with its number, of the flow or of none.
    fn put(&mut self, count: u32, hits: bool) {
        for _ in 0..count {
            let frame = Frame {
                sport: self.flow.sport ^ if hits { 0 } else { 0x40 },
                payload_word: Some(self.put),
                ..self.flow.frame()
            };
            assert!(self.between.put(0, &frame.bytes(), 4000));
            self.put += 1;
        }
    }

    /// All that have left are the next ones, in order, or the kernel's; how many.
    fn taken(&mut self) -> u32 {
        let mut count = 0;
        loop {
            let kernels = self.between.exceptions.front();
            let kernels = kernels.map(|(frame, _)| number(frame));
            if kernels == Some(self.taken) {
                self.between.exceptions.pop_front();
            } else {
                let Some(frame) = self.between.take(1) else {
                    assert_eq!(kernels, None);
                    return count;
                };
                assert_eq!(number(&frame), self.taken);
            }
            self.taken += 1;
            count += 1;
        }
    }

    /// A turn takes, and gives, so many.
    #[track_caller]
    fn turn(&mut self, frames: u32) {
        assert_eq!(self.between.turn(), frames);
        assert_eq!(self.taken(), frames);
    }
}

fn number(frame: &[u8]) -> u16 {
    u16::from_be_bytes([frame[NUMBER], frame[NUMBER + 1]])
}

fn rows(rings: *mut ffi::fwe_rings) {
    let mut rows = Rows::new(rings);
    rows.put((MOST + 2) * BURST, true);
    rows.turn(MOST * BURST);
    rows.turn(2 * BURST);
    // the last one need not be full
    rows.put(2 * BURST + 5, true);
    rows.turn(2 * BURST + 5);
    rows.put(5, true);
    rows.turn(5);
    rows.turn(0);
    // what is no hit may take long: nothing is taken behind it but what was
    rows.put(BURST + 1, true);
    rows.put(1, false);
    rows.put(3 * BURST - 2, true);
    rows.turn(3 * BURST);
    rows.turn(BURST);
    rows.put(BURST, false);
    rows.put(2 * BURST, true);
    rows.turn(2 * BURST);
    rows.turn(BURST);
    let frames = u64::from(rows.put);
    let misses = u64::from(BURST) + 1;
    let stats = rows.between.stats();
    assert_eq!(stats.packets, frames);
    assert_eq!((stats.hits, stats.exceptions), (frames - misses, misses));
    assert_eq!(stats.bursts, 6 + 3 + 1 + 4 + 3);
    assert_eq!(rows.between.missing(), 0);
}

/// What a scheduler lets go in a turn would be less than what comes.
fn rows_to_a_scheduler(rings: *mut ffi::fwe_rings) {
    let mut rows = Rows::new(rings);
    let scheduler = Scheduler::new();
    let given = scheduler.at(1);
    rows.between.schedules(Some(&given));
    rows.put(3 * BURST, true);
    for _ in 0..3 {
        assert_eq!(rows.between.stats().sent % u64::from(BURST), 0);
        assert!(rows.between.turn() >= BURST);
        assert_eq!(rows.between.stats().bursts, rows.between.stats().turns);
    }
    while rows.between.turn() > 0 {}
    assert_eq!(rows.taken(), 3 * BURST);
    rows.between.schedules(None);
    rows.between.turn();
    assert_eq!(rows.between.missing(), 0);
}

#[test]
fn full_bursts_are_taken_in_rows() {
    alone(rows);
    alone(rows_to_a_scheduler);
}
