// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events of connections that the kernel had to drop, as when a million of them expire.
//!
//! The data plane looks each fast connection up once a second, so what ends or changes its mark or status is noticed
//! without events. All else is what the kernel does with a packet of the flow: an epoch asks it, and another one
//! before the first had time to spread would only keep the flows in the kernel.

use std::time::{Duration, Instant};

/// Between two epochs: as long as a change without an event may go unnoticed in any case.
const PAUSE: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct Lost {
    some: bool,
    asked: Option<Instant>,
}

impl Lost {
    pub(super) fn note(&mut self) {
        self.some = true;
    }

    /// True while a new epoch is still to begin.
    pub(super) fn some(&self) -> bool {
        self.some
    }

    /// True if a new epoch is to begin now.
    pub(super) fn due(&mut self, now: Instant) -> bool {
        let rested = self.asked.is_none_or(|asked| now - asked >= PAUSE);
        let due = self.some && rested;
        if due {
            *self = Self {
                some: false,
                asked: Some(now),
            };
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_losses_begins_few_epochs_and_none_is_forgotten() {
        let start = Instant::now();
        let mut lost = Lost::default();
        assert!(!lost.due(start));
        let mut epochs = 0;
        for quarter in 0..100 {
            lost.note();
            epochs += u32::from(lost.due(start + Duration::from_millis(250) * quarter));
        }
        assert_eq!(epochs, 3, "at 0, 10 and 20 s");
        assert!(lost.due(start + Duration::from_secs(30)), "the last ones");
        assert!(!lost.due(start + Duration::from_secs(60)));
    }
}
