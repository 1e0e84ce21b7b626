// SPDX-License-Identifier: MIT OR Apache-2.0
//! DXR, D16X4R: direct 16 bits, four bits by groups of descriptors, ranges for the rest; equal groups and equal ranges are one.

use std::collections::HashMap;

use freeway_prefix::{NextHop, Range};

use super::{Block, Map, Shared};

/// A descriptor: as in `native/candidates.c`.
const AT: u32 = 6;
const HIT: u32 = 31;
const LONGER: u32 = 1 << 5;
/// A short range's next hop has 12 bits.
const SHORT_MAX: NextHop = 0xfff;

/// `None` if there are more groups than the first level can name.
#[must_use]
pub fn dxr(ranges: &[Range]) -> Option<Block> {
    let map = Map(ranges);
    let mut groups = Shared::new();
    let (mut short, mut long) = (Chunks::default(), Chunks::default());
    let mut root = Vec::with_capacity(1 << 16);
    for slot in 0..1u32 << 16 {
        let group: [u32; 16] = std::array::from_fn(|at| {
            let first = slot << 16 | (at as u32) << 12;
            descriptor(&map.within(first, 12), &mut short, &mut long)
        });
        root.push(groups.number(group));
    }
    if groups.all.len() > 1 << 16 {
        return None;
    }
    let root: Vec<u16> = root.into_iter().map(|number| number as u16).collect();
    // a search reads beyond its ranges
    short.all.resize(short.all.len() + 16, 0);
    let block = Block::new().halves(0, &root).words(1, groups.all.concat());
    Some(block.halves(2, &short.all).words(3, long.all))
}

fn descriptor(ranges: &[(u32, NextHop)], short: &mut Chunks<u16>, long: &mut Chunks<u32>) -> u32 {
    if let [(_, next_hop)] = ranges {
        return u32::from(*next_hop) << AT | HIT;
    }
    let fits = |(first, next_hop): &(u32, NextHop)| first % 256 == 0 && *next_hop <= SHORT_MAX;
    if ranges.iter().all(fits) {
        let chunk = ranges
            .iter()
            .map(|(first, next_hop)| ((first >> 8) as u16) << 12 | next_hop);
        let at = short.place(chunk.collect());
        return at << AT | (ranges.len() as u32 - 1);
    }
    let chunk = ranges
        .iter()
        .map(|(first, next_hop)| first << 16 | u32::from(*next_hop));
    let chunk = [ranges.len() as u32].into_iter().chain(chunk);
    long.place(chunk.collect()) << AT | LONGER
}

/// Ranges of chunks behind each other.
struct Chunks<T> {
    all: Vec<T>,
    known: HashMap<Vec<T>, u32>,
}

impl<T> Default for Chunks<T> {
    fn default() -> Self {
        Self {
            all: Vec::new(),
            known: HashMap::new(),
        }
    }
}

impl<T: Copy + Eq + std::hash::Hash> Chunks<T> {
    fn place(&mut self, chunk: Vec<T>) -> u32 {
        if let Some(at) = self.known.get(&chunk) {
            return *at;
        }
        let at = self.all.len() as u32;
        self.all.extend(&chunk);
        self.known.insert(chunk, at);
        at
    }
}
