// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two pools that play two nodes: frames from one to the other, handed over or copied, leave as the same ones.

use freeway_engine::ffi;

use crate::control;
use crate::rings::{Between, HZ, NOW, alone};
use crate::support::frame::Frame;
use crate::support::state::Flow;

const FRAMES: u32 = 32;
/// Frames of the other node's pool.
const POOL: u32 = 255;
/// Octets of a segment: a frame is in one, or in several.
const SEGMENTS: [u32; 2] = [4000, 100];
/// The flow's output, by number.
const OUTPUT: u32 = 1;

/// Lasts until the process ends.
fn pool(frames: u32) -> *mut ffi::rte_mempool {
    // SAFETY: DPDK has been started.
    let pool = unsafe { ffi::fwe_pool_new(frames, 2048, -1) };
    assert!(!pool.is_null());
    pool
}

fn taken(pool: *mut ffi::rte_mempool, of: u32) -> u32 {
    // SAFETY: it lives.
    of - unsafe { ffi::fwe_pool_available(pool) }
}

/// A worker with one flow, from the first port to the second one.
fn worker(rings: *mut ffi::fwe_rings) -> (Between, Flow) {
    let mut between = Between::new(rings, FRAMES);
    let flow = Flow::default();
    *between.control = control(1, NOW.wrapping_add(500));
    let record = flow.record(1, false, flow.state(NOW, HZ));
    between.insert_all(&[(record, flow.nexthop(7))]);
    (between, flow)
}

/// Sends a burst; what left, and what there was then of each pool.
fn burst(between: &Between, flow: &Flow, other: *mut ffi::rte_mempool) -> (Vec<Vec<u8>>, [u32; 2]) {
    for number in 0..FRAMES {
        let frame = Frame {
            payload: number as usize * 20,
            ..flow.frame()
        };
        let segment = SEGMENTS[number as usize % 2];
        assert!(between.put(0, &frame.bytes(), segment));
    }
    assert_eq!(between.turn(), FRAMES);
    let pools = [between.missing(), taken(other, POOL)];
    let left: Vec<_> = std::iter::from_fn(|| between.take(OUTPUT)).collect();
    assert_eq!((between.missing(), taken(other, POOL)), (0, 0));
    (left, pools)
}

fn both_modes(rings: *mut ffi::fwe_rings) {
    let other = pool(POOL);
    let (between, flow) = worker(rings);
    let (direct, [own, copied]) = burst(&between, &flow, other);
    assert_eq!(direct.len(), FRAMES as usize);
    assert!(own > FRAMES, "some are in several segments: {own}");
    assert_eq!(copied, 0);

    // another pair of ports changes nothing
    between.copy(OUTPUT, 0b100, other);
    assert_eq!(
        burst(&between, &flow, other),
        (direct.clone(), [own, copied])
    );
    assert_eq!((between.stats().copied, between.stats().not_copied), (0, 0));

    between.copy(OUTPUT, 0b101, other);
    let (left, [own, copied]) = burst(&between, &flow, other);
    assert_eq!(left, direct);
    // the frames are in the other's memory alone, each in one piece
    assert_eq!((own, copied), (0, FRAMES));
    let stats = between.stats();
    assert_eq!((stats.copied, stats.not_copied), (FRAMES.into(), 0));
    assert_eq!(stats.tx_dropped, 0);
}

/// What finds no buffer there is handed over.
fn short_of_buffers(rings: *mut ffi::fwe_rings) {
    const FEW: u32 = 7;
    let few = pool(FEW);
    let other = pool(POOL);
    let (between, flow) = worker(rings);
    let (direct, _) = burst(&between, &flow, other);
    between.copy(OUTPUT, 0b001, few);
    let (left, _) = burst(&between, &flow, other);
    assert_eq!(left, direct);
    let stats = between.stats();
    assert_eq!(stats.copied + stats.not_copied, u64::from(FRAMES));
    assert!(stats.copied <= FEW.into() && stats.not_copied > 0);
    assert_eq!(taken(few, FEW), 0);
}

#[test]
fn frames_between_nodes_are_handed_over_or_copied() {
    alone(both_modes);
    alone(short_of_buffers);
}
