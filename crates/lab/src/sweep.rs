// SPDX-License-Identifier: MIT OR Apache-2.0
//! Removing what a lab created: its own on drop, and what killed runs have left.

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::error::LabError;
use crate::limit;
use crate::netns::{NETNS_DIR, Netns};
use crate::owner::is_stale;

/// How long processes inside a namespace have to end by themselves.
const GRACE: Duration = Duration::from_millis(500);

/// A number for a lab of this process.
pub(crate) fn next_run() -> u32 {
    static RUN: AtomicU32 = AtomicU32::new(0);
    RUN.fetch_add(1, Ordering::Relaxed)
}

/// Removes one namespace, its links and the processes inside. A namespace that is gone is no error.
pub(crate) fn remove(netns: &Netns) -> Result<(), LabError> {
    if !netns.path().exists() {
        return Ok(());
    }
    end_processes(netns);
    match netns.delete() {
        Err(_) if !netns.path().exists() => Ok(()),
        result => result,
    }
}

fn end_processes(netns: &Netns) {
    let signal_all = |signal| {
        let inside = netns.processes();
        for pid in &inside {
            // A process that has ended meanwhile needs no signal.
            let _ = kill(Pid::from_raw(*pid), signal);
        }
        !inside.is_empty()
    };
    if !signal_all(Signal::SIGTERM) {
        return;
    }
    let patience = Instant::now() + GRACE;
    while Instant::now() < patience {
        if netns.processes().is_empty() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    signal_all(Signal::SIGKILL);
}

/// Removes the namespaces of labs whose process is gone, and puts back the limit that they raised; returns the
/// namespaces' names.
pub fn sweep() -> Vec<String> {
    let swept = sweep_namespaces();
    limit::sweep();
    swept
}

fn sweep_namespaces() -> Vec<String> {
    let Ok(entries) = fs::read_dir(NETNS_DIR) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let stale = is_stale(&name, &entry.path());
            (stale && remove(&Netns::named(&name)).is_ok()).then_some(name)
        })
        .collect()
}
