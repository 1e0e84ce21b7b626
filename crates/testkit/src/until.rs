// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting.

use std::thread;
use std::time::Duration;

use crate::Moment;

/// Between two looks.
pub(crate) const POLL: Duration = Duration::from_millis(20);

/// Nobody gives up sooner: how long something takes is not what waiting is to show.
pub(crate) const LEAST: Duration = Duration::from_secs(30);

/// Asks until there is an answer. `patience`: where it may take longer than half a minute.
#[track_caller]
pub fn until<T>(what: &str, patience: Duration, mut ask: impl FnMut() -> Option<T>) -> T {
    let patience = patience.max(LEAST);
    let end = Moment::now() + patience;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Moment::now() < end, "not within {patience:?}: {what}");
        thread::sleep(POLL);
    }
}
