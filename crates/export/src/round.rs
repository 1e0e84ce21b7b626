// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rounds in which all that the kernel has is looked at.

use std::collections::HashSet;
use std::ops::Range;

#[derive(Debug, Default)]
pub(crate) struct Round {
    number: u32,
    /// What the kernel has is being listed.
    lists: bool,
    forced: bool,
    /// Connections that ended since the listing began: it may still name them.
    gone: HashSet<u32>,
    /// Accounts that are still to be looked at after it.
    swept: Range<usize>,
}

impl Round {
    /// The present one; at first 0.
    pub fn number(&self) -> u32 {
        self.number
    }

    pub fn begin(&mut self, forced: bool) {
        self.number = self.number.wrapping_add(1);
        self.lists = true;
        self.forced = forced;
        self.gone = HashSet::new();
        self.swept = 0..0;
    }

    pub fn end(&mut self, accounts: usize) {
        self.lists = false;
        self.gone = HashSet::new();
        self.swept = 0..accounts;
    }

    pub fn forces(&self) -> bool {
        self.forced
    }

    pub fn destroyed(&mut self, id: u32) {
        if self.lists {
            self.gone.insert(id);
        }
    }

    pub fn is_gone(&self, id: u32) -> bool {
        self.gone.contains(&id)
    }

    /// Numbers of accounts to look at next.
    pub fn take(&mut self, most: usize) -> Range<usize> {
        let end = self.swept.end.min(self.swept.start + most);
        let taken = self.swept.start..end;
        self.swept.start = end;
        taken
    }

    /// True if some are left.
    pub fn sweeps(&self) -> bool {
        !self.swept.is_empty()
    }
}
