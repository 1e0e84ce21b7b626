// SPDX-License-Identifier: MIT OR Apache-2.0
//! The slow walk over all flows, and the reading of marks.

/// Flows that a tick looks at in any case.
const SCAN_MIN: u32 = 4096;

/// Where the scan stands.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Scan {
    next: u32,
    /// Flows still to be looked at in this tick.
    due: u32,
    /// When flows last became due.
    tick: Option<u32>,
    /// Where in the marks the reading stands; it starts with each tick.
    marks: Option<u32>,
}

impl Scan {
    /// A part of the flows below `end` becomes due: all of them within a round of so many ticks.
    pub fn begin(&mut self, round: u32, end: u32, now_tick: u32) {
        let since = self.tick.map_or(round, |tick| now_tick.wrapping_sub(tick));
        let share = u64::from(end) * u64::from(since.min(round)) / u64::from(round);
        self.tick = Some(now_tick);
        self.due = (self.due + SCAN_MIN.max(share as u32)).min(end);
        self.marks = Some(0);
    }

    /// True if flows or marks are left.
    pub fn has_work(&self) -> bool {
        self.due > 0 || self.marks.is_some()
    }

    /// The next flow that is due.
    pub fn next(&mut self, end: u32) -> Option<u32> {
        self.due = self.due.checked_sub(1)?;
        if self.next >= end {
            self.next = 0;
        }
        self.next += 1;
        Some(self.next - 1)
    }

    /// From where on marks are to be read.
    pub fn marks(&self) -> Option<u32> {
        self.marks
    }

    /// They were read up to there; `None`: all of them.
    pub fn read_marks(&mut self, next: Option<u32>) {
        self.marks = next;
    }
}
