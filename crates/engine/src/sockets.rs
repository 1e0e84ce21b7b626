// SPDX-License-Identifier: MIT OR Apache-2.0
//! AF_XDP sockets at the queues of a port that stays the kernel's (`engine/socket.c`).

use std::ffi::CStr;
use std::io;
use std::os::fd::RawFd;
use std::ptr::NonNull;

use freeway_api::engine::Socket;

use crate::ffi::{
    fwe_sockets, fwe_sockets_close, fwe_sockets_count, fwe_sockets_fd, fwe_sockets_open,
    fwe_sockets_sum,
};
use crate::pool::Pool;

/// One socket for each queue.
#[derive(Debug)]
pub struct Sockets {
    sockets: NonNull<fwe_sockets>,
}

impl Sockets {
    /// Opens them; nothing comes before the daemon knows them.
    pub fn open(ifindex: u32, pool: &Pool) -> Result<Self, String> {
        let mut doing = std::ptr::null();
        // SAFETY: the pool outlives them.
        let sockets = unsafe { fwe_sockets_open(ifindex, pool.as_ptr(), &raw mut doing) };
        let error = io::Error::last_os_error();
        NonNull::new(sockets)
            .map(|sockets| Self { sockets })
            .ok_or_else(|| {
                // SAFETY: a constant string.
                let doing = unsafe { CStr::from_ptr(doing) };
                format!("{}: {error}", doing.to_string_lossy())
            })
    }

    pub(crate) fn as_ptr(&self) -> *mut fwe_sockets {
        self.sockets.as_ptr()
    }

    /// As the daemon is told of them, with their descriptors.
    pub fn named(&self, port: u32) -> impl Iterator<Item = (Socket, RawFd)> {
        // SAFETY: they live.
        let count = unsafe { fwe_sockets_count(self.as_ptr()) };
        (0..count).map(move |queue| {
            // SAFETY: there is such a queue.
            let fd = unsafe { fwe_sockets_fd(self.as_ptr(), queue) };
            (Socket { port, queue }, fd)
        })
    }

    /// Frames that were handed over and found no room.
    #[must_use]
    pub fn lost(&self) -> u64 {
        // SAFETY: they live.
        let counts = unsafe { fwe_sockets_sum(self.as_ptr()) };
        counts.lost + counts.no_room
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        // SAFETY: no worker uses them any more.
        unsafe { fwe_sockets_close(self.as_ptr()) };
    }
}
