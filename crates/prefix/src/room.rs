// SPDX-License-Identifier: MIT OR Apache-2.0
//! Room in an array: first fit.

use std::collections::BTreeMap;

/// Free runs of elements, by where they begin; no two touch.
#[derive(Clone, Debug)]
pub struct Room(BTreeMap<u32, u32>);

/// A run of elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// The first.
    pub at: u32,
    /// How many.
    pub count: u32,
}

impl Room {
    /// All of an array is free from `at` on.
    pub fn new(at: u32, elements: u32) -> Self {
        Self([(at, elements - at)].into())
    }

    /// The first run of at least so many, or none.
    pub fn take(&mut self, count: u32) -> Option<Run> {
        if count == 0 {
            return Some(Run::default());
        }
        let (&at, &free) = self.0.iter().find(|(_, free)| **free >= count)?;
        self.0.remove(&at);
        if free > count {
            self.0.insert(at + count, free - count);
        }
        Some(Run { at, count })
    }

    /// Gives a run back.
    pub fn give(&mut self, run: Run) {
        let Run { mut at, mut count } = run;
        if count == 0 {
            return;
        }
        if let Some((&before, &free)) = self.0.range(..at).next_back()
            && before + free == at
        {
            self.0.remove(&before);
            at = before;
            count += free;
        }
        if let Some(free) = self.0.remove(&(at + count)) {
            count += free;
        }
        self.0.insert(at, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_is_one_run_again() {
        let mut room = Room::new(1, 101);
        let runs: Vec<Run> = (0..10).map(|_| room.take(10).unwrap()).collect();
        assert_eq!(room.take(1), None);
        for at in [3, 5, 4, 0, 9, 1, 2, 8, 6, 7] {
            room.give(runs[at]);
        }
        assert_eq!(room.take(100), Some(Run { at: 1, count: 100 }));
    }
}
