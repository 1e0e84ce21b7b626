// SPDX-License-Identifier: MIT OR Apache-2.0
//! A walk over the whole table.

/// Where it stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    /// The next index to look at.
    next: u32,
    /// One more than the last.
    end: u32,
    /// Flows leave whether they are allowed or not.
    flush: bool,
}

impl Walk {
    pub fn new(end: u32, flush: bool) -> Self {
        Self {
            next: 1,
            end,
            flush,
        }
    }

    pub fn flushes(&self) -> bool {
        self.flush
    }

    pub fn is_over(&self) -> bool {
        self.next >= self.end
    }

    /// The next index.
    pub fn next(&mut self) -> Option<u32> {
        if self.is_over() {
            return None;
        }
        self.next += 1;
        Some(self.next - 1)
    }
}
