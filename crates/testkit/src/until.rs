// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting.

use std::thread;
use std::time::Duration;

use crate::Moment;

/// Between two looks.
pub(crate) const POLL: Duration = Duration::from_millis(20);

/// Asks until there is an answer.
#[track_caller]
pub fn until<T>(what: &str, patience: Duration, mut ask: impl FnMut() -> Option<T>) -> T {
    let end = Moment::now() + patience;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Moment::now() < end, "not within {patience:?}: {what}");
        thread::sleep(POLL);
    }
}
