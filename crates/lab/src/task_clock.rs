// SPDX-License-Identifier: MIT OR Apache-2.0
//! A thread's CPU time, as perf counts it. /proc/PID/schedstat tells a fraction of it where real-time threads preempt
//! this one (seen on Linux 6.18: a sixth).

use std::fs::File;
use std::io::Read;
use std::os::fd::FromRawFd;
use std::time::Duration;
use std::{io, ptr};

use crate::error::{Context, LabError};

/// linux/perf_event.h.
const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_SW_TASK_CLOCK: u64 = 1;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;

/// The first version of `struct perf_event_attr`, 64 bytes.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    rest: [u64; 6],
}

/// Counts from when it was made.
#[derive(Debug)]
pub(crate) struct TaskClock {
    counter: File,
}

impl TaskClock {
    /// Of a thread, on whatever CPU it is.
    pub(crate) fn of(tid: i32) -> Result<Self, LabError> {
        let attributes = Attributes {
            kind: PERF_TYPE_SOFTWARE,
            size: size_of::<Attributes>() as u32,
            config: PERF_COUNT_SW_TASK_CLOCK,
            ..Attributes::default()
        };
        let (any_cpu, no_group) = (-1, -1);
        // SAFETY: the attributes have the size that they tell, and outlive the call.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                ptr::from_ref(&attributes),
                tid,
                any_cpu,
                no_group,
                PERF_FLAG_FD_CLOEXEC,
            )
        };
        if fd < 0 {
            let what = format!("count the CPU time of thread {tid}");
            return Err(io::Error::last_os_error()).context(what);
        }
        // SAFETY: the kernel has just returned this descriptor to us alone.
        let counter = unsafe { File::from_raw_fd(fd as i32) };
        Ok(Self { counter })
    }

    pub(crate) fn read(&self) -> Result<Duration, LabError> {
        let mut ns = [0; 8];
        let read = (&self.counter).read_exact(&mut ns);
        read.context("read a thread's CPU time")?;
        Ok(Duration::from_nanos(u64::from_ne_bytes(ns)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_busy_thread_takes_time() {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: counters need root");
            return;
        }
        let begin = Instant::now();
        let clock = TaskClock::of(nix::unistd::gettid().as_raw()).unwrap();
        while clock.read().unwrap() < Duration::from_millis(5) {
            assert!(begin.elapsed() < Duration::from_secs(5));
        }
        assert!(clock.read().unwrap() <= begin.elapsed());
        let before = clock.read().unwrap();
        std::thread::sleep(Duration::from_millis(50));
        assert!(clock.read().unwrap() - before < Duration::from_millis(25));
    }
}
