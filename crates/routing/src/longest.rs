// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prefixes in order, with longest prefix match.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use freeway_prefix::Prefix4;

/// A map of prefixes that knows which lengths there are.
#[derive(Clone, Debug)]
pub struct Longest<V> {
    map: BTreeMap<Prefix4, V>,
    /// How many of each there are, and the bits of those that there are.
    lengths: [u32; 33],
    there: u64,
}

impl<V> Default for Longest<V> {
    fn default() -> Self {
        Self {
            map: BTreeMap::new(),
            lengths: [0; 33],
            there: 0,
        }
    }
}

impl<V> FromIterator<(Prefix4, V)> for Longest<V> {
    fn from_iter<I: IntoIterator<Item = (Prefix4, V)>>(entries: I) -> Self {
        let mut all = Self {
            map: entries.into_iter().collect(),
            ..Self::default()
        };
        for prefix in all.map.keys() {
            all.lengths[usize::from(prefix.length())] += 1;
            all.there |= 1 << prefix.length();
        }
        all
    }
}

impl<V> Longest<V> {
    pub fn get(&self, prefix: Prefix4) -> Option<&V> {
        self.map.get(&prefix)
    }

    pub fn get_mut(&mut self, prefix: Prefix4) -> Option<&mut V> {
        self.map.get_mut(&prefix)
    }

    pub fn insert(&mut self, prefix: Prefix4, value: V) -> Option<V> {
        let old = self.map.insert(prefix, value);
        if old.is_none() {
            self.lengths[usize::from(prefix.length())] += 1;
            self.there |= 1 << prefix.length();
        }
        old
    }

    pub fn remove(&mut self, prefix: Prefix4) -> Option<V> {
        let old = self.map.remove(&prefix);
        if old.is_some() {
            let left = &mut self.lengths[usize::from(prefix.length())];
            *left -= 1;
            if *left == 0 {
                self.there &= !(1 << prefix.length());
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

    pub fn iter(&self) -> impl Iterator<Item = (Prefix4, &V)> {
        self.map.iter().map(|(prefix, value)| (*prefix, value))
    }

    pub fn into_iter(self) -> impl Iterator<Item = (Prefix4, V)> {
        self.map.into_iter()
    }

    /// The longest one of at most `length` bits that has the address.
    pub fn longest(&self, address: u32, length: u8) -> Option<(Prefix4, &V)> {
        let mut lengths = self.there & ((2 << length) - 1);
        while lengths != 0 {
            let length = lengths.ilog2() as u8;
            lengths &= !(1 << length);
            let prefix = Prefix4::new(address, length)?;
            if let Some(value) = self.map.get(&prefix) {
                return Some((prefix, value));
            }
        }
        None
    }

    /// True if it, or one around it, is there.
    pub fn covers(&self, prefix: Prefix4) -> bool {
        !self.is_empty() && self.longest(prefix.first(), prefix.length()).is_some()
    }

    /// Those within a prefix, itself included.
    pub fn within(&self, prefix: Prefix4) -> impl Iterator<Item = (Prefix4, &V)> {
        let range = self.map.range(inside(prefix));
        range.map(|(prefix, value)| (*prefix, value))
    }
}

/// The prefixes within one, as a range of their order: those around it that begin where it does are ahead of it.
fn inside(prefix: Prefix4) -> RangeInclusive<Prefix4> {
    prefix..=Prefix4::host(prefix.last())
}
