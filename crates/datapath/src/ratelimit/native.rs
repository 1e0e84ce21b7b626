// SPDX-License-Identifier: MIT OR Apache-2.0
//! The same C in this process: the clock is the caller's.

use std::marker::PhantomData;

use freeway_abi::{
    FW_RATELIMIT_OWNER_SHIFT, FW_RATELIMITS, fw_ratelimit_count, fw_ratelimit_here,
    fw_ratelimit_rule,
};

use super::SourceRate;

unsafe extern "C" {
    fn fw_user_ratelimit_reset(here: *const fw_ratelimit_here);
    fn fw_user_ratelimit_set(number: u32, rule: *const fw_ratelimit_rule);
    fn fw_user_ratelimit_count(number: u32, count: *mut fw_ratelimit_count);
    fn fw_user_ratelimit_drops(frame: *const u8, len: u32, tick: u64) -> i32;
}

/// Limits without a kernel, for tests. Each thread has one: another begins anew.
pub struct NativeLimiter {
    hz: u32,
    _of_thread: PhantomData<*const ()>,
}

impl NativeLimiter {
    /// What a port does, with a clock of so many ticks a second.
    #[must_use]
    pub fn new(here: fw_ratelimit_here, hz: u32) -> Self {
        // SAFETY: read during the call.
        unsafe { fw_user_ratelimit_reset(&raw const here) };
        Self {
            hz,
            _of_thread: PhantomData,
        }
    }

    /// A limit in a place.
    pub fn set(&mut self, number: u32, rate: &SourceRate) {
        let rule = rate.rule(self.hz, (number + 1) << FW_RATELIMIT_OWNER_SHIFT);
        if number < FW_RATELIMITS {
            // SAFETY: there is such a place; read during the call.
            unsafe { fw_user_ratelimit_set(number, &raw const rule) };
        }
    }

    /// Of the limit in a place.
    #[must_use]
    pub fn count(&self, number: u32) -> fw_ratelimit_count {
        let mut count = fw_ratelimit_count::default();
        if number < FW_RATELIMITS {
            // SAFETY: there is such a place; written during the call.
            unsafe { fw_user_ratelimit_count(number, &raw mut count) };
        }
        count
    }

    /// True if a frame that comes at a tick is dropped.
    pub fn drops(&mut self, frame: &[u8], tick: u64) -> bool {
        // SAFETY: as long as said, and read during the call.
        unsafe { fw_user_ratelimit_drops(frame.as_ptr(), frame.len() as u32, tick) != 0 }
    }
}
