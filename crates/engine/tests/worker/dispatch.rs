// SPDX-License-Identifier: MIT OR Apache-2.0
//! An I/O core between rings and workers: each frame comes to the worker that has its bucket, and none is lost or overtaken,
//! while buckets move and workers stand still.

use std::collections::BTreeMap;
use std::ptr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use freeway_abi::{FW_ST_ACTIVE, fw_control};
use freeway_api::SteerRule;
use freeway_engine::ffi;
use freeway_engine::mirror::Mirror;

use crate::rings::{Between, HZ, NOW, alone};
use crate::support::random::Random;
use crate::support::state::Flow;

const WORKERS: usize = 3;
const FLOWS: u16 = 48;
const BUCKETS: usize = ffi::FWE_BUCKETS as usize;
/// Where a flow's frame has its number: behind Ethernet, IPv4 and UDP.
const SEQUENCE_AT: usize = 14 + 20 + 8;

#[derive(Clone, Copy)]
struct Pointer(*mut ffi::fwe_worker);
// SAFETY: one thread uses it.
unsafe impl Send for Pointer {}

/// A worker on a thread of its own, which makes a turn when it is told to.
struct Hand {
    worker: Pointer,
    turn: Option<Sender<()>>,
    made: Receiver<u32>,
    thread: Option<JoinHandle<()>>,
}

impl Hand {
    fn new(worker: *mut ffi::fwe_worker) -> Self {
        let (turn, turns) = channel();
        let (made, all_made) = channel();
        let worker = Pointer(worker);
        let thread = std::thread::spawn(move || {
            let worker = worker;
            for () in turns {
                // SAFETY: the one thread of this worker.
                made.send(unsafe { ffi::fwe_worker_turn(worker.0) })
                    .unwrap();
            }
        });
        Self {
            worker,
            turn: Some(turn),
            made: all_made,
            thread: Some(thread),
        }
    }

    fn turn(&self) -> u32 {
        self.turn.as_ref().unwrap().send(()).unwrap();
        self.made.recv().unwrap()
    }

    fn packets(&self) -> u64 {
        // SAFETY: it lives, and makes no turn.
        unsafe { (*ffi::fwe_worker_stats(self.worker.0)).packets }
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        self.turn = None;
        self.thread.take().unwrap().join().unwrap();
        // SAFETY: its thread has ended.
        unsafe { ffi::fwe_worker_free(self.worker.0) };
    }
}

/// Three workers behind an I/O core, which is the test's thread; frames come in at the first port and leave by the second.
struct Crew {
    hands: Vec<Hand>,
    io: *mut ffi::fwe_io,
    lanes: Vec<*mut ffi::fwe_lane>,
    between: Between,
    frames: Vec<Vec<u8>>,
    places: Vec<u32>,
    /// By flow: the next number that comes in, and that leaves.
    sent: Vec<u16>,
    left: Vec<u16>,
    wanted: [u8; BUCKETS],
}

impl Crew {
    fn new(rings: *mut ffi::fwe_rings, transmits: bool) -> Self {
        let mut between = Between::new(rings, 32);
        *between.control = fw_control {
            on: FW_ST_ACTIVE,
            epoch: 1,
            deadline_tick: NOW.wrapping_add(500),
            ..Default::default()
        };
        let flows: Vec<_> = (0..FLOWS)
            .map(|number| Flow {
                sport: 40000 + number,
                ..Flow::default()
            })
            .collect();
        let mut places = Vec::new();
        for (number, flow) in (1..).zip(&flows) {
            between.nexthops[number as usize] = flow.nexthop(7);
            let record = flow.record(number, false, flow.state(NOW, HZ));
            places.push(between.insert(number, &record));
        }
        // SAFETY: DPDK was started.
        let lane = |_| unsafe { ffi::fwe_lane_new(transmits.into(), -1) };
        let lanes: Vec<_> = (0..3 * WORKERS).map(lane).collect();
        assert!(lanes.iter().all(|lane| !lane.is_null()));
        let hands = (0..WORKERS)
            .map(|worker| {
                Hand::new(between.beside(&[0, 1, 2].map(|p| lanes[p * WORKERS + worker])))
            })
            .collect();
        let ports: Vec<_> = (0..3)
            .map(|port| ffi::fwe_io_port {
                sockets: ptr::null_mut(),
                lanes: lanes[port * WORKERS..].as_ptr(),
                // SAFETY: there are three.
                id: unsafe { ffi::fwe_rings_port(rings, port as u32) },
                rx_queues: 1,
                tx_queue: 0,
                wakes: 0,
            })
            .collect();
        let config = ffi::fwe_io_config {
            ports: ports.as_ptr(),
            lanes: lanes.as_ptr(),
            ports_count: 3,
            lanes_count: lanes.len() as u32,
            workers: WORKERS as u32,
            burst: 32,
            sleep_us_max: 0,
            numa: -1,
            waker: ptr::null_mut(),
        };
        let mut error = ptr::null();
        // SAFETY: lanes and ports outlive it.
        let io = unsafe { ffi::fwe_io_new(&raw const config, &raw mut error) };
        assert!(!io.is_null());
        let mut crew = Self {
            hands,
            io,
            lanes,
            frames: flows.iter().map(|flow| flow.frame().bytes()).collect(),
            places,
            between,
            sent: vec![0; flows.len()],
            left: vec![0; flows.len()],
            wanted: [0; BUCKETS],
        };
        // SAFETY: it lives; its ports have never been read.
        unsafe {
            for port in 0..3 {
                ffi::fwe_io_resume(crew.io, port, crew.between.key().as_ptr());
            }
        }
        crew.wanted = std::array::from_fn(|bucket| (bucket % WORKERS) as u8);
        crew.assign();
        while crew.owners() != crew.wanted {
            crew.io_turn();
            if crew.stats().called_off > 0 {
                crew.assign();
            }
        }
        crew
    }

    fn bucket(&self, flow: usize) -> usize {
        let (frame, key) = (&self.frames[flow], self.between.key());
        // SAFETY: so long is the frame.
        let bucket = unsafe {
            ffi::fwe_bucket_of_frame(frame.as_ptr().cast(), frame.len() as u32, key.as_ptr())
        };
        bucket as usize
    }

    fn assign(&self) {
        // SAFETY: so many are read.
        unsafe { ffi::fwe_io_assign(self.io, 0, self.wanted.as_ptr()) };
    }

    fn owners(&self) -> [u8; BUCKETS] {
        let mut owner = [0; BUCKETS];
        // SAFETY: room for so many.
        unsafe { ffi::fwe_io_owners(self.io, 0, owner.as_mut_ptr()) };
        owner
    }

    fn stats(&self) -> ffi::fwe_io_stats {
        // SAFETY: it lives, and makes no turn.
        unsafe { ffi::fwe_io_stats(self.io).read() }
    }

    fn io_turn(&self) -> u32 {
        // SAFETY: on the one thread of this I/O core.
        unsafe { ffi::fwe_io_turn(self.io) }
    }

    /// The next frame of a flow comes in, if the port has room.
    fn put(&mut self, flow: usize) -> bool {
        let number = self.sent[flow];
        // a datagram without a checksum, whose payload may be anything
        self.frames[flow][SEQUENCE_AT - 2..SEQUENCE_AT].fill(0);
        self.frames[flow][SEQUENCE_AT..SEQUENCE_AT + 2].copy_from_slice(&number.to_be_bytes());
        let put = self.between.put(0, &self.frames[flow], 4000);
        self.sent[flow] += u16::from(put);
        put
    }

    /// What has left is the next one of its flow.
    fn take(&mut self) {
        while let Some(frame) = self.between.take(1) {
            let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
            let flow = usize::from(word(14 + 20) - 40000);
            assert_eq!(word(SEQUENCE_AT), self.left[flow], "flow {flow}");
            self.left[flow] += 1;
        }
    }

    fn in_flight(&self) -> u32 {
        let sum = |all: &[u16]| all.iter().copied().map(u32::from).sum::<u32>();
        sum(&self.sent) - sum(&self.left)
    }

    /// All of them go on until nothing is on its way.
    fn finish(&mut self) {
        for _ in 0..10_000 {
            if self.in_flight() == 0 {
                return;
            }
            self.io_turn();
            for hand in &self.hands {
                hand.turn();
            }
            self.take();
        }
        panic!("{} frames are lost", self.in_flight());
    }

    /// Moves a bucket while all go on; a machine that is away calls moves off.
    fn move_to(&mut self, bucket: usize, worker: u8) {
        self.wanted[bucket] = worker;
        while self.owners()[bucket] != worker {
            self.assign();
            for _ in 0..20 {
                self.io_turn();
                for hand in &self.hands {
                    hand.turn();
                }
                self.take();
            }
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.hands.clear();
        // SAFETY: nobody uses them any more.
        unsafe {
            ffi::fwe_io_free(self.io);
            self.lanes.iter().for_each(|lane| ffi::fwe_lane_free(*lane));
        }
    }
}

/// Frames of 48 flows, while one bucket after the other goes to another worker, and workers are slow by turns.
fn random_moves(rings: *mut ffi::fwe_rings, transmits: bool, seed: u64) {
    let mut random = Random(seed);
    let mut crew = Crew::new(rings, transmits);
    let begun = crew.stats();
    for _ in 0..20_000 {
        match random.below(16) {
            0..5 if crew.in_flight() < 400 => {
                for _ in 0..random.below(32) {
                    // few flows have most
                    let among = 1 << random.below(6);
                    let flow = random.below(among) % usize::from(FLOWS);
                    crew.put(flow);
                }
            }
            0..9 => {
                crew.io_turn();
            }
            9..15 => {
                crew.hands[random.below(WORKERS)].turn();
            }
            _ => {
                let bucket = crew.bucket(random.below(usize::from(FLOWS)));
                crew.wanted[bucket] = random.below(WORKERS) as u8;
                crew.assign();
            }
        }
        crew.take();
    }
    crew.finish();
    let stats = crew.stats();
    let sent: u64 = crew.sent.iter().map(|number| u64::from(*number)).sum();
    println!(
        "transmits {transmits}: {sent} frames, {} moves, {} called off, {} parked",
        stats.moves - begun.moves,
        stats.called_off - begun.called_off,
        stats.parked
    );
    assert!(sent > 20_000, "{sent}");
    assert!(stats.moves - begun.moves > 100, "{} moves", stats.moves);
    assert!(stats.parked > 100, "{} parked", stats.parked);
    assert_eq!(stats.packets, sent);
    assert_eq!(stats.dropped + stats.tx_dropped, 0);
    assert_eq!(stats.transmitted, if transmits { sent } else { 0 });
    let packets: Vec<_> = crew.hands.iter().map(Hand::packets).collect();
    assert_eq!(packets.iter().sum::<u64>(), sent, "{packets:?}");
    assert!(packets.iter().all(|packets| *packets > 0), "{packets:?}");
    // a flow has one writer at a time: no count is lost
    for (flow, place) in crew.places.iter().enumerate() {
        let state = crew.between.state(*place);
        assert_eq!(state.packets, u64::from(crew.sent[flow]), "flow {flow}");
    }
    crew.between.end();
    assert_eq!(crew.between.missing(), 0);
}

/// Each worker copies what it has, for who looks on, and charges its buckets for that; who sends has the copies, too.
fn mirrors(rings: *mut ffi::fwe_rings, transmits: bool) {
    let mut crew = Crew::new(rings, transmits);
    let rule = SteerRule {
        mirror: Some("ids0".into()),
        port: vec!["lan0".into(), "wan0".into()],
        ..SteerRule::default()
    };
    // SAFETY: DPDK was started; the pool lasts until the process ends.
    let pool = unsafe { ffi::fwe_pool_new(1023, 2048, -1) };
    let (mirror, _) = Mirror::with(&[rule], &["lan0", "wan0", "ids0"], pool);
    for hand in &crew.hands {
        // SAFETY: it outlives the crew's workers, which end here.
        unsafe { ffi::fwe_worker_set_mirror(hand.worker.0, mirror.given()) };
    }
    // by flow: copies of what came in, whose next number is that, and of what left
    let mut copied = vec![[0u16; 2]; usize::from(FLOWS)];
    let mut copies = |crew: &Crew| {
        while let Some(frame) = crew.between.take(2) {
            let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
            let flow = usize::from(word(14 + 20) - 40000);
            let left = usize::from(frame[..12] != crew.frames[flow][..12]);
            assert_eq!(word(SEQUENCE_AT), copied[flow][left], "flow {flow}");
            copied[flow][left] += 1;
        }
        copied.iter().flatten().copied().map(u32::from).sum::<u32>()
    };
    let cost = |hand: &Hand| {
        // SAFETY: it lives, and makes no turn.
        let stats = unsafe { ffi::fwe_worker_stats(hand.worker.0).read() };
        stats.model[ffi::FWE_PATH_MIRROR as usize]
    };
    let before: Vec<u32> = crew.hands.iter().map(cost).collect();
    let mut measured = vec![false; before.len()];
    let mut random = Random(7);
    for _ in 0..1000 {
        for _ in 0..random.below(32) {
            crew.put(random.below(usize::from(FLOWS)));
        }
        crew.io_turn();
        for (at, hand) in crew.hands.iter().enumerate() {
            hand.turn();
            measured[at] |= cost(hand) != before[at];
        }
        crew.io_turn();
        crew.take();
        copies(&crew);
    }
    assert!(measured.iter().all(|measured| *measured), "{before:?}");
    crew.finish();
    crew.io_turn();
    let sent: u32 = crew.sent.iter().copied().map(u32::from).sum();
    assert!(sent > 10_000, "{sent}");
    assert_eq!(copies(&crew), 2 * sent);
    let transmitted = if transmits { 3 * u64::from(sent) } else { 0 };
    assert_eq!(crew.stats().transmitted, transmitted);
    for hand in &crew.hands {
        // SAFETY: it lives, and makes no turn.
        let (stats, load) = unsafe {
            let load = ffi::fwe_worker_load(hand.worker.0).cast::<[u64; BUCKETS]>();
            (ffi::fwe_worker_stats(hand.worker.0).read(), *load)
        };
        assert_eq!(stats.mirrored, 2 * stats.packets);
        assert_eq!(stats.not_mirrored, 0);
        assert_eq!(load.iter().sum::<u64>(), stats.charged);
    }
    crew.between.end();
    drop(crew);
    // SAFETY: as above.
    assert_eq!(unsafe { ffi::fwe_pool_available(pool) }, 1023);
}

/// An old worker that stands still keeps its bucket, and what was parked meanwhile.
fn standing_still(rings: *mut ffi::fwe_rings) {
    let mut crew = Crew::new(rings, false);
    let bucket = crew.bucket(0);
    crew.move_to(bucket, 0);
    let begun = crew.stats();
    let put = |crew: &mut Crew, count: usize| {
        for number in 0..count {
            assert!(crew.put(0));
            if number % 32 == 31 {
                crew.io_turn();
            }
        }
        crew.io_turn();
    };
    put(&mut crew, 8);
    crew.wanted[bucket] = 1;
    crew.assign();
    crew.io_turn();
    // parked, then more than that
    put(&mut crew, ffi::FWE_PARKED_MAX as usize + 20);
    let stats = crew.stats();
    assert_eq!(stats.called_off - begun.called_off, 1);
    assert_eq!(stats.moves, begun.moves);
    assert!(stats.parked > begun.parked);
    assert_eq!(crew.owners()[bucket], 0);
    assert_eq!(crew.hands[1].turn(), 0, "it has nothing of it");
    crew.finish();
    assert_eq!(crew.stats().dropped, 0);
    let before = crew.hands[1].packets();
    crew.move_to(bucket, 1);
    put(&mut crew, 40);
    crew.finish();
    assert_eq!(crew.hands[1].packets() - before, 40);
    crew.between.end();
    assert_eq!(crew.between.missing(), 0);
}

/// What the old worker has sent and the I/O core has not is ahead of the new one's.
fn slow_return(rings: *mut ffi::fwe_rings) {
    let mut crew = Crew::new(rings, true);
    let bucket = crew.bucket(0);
    crew.move_to(bucket, 0);
    for _ in 0..3 {
        for _ in 0..32 {
            assert!(crew.put(0));
        }
        crew.io_turn();
    }
    for _ in 0..3 {
        assert_eq!(crew.hands[0].turn(), 32);
    }
    crew.wanted[bucket] = 1;
    crew.assign();
    crew.io_turn();
    for _ in 0..8 {
        assert!(crew.put(0));
        crew.io_turn();
        crew.hands[1].turn();
        crew.take();
    }
    crew.finish();
    crew.between.end();
    assert_eq!(crew.between.missing(), 0);
}

/// A worker whose ring is full loses frames, which are counted; others do not.
fn full_rings(rings: *mut ffi::fwe_rings) {
    let mut crew = Crew::new(rings, false);
    let flows: BTreeMap<u8, usize> = (0..usize::from(FLOWS))
        .map(|flow| (crew.wanted[crew.bucket(flow)], flow))
        .collect();
    let (slow, quick) = (flows[&0], flows[&1]);
    let room = ffi::FWE_LANE_ROOM as usize - 1;
    for _ in 0..room + 100 {
        assert!(crew.put(slow) && crew.put(quick));
        crew.io_turn();
        crew.hands[1].turn();
        crew.take();
    }
    assert_eq!(crew.stats().dropped, 100);
    assert_eq!(crew.left[quick], crew.sent[quick]);
    // what it has got is the beginning
    crew.sent[slow] -= 100;
    crew.finish();
    crew.between.end();
    assert_eq!(crew.between.missing(), 0);
}

/// A port that is paused is quiet once workers have sent what they were handed, and loses nothing.
fn pause(rings: *mut ffi::fwe_rings, transmits: bool) {
    let mut crew = Crew::new(rings, transmits);
    // SAFETY: it lives.
    let quiet = |crew: &Crew| unsafe { ffi::fwe_io_is_quiet(crew.io, 0) } != 0;
    for flow in 0..20 {
        assert!(crew.put(flow));
    }
    crew.io_turn();
    // SAFETY: as above.
    unsafe { ffi::fwe_io_pause(crew.io, 0) };
    crew.io_turn();
    assert!(!quiet(&crew));
    assert!(crew.put(0));
    for hand in &crew.hands {
        hand.turn();
    }
    let (before, mut turns) = (crew.stats().packets, 0);
    while !quiet(&crew) {
        crew.io_turn();
        turns += 1;
        assert!(turns < 10);
    }
    crew.take();
    assert_eq!(crew.in_flight(), 1);
    crew.io_turn();
    assert_eq!(crew.stats().packets, before);
    // SAFETY: as above; it is quiet.
    unsafe { ffi::fwe_io_resume(crew.io, 0, crew.between.key().as_ptr()) };
    crew.finish();
    crew.between.end();
}

#[test]
fn no_frame_overtakes_another_of_its_flow() {
    let seed = std::env::var("FREEWAY_SEED").map_or(0x5eed, |text| text.parse().unwrap());
    alone(move |rings| random_moves(rings, false, seed));
    alone(move |rings| random_moves(rings, true, seed + 1));
    alone(slow_return);
}

#[test]
fn a_worker_that_stands_still_keeps_its_frames() {
    alone(standing_still);
    alone(full_rings);
}

#[test]
fn a_port_that_is_paused_is_quiet_in_the_end() {
    alone(|rings| pause(rings, false));
    alone(|rings| pause(rings, true));
}

#[test]
fn each_worker_copies_what_it_has() {
    alone(|rings| mirrors(rings, false));
    alone(|rings| mirrors(rings, true));
}
