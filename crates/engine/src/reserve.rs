// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reserve of huge pages.

use std::fs::{self, File};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{SigSet, Signal};

/// Of 2 MiB.
pub const HUGE_PAGE: usize = 2 << 20;
const RESERVED: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
const FREE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";

/// Those that are to be given back.
static ADDED: AtomicUsize = AtomicUsize::new(0);
/// Kept until the process has ended: its pages are counted for as long as it has them mapped.
static TURN: Mutex<Option<Flock<File>>> = Mutex::new(None);

/// Huge pages that were reserved for this process, and are given back, also where a signal ends it. To be had ahead of other
/// threads, which are not to take that signal. One process at a time has some: the reserve is one
/// number of the machine's, which another one would give back beneath it.
#[derive(Debug)]
pub struct Reserve(());

impl Reserve {
    /// Sees to so many free huge pages, once nobody else has some; says what to do where it may not.
    pub fn free(pages: usize) -> Result<Self, String> {
        take_turn()?;
        let there = number(FREE)?;
        if there >= pages {
            return Ok(Self(()));
        }
        let before = number(RESERVED)?;
        let wanted = before + pages - there;
        let advice = || {
            format!(
                "{pages} huge pages of 2 MiB are needed and {there} are free: `echo {wanted} > {RESERVED}` as root reserves them"
            )
        };
        give_back_at_signals()?;
        fs::write(RESERVED, wanted.to_string()).map_err(|_| advice())?;
        let reserve = Self(());
        ADDED.store(number(RESERVED)?.saturating_sub(before), Ordering::SeqCst);
        match number(FREE)? >= pages {
            true => Ok(reserve),
            false => Err(format!("{}, were there so much memory", advice())),
        }
    }
}

impl Drop for Reserve {
    fn drop(&mut self) {
        give_back();
    }
}

fn take_turn() -> Result<(), String> {
    let mut turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    if turn.is_none() {
        let file = File::open(RESERVED).map_err(|error| format!("{RESERVED}: {error}"))?;
        let locked = Flock::lock(file, FlockArg::LockExclusive);
        *turn = Some(locked.map_err(|(_, error)| format!("{RESERVED}: {error}"))?);
    }
    Ok(())
}

fn give_back() {
    let added = ADDED.swap(0, Ordering::SeqCst);
    if added > 0 {
        let left = number(RESERVED).unwrap_or(0).saturating_sub(added);
        // nothing else could be done about it
        let _ = fs::write(RESERVED, left.to_string());
    }
}

fn give_back_at_signals() -> Result<(), String> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM] {
        signals.add(signal);
    }
    let failed = |error: String| format!("cannot wait for signals: {error}");
    signals
        .thread_block()
        .map_err(|error| failed(error.to_string()))?;
    let thread = std::thread::Builder::new().name("signals".into());
    let waits = thread.spawn(move || {
        let Ok(signal) = signals.wait() else { return };
        give_back();
        // SAFETY: ends the process; nobody relies on what would be done at its end.
        unsafe { libc::_exit(128 + signal as i32) }
    });
    waits.map(drop).map_err(|error| failed(error.to_string()))
}

fn number(path: &str) -> Result<usize, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    text.trim()
        .parse()
        .map_err(|_| format!("{path} is no number: {}", text.trim()))
}
