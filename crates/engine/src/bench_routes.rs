// SPDX-License-Identifier: MIT OR Apache-2.0
//! A table of prefix paths for the bench: as many prefixes as a full one of the Internet's, if that is asked for.

use std::ptr::NonNull;

use freeway_abi::{
    FW_HOP_ENGINE, FW_HOP_TC, FW_LEAVES, FW_ROUTE_ENTRANCES, FW_ROUTES_IPV4, FW_RP_LOOSE, fw_hop,
    fw_route_count, fw_route_entrance, fw_route_here, fw_routes,
};
use freeway_lookup::{Memory, Pages, addresses, synthetic};
use freeway_prefix::{Family, Prefix4, Table};

use crate::ffi;

/// Where frames come from: 10.0.0.0/8.
const SOURCES: (u32, u8) = (10 << 24, 8);
/// What leaves has them.
const L2_OUT: [u8; 14] = [2, 0, 0, 0, 0, 4, 2, 0, 0, 0, 0, 3, 8, 0];
const MAC_IN: [u8; 6] = [2, 0, 0, 0, 0, 1];
const LATER: u32 = 0x3fff_ffff;

/// The table, destinations, and C's view of them.
pub(crate) struct BenchRoutes {
    pub view: Box<ffi::fwe_routes>,
    pub daddrs: Vec<u32>,
    _prefixes: Memory,
    _rest: Memory,
}

impl BenchRoutes {
    /// So many prefixes and destinations in them, all confirmed at that tick.
    pub fn new(prefixes: u32, destinations: u32, pages: Pages, tick: u32) -> Result<Self, String> {
        let all = synthetic(prefixes as usize);
        let daddrs = addresses(&all, destinations as usize);
        let short = |error| format!("no memory for the table of prefixes: {error}");
        let memory = Memory::new(pages, size_of::<<u32 as Family>::Memory>()).map_err(short)?;
        let base = NonNull::new(memory.at()).ok_or("no memory for the table of prefixes")?;
        // SAFETY: fresh memory of that size, zero, aligned to pages, and kept as long as the table is used.
        let mut table = unsafe { Table::<u32>::at(base.cast()) };
        let (address, length) = SOURCES;
        let own = Prefix4::new(address, length).map(|prefix| (prefix, 1));
        for (prefix, next_hop) in own.into_iter().chain(all) {
            table.set(prefix, Some(next_hop));
        }
        table
            .commit()
            .map_err(|_| "the table of prefixes has no room for so many")?;
        let leaves = FW_LEAVES as usize;
        let entrances = FW_ROUTE_ENTRANCES as usize;
        let sizes = [
            size_of::<fw_routes>(),
            leaves * size_of::<fw_hop>(),
            entrances * size_of::<fw_route_entrance>(),
            leaves * size_of::<fw_route_count>(),
            size_of::<<u128 as Family>::Memory>(),
        ];
        let sizes = sizes.map(|size| size.next_multiple_of(64));
        let rest = Memory::new(Pages::Small, sizes.iter().sum()).map_err(short)?;
        let mut at = rest.at();
        let [routes, hops, doors, counts, prefixes6] = sizes.map(|size| {
            let here = at;
            // SAFETY: within the memory, which is so long.
            at = unsafe { at.add(size) };
            here
        });
        let view = ffi::fwe_routes {
            prefixes4: memory.at().cast(),
            prefixes6: prefixes6.cast(),
            routes: routes.cast(),
            hops: hops.cast(),
            entrances: doors.cast_const().cast(),
            counts: counts.cast(),
            counts_workers: 1,
            hop_mask: FW_LEAVES - 1,
        };
        let hop = fw_hop {
            l2: L2_OUT,
            len_max: 1500,
            port: ffi::FWE_BENCH_PORT_OUT,
            status: FW_HOP_TC,
            epoch: 1,
            due_tick: tick.wrapping_add(LATER),
            confirmed_tick: tick,
            engine: FW_HOP_ENGINE,
            ..fw_hop::default()
        };
        let entrance = fw_route_entrance {
            base: ffi::FWE_BENCH_PORT_IN,
            here: fw_route_here {
                mac: MAC_IN,
                rp_filter: FW_RP_LOOSE as u16,
                port: ffi::FWE_BENCH_PORT_IN,
                families: FW_ROUTES_IPV4,
            },
            ..fw_route_entrance::default()
        };
        // SAFETY: within the memory, whose parts are of these types; nobody else has it yet.
        unsafe {
            let same = &mut *view.routes;
            same.valid = FW_ROUTES_IPV4;
            same.due_tick.fill(tick.wrapping_add(LATER));
            for leaf in 1..FW_LEAVES {
                same.record[leaf as usize] = leaf;
                view.hops.add(leaf as usize).write(fw_hop { leaf, ..hop });
            }
            let home = ffi::FWE_BENCH_PORT_IN % FW_ROUTE_ENTRANCES;
            view.entrances.cast_mut().add(home as usize).write(entrance);
        }
        Ok(Self {
            view: Box::new(view),
            daddrs,
            _prefixes: memory,
            _rest: rest,
        })
    }

    /// Frames that next hops have counted.
    pub fn counted(&self) -> u64 {
        // SAFETY: so many are there, and no worker runs.
        let counts = unsafe { std::slice::from_raw_parts(self.view.counts, FW_LEAVES as usize) };
        counts.iter().map(|count| count.packets).sum()
    }
}
