// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cleaning up when a signal ends the process.

use std::io::Read;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use nix::fcntl::OFlag;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, raise, sigaction};
use nix::unistd::pipe2;

use crate::error::{Context, LabError};
use crate::limit::{self, Raised};
use crate::netns::Netns;
use crate::sweep;

/// What ends the process after the cleanup.
const ENDING: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// The namespaces that exist or are about to.
#[derive(Debug)]
struct Registry {
    namespaces: Vec<Netns>,
    ending: bool,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    namespaces: Vec::new(),
    ending: false,
});
static WAKE_FD: AtomicI32 = AtomicI32::new(-1);
/// Bit n: signal n is not for this process now, see [`hold_interrupts`].
static HELD: AtomicU32 = AtomicU32::new(0);

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Creates a namespace that the cleanup knows of. The lock makes sure that none appears after it.
pub(crate) fn create(netns: &Netns) -> Result<(), LabError> {
    let mut registry = registry();
    if registry.ending {
        return Err(LabError::Interrupted);
    }
    registry.namespaces.push(netns.clone());
    netns.create()
}

/// Raises the limit of connections for a lab; as for namespaces, not after the cleanup.
pub(crate) fn raise_limit(run: u32, entries: u32) -> Result<Raised, LabError> {
    let registry = registry();
    if registry.ending {
        return Err(LabError::Interrupted);
    }
    limit::raise(run, entries)
}

/// Removes a namespace and forgets it.
pub(crate) fn remove(netns: &Netns) -> Result<(), LabError> {
    let mut registry = registry();
    while registry.ending {
        // The cleanup has removed it. Nobody goes on from here: the signal ends the process.
        drop(registry);
        thread::park();
        registry = self::registry();
    }
    registry.namespaces.retain(|known| known != netns);
    sweep::remove(netns)
}

extern "C" fn on_signal(number: libc::c_int) {
    if HELD.load(Ordering::Relaxed) & 1u32.wrapping_shl(number.cast_unsigned()) != 0 {
        return;
    }
    let byte = number as u8;
    // SAFETY: write(2) is async-signal-safe, and the byte outlives the call.
    let _ = unsafe { libc::write(WAKE_FD.load(Ordering::Relaxed), (&raw const byte).cast(), 1) };
}

/// From now on SIGINT, SIGTERM and SIGHUP first remove all labs of this process, then end it as they
/// would have without this. Calling it again changes nothing.
pub fn cleanup_on_signal() -> Result<(), LabError> {
    static INSTALLED: OnceLock<Result<(), String>> = OnceLock::new();
    INSTALLED
        .get_or_init(|| install().map_err(|error| error.to_string()))
        .clone()
        .map_err(LabError::Invalid)
}

fn install() -> Result<(), LabError> {
    let (wake_rx, wake_tx) = pipe2(OFlag::O_CLOEXEC).context("create a pipe for signals")?;
    WAKE_FD.store(wake_tx.into_raw_fd(), Ordering::Relaxed);
    thread::Builder::new()
        .name("lab-cleanup".into())
        .spawn(move || wait_and_clean(wake_rx))
        .context("start the cleanup thread")?;
    let action = SigAction::new(
        SigHandler::Handler(on_signal),
        SaFlags::SA_RESTART,
        SigSet::empty(),
    );
    for signal in ENDING {
        // SAFETY: the handler only loads atomics and writes a byte to a pipe.
        unsafe { sigaction(signal, &action) }.context(format!("handle {signal}"))?;
    }
    Ok(())
}

fn wait_and_clean(wake: OwnedFd) {
    let mut byte = [0];
    if std::fs::File::from(wake).read_exact(&mut byte).is_err() {
        return;
    }
    clean();
    let Ok(signal) = Signal::try_from(i32::from(byte[0])) else {
        return;
    };
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: the default action runs no code of ours.
    if unsafe { sigaction(signal, &default) }.is_ok() {
        let _ = SigSet::from(signal).thread_unblock();
        let _ = raise(signal);
    }
    std::process::exit(128 + i32::from(byte[0]));
}

/// Removes every lab of this process; none can be built afterwards.
fn clean() {
    let mut registry = registry();
    registry.ending = true;
    for netns in registry.namespaces.drain(..) {
        if let Err(error) = sweep::remove(&netns) {
            eprintln!("cannot remove namespace {}: {error}", netns.name());
        }
    }
    limit::release_own();
}

/// While it lives, Ctrl-C is for the foreground child alone, as system(3) does it.
#[derive(Debug)]
pub(crate) struct InterruptHold(());

pub(crate) fn hold_interrupts() -> InterruptHold {
    HELD.fetch_or(1 << libc::SIGINT, Ordering::Relaxed);
    InterruptHold(())
}

impl Drop for InterruptHold {
    fn drop(&mut self) {
        HELD.fetch_and(!(1 << libc::SIGINT), Ordering::Relaxed);
    }
}
