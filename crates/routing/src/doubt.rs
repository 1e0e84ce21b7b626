// SPDX-License-Identifier: MIT OR Apache-2.0
//! What loads must settle. Loads have numbers; what is noted during one is not settled by it.

use std::collections::BTreeMap;

use freeway_prefix::Prefix;

use crate::ip::Ip;

/// How many whole loads make up for a contradiction. At the first one the cause may still be there, unseen.
const LOADS_OF_WITHDRAWN: u8 = 2;

/// Prefixes of which it is not known what the kernel has, or that it contradicted.
#[derive(Clone, Debug)]
pub struct Doubts<A: Ip> {
    /// The load that began last.
    load: u32,
    /// By the load that had begun last.
    doubted: BTreeMap<Prefix<A>, u32>,
    /// Likewise, and how many whole loads are wanting.
    withdrawn: BTreeMap<Prefix<A>, (u32, u8)>,
    /// Everything is unsure, likewise.
    all: Option<u32>,
    /// Something is to be read again, likewise.
    stale: Option<u32>,
}

impl<A: Ip> Doubts<A> {
    /// Nothing has been read.
    pub fn of_all() -> Self {
        Self {
            load: 0,
            doubted: BTreeMap::new(),
            withdrawn: BTreeMap::new(),
            all: Some(0),
            stale: None,
        }
    }

    pub fn begin(&mut self) {
        self.load += 1;
    }

    /// A load was whole; false if what was lost meanwhile makes it worth nothing.
    pub fn settle(&mut self) -> bool {
        let load = self.load;
        if self.all.is_some_and(|since| since >= load) {
            return false;
        }
        self.all = None;
        self.stale = self.stale.filter(|since| *since >= load);
        self.doubted.retain(|_, since| *since >= load);
        self.withdrawn.retain(|_, (since, loads)| {
            *loads -= u8::from(*since < load);
            *loads > 0
        });
        true
    }

    /// The kernel may have anything.
    pub fn doubt_all(&mut self) {
        self.all = Some(self.load);
    }

    pub fn doubt(&mut self, prefix: Prefix<A>) {
        self.doubted.insert(prefix, self.load);
    }

    /// A load is wanted, whatever else.
    pub fn stale(&mut self) {
        self.stale = Some(self.load);
    }

    pub fn withdraw(&mut self, prefix: Prefix<A>) {
        self.withdrawn
            .insert(prefix, (self.load, LOADS_OF_WITHDRAWN));
        self.stale();
    }

    pub fn is_doubted(&self, prefix: Prefix<A>) -> bool {
        self.doubted.contains_key(&prefix)
    }

    pub fn is_withdrawn(&self, prefix: Prefix<A>) -> bool {
        self.withdrawn.contains_key(&prefix)
    }

    /// True if all is known but what is doubted.
    pub fn is_sure(&self) -> bool {
        self.all.is_none()
    }

    pub fn wants_load(&self) -> bool {
        self.all.is_some() || self.stale.is_some() || !self.doubted.is_empty()
    }

    pub fn withdrawn(&self) -> usize {
        self.withdrawn.len()
    }

    /// All that it knows.
    pub fn prefixes(&self) -> impl Iterator<Item = Prefix<A>> {
        self.doubted.keys().chain(self.withdrawn.keys()).copied()
    }
}
