// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is remembered of flows that are not in the table, of a bounded number of them.

use std::collections::{HashMap, VecDeque};

use crate::key::FlowKey;
use crate::refusal::Refusal;

/// So many of each.
pub(crate) const MEMORY_MAX: usize = 4096;
/// Outcomes that change more often than this in a minute stay in the kernel.
const CHANGES_MAX: u32 = 3;

/// What was noted last of each flow; the flow noted first makes room.
#[derive(Debug)]
struct Last<T> {
    by_key: HashMap<FlowKey, T>,
    order: VecDeque<FlowKey>,
}

impl<T> Default for Last<T> {
    fn default() -> Self {
        Self {
            by_key: HashMap::new(),
            order: VecDeque::new(),
        }
    }
}

impl<T: Copy> Last<T> {
    /// What is known of `key`, or `fresh`.
    fn entry(&mut self, key: &FlowKey, fresh: T) -> &mut T {
        if !self.by_key.contains_key(key) {
            self.order.push_back(*key);
            if self.order.len() > MEMORY_MAX
                && let Some(oldest) = self.order.pop_front()
            {
                self.by_key.remove(&oldest);
            }
        }
        self.by_key.entry(*key).or_insert(fresh)
    }
}

/// The last refusals, for `explain`.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Last<Refusal>);

impl Refusals {
    pub fn note(&mut self, key: FlowKey, refusal: Refusal) {
        *self.0.entry(&key, refusal) = refusal;
    }

    /// `key` became fast.
    pub fn forget(&mut self, key: &FlowKey) {
        self.0.by_key.remove(key);
    }

    pub fn of(&self, key: &FlowKey) -> Option<Refusal> {
        self.0.by_key.get(key).copied()
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
pub(crate) struct Outcomes(Last<Changes>);

impl Outcomes {
    /// The outcome of a flow has changed; refused if it does so too often. `minute`: in ticks.
    pub fn changed(&mut self, key: &FlowKey, minute: u32, now_tick: u32) -> Result<(), Refusal> {
        let fresh = Changes {
            since_tick: now_tick,
            count: 0,
        };
        let changes = self.0.entry(key, fresh);
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

#[cfg(test)]
mod tests {
    use freeway_kernel::model::Tuple;

    use super::*;

    fn key(number: u32) -> FlowKey {
        FlowKey {
            tuple: Tuple {
                src: number.to_be_bytes().into(),
                dst: [192, 0, 2, 1].into(),
                proto: 17,
                sport: 1,
                dport: 2,
            },
            port: 1,
        }
    }

    #[test]
    fn outcomes_of_many_flows_take_bounded_room() {
        let mut outcomes = Outcomes::default();
        for number in 0..3 * MEMORY_MAX as u32 {
            assert!(outcomes.changed(&key(number), 1000, 1).is_ok());
            assert!(outcomes.0.by_key.len() <= MEMORY_MAX);
            assert!(outcomes.0.order.len() <= MEMORY_MAX);
        }
        let last = key(3 * MEMORY_MAX as u32 - 1);
        for _ in 1..CHANGES_MAX {
            assert!(outcomes.changed(&last, 1000, 2).is_ok());
        }
        assert!(outcomes.changed(&last, 1000, 2).is_err());
        assert!(outcomes.changed(&last, 1000, 1001).is_ok(), "a new minute");
    }
}
