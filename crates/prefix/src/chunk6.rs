// SPDX-License-Identifier: MIT OR Apache-2.0
//! A chunk, a /16, as it lies in memory: `dataplane/prefix6.h` has its layout. Nothing in it depends on where that is.

use crate::raw::{
    FW_P6_ALIGN_WORDS, FW_P6_CHUNK_BITS, FW_P6_DEPTH_MASK, FW_P6_DIGIT_BITS, FW_P6_KEYS, FW_P6_TREE,
};
use crate::{NextHop, Prefix4, Prefix6, ranges};

/// Values of 32 bits in a cache line.
const LINE: usize = 2 * FW_P6_ALIGN_WORDS as usize;
const KEYS: usize = FW_P6_KEYS as usize;

/// The words of a chunk, and at which of them its first tree begins, with how deep it is, as the root has it. Prefixes are
/// in order, longer than a chunk's own, and what they leave free leads to `outside`.
pub fn chunk(outside: NextHop, prefixes: &[(Prefix6, NextHop)]) -> (Vec<u64>, u32) {
    let mut halves = Vec::new();
    let bit = FW_P6_CHUNK_BITS as u8;
    let begin = tree(&mut halves, bit, outside.into(), prefixes);
    let words = halves.chunks_exact(2).map(|pair| {
        let mut bytes = [0; 8];
        for (to, half) in bytes.chunks_mut(4).zip(pair) {
            to.copy_from_slice(&half.to_ne_bytes());
        }
        u64::from_ne_bytes(bytes)
    });
    (words.collect(), begin)
}

/// Appends the tree of the digit that begins at a bit, behind those below it. Where it begins and how deep it is.
fn tree(halves: &mut Vec<u32>, bit: u8, outside: u32, prefixes: &[(Prefix6, NextHop)]) -> u32 {
    let next_bit = bit + FW_P6_DIGIT_BITS as u8;
    let mut of_digit: Vec<(Prefix4, u32)> = Vec::new();
    // those around what comes next, the innermost last
    let mut open: Vec<(Prefix4, u32)> = Vec::new();
    let mut rest = prefixes;
    while let [(prefix, next_hop), after @ ..] = rest {
        let digit = digit_of(prefix, bit);
        while open.pop_if(|(around, _)| around.last() < digit).is_some() {}
        let own = prefix.length().min(next_bit) - bit;
        let Some(own) = Prefix4::new(digit, own) else {
            break;
        };
        if prefix.length() <= next_bit {
            open.push((own, (*next_hop).into()));
            of_digit.push((own, (*next_hop).into()));
            rest = after;
            continue;
        }
        let divide = rest.iter();
        let divide = divide.take_while(|(other, _)| digit_of(other, bit) == digit);
        let (within, after) = rest.split_at(divide.count());
        let around = open.last().map_or(outside, |(_, value)| *value);
        let below = tree(halves, next_bit, around, within);
        of_digit.push((own, FW_P6_TREE | below));
        rest = after;
    }
    let ranges = ranges(0, u32::MAX, outside, of_digit);
    let lasts = ranges.iter().skip(1).map(|range| range.first - 1);
    let levels = levels(lasts.chain([u32::MAX]).collect());
    let depth = levels.len() as u32;
    // the first of the lowest nodes, whose values are behind room for those of all nodes above
    let first = (nodes_at(depth - 1) - 1) / KEYS;
    let values = ranges.len() + first * KEYS;
    let end = (halves.len() + values).next_multiple_of(LINE);
    halves.resize(end - values, 0);
    let begin = (end / 2) as u32;
    let values = ranges.iter().rev().map(|range| range.next_hop);
    halves.extend(values.map(|value| match value & FW_P6_TREE {
        0 => value,
        // how far back it begins
        tree => {
            let depth = value & FW_P6_DEPTH_MASK;
            tree | (begin - (value & !tree & !FW_P6_DEPTH_MASK)) | depth
        }
    }));
    halves.resize(end, 0);
    append(halves, &levels);
    begin | depth
}

/// The digit of a prefix that begins at a bit; the last one ends in zeroes.
fn digit_of(prefix: &Prefix6, bit: u8) -> u32 {
    (prefix.first() << bit >> (u128::BITS - FW_P6_DIGIT_BITS)) as u32
}

/// Nodes at a level that has all of them; 0 is the root's.
fn nodes_at(level: u32) -> usize {
    (KEYS + 1).pow(level)
}

/// What a node of a level has, 0 being the lowest.
fn width(level: usize) -> usize {
    KEYS + usize::from(level > 0)
}

/// Of the last digits of ranges, those of what each level's nodes lead to, the lowest first.
fn levels(lasts: Vec<u32>) -> Vec<Vec<u32>> {
    let mut levels = vec![lasts];
    while let Some(lasts) = levels.last()
        && lasts.len() > width(levels.len() - 1)
    {
        let nodes = lasts.chunks(width(levels.len() - 1));
        levels.push(nodes.filter_map(|node| node.last().copied()).collect());
    }
    levels
}

/// Appends the nodes, the highest first. But for those at the end of the lowest level, all are there.
fn append(halves: &mut Vec<u32>, levels: &[Vec<u32>]) {
    for (from_root, (level, lasts)) in (0..).zip(levels.iter().enumerate().rev()) {
        let begin = halves.len();
        for node in lasts.chunks(width(level)) {
            let end = halves.len() + KEYS;
            halves.extend(node.iter().take(KEYS));
            // beyond all digits
            halves.resize(end, u32::MAX);
        }
        if level > 0 {
            halves.resize(begin + nodes_at(from_root) * KEYS, u32::MAX);
        }
    }
}
