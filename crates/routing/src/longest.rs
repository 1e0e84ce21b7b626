// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prefixes in order, with longest prefix match.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use freeway_prefix::{Address, Prefix};

/// A map of prefixes that knows which lengths there are.
#[derive(Clone, Debug)]
pub struct Longest<A, V> {
    map: BTreeMap<Prefix<A>, V>,
    /// How many of each there are.
    lengths: BTreeMap<u8, u32>,
}

impl<A, V> Default for Longest<A, V> {
    fn default() -> Self {
        Self {
            map: BTreeMap::new(),
            lengths: BTreeMap::new(),
        }
    }
}

impl<A: Address, V> FromIterator<(Prefix<A>, V)> for Longest<A, V> {
    fn from_iter<I: IntoIterator<Item = (Prefix<A>, V)>>(entries: I) -> Self {
        let mut all = Self {
            map: entries.into_iter().collect(),
            ..Self::default()
        };
        for prefix in all.map.keys() {
            *all.lengths.entry(prefix.length()).or_default() += 1;
        }
        all
    }
}

impl<A: Address, V> Longest<A, V> {
    pub fn get(&self, prefix: Prefix<A>) -> Option<&V> {
        self.map.get(&prefix)
    }

    pub fn get_mut(&mut self, prefix: Prefix<A>) -> Option<&mut V> {
        self.map.get_mut(&prefix)
    }

    pub fn insert(&mut self, prefix: Prefix<A>, value: V) -> Option<V> {
        let old = self.map.insert(prefix, value);
        if old.is_none() {
            *self.lengths.entry(prefix.length()).or_default() += 1;
        }
        old
    }

    pub fn remove(&mut self, prefix: Prefix<A>) -> Option<V> {
        let old = self.map.remove(&prefix);
        if old.is_some()
            && let Some(left) = self.lengths.get_mut(&prefix.length())
        {
            *left -= 1;
            if *left == 0 {
                self.lengths.remove(&prefix.length());
            }
        }
        old
    }

    pub fn len(&self) -> usize {
        self.map.len()
    }

    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (Prefix<A>, &V)> {
        self.map.iter().map(|(prefix, value)| (*prefix, value))
    }

    pub fn into_iter(self) -> impl Iterator<Item = (Prefix<A>, V)> {
        self.map.into_iter()
    }

    /// The longest one of at most `length` bits that has the address.
    pub fn longest(&self, address: A, length: u8) -> Option<(Prefix<A>, &V)> {
        let lengths = self.lengths.range(..=length).rev();
        let mut around = lengths.filter_map(|(length, _)| Prefix::new(address, *length));
        around.find_map(|prefix| Some((prefix, self.map.get(&prefix)?)))
    }

    /// True if it, or one around it, is there.
    pub fn covers(&self, prefix: Prefix<A>) -> bool {
        !self.is_empty() && self.longest(prefix.first(), prefix.length()).is_some()
    }

    /// Those within a prefix, itself included.
    pub fn within(&self, prefix: Prefix<A>) -> impl Iterator<Item = (Prefix<A>, &V)> {
        let range = self.map.range(inside(prefix));
        range.map(|(prefix, value)| (*prefix, value))
    }
}

/// The prefixes within one, as a range of their order: those around it that begin where it does are ahead of it.
fn inside<A: Address>(prefix: Prefix<A>) -> RangeInclusive<Prefix<A>> {
    prefix..=Prefix::host(prefix.last())
}
