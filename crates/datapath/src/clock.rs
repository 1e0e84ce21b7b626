// SPDX-License-Identifier: MIT OR Apache-2.0
//! The data plane's time: jiffies, 32 bits, as its programs read them.

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use freeway_abi::{Pod, fw_clock};

use crate::DatapathError;

/// Asks a BPF program for the time.
pub struct Clock {
    prog: OwnedFd,
    hz: u32,
}

impl Clock {
    pub(crate) fn new(prog: OwnedFd) -> Result<Self, DatapathError> {
        let mut clock = Self { prog, hz: 0 };
        let first = clock.ask()?;
        clock.hz = if first.hz > 0 {
            first.hz
        } else {
            clock.measure(first.tick)?
        };
        Ok(clock)
    }

    /// Ticks a second (CONFIG_HZ).
    #[must_use]
    pub fn hz(&self) -> u32 {
        self.hz
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

    /// Where the kernel does not show its configuration, count for a while.
    fn measure(&self, first_tick: u32) -> Result<u32, DatapathError> {
        let start = Instant::now();
        std::thread::sleep(Duration::from_millis(200));
        let ticks = f64::from(self.ask()?.tick.wrapping_sub(first_tick));
        let rate = ticks / start.elapsed().as_secs_f64();
        let nearest = [100.0, 250.0, 300.0, 1000.0f64]
            .into_iter()
            .min_by(|a, b| (a - rate).abs().total_cmp(&(b - rate).abs()));
        Ok(nearest.unwrap_or(250.0) as u32)
    }

    fn ask(&self) -> Result<fw_clock, DatapathError> {
        let mut clock = fw_clock::default();
        let mut opts = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
            ctx_in: std::ptr::from_mut(&mut clock).cast(),
            ctx_size_in: size_of_val(clock.as_bytes()) as u32,
            ..Default::default()
        };
        // SAFETY: a syscall program whose context is the structure above.
        let rc = unsafe { libbpf_sys::bpf_prog_test_run_opts(self.prog.as_raw_fd(), &mut opts) };
        if rc == 0 {
            return Ok(clock);
        }
        Err(DatapathError::Object {
            object: "watchdog",
            what: "running freeway_clock",
            source: libbpf_rs::Error::from_raw_os_error(-rc),
        })
    }
}
