// SPDX-License-Identifier: MIT OR Apache-2.0
//! The data plane's time: jiffies, 32 bits, as its programs read them.

use std::os::fd::OwnedFd;
use std::time::Duration;

use freeway_abi::fw_clock;

use crate::{DatapathError, syscall};

/// Asks a BPF program for the time.
pub struct Clock {
    prog: OwnedFd,
    hz: u32,
}

impl Clock {
    pub(crate) fn new(prog: OwnedFd) -> Result<Self, DatapathError> {
        let clock = Self {
            prog,
            hz: ticks_per_second(),
        };
        clock.ask()?;
        Ok(clock)
    }

    /// Ticks a second (CONFIG_HZ).
    #[must_use]
    pub fn hz(&self) -> u32 {
        self.hz
    }

    /// How long a tick is, rounded up to a millisecond.
    #[must_use]
    pub fn tick(&self) -> Duration {
        Duration::from_millis(1000_u32.div_ceil(self.hz).into())
    }

    /// The current tick; the last known one cannot be served if the call fails.
    pub fn now_tick(&self) -> Result<u32, DatapathError> {
        self.ask().map(|c| c.tick)
    }

    /// A duration in ticks, rounded up.
    #[must_use]
    pub fn ticks(&self, duration: Duration) -> u32 {
        let ticks = duration
            .as_millis()
            .saturating_mul(u128::from(self.hz))
            .div_ceil(1000);
        u32::try_from(ticks).unwrap_or(u32::MAX / 2)
    }

    fn ask(&self) -> Result<fw_clock, DatapathError> {
        let mut clock = fw_clock::default();
        syscall::run(&self.prog, &mut clock).map_err(|source| DatapathError::Object {
            object: "watchdog",
            what: "running freeway_clock",
            source,
        })?;
        Ok(clock)
    }
}

/// CONFIG_HZ, whether or not the kernel shows its configuration: the coarse
/// clocks advance once a tick and say so (TICK_NSEC).
fn ticks_per_second() -> u32 {
    let mut tick = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes the structure it is given.
    let rc = unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &mut tick) };
    let tick_ns = u32::try_from(tick.tv_nsec).unwrap_or(0);
    if rc == 0 && tick_ns > 0 {
        (1_000_000_000 + tick_ns / 2) / tick_ns
    } else {
        250
    }
}
