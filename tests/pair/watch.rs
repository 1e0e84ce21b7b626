// SPDX-License-Identifier: MIT OR Apache-2.0
//! What each router sends, as the switches get it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use freeway_lab::pair::Pair;
use freeway_lab::{Capture, Captured, LabError};

use crate::load::belongs;

/// How much is looked at in one go.
const TURN: Duration = Duration::from_millis(50);
const TURN_FRAMES: usize = 4096;

/// What a router has sent.
#[derive(Default)]
struct Sent {
    /// Segments of the load.
    segments: AtomicU64,
    /// When the last of them came, and the last announcement of a virtual address (CLOCK_REALTIME, nanoseconds).
    last_ns: AtomicU64,
    announced_ns: AtomicU64,
    /// TCP that is not of the load, or not translated as its connection is, and segments with RST.
    wrong: Mutex<Vec<String>>,
    resets: AtomicU64,
}

/// Looks until it is dropped.
pub struct Watch {
    sent: [Arc<Sent>; 2],
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Watch {
    pub fn start(pair: &Pair) -> Watch {
        let mut watch = Watch {
            sent: [Arc::default(), Arc::default()],
            stop: Arc::default(),
            threads: Vec::new(),
        };
        for router in 0..2 {
            for (end, to_server) in pair.ends(router).into_iter().zip([false, true]) {
                let mut capture = Capture::open(end).unwrap();
                let (sent, stop) = (watch.sent[router].clone(), watch.stop.clone());
                watch.threads.push(thread::spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        match capture.collect(TURN_FRAMES, TURN, |_| true) {
                            Ok(frames) => {
                                frames.iter().for_each(|frame| sent.see(frame, to_server))
                            }
                            // the link went down; it goes on when that is up
                            Err(LabError::Io { source, .. })
                                if source.raw_os_error() == Some(libc::ENETDOWN) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                    assert_eq!(capture.dropped().unwrap(), 0, "frames were not looked at");
                }));
            }
        }
        watch
    }

    /// Segments of the load that a router has sent.
    pub fn segments(&self, router: usize) -> u64 {
        // what is on its way to be looked at
        thread::sleep(TURN * 2);
        self.sent[router].segments.load(Ordering::Relaxed)
    }

    pub fn resets(&self) -> u64 {
        let all = self.sent.iter();
        all.map(|sent| sent.resets.load(Ordering::Relaxed)).sum()
    }

    /// How long after a router had announced the addresses last the other one still sent: negative, if it did not.
    pub fn late_ms(&self, router: usize) -> f64 {
        let announced = self.sent[1 - router].announced_ns.load(Ordering::Relaxed);
        let last = self.sent[router].last_ns.load(Ordering::Relaxed);
        (last.cast_signed() - announced.cast_signed()) as f64 / 1e6
    }

    /// All that was sent was right.
    #[track_caller]
    pub fn check(&self) {
        for (router, sent) in self.sent.iter().enumerate() {
            let wrong = sent.wrong.lock().unwrap();
            assert!(wrong.is_empty(), "router {router} sent {wrong:#?}");
        }
    }

    /// The same, and nothing was lost on its way here.
    pub fn end(mut self) {
        self.check();
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

const IPV4: [u8; 2] = [8, 0];
const ARP: [u8; 2] = [8, 6];
const TCP: u8 = 6;
const RST: u8 = 4;
/// Last octet of the virtual addresses.
const VIRTUAL: u8 = 1;

impl Sent {
    fn see(&self, frame: &Captured, to_server: bool) {
        let bytes = &frame.bytes;
        let Some(kind) = bytes.get(12..14) else {
            return;
        };
        // the sender's address of an announcement is the virtual one, and so is the target's
        if kind == ARP && bytes.len() >= 42 && bytes[28..32] == bytes[38..42] {
            if bytes[31] == VIRTUAL {
                self.announced_ns.store(frame.time_ns, Ordering::Relaxed);
            }
            return;
        }
        if kind != IPV4 || bytes.get(23) != Some(&TCP) || bytes.len() < 54 {
            return;
        }
        let port = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let ends = [
            ([bytes[26], bytes[27], bytes[28], bytes[29]], port(34)),
            ([bytes[30], bytes[31], bytes[32], bytes[33]], port(36)),
        ];
        if !belongs(ends, to_server) {
            let mut wrong = self.wrong.lock().unwrap();
            if wrong.len() < 20 {
                wrong.push(format!("{ends:?}"));
            }
        }
        self.resets
            .fetch_add(u64::from(bytes[47] & RST != 0), Ordering::Relaxed);
        self.segments.fetch_add(1, Ordering::Relaxed);
        self.last_ns.fetch_max(frame.time_ns, Ordering::Relaxed);
    }
}
