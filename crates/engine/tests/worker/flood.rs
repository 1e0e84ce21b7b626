// SPDX-License-Identifier: MIT OR Apache-2.0
//! More frames for the kernel than it takes.

use std::net::Ipv6Addr;
use std::os::fd::{AsRawFd, OwnedFd};

use freeway_engine::ffi;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, socketpair};

use crate::rings::{Between, PORTS, alone};
use crate::support::frame::Frame;
use crate::support::state::Flow;

const BURSTS: usize = 200;
const BURST: u32 = 32;
/// Of a burst's frames.
const HITS: usize = 8;
/// The thread that writes to the TAPs comes so seldom: it takes a burst, and leaves the more to be dropped.
const TURN: usize = 16;

/// The exception path, with sockets in the place of TAPs.
pub struct Exits {
    pub exits: *mut ffi::fwe_exits,
    pub kernel: Vec<OwnedFd>,
    _taps: Vec<OwnedFd>,
}

impl Exits {
    /// Of workers that poll.
    fn new() -> Self {
        Self::waking(std::ptr::null_mut())
    }

    /// Of one that sleeps.
    pub fn waking(waker: *mut ffi::fwe_waker) -> Self {
        let pairs = PORTS.map(|_| {
            let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).unwrap()
        });
        let (taps, kernel): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        let queues: Vec<_> = taps.iter().map(AsRawFd::as_raw_fd).collect();
        let faces: Vec<_> = queues
            .iter()
            .map(|queue| ffi::fwe_face {
                queues: queue,
                queues_count: 1,
                ifindex: 0,
                waker,
            })
            .collect();
        // SAFETY: DPDK has been started.
        let pool = unsafe { ffi::fwe_pool_new(1023, 2048, -1) };
        assert!(!pool.is_null());
        // SAFETY: so many of them; the pool stays.
        let exits = unsafe { ffi::fwe_exits_new(faces.as_ptr(), faces.len() as u32, 1, pool) };
        assert!(!exits.is_null());
        Self {
            exits,
            kernel,
            _taps: taps,
        }
    }

    pub fn turn(&self) {
        // SAFETY: they live, and this is the one thread.
        assert_eq!(unsafe { ffi::fwe_exits_turn(self.exits, 0) }, 0);
    }

    /// Frames that the kernel has been given at the first port since the last call.
    fn received(&self) -> Vec<Vec<u8>> {
        let fd = self.kernel[0].as_raw_fd();
        let next = || {
            let mut frame = vec![0; 2048];
            let length = recv(fd, &mut frame, MsgFlags::empty()).ok()?;
            frame.truncate(length);
            Some(frame)
        };
        std::iter::from_fn(next).collect()
    }
}

/// A worker with one flow, whose exceptions go that way.
fn worker(rings: *mut ffi::fwe_rings, exits: &Exits, flow: &Flow) -> Between {
    let mut between = Between::with(
        rings,
        BURST,
        Some(ffi::fwe_exits_exception),
        exits.exits.cast(),
    );
    between.admit(flow);
    between
}

/// A frame of no flow.
fn miss(flow: &Flow) -> Vec<u8> {
    let frame = Frame {
        sport: flow.sport ^ 0x40,
        ..flow.frame()
    };
    frame.bytes()
}

/// What hits is not concerned, and nothing goes uncounted.
fn flood(rings: *mut ffi::fwe_rings) {
    let exits = Exits::new();
    let flow = Flow::default();
    let between = worker(rings, &exits, &flow);
    let hit = flow.frame().bytes();
    let miss = miss(&flow);
    let every = BURST as usize / HITS;
    for burst in 0..BURSTS {
        for number in 0..BURST as usize {
            let frame = if number % every == 0 { &hit } else { &miss };
            assert!(between.put(0, frame, 4000));
        }
        assert_eq!(between.turn(), BURST);
        for number in 0..HITS {
            assert!(between.take(1).is_some(), "burst {burst}, hit {number}");
        }
        assert!(between.take(1).is_none());
        if burst % TURN == 0 {
            exits.turn();
        }
    }
    for _ in 0..BURSTS {
        exits.turn();
    }
    let hits = (BURSTS * HITS) as u64;
    let misses = (BURSTS * BURST as usize) as u64 - hits;
    let stats = between.stats();
    assert_eq!((stats.sent, stats.tx_dropped), (hits, 0));
    assert_eq!((stats.exceptions, stats.dropped), (misses, 0));
    // SAFETY: they live.
    let counts = unsafe { ffi::fwe_exits_sum(exits.exits) };
    let received = exits.received().len() as u64;
    println!(
        "of {misses} misses the kernel had {received}, its queue refused {}, the ring {}",
        counts.not_taken, counts.no_room
    );
    assert!(counts.no_room > misses / 2, "no flood");
    assert!(counts.not_taken > 0, "the kernel took all");
    assert_eq!(received + counts.not_taken + counts.no_room, misses);
    assert_eq!(between.missing(), 0);
    drop(between);
    // SAFETY: nobody uses them any more.
    unsafe { ffi::fwe_exits_free(exits.exits) };
}

/// A neighbour solicitation (RFC 4861), with a number, and with a tag or none.
fn solicitation(number: u16, tagged: bool) -> Vec<u8> {
    let mut frame = vec![0x33, 0x33, 0xff, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    if tagged {
        frame.extend([0x81, 0, 0, 77]);
    }
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 24, 58, 255]);
    let [host, group] = ["fe80::1", "ff02::1:ff00:2"].map(|text| text.parse::<Ipv6Addr>().unwrap());
    frame.extend([host.octets(), group.octets()].concat());
    frame.extend([135, 0, 0, 0]);
    frame.extend(u32::from(number).to_be_bytes());
    frame.extend(host.octets());
    frame
}

/// What is of a flow, but the kernel's, goes up in order, and neighbour discovery, however many misses there are.
fn flood_beside(rings: *mut ffi::fwe_rings) {
    let exits = Exits::new();
    let flow = Flow {
        own: false,
        ..Flow::default()
    };
    let between = worker(rings, &exits, &flow);
    let miss = miss(&flow);
    let mut up = Vec::new();
    for burst in 0..BURSTS {
        for number in 0..BURST as usize {
            if number == burst % BURST as usize {
                let numbered = Frame {
                    id: burst as u16,
                    ..flow.frame()
                };
                assert!(between.put(0, &numbered.bytes(), 4000));
            } else if number == (burst + 1) % BURST as usize {
                let discovery = solicitation(burst as u16, burst % 2 == 1);
                assert!(between.put(0, &discovery, 4000));
            } else {
                assert!(between.put(0, &miss, 4000));
            }
        }
        assert_eq!(between.turn(), BURST);
        if burst % TURN == 0 {
            exits.turn();
            up.extend(exits.received());
        }
    }
    for _ in 0..BURSTS {
        exits.turn();
        up.extend(exits.received());
    }
    // SAFETY: they live.
    let counts = unsafe { ffi::fwe_exits_sum(exits.exits) };
    assert!(
        counts.no_room > (BURSTS * BURST as usize / 2) as u64,
        "no flood"
    );
    assert_eq!(counts.not_taken, 0, "the kernel did not take all");
    let of_flow = up
        .iter()
        .filter(|frame| frame[12..14] == [8, 0] && **frame != miss);
    let numbers: Vec<_> = of_flow
        .map(|f| u16::from_be_bytes([f[18], f[19]]))
        .collect();
    assert_eq!(numbers, (0..BURSTS as u16).collect::<Vec<_>>());
    let discovery: Vec<_> = up.iter().filter(|frame| frame[12..14] != [8, 0]).collect();
    let wanted: Vec<_> = (0..BURSTS as u16)
        .map(|n| solicitation(n, n % 2 == 1))
        .collect();
    assert!(discovery.into_iter().eq(&wanted));
    assert_eq!(between.missing(), 0);
    drop(between);
    // SAFETY: nobody uses them any more.
    unsafe { ffi::fwe_exits_free(exits.exits) };
}

#[test]
fn a_flood_of_misses_leaves_room_for_what_is_of_flows() {
    alone(flood_beside);
}

#[test]
fn a_flood_of_misses_costs_no_hit() {
    alone(flood);
}
