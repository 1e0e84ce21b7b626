// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prefix paths whose next hops are used anew while workers look things up: RCU does not wait for them.

use std::net::Ipv4Addr;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::time::Duration;

use freeway_abi::{
    FW_HOP_ENGINE, FW_HOP_TC, FW_LEAVES, FW_ROUTE_ENTRANCES, FW_ROUTES_IPV4, FW_RP_OFF, fw_hop,
    fw_route_count, fw_route_entrance, fw_route_here, fw_routes,
};
use freeway_engine::ffi;
use freeway_lookup::{Memory, Pages};
use freeway_prefix::{Family, Prefix4, Table};
use nix::sched::{CpuSet, sched_setaffinity};
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

/// What leaves does so by a next hop that the leaf led to, and by one alone.
fn used_anew(rings: *mut ffi::fwe_rings) {
    const BURSTS: u64 = 20_000;
    let frame = Frame::default();
    let plain = frame.bytes();
    let tables = Tables::to(Ipv4Addr::new(198, 51, 100, 0), 24, &frame);
    let mut between = Between::new(rings, BURST, ffi::FWE_AHEAD_ALWAYS);
    *between.control = control(1, NOW.wrapping_add(500));
    let used = [(1, 0x10), (2, 0xee)];
    let hops = used.map(|(at, octet)| hop(PORTS[at as usize], octet));
    let unused = hop(PORTS[1], 0x55);
    tables.write(1, &hops[0]);
    tables.lead(1);
    between.routes(Some(&tables.view));
    let ended = AtomicBool::new(false);
    let (mut left, mut withheld) = ([0u64; 2], 0u64);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            // DPDK has bound this process to one
            let mut cpus = CpuSet::new();
            (0..CpuSet::count()).for_each(|cpu| cpus.set(cpu).unwrap());
            sched_setaffinity(Pid::from_raw(0), &cpus).unwrap();
            let records = [(2, &hops[1]), (1, &hops[0])];
            let turns = records.into_iter().cycle().enumerate();
            for (turn, (record, hop)) in turns.take_while(|_| !ended.load(Ordering::Relaxed)) {
                tables.write(record, &unused);
                tables.write(record, hop);
                tables.lead(record);
                // of either, something is to leave
                if turn % 63 == 0 {
                    std::thread::sleep(Duration::from_micros(10));
                }
            }
        });
        for _ in 0..BURSTS {
            for _ in 0..BURST {
                assert!(between.put(0, &plain, 4000));
            }
            assert_eq!(between.turn(), BURST);
            for (left, (at, octet)) in left.iter_mut().zip(used) {
                while let Some(sent) = between.take(at) {
                    assert_eq!(sent[..12], [octet; 12], "port {at}");
                    assert_eq!(sent[22], plain[22] - 1);
                    *left += 1;
                }
            }
            withheld += between.exceptions.drain(..).count() as u64;
        }
        ended.store(true, Ordering::Relaxed);
    });
    println!("{left:?} left, {withheld} went to the kernel");
    assert!(left.iter().all(|count| *count > 0), "{left:?}");
    let all = left.iter().sum::<u64>();
    assert_eq!(all + withheld, BURSTS * u64::from(BURST));
    assert_eq!(between.stats().routed, all);
    between.routes(None);
    assert_eq!(between.turn(), 0);
    assert_eq!(between.missing(), 0);
}

#[test]
fn next_hops_that_are_used_anew_are_never_mixed() {
    alone(used_anew);
}
