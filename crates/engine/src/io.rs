// SPDX-License-Identifier: MIT OR Apache-2.0
//! An I/O core: it reads ports and hands frames to workers (`engine/dispatch.c`).

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use freeway_abi::FW_HASH_KEYS;

use crate::ffi::{
    fwe_io, fwe_io_assign, fwe_io_config, fwe_io_free, fwe_io_is_quiet, fwe_io_new, fwe_io_owners,
    fwe_io_pause, fwe_io_port, fwe_io_resume, fwe_io_run, fwe_io_stats, fwe_io_stop,
    fwe_lcore_launch, fwe_lcore_wait, fwe_waker,
};
use crate::lanes::Lanes;
use crate::port::Port;
use crate::sockets::Sockets;
use crate::worker::BUCKETS;

/// The secret by which buckets are found.
pub(crate) type Key = [u64; FW_HASH_KEYS as usize];

/// Workers need microseconds for what they have been handed.
const QUIET: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_micros(50);

/// An I/O core that runs.
pub(crate) struct Io {
    io: NonNull<fwe_io>,
    lcore: u32,
    /// Its CPU.
    pub cpu: u32,
}

impl Io {
    /// Starts it on an lcore; its ports are paused.
    pub fn start(
        all: &[Port],
        ports: &[usize],
        lanes: &Lanes,
        workers: usize,
        (sleep_us_max, waker): (u32, *mut fwe_waker),
        (lcore, cpu): (u32, u32),
    ) -> Result<Self, String> {
        let own = ports.iter().filter_map(|number| {
            let port = all.get(*number)?;
            Some(fwe_io_port {
                sockets: port.sockets().map_or(std::ptr::null_mut(), Sockets::as_ptr),
                lanes: lanes.of_port(*number).as_ptr(),
                id: port.number(),
                rx_queues: port.rx_queues(),
                tx_queue: 0,
                wakes: port.wakes().into(),
            })
        });
        let own: Vec<_> = own.collect();
        let config = fwe_io_config {
            ports: own.as_ptr(),
            lanes: lanes.all().as_ptr(),
            ports_count: own.len() as u32,
            lanes_count: lanes.all().len() as u32,
            workers: workers as u32,
            burst: 0,
            sleep_us_max,
            numa: -1,
            waker,
        };
        let mut error = std::ptr::null();
        // SAFETY: as dispatch.c wants it; the lanes outlive the I/O core.
        let io = unsafe { fwe_io_new(&raw const config, &raw mut error) };
        let io = NonNull::new(io).ok_or_else(|| {
            // SAFETY: a constant string.
            unsafe { CStr::from_ptr(error) }
                .to_string_lossy()
                .into_owned()
        })?;
        // SAFETY: one that does not run yet.
        match unsafe { fwe_lcore_launch(Some(fwe_io_run), io.as_ptr().cast::<c_void>(), lcore) } {
            0 => Ok(Self { io, lcore, cpu }),
            _ => {
                // SAFETY: nobody has it.
                unsafe { fwe_io_free(io.as_ptr()) };
                Err("the I/O core is not free".into())
            }
        }
    }

    fn as_ptr(&self) -> *mut fwe_io {
        self.io.as_ptr()
    }

    /// What it has done.
    pub fn stats(&self) -> crate::ffi::fwe_io_stats {
        // SAFETY: plain numbers that the I/O core writes at any time.
        unsafe { fwe_io_stats(self.as_ptr()).read_volatile() }
    }

    pub fn turns(&self) -> u64 {
        // SAFETY: as above.
        unsafe { (&raw const (*fwe_io_stats(self.as_ptr())).turns).read_volatile() }
    }

    /// Reads no more at its port of that number; false if a worker still has frames of it after a second.
    pub fn pause(&self, port: u32) -> bool {
        let end = Instant::now() + QUIET;
        // SAFETY: it has such a port.
        unsafe { fwe_io_pause(self.as_ptr(), port) };
        // SAFETY: as above.
        while unsafe { fwe_io_is_quiet(self.as_ptr(), port) } == 0 {
            if Instant::now() > end {
                return false;
            }
            std::thread::sleep(LOOK);
        }
        true
    }

    /// Reads again.
    pub fn resume(&self, port: u32, key: &Key) {
        // SAFETY: it has such a port, and the key is as long as it is to be.
        unsafe { fwe_io_resume(self.as_ptr(), port, key.as_ptr()) };
    }

    /// Whose each bucket is to be at a port.
    pub fn assign(&self, port: u32, owner: &[u8; BUCKETS]) {
        // SAFETY: so many are read, by this one thread.
        unsafe { fwe_io_assign(self.as_ptr(), port, owner.as_ptr()) };
    }

    /// Whose each is.
    pub fn owners(&self, port: u32) -> [u8; BUCKETS] {
        let mut owner = [0; BUCKETS];
        // SAFETY: room for so many.
        unsafe { fwe_io_owners(self.as_ptr(), port, owner.as_mut_ptr()) };
        owner
    }
}

impl Drop for Io {
    fn drop(&mut self) {
        // SAFETY: it lives, and is freed when it has ended.
        unsafe {
            fwe_io_stop(self.as_ptr());
            fwe_lcore_wait(self.lcore);
            fwe_io_free(self.as_ptr());
        }
    }
}
