// SPDX-License-Identifier: MIT OR Apache-2.0
//! A worker: a core that forwards (`engine/worker.c`).

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use freeway_abi::{FW_EV_WATCH, FW_R_FAST, Pod, fw_watch_event};

use crate::ffi::{
    FWE_BUCKETS, fw_engine_framings, fwe_config, fwe_lcore_launch, fwe_lcore_wait, fwe_memory,
    fwe_mirror, fwe_routes, fwe_schedules, fwe_stats, fwe_worker, fwe_worker_copy,
    fwe_worker_event, fwe_worker_free, fwe_worker_load, fwe_worker_new, fwe_worker_run,
    fwe_worker_set_framings, fwe_worker_set_memory, fwe_worker_set_mirror, fwe_worker_set_routes,
    fwe_worker_set_schedules, fwe_worker_stats, fwe_worker_stop, fwe_worker_wake,
};
use crate::pools::Pools;

/// `FW_ENGINE_EVENTS`
const EVENTS: usize = 1024;
/// Of flows.
pub(crate) const BUCKETS: usize = FWE_BUCKETS as usize;

/// A worker that runs.
pub(crate) struct Worker {
    worker: NonNull<fwe_worker>,
    lcore: u32,
}

impl Worker {
    /// Starts it on an lcore. What its configuration points to outlives it, and so do the pools.
    pub fn start(config: &fwe_config, pools: &Pools, lcore: u32) -> Result<Self, String> {
        let mut error = std::ptr::null();
        // SAFETY: as worker.c wants it.
        let worker = unsafe { fwe_worker_new(config, &raw mut error) };
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
        let argument = worker.as_ptr().cast::<c_void>();
        // SAFETY: a worker that does not run yet.
        match unsafe { fwe_lcore_launch(Some(fwe_worker_run), argument, lcore) } {
            0 => Ok(Self { worker, lcore }),
            _ => {
                // SAFETY: nobody has it.
                unsafe { fwe_worker_free(worker.as_ptr()) };
                Err("the worker's core is not free".into())
            }
        }
    }

    fn as_ptr(&self) -> *mut fwe_worker {
        self.worker.as_ptr()
    }

    fn stats_at(&self) -> *const fwe_stats {
        // SAFETY: it lives.
        unsafe { fwe_worker_stats(self.as_ptr()) }
    }

    pub fn turns(&self) -> u64 {
        // SAFETY: the worker writes it at any time.
        unsafe { (&raw const (*self.stats_at()).turns).read_volatile() }
    }

    /// If it sleeps, it makes turns.
    pub fn wake(&self) {
        // SAFETY: it lives.
        unsafe { fwe_worker_wake(self.as_ptr()) };
    }

    /// What it has done.
    pub fn stats(&self) -> fwe_stats {
        // SAFETY: plain numbers that the worker writes at any time.
        unsafe { self.stats_at().read_volatile() }
    }

    /// What its buckets were charged with, in 16ths of a cycle.
    pub fn load(&self) -> [u64; BUCKETS] {
        // SAFETY: so many plain numbers, which the worker writes at any time.
        unsafe {
            fwe_worker_load(self.as_ptr())
                .cast::<[u64; BUCKETS]>()
                .read_volatile()
        }
    }

    /// What the view points to lives until another one is no longer used.
    pub fn set_memory(&self, view: &fwe_memory) {
        // SAFETY: as the caller says.
        unsafe { fwe_worker_set_memory(self.as_ptr(), view) };
    }

    /// They live until others are no longer used.
    pub fn set_framings(&self, framings: *mut fw_engine_framings) {
        // SAFETY: as the caller says.
        unsafe { fwe_worker_set_framings(self.as_ptr(), framings) };
    }

    /// They live until others are no longer used; none: what has no flow is the kernel's.
    pub fn set_routes(&self, routes: Option<&fwe_routes>) {
        let routes = routes.map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: as the caller says.
        unsafe { fwe_worker_set_routes(self.as_ptr(), routes) };
    }

    /// They live until others are no longer used.
    pub fn set_schedules(&self, schedules: &fwe_schedules) {
        // SAFETY: as the caller says.
        unsafe { fwe_worker_set_schedules(self.as_ptr(), schedules) };
    }

    /// It lives until another one is no longer used.
    pub fn set_mirror(&self, mirror: &fwe_mirror) {
        // SAFETY: as the caller says.
        unsafe { fwe_worker_set_mirror(self.as_ptr(), mirror) };
    }

    /// Packets of the watched tuple that it forwarded, by `struct fw_tuple` and port.
    pub fn watched(&mut self, mut seen: impl FnMut(Vec<u8>, u32)) {
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
                seen(event.tuple.as_bytes().to_vec(), event.port);
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // SAFETY: it lives, and is freed when it has ended.
        unsafe {
            fwe_worker_stop(self.as_ptr());
            fwe_lcore_wait(self.lcore);
            fwe_worker_free(self.as_ptr());
        }
    }
}
