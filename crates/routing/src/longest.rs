// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prefixes in order, with longest prefix match.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use freeway_prefix::Prefix4;

/// A map of prefixes that knows which lengths there are.
#[derive(Clone, Debug)]
pub struct Longest<V> {
    map: BTreeMap<Prefix4, V>,
    lengths: [u32; 33],
}

impl<V> Default for Longest<V> {
    fn default() -> Self {
        Self {
            map: BTreeMap::new(),
            lengths: [0; 33],
        }
    }
}

impl<V> FromIterator<(Prefix4, V)> for Longest<V> {
    fn from_iter<I: IntoIterator<Item = (Prefix4, V)>>(entries: I) -> Self {
        let map: BTreeMap<Prefix4, V> = entries.into_iter().collect();
        let mut lengths = [0; 33];
        for prefix in map.keys() {
            lengths[usize::from(prefix.length())] += 1;
        }
        Self { map, lengths }
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
        }
        old
    }

    pub fn remove(&mut self, prefix: Prefix4) -> Option<V> {
        let old = self.map.remove(&prefix);
        if old.is_some() {
            self.lengths[usize::from(prefix.length())] -= 1;
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
        let lengths = (0..=length).rev();
        let mut lengths = lengths.filter(|length| self.lengths[usize::from(*length)] > 0);
        lengths.find_map(|length| {
            let prefix = Prefix4::new(address, length)?;
            Some((prefix, self.map.get(&prefix)?))
        })
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
