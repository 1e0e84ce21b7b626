// SPDX-License-Identifier: MIT OR Apache-2.0
//! Indices of flows: which are free, and which the data plane may still be holding.

use std::collections::VecDeque;

/// One index for so many flows is to spare: as many flows of a full table leave for others in a second. The data plane's
/// arrays have an eighth.
const SPARE_INDICES: u32 = 64;

/// What waits for the last packet that could refer to it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Retired {
    State(u32),
    Nexthop(u32),
}

/// The indices of a table.
#[derive(Debug)]
pub(crate) struct Indices {
    free: Vec<u32>,
    /// The first that was never used, and one more than the last.
    next: u32,
    end: u32,
    /// Since when something waits, in order.
    quarantine: VecDeque<(u32, Retired)>,
}

impl Indices {
    /// For so many flows. Those that leave a full table for others keep their indices for a second: a few more than
    /// flows serve for that.
    pub fn new(flows_max: u32) -> Self {
        Self {
            free: Vec::new(),
            next: 1,
            end: flows_max + flows_max / SPARE_INDICES + 1,
            quarantine: VecDeque::new(),
        }
    }

    pub fn take(&mut self) -> Option<u32> {
        if let Some(index) = self.free.pop() {
            return Some(index);
        }
        if self.next >= self.end {
            return None;
        }
        self.next += 1;
        Some(self.next - 1)
    }

    /// Nothing refers to it.
    pub fn give_back(&mut self, index: u32) {
        self.free.push(index);
    }

    /// One could be taken.
    pub fn any_free(&self) -> bool {
        !self.free.is_empty() || self.next < self.end
    }

    /// Some will be free soon.
    pub fn any_waits(&self) -> bool {
        !self.quarantine.is_empty()
    }

    /// A packet may still hold it.
    pub fn retire(&mut self, retired: Retired, now_tick: u32) {
        self.quarantine.push_back((now_tick, retired));
    }

    /// The next that has waited for so many ticks.
    pub fn released(&mut self, ticks: u32, now_tick: u32) -> Option<Retired> {
        let (since, retired) = *self.quarantine.front()?;
        if now_tick.wrapping_sub(since) < ticks {
            return None;
        }
        self.quarantine.pop_front();
        Some(retired)
    }

    /// States that wait.
    pub fn retired_states(&self) -> impl Iterator<Item = u32> {
        self.quarantine
            .iter()
            .filter_map(|(_, retired)| match retired {
                Retired::State(index) => Some(*index),
                Retired::Nexthop(_) => None,
            })
    }
}
