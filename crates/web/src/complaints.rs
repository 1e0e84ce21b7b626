// SPDX-License-Identifier: MIT OR Apache-2.0
//! Warnings that others cause, so that nobody fills the log.

use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Between two lines of a kind.
const PAUSE: Duration = Duration::from_secs(1);

/// Of one kind.
#[derive(Debug, Default)]
pub struct Complaints(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: Option<Instant>,
    left_out: u64,
}

impl Complaints {
    /// Logs it, or counts it if there was one just now.
    pub fn warn(&self, words: impl Display) {
        if let Some(left_out) = self.due(Instant::now()) {
            match left_out {
                0 => tracing::warn!("{words}"),
                n => tracing::warn!("{words} (and {n} more like it)"),
            }
        }
    }

    /// How many were left out, if it is to be logged.
    fn due(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.last.is_some_and(|last| now - last < PAUSE) {
            state.left_out += 1;
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_a_second_is_said() {
        let complaints = Complaints::default();
        let start = Instant::now();
        assert_eq!(complaints.due(start), Some(0));
        assert_eq!(complaints.due(start), None);
        assert_eq!(complaints.due(start + PAUSE / 2), None);
        assert_eq!(complaints.due(start + PAUSE), Some(2));
        assert_eq!(complaints.due(start + PAUSE * 3), Some(0));
    }
}
