// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is remembered of flows that are not in the table, of a bounded number of them.

use std::collections::{HashMap, VecDeque};

use crate::key::FlowKey;
use crate::refusal::Refusal;

/// So many of each.
pub(crate) const MEMORY_MAX: usize = 4096;
/// Outcomes that change more often than this in a minute stay in the kernel.
const CHANGES_MAX: u32 = 3;

/// The last refusals, for `explain`.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    last: HashMap<FlowKey, Refusal>,
    order: VecDeque<FlowKey>,
}

impl Refusals {
    pub fn note(&mut self, key: FlowKey, refusal: Refusal) {
        if self.last.insert(key, refusal).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > MEMORY_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.last.remove(&oldest);
        }
    }

    /// `key` became fast.
    pub fn forget(&mut self, key: &FlowKey) {
        self.last.remove(key);
    }

    pub fn of(&self, key: &FlowKey) -> Option<Refusal> {
        self.last.get(key).copied()
    }
}

/// How often the outcome of a flow changed lately.
#[derive(Clone, Copy, Debug)]
struct Changes {
    since_tick: u32,
    count: u32,
}

/// Flows whose outcome changed.
#[derive(Debug, Default)]
pub(crate) struct Outcomes(HashMap<FlowKey, Changes>);

impl Outcomes {
    /// The outcome of a flow has changed; refused if it does so too often. `minute`: in ticks.
    pub fn changed(&mut self, key: &FlowKey, minute: u32, now_tick: u32) -> Result<(), Refusal> {
        if self.0.len() >= MEMORY_MAX {
            self.0
                .retain(|_, c| now_tick.wrapping_sub(c.since_tick) < minute);
        }
        let fresh = Changes {
            since_tick: now_tick,
            count: 0,
        };
        let changes = self.0.entry(*key).or_insert(fresh);
        if now_tick.wrapping_sub(changes.since_tick) >= minute {
            *changes = fresh;
        }
        changes.count += 1;
        if changes.count > CHANGES_MAX {
            Err(Refusal::Unstable)
        } else {
            Ok(())
        }
    }
}
