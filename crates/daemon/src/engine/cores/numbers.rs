// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers of messages to the engine of one sort, of which one at a time is under way.

/// The last one's.
#[derive(Debug, Default)]
pub struct Numbers {
    said: u64,
    /// Of the last one that it goes by.
    taken: u64,
}

impl Numbers {
    /// It has yet to say that it goes by the last one.
    pub fn is_under_way(&self) -> bool {
        self.taken != self.said
    }

    /// That of another one.
    pub fn next(&mut self) -> u64 {
        self.said += 1;
        self.said
    }

    /// It goes by one: true if that is the last one.
    pub fn taken(&mut self, number: u64) -> bool {
        let last = number == self.said;
        if last {
            self.taken = number;
        }
        last
    }

    /// The last one never reached it.
    pub fn failed(&mut self) {
        self.taken = self.said;
    }
}
