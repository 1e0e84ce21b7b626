// SPDX-License-Identifier: MIT OR Apache-2.0
//! Other structures, built at once from all ranges. What reads them is in `native/candidates.c`.

mod blocks;
mod dir24;
mod dxr;
mod poptrie;

use std::collections::HashMap;
use std::hash::Hash;

pub use blocks::blocks;
pub use dir24::{Slots, dir24, slots};
pub use dxr::dxr;
pub use poptrie::poptrie;

use freeway_prefix::{NextHop, Range};

/// Words in front of the arrays.
const HEAD: usize = 16;
/// Marks what is divided further.
const LONG: u16 = 1 << 15;

/// Arrays behind each other, each at a cache line of its own.
#[derive(Debug)]
pub struct Block(Vec<u32>);

impl Block {
    fn new() -> Self {
        Self(vec![0; HEAD])
    }

    fn words(mut self, at: usize, words: impl IntoIterator<Item = u32>) -> Self {
        self.0[at] = self.0.len() as u32;
        self.0.extend(words);
        self.0.resize(self.0.len().next_multiple_of(16), 0);
        self
    }

    fn halves(self, at: usize, halves: &[u16]) -> Self {
        let pairs = halves.chunks(2);
        let pairs = pairs.map(|pair| {
            let high = pair.get(1).copied().unwrap_or(0);
            u32::from(high) << 16 | u32::from(pair[0])
        });
        self.words(at, pairs)
    }

    /// The whole of it.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        let words = &self.0[..];
        // SAFETY: words have no padding.
        unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
    }
}

/// Elements of which equal ones are one.
struct Shared<T> {
    all: Vec<T>,
    known: HashMap<T, u32>,
}

impl<T: Hash + Eq + Clone> Shared<T> {
    fn new() -> Self {
        Self {
            all: Vec::new(),
            known: HashMap::new(),
        }
    }

    fn number(&mut self, element: T) -> u32 {
        *self.known.entry(element).or_insert_with_key(|element| {
            self.all.push(element.clone());
            self.all.len() as u32 - 1
        })
    }
}

/// The ranges, asked for from the lowest address on or at random.
#[derive(Clone, Copy)]
struct Map<'a>(&'a [Range]);

impl Map<'_> {
    /// Of the addresses from `first` on, `2^bits` of them: the ranges' beginnings, relative, the first 0.
    fn within(&self, first: u32, bits: u32) -> Vec<(u32, NextHop)> {
        let last = first + (u64::MAX >> (64 - bits)) as u32;
        let begin = self.0.partition_point(|range| range.first <= first) - 1;
        let ranges = self.0[begin..].iter();
        let ranges = ranges.take_while(|range| range.first <= last);
        ranges
            .map(|range| (range.first.saturating_sub(first), range.next_hop))
            .collect()
    }
}

/// An entry for each of `count` slots of `2^bits` addresses; what is divided further is told by `divided`.
fn expand(
    map: Map<'_>,
    first: u32,
    bits: u32,
    count: u32,
    mut divided: impl FnMut(u32, &[(u32, NextHop)]) -> u16,
) -> Vec<u16> {
    let slots = (0..count).map(|slot| {
        let at = first + (slot << bits);
        match map.within(at, bits)[..] {
            [(_, next_hop)] => next_hop,
            ref ranges => divided(at, ranges),
        }
    });
    slots.collect()
}

/// One entry for each address of a /24.
fn last_octet(ranges: &[(u32, NextHop)]) -> Vec<u16> {
    let mut entries = Vec::with_capacity(256);
    for (at, (_, next_hop)) in ranges.iter().enumerate() {
        let end = ranges.get(at + 1).map_or(256, |(first, _)| *first);
        entries.resize(end as usize, *next_hop);
    }
    entries
}
