// SPDX-License-Identifier: MIT OR Apache-2.0
//! What wakes cores that sleep without traffic (`engine/sleep.c`).

use std::io;

use crate::ffi::{fwe_waker, fwe_waker_free, fwe_waker_new};

/// One for each worker and each I/O core; none where they poll.
#[derive(Debug)]
pub(crate) struct Wakers {
    workers: Vec<*mut fwe_waker>,
    io: Vec<*mut fwe_waker>,
}

impl Wakers {
    /// Of cores that poll.
    pub fn none() -> Self {
        Self {
            workers: Vec::new(),
            io: Vec::new(),
        }
    }

    /// Of so many that sleep.
    pub fn new(workers: usize, io: usize) -> Result<Self, String> {
        let mut all = Self::none();
        for (count, to) in [(workers, &mut all.workers), (io, &mut all.io)] {
            for _ in 0..count {
                // SAFETY: takes nothing.
                let waker = unsafe { fwe_waker_new() };
                if waker.is_null() {
                    let error = io::Error::last_os_error();
                    return Err(format!("cannot make what wakes a core: {error}"));
                }
                to.push(waker);
            }
        }
        Ok(all)
    }

    /// A worker's; null: it polls.
    pub fn of_worker(&self, number: usize) -> *mut fwe_waker {
        let waker = self.workers.get(number);
        waker.copied().unwrap_or(std::ptr::null_mut())
    }

    /// An I/O core's, likewise.
    pub fn of_io(&self, number: usize) -> *mut fwe_waker {
        let waker = self.io.get(number);
        waker.copied().unwrap_or(std::ptr::null_mut())
    }
}

impl Drop for Wakers {
    fn drop(&mut self) {
        for waker in self.workers.iter().chain(&self.io) {
            // SAFETY: whoever used it has ended.
            unsafe { fwe_waker_free(*waker) };
        }
    }
}
