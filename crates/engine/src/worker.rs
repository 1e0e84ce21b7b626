// SPDX-License-Identifier: MIT OR Apache-2.0
//! The worker: a core that forwards (`engine/worker.c`).

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use freeway_abi::{FW_EV_WATCH, FW_R_FAST, Pod, fw_framed, fw_framing, fw_watch_event};
use freeway_api::engine::{EngineCounts, Idle, WatchedFast};

use crate::exits::Exits;
use crate::ffi::{
    fw_engine_framings, fwe_clock, fwe_config, fwe_exits_exception, fwe_exits_source,
    fwe_framings_free, fwe_framings_new, fwe_memory, fwe_port, fwe_stats, fwe_tsc_hz, fwe_worker,
    fwe_worker_copy, fwe_worker_event, fwe_worker_free, fwe_worker_launch, fwe_worker_new,
    fwe_worker_set_framings, fwe_worker_set_memory, fwe_worker_stats, fwe_worker_stop,
    fwe_worker_wait,
};
use crate::memory::Memory;
use crate::pools::Pools;
use crate::port::Port;
use crate::sockets::Sockets;

/// A core that sleeps without traffic does so for a millisecond at most.
const SLEEP_US_MAX: u32 = 1000;
/// `FW_ENGINE_EVENTS`
const EVENTS: usize = 1024;

/// A table that a worker uses: C's view, and what keeps it mapped.
struct Used {
    view: Box<fwe_memory>,
    _memory: Memory,
}

impl Used {
    fn new(memory: Memory) -> Self {
        let view = fwe_memory {
            flows: memory.flows(),
            nexthops: memory.nexthops(),
            control: memory.control(),
            config: memory.config(),
            watch: memory.watch(),
            nexthops_max: memory.config().nexthop_mask,
            pad: 0,
        };
        Self {
            view: Box::new(view),
            _memory: memory,
        }
    }
}

/// A worker that runs.
pub struct Worker {
    worker: NonNull<fwe_worker>,
    clock: NonNull<fwe_clock>,
    table: Used,
    /// Null: none.
    framings: *mut fw_engine_framings,
    /// Of the last report.
    reported: (Instant, u64),
    /// Turns when it was last looked whether there are more.
    looked: u64,
}

impl Worker {
    /// Starts the worker on the second lcore.
    pub fn start(
        ports: &[Port],
        exits: &Exits,
        pools: &Pools,
        nothing: Memory,
        idle: Idle,
    ) -> Result<Self, String> {
        // it stands until there is a table
        let clock = NonNull::from(Box::leak(Box::new(fwe_clock {
            origin_ns: 0,
            hz: 0,
            pad: 0,
        })));
        let table = Used::new(nothing);
        let ports: Vec<fwe_port> = ports
            .iter()
            .map(|port| fwe_port {
                sockets: port.sockets().map_or(std::ptr::null_mut(), Sockets::as_ptr),
                id: port.number(),
                rx_queue: 0,
                tx_queue: 0,
                number: 0,
                ifindex: port.ifindex,
                pad: 0,
            })
            .collect();
        let view = &*table.view;
        let config = fwe_config {
            memory: fwe_memory { ..*view },
            clock: clock.as_ptr(),
            ports: ports.as_ptr(),
            ports_count: ports.len() as u32,
            burst: 0,
            ahead: 0,
            numa: pools.home().cast_signed(),
            exception: Some(fwe_exits_exception),
            source: Some(fwe_exits_source),
            sleep_us_max: match idle {
                Idle::Poll => 0,
                Idle::Sleep => SLEEP_US_MAX,
            },
            context: exits.as_ptr().cast(),
        };
        let mut error = std::ptr::null();
        // SAFETY: as worker.c wants it; clock, table and exits outlive the worker.
        let worker = unsafe { fwe_worker_new(&raw const config, &raw mut error) };
        let worker = NonNull::new(worker).ok_or_else(|| {
            // SAFETY: a constant string.
            unsafe { CStr::from_ptr(error) }
                .to_string_lossy()
                .into_owned()
        })?;
        for (output, inputs, pool) in pools.copies()? {
            // SAFETY: a port's number; the worker does not run yet, and the pools outlive it.
            unsafe { fwe_worker_copy(worker.as_ptr(), output, inputs, pool.as_ptr()) };
        }
        let worker = Self {
            worker,
            clock,
            table,
            framings: std::ptr::null_mut(),
            reported: (Instant::now(), 0),
            looked: 0,
        };
        // SAFETY: a worker that does not run yet.
        match unsafe { fwe_worker_launch(worker.as_ptr()) } {
            0 => Ok(worker),
            _ => Err("the worker's core is not free".into()),
        }
    }

    fn as_ptr(&self) -> *mut fwe_worker {
        self.worker.as_ptr()
    }

    fn stats(&self) -> *const fwe_stats {
        // SAFETY: it lives.
        unsafe { fwe_worker_stats(self.as_ptr()) }
    }

    fn turns(&self) -> u64 {
        // SAFETY: the worker writes it at any time.
        unsafe { (&raw const (*self.stats()).turns).read_volatile() }
    }

    /// True if it has made turns since it was last asked.
    pub fn goes_on(&mut self) -> bool {
        let turns = self.turns();
        std::mem::replace(&mut self.looked, turns) != turns
    }

    /// Another table; returns when the one before is no longer used.
    pub fn set_table(&mut self, memory: Memory) {
        // those of the daemon before
        self.replace_framings(std::ptr::null_mut());
        self.set_clock(&memory);
        let table = Used::new(memory);
        // SAFETY: lives until another one is no longer used.
        unsafe { fwe_worker_set_memory(self.as_ptr(), &raw const *table.view) };
        self.wait();
        self.table = table;
    }

    /// Until nothing is used any more that was replaced.
    fn wait(&self) {
        let from = self.turns();
        while self.turns() < from + 2 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Other framings; returns when those before are no longer used.
    pub fn set_framings(&mut self, framings: &[(Vec<u8>, Vec<u8>)]) -> Result<(), String> {
        let records = framings.iter().map(|(framing, framed)| {
            let (framing, framed) = (
                fw_framing::from_bytes(framing),
                fw_framed::from_bytes(framed),
            );
            framing.zip(framed)
        });
        let records: Option<Vec<_>> = records.collect();
        let records = records.ok_or("the daemon's framings are none")?;
        let (keys, framed): (Vec<fw_framing>, Vec<fw_framed>) = records.into_iter().unzip();
        // SAFETY: so many of each.
        let new = unsafe { fwe_framings_new(keys.as_ptr(), framed.as_ptr(), keys.len() as u32) };
        if new.is_null() {
            return Err(format!("no memory for {} framings", keys.len()));
        }
        self.replace_framings(new);
        Ok(())
    }

    fn replace_framings(&mut self, new: *mut fw_engine_framings) {
        // SAFETY: they live until others are used.
        unsafe { fwe_worker_set_framings(self.as_ptr(), new) };
        self.wait();
        // SAFETY: made by fwe_framings_new(), or null; no longer used.
        unsafe { fwe_framings_free(std::mem::replace(&mut self.framings, new)) };
    }

    fn set_clock(&mut self, memory: &Memory) {
        let (clock_ns, tick) = memory.clock();
        let hz = memory.config().hz;
        let elapsed_ns = i128::from(tick) * 1_000_000_000 / i128::from(hz);
        let origin_ns = i64::try_from(i128::from(clock_ns) - elapsed_ns).unwrap_or(0);
        let clock = self.clock.as_ptr();
        // SAFETY: it lives as long as the worker, which reads it at any time: the table before forwards nothing by a time
        // that is not its own, for its deadline is past, or the clock is the same.
        unsafe {
            AtomicI64::from_ptr(&raw mut (*clock).origin_ns).store(origin_ns, Ordering::Release);
            AtomicU32::from_ptr(&raw mut (*clock).hz).store(hz, Ordering::Release);
        }
    }

    /// Packets of the watched tuple that were forwarded since the last call. Of others the kernel's side tells.
    pub fn watched(&mut self) -> Vec<WatchedFast> {
        let mut fast: BTreeMap<(Vec<u8>, u32), u64> = BTreeMap::new();
        let mut event = fw_watch_event::default();
        let size = size_of::<fw_watch_event>() as u32;
        // what comes meanwhile is for the next call
        for _ in 0..EVENTS {
            // SAFETY: room of that size; this is the one reader.
            let len = unsafe { fwe_worker_event(self.as_ptr(), (&raw mut event).cast(), size) };
            if len == 0 {
                break;
            }
            if len == size && event.ev.kind == FW_EV_WATCH && event.ev.reason == FW_R_FAST {
                let tuple = event.tuple.as_bytes().to_vec();
                *fast.entry((tuple, event.port)).or_default() += 1;
            }
        }
        let fast = fast
            .into_iter()
            .map(|((tuple, port), packets)| WatchedFast {
                tuple,
                port,
                packets,
            });
        fast.collect()
    }

    /// What was done; busy since the last call.
    pub fn counts(&mut self) -> EngineCounts {
        // SAFETY: plain numbers that the worker writes at any time.
        let stats = unsafe { self.stats().read_volatile() };
        // SAFETY: DPDK has been started.
        let tsc_hz = unsafe { fwe_tsc_hz() } as f64;
        let (since, cycles) = self.reported;
        self.reported = (Instant::now(), stats.cycles);
        let all = since.elapsed().as_secs_f64() * tsc_hz;
        let busy = stats.cycles.wrapping_sub(cycles) as f64 / all.max(1.0);
        let mean = |of: u64, by: u64| u32::try_from(of / by.max(1)).unwrap_or(u32::MAX);
        EngineCounts {
            forwarded: stats.sent,
            exceptions: stats.exceptions,
            tx_dropped: stats.tx_dropped,
            copied: stats.copied,
            not_copied: stats.not_copied,
            busy_permille: (busy * 1000.0).clamp(0.0, 1000.0) as u32,
            burst_percent: mean(stats.packets * 100, stats.bursts),
            cycles: mean(stats.cycles, stats.packets),
            ..EngineCounts::default()
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // SAFETY: it lives, and is freed when it has ended.
        unsafe {
            fwe_worker_stop(self.as_ptr());
            fwe_worker_wait(self.as_ptr());
            fwe_worker_free(self.as_ptr());
            fwe_framings_free(self.framings);
            drop(Box::from_raw(self.clock.as_ptr()));
        }
    }
}
