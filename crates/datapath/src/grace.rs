// SPDX-License-Identifier: MIT OR Apache-2.0
//! When no program that ran before is still running: RCU grace periods, on a thread of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// `MEMBARRIER_CMD_GLOBAL` (linux/membarrier.h): the kernel calls `synchronize_rcu()`.
const MEMBARRIER_CMD_GLOBAL: libc::c_int = 1;
/// Where it is refused, as with `nohz_full`: no program runs as long.
const LONG: Duration = Duration::from_secs(2);

/// Numbers that are asked for come back when whoever ran at the time has ended.
#[derive(Debug)]
pub(crate) struct Grace {
    asked: Sender<u64>,
    passed: Arc<AtomicU64>,
}

impl Grace {
    pub(crate) fn start() -> std::io::Result<Self> {
        let (asked, questions) = channel();
        let passed = Arc::new(AtomicU64::new(0));
        let told = Arc::clone(&passed);
        let work = move || {
            while let Ok(number) = questions.recv() {
                // one period serves all that asked before it began
                let number = questions.try_iter().fold(number, u64::max);
                wait();
                told.store(number, Ordering::Release);
            }
        };
        let thread = std::thread::Builder::new().name("freeway-grace".into());
        thread.spawn(work)?;
        Ok(Self { asked, passed })
    }

    /// Numbers only grow.
    pub(crate) fn ask(&self, number: u64) {
        // without the thread nothing is ever used again
        let _ = self.asked.send(number);
    }

    /// The last number whose time is over.
    pub(crate) fn passed(&self) -> u64 {
        self.passed.load(Ordering::Acquire)
    }
}

fn wait() {
    // SAFETY: a system call without memory of ours.
    let rc = unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) };
    if rc != 0 {
        std::thread::sleep(LONG);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_comes() {
        let grace = Grace::start().unwrap();
        assert_eq!(grace.passed(), 0);
        (1..=5).for_each(|number| grace.ask(number));
        while grace.passed() < 5 {
            std::thread::yield_now();
        }
    }
}
