// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cores that sleep without traffic: how often they look, who wakes them, and that nothing is lost or overtaken for it.

use std::ffi::c_void;
use std::os::fd::AsRawFd;
use std::ptr;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use freeway_engine::ffi;
use freeway_testkit::Moment;
use nix::sys::socket::{MsgFlags, send};

use crate::control;
use crate::flood::Exits;
use crate::rings::{Between, HZ, NOW, ROOM, alone};
use crate::support::state::Flow;

const ROUNDS: u16 = 5;
const NAPS: u64 = 200;
/// Where a frame has its number: behind Ethernet, IPv4 and UDP.
const NUMBER_AT: usize = 14 + 20 + 8;
/// Nobody who is woken by nobody wakes before the test is over.
const AN_HOUR_US: u32 = 3_600_000_000;
const LOOK: Duration = Duration::from_micros(200);
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy)]
struct Core(*mut c_void, unsafe extern "C" fn(*mut c_void) -> i32);
// SAFETY: one thread runs it; the others call what may be called meanwhile.
unsafe impl Send for Core {}

fn run(core: Core) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let core = core;
        // SAFETY: it lives until this thread has ended.
        unsafe { core.1(core.0) };
    })
}

#[track_caller]
fn until(mut what: impl FnMut() -> bool) {
    let end = Moment::now() + PATIENCE;
    while !what() {
        assert!(Moment::now() < end, "nobody woke it");
        std::thread::sleep(LOOK);
    }
}

fn waker() -> *mut ffi::fwe_waker {
    // SAFETY: takes nothing.
    let waker = unsafe { ffi::fwe_waker_new() };
    assert!(!waker.is_null());
    waker
}

fn until_asleep(waker: *mut ffi::fwe_waker) {
    // SAFETY: it lives; the core writes it at any time.
    until(|| unsafe { (&raw const (*waker).asleep).read_volatile() } == 1);
}

/// A worker that sleeps, on a thread of its own.
struct Sleeper {
    worker: *mut ffi::fwe_worker,
    thread: Option<JoinHandle<()>>,
}

impl Sleeper {
    fn start(worker: *mut ffi::fwe_worker) -> Self {
        Self {
            worker,
            thread: Some(run(Core(worker.cast(), ffi::fwe_worker_run))),
        }
    }

    fn stats(&self) -> ffi::fwe_stats {
        // SAFETY: plain numbers that the worker writes at any time.
        unsafe { ffi::fwe_worker_stats(self.worker).read_volatile() }
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        // SAFETY: it lives, and is freed when it has ended.
        unsafe {
            ffi::fwe_worker_stop(self.worker);
            self.thread.take().unwrap().join().unwrap();
            ffi::fwe_worker_free(self.worker);
        }
    }
}

/// A table with one flow, and its frame.
fn table(rings: *mut ffi::fwe_rings) -> (Between, Vec<u8>) {
    let mut between = Between::new(rings, 32);
    let flow = Flow::default();
    let record = flow.record(1, false, flow.state(NOW, HZ));
    *between.control = control(1, NOW.wrapping_add(500));
    between.insert_all(&[(record, flow.nexthop(7))]);
    (between, flow.frame().bytes())
}

/// So many frames as a ring has room for, at once; they leave in order.
fn burst(between: &Between, frame: &[u8], round: u16) {
    let numbers = (0..ROOM as u16).map(|number| round * ROOM as u16 + number);
    for number in numbers.clone() {
        let mut frame = frame.to_owned();
        frame[NUMBER_AT..NUMBER_AT + 2].copy_from_slice(&number.to_be_bytes());
        // a checksum of 0 says that there is none
        frame[40..42].fill(0);
        assert!(between.put(0, &frame, 4000));
    }
    for number in numbers {
        let mut out = None;
        until(|| {
            out = between.take(1);
            out.is_some()
        });
        let out = out.unwrap();
        assert_eq!(out[NUMBER_AT..NUMBER_AT + 2], number.to_be_bytes());
    }
}

/// Rings wake nobody: the worker naps, as long as it may and no shorter, and makes two turns for each.
fn naps(rings: *mut ffi::fwe_rings) {
    let (between, frame) = table(rings);
    let waker = waker();
    let sleeper = Sleeper::start(between.beside_with(&[ptr::null_mut(); 3], |config| {
        (config.sleep_us_max, config.waker) = (AN_HOUR_US, waker);
    }));
    // the first ones are shorter
    until(|| sleeper.stats().slept.times > 20);
    let since = Instant::now();
    let before = sleeper.stats();
    until(|| sleeper.stats().slept.times > before.slept.times + NAPS);
    let after = sleeper.stats();
    let elapsed = since.elapsed().as_micros();
    let times = after.slept.times - before.slept.times;
    println!("{times} naps in {elapsed} us");
    assert!(u128::from(times - 1) * u128::from(ffi::FWE_NAP_VIRTUAL_US) <= elapsed);
    // what is read while it is written may be of two turns
    assert!(after.turns - before.turns <= 2 * times + 4);
    assert_eq!(after.slept.woken, 0);
    assert!(after.slept.cycles > before.slept.cycles);
    for round in 0..ROUNDS {
        until_asleep(waker);
        burst(&between, &frame, round);
    }
    let stats = sleeper.stats();
    assert_eq!(stats.packets, u64::from(ROUNDS) * u64::from(ROOM));
    assert_eq!((stats.sent, stats.tx_dropped), (stats.packets, 0));
    drop(sleeper);
    assert_eq!(between.missing(), 0);
    // SAFETY: nobody uses it any more.
    unsafe { ffi::fwe_waker_free(waker) };
}

/// Who gives something to a core wakes it: else it would sleep for an hour.
fn woken(rings: *mut ffi::fwe_rings) {
    let (between, frame) = table(rings);
    let (of_worker, of_io) = (waker(), waker());
    let lanes = [(); 3].map(|()| {
        // SAFETY: DPDK was started; the wakers outlive it.
        unsafe {
            let lane = ffi::fwe_lane_new(1, -1);
            assert!(!lane.is_null());
            ffi::fwe_lane_set_wakers(lane, of_worker, of_io);
            lane
        }
    });
    let exits = Exits::waking(of_worker);
    let worker = between.beside_with(&lanes, |config| {
        (config.sleep_us_max, config.waker) = (AN_HOUR_US, of_worker);
        config.source = Some(ffi::fwe_exits_source);
        config.exception = Some(ffi::fwe_exits_exception);
        config.context = exits.exits.cast();
    });
    let ports = [0, 1, 2].map(|port| ffi::fwe_io_port {
        sockets: ptr::null_mut(),
        lanes: &raw const lanes[port],
        // SAFETY: there are three.
        id: unsafe { ffi::fwe_rings_port(rings, port as u32) },
        rx_queues: 1,
        tx_queue: 0,
        wakes: 0,
    });
    let config = ffi::fwe_io_config {
        ports: ports.as_ptr(),
        lanes: lanes.as_ptr(),
        ports_count: 3,
        lanes_count: 3,
        workers: 1,
        burst: 0,
        sleep_us_max: AN_HOUR_US,
        numa: -1,
        waker: of_io,
    };
    let mut error = ptr::null();
    // SAFETY: lanes and ports outlive it.
    let io = unsafe { ffi::fwe_io_new(&raw const config, &raw mut error) };
    assert!(!io.is_null());
    let io_runs = run(Core(io.cast(), ffi::fwe_io_run));
    let sleeper = Sleeper::start(worker);
    // a frame of the kernel's: to the worker, to the I/O core, which reads nothing yet, out
    for _ in 0..ROUNDS {
        until_asleep(of_worker);
        until_asleep(of_io);
        send(exits.kernel[1].as_raw_fd(), &frame, MsgFlags::empty()).unwrap();
        exits.turn();
        until(|| between.take(1).is_some());
    }
    // SAFETY: plain numbers that the I/O core writes at any time.
    let slept = || unsafe { ffi::fwe_io_stats(io).read_volatile() }.slept;
    assert_eq!(slept().times, slept().woken);
    assert!(slept().woken >= u64::from(ROUNDS));
    let slept = sleeper.stats().slept;
    assert_eq!(slept.times, slept.woken);
    assert!(slept.woken >= u64::from(ROUNDS));
    // what the daemon changes is in force, and what was before is no longer used
    type Change = fn(*mut ffi::fwe_worker, &ffi::fwe_memory);
    let changes: [Change; 3] = [
        // SAFETY: the memory outlives the worker.
        |worker, memory| unsafe { ffi::fwe_worker_set_memory(worker, memory) },
        // SAFETY: there are none.
        |worker, _| unsafe { ffi::fwe_worker_set_framings(worker, ptr::null_mut()) },
        // SAFETY: there are none.
        |worker, _| unsafe { ffi::fwe_worker_set_schedules(worker, ptr::null()) },
    ];
    let mut memory = None;
    // the same table once more
    let unused = between.beside_with(&lanes, |config| {
        memory = Some(Box::new(ffi::fwe_memory { ..config.memory }))
    });
    let memory = memory.unwrap();
    for change in changes {
        until_asleep(of_worker);
        let before = sleeper.stats().turns;
        change(worker, &memory);
        until(|| sleeper.stats().turns >= before + 2);
    }
    // SAFETY: it lives; the port was never read, nor will it be without a word.
    unsafe {
        until_asleep(of_io);
        let key = between.key();
        ffi::fwe_io_resume(io, 0, key.as_ptr());
    }
    for round in 0..ROUNDS {
        until_asleep(of_worker);
        burst(&between, &frame, round);
    }
    // its worker reads the port's own queue from here on, and naps
    until_asleep(of_worker);
    // SAFETY: as above; what was read has left.
    unsafe {
        ffi::fwe_io_pause(io, 0);
        until(|| ffi::fwe_io_is_quiet(io, 0) != 0);
        ffi::fwe_lane_set_polled(lanes[0], 1);
    }
    burst(&between, &frame, ROUNDS);
    let stats = sleeper.stats();
    assert_eq!(stats.sourced, u64::from(ROUNDS));
    assert_eq!(stats.packets, u64::from(ROUNDS + 1) * u64::from(ROOM));
    assert_eq!((stats.sent, stats.tx_dropped), (stats.packets, 0));
    // both end though nothing comes
    until_asleep(of_io);
    drop(sleeper);
    // SAFETY: nobody uses them once both have ended.
    unsafe {
        ffi::fwe_io_stop(io);
        io_runs.join().unwrap();
        ffi::fwe_worker_free(unused);
        ffi::fwe_io_free(io);
        for lane in lanes {
            ffi::fwe_lane_free(lane);
        }
        ffi::fwe_exits_free(exits.exits);
        ffi::fwe_waker_free(of_worker);
        ffi::fwe_waker_free(of_io);
    }
    assert_eq!(between.missing(), 0);
}

#[test]
fn cores_that_sleep_lose_nothing() {
    alone(naps);
    alone(woken);
}

/// A nap ends before a wire of shortest frames has filled half of the ring.
#[test]
fn naps_are_as_short_as_rings_want() {
    for (places, mbps, us) in [
        (1024, 1_000, 344),
        (1024, 10_000, 34),
        (4096, 10_000, 137),
        (1024, 100_000, 3),
        (64, 100_000, 1),
        (32768, 1_000, 1000),
        (1024, 0, 1),
    ] {
        // SAFETY: takes numbers.
        assert_eq!(
            unsafe { ffi::fwe_nap_us(places, mbps) },
            us,
            "{places} {mbps}"
        );
        let frames = u64::from(us) * u64::from(mbps) / (84 * 8);
        assert!(us == 1 || frames <= u64::from(places) / 2);
    }
}
