// SPDX-License-Identifier: MIT OR Apache-2.0
//! What became of a collector's records.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use freeway_api::CollectorState;

/// What the thread tells.
#[derive(Debug, Default)]
pub struct Counters {
    pub records: AtomicU64,
    pub messages: AtomicU64,
    pub octets: AtomicU64,
    pub dropped: AtomicU64,
    pub connects: AtomicU64,
    state: AtomicU8,
    error: Mutex<Option<String>>,
}

const STATES: [CollectorState; 3] = [
    CollectorState::Connecting,
    CollectorState::Ready,
    CollectorState::Down,
];

impl Counters {
    /// True if it was another.
    pub fn set_state(&self, state: CollectorState) -> bool {
        let number = STATES.iter().position(|one| *one == state).unwrap_or(0) as u8;
        self.state.swap(number, Relaxed) != number
    }

    pub fn failed(&self, error: &std::io::Error) {
        if let Ok(mut last) = self.error.lock() {
            *last = Some(error.to_string());
        }
    }

    pub fn state(&self) -> CollectorState {
        STATES[usize::from(self.state.load(Relaxed))]
    }

    pub fn error(&self) -> Option<String> {
        self.error.lock().ok().and_then(|error| error.clone())
    }
}
