// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of frames.

use std::ptr::NonNull;

use crate::ffi::{fwe_pool_available, fwe_pool_free, fwe_pool_new, rte_mempool};

/// The memory of all frames.
#[derive(Debug)]
pub struct Pool {
    pool: NonNull<rte_mempool>,
    frames: u32,
}

// SAFETY: the pool may be used by any thread.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Pool {
    /// For frames of at most so many octets, in the memory of a node.
    pub fn new(frames: u32, room: u16, node: u32) -> Result<Self, String> {
        // SAFETY: DPDK has been started.
        let pool = unsafe { fwe_pool_new(frames, room, node.cast_signed()) };
        let pool = NonNull::new(pool).ok_or_else(|| {
            format!("no memory for {frames} frames of {room} octets on node {node}: raise memory_mib in [engine]")
        })?;
        Ok(Self { pool, frames })
    }

    pub(crate) fn as_ptr(&self) -> *mut rte_mempool {
        self.pool.as_ptr()
    }

    /// Frames that are free, and all that there are.
    #[must_use]
    pub fn level(&self) -> (u32, u32) {
        // SAFETY: it lives.
        (unsafe { fwe_pool_available(self.as_ptr()) }, self.frames)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: it lives, and no port has frames of it any more.
        unsafe { fwe_pool_free(self.as_ptr()) };
    }
}
