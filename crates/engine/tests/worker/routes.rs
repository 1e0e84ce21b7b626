// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prefix paths whose next hops are used anew while workers look things up: RCU does not wait for them.

use std::ffi::c_int;
use std::net::Ipv4Addr;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering, fence};

use freeway_abi::{
    FW_HOP_ENGINE, FW_HOP_TC, FW_LEAVES, FW_ROUTE_ENTRANCES, FW_ROUTES_IPV4, FW_RP_OFF, fw_hop,
    fw_route_count, fw_route_entrance, fw_route_here, fw_routes,
};
use freeway_engine::ffi;
use freeway_lookup::{Memory, Pages};
use freeway_prefix::{Family, Prefix4, Table};
use freeway_testkit::Ends;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::pthread::{pthread_kill, pthread_self};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::unistd::Pid;

use crate::control;
use crate::rings::{Between, HZ, NOW, PORTS, alone};
use crate::support::frame::{Frame, mac};

const LEAF: u32 = 1;
const LATER: u32 = NOW.wrapping_add(HZ);
const BURST: u32 = 32;
const RECORDS: u32 = 4;

/// One prefix, and what leads to its next hop.
struct Tables {
    view: ffi::fwe_routes,
    _prefixes: Memory,
    _rest: [Memory; 5],
}

// SAFETY: what it points to is its own, and written as the daemon writes it.
unsafe impl Sync for Tables {}

impl Tables {
    fn to(prefix: Ipv4Addr, length: u8, frame: &Frame) -> Self {
        let memory = |size| Memory::new(Pages::Small, size).unwrap();
        let prefixes = memory(size_of::<<u32 as Family>::Memory>());
        // SAFETY: fresh memory of that size, zero, aligned to pages.
        let mut table = unsafe { Table::<u32>::at(NonNull::new(prefixes.at()).unwrap().cast()) };
        table.set(
            Prefix4::new(prefix.to_bits(), length).unwrap(),
            Some(LEAF as u16),
        );
        table.commit().unwrap();
        let rest = [
            size_of::<fw_routes>(),
            RECORDS as usize * size_of::<fw_hop>(),
            FW_ROUTE_ENTRANCES as usize * size_of::<fw_route_entrance>(),
            FW_LEAVES as usize * size_of::<fw_route_count>(),
            size_of::<<u128 as Family>::Memory>(),
        ]
        .map(memory);
        let [routes, hops, entrances, counts, prefixes6] = rest.each_ref().map(Memory::at);
        let view = ffi::fwe_routes {
            prefixes4: prefixes.at().cast(),
            prefixes6: prefixes6.cast(),
            routes: routes.cast(),
            hops: hops.cast(),
            entrances: entrances.cast(),
            counts: counts.cast(),
            counts_workers: 1,
            hop_mask: RECORDS - 1,
        };
        let entrance = fw_route_entrance {
            base: PORTS[0],
            here: fw_route_here {
                mac: mac(&frame.dst_mac),
                rp_filter: FW_RP_OFF as u16,
                port: PORTS[0],
                families: FW_ROUTES_IPV4,
            },
            ..fw_route_entrance::default()
        };
        // SAFETY: of these types, and nobody else has it yet.
        unsafe {
            let same = &mut *view.routes;
            same.valid = FW_ROUTES_IPV4;
            same.due_tick.fill(LATER);
            let home = entrances.cast::<fw_route_entrance>();
            home.add((PORTS[0] % FW_ROUTE_ENTRANCES) as usize)
                .write(entrance);
        }
        Self {
            view,
            _prefixes: prefixes,
            _rest: rest,
        }
    }

    /// What nobody is led to, or is no more, may be written anew.
    fn write(&self, record: u32, hop: &fw_hop) {
        // SAFETY: one of their records.
        unsafe { self.view.hops.add(record as usize).write_volatile(*hop) };
    }

    /// From now on the leaf leads by a record.
    fn lead(&self, record: u32) {
        let routes = self.view.routes;
        // SAFETY: both are words, which others read meanwhile.
        let [leads, seq] = unsafe {
            [
                &raw mut (*routes).record[LEAF as usize],
                &raw mut (*routes).seq,
            ]
            .map(|word| AtomicU32::from_ptr(word))
        };
        fence(Ordering::Release);
        leads.store(record, Ordering::Relaxed);
        seq.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }
}

/// One of whose addresses every octet is the same.
fn hop(port: u32, octet: u8) -> fw_hop {
    let mut l2 = [octet; 14];
    l2[12..].copy_from_slice(&[8, 0]);
    fw_hop {
        l2,
        len_max: 1500,
        port,
        status: FW_HOP_TC,
        epoch: 1,
        due_tick: LATER,
        confirmed_tick: NOW,
        leaf: LEAF,
        engine: FW_HOP_ENGINE,
        ..fw_hop::default()
    }
}

static TABLES: AtomicPtr<Tables> = AtomicPtr::new(std::ptr::null_mut());
static TURNS: AtomicU32 = AtomicU32::new(0);
/// Where packets leave, and what every octet of their addresses is.
const USED: [(usize, u8); 2] = [(1, 0x10), (2, 0xee)];

/// What the daemon does, between any two instructions of a worker: the leaf leads by the other record, and the one that it
/// led by is used anew.
extern "C" fn use_anew(_signal: c_int) {
    // SAFETY: they live as long as signals come.
    let tables = unsafe { &*TABLES.load(Ordering::Relaxed) };
    let now = 1 + TURNS.load(Ordering::Relaxed) % 2;
    let next = 3 - now;
    let (at, octet) = USED[next as usize - 1];
    tables.write(next, &hop(PORTS[at], octet));
    tables.lead(next);
    tables.write(now, &hop(PORTS[1], 0x55));
    TURNS.fetch_add(1, Ordering::Relaxed);
}

/// What leaves does so by a next hop that the leaf led to.
fn used_anew(rings: *mut ffi::fwe_rings) {
    /// At least.
    const BURSTS: u64 = 20_000;
    const CHANGES: u32 = 1000;
    let frame = Frame::default();
    let plain = frame.bytes();
    let tables = Tables::to(Ipv4Addr::new(198, 51, 100, 0), 24, &frame);
    let mut between = Between::new(rings, BURST);
    *between.control = control(1, NOW.wrapping_add(500));
    let (at, octet) = USED[0];
    tables.write(1, &hop(PORTS[at], octet));
    tables.lead(1);
    between.routes(Some(&tables.view));
    TABLES.store((&raw const tables).cast_mut(), Ordering::Relaxed);
    let handler = SigHandler::Handler(use_anew);
    let action = SigAction::new(handler, SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handler does nothing but write to memory.
    unsafe { sigaction(Signal::SIGUSR1, &action) }.unwrap();
    let worker = pthread_self();
    let ended = AtomicBool::new(false);
    let (mut left, mut withheld, mut sent, mut received) = ([0u64; 2], 0u64, 0u64, 0u64);
    let mut wrong = Vec::new();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            // DPDK has bound this process to one
            let mut cpus = CpuSet::new();
            (0..CpuSet::count()).for_each(|cpu| cpus.set(cpu).unwrap());
            sched_setaffinity(Pid::from_raw(0), &cpus).unwrap();
            let mut handled = 0;
            while !ended.load(Ordering::Relaxed) {
                pthread_kill(worker, Signal::SIGUSR1).unwrap();
                handled += 1;
                while TURNS.load(Ordering::Relaxed) < handled && !ended.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
            }
        });
        let _ends = Ends(&ended);
        // of either, something is to leave
        while sent < BURSTS * u64::from(BURST)
            || TURNS.load(Ordering::Relaxed) < CHANGES
            || left.contains(&0)
        {
            sent += (0..BURST).filter(|_| between.put(0, &plain, 4000)).count() as u64;
            received += u64::from(between.turn());
            for (left, (at, octet)) in left.iter_mut().zip(USED) {
                while let Some(frame) = between.take(at as u32) {
                    let whole = frame[..12] == [octet; 12] && frame[22] == plain[22] - 1;
                    wrong.extend((!whole).then_some((at, frame)));
                    *left += 1;
                }
            }
            withheld += between.exceptions.drain(..).count() as u64;
        }
    });
    let turns = TURNS.load(Ordering::Relaxed);
    println!("{left:?} left, {withheld} went to the kernel, {turns} changes");
    assert_eq!(wrong, Vec::new());
    let all = left.iter().sum::<u64>();
    assert_eq!(received, sent);
    assert_eq!(all + withheld, sent);
    assert_eq!(between.stats().routed, all);
    between.routes(None);
    assert_eq!(between.turn(), 0);
    assert_eq!(between.missing(), 0);
}

#[test]
fn next_hops_that_are_used_anew_are_never_mixed() {
    alone(used_anew);
}
