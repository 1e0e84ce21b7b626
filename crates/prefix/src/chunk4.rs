// SPDX-License-Identifier: MIT OR Apache-2.0
//! A chunk, a /11, as it lies in memory: `dataplane/prefix4.h` has its layout. Nothing in it depends on where that is.

use std::collections::HashMap;

use crate::raw::{
    FW_P4_ALIGN_WORDS, FW_P4_BIT_SHIFT, FW_P4_CHUNK_BITS, FW_P4_GROUPS, FW_P4_HEAD_WORDS,
    FW_P4_LONG, FW_P4_RANK_SHIFT, FW_P4_RECORD_BITS, FW_P4_RECORDS, fw_p4_long,
};
use crate::{NextHop, Range};

/// /24s of a chunk, and of a record.
const SLOTS: u32 = 1 << (FW_P4_CHUNK_BITS - 8);
const RECORD_SLOTS: u32 = 1 << (FW_P4_RECORD_BITS - 8);
/// Words of a divided /24 without its next hops.
const LONG_WORDS: usize = size_of::<fw_p4_long>() / 8;
/// Words of a cache line.
const LINE: usize = FW_P4_ALIGN_WORDS as usize;
/// 16-bit values in a word.
const HALVES: usize = 4;

/// What begins at a /24: a leaf.
type Run = (u32, u16);

/// The words of a chunk that begins at address `first`, of its ranges.
pub fn chunk(first: u32, ranges: &[Range]) -> Vec<u64> {
    let (runs, divided) = runs(first, ranges);
    let mut known: HashMap<(u64, Vec<u16>), usize> = HashMap::new();
    let mut records = Vec::new();
    let mut which = Vec::with_capacity(FW_P4_RECORDS as usize);
    for record in 0..FW_P4_RECORDS {
        let record = record_of(record * RECORD_SLOTS, &runs);
        which.push(*known.entry(record).or_insert_with_key(|(bits, leaves)| {
            let mut words = Vec::new();
            halves(&mut words, &groups(*bits));
            halves(&mut words, leaves);
            records.push(words);
            records.len() - 1
        }));
    }
    let (places, end) = lines(&records);
    let mut words = Vec::with_capacity(end);
    // a chunk's records take less than 2^16 words
    let index: Vec<u16> = which.iter().map(|record| places[*record] as u16).collect();
    halves(&mut words, &index);
    words.push(end as u64);
    words.resize(end, 0);
    for (record, at) in records.iter().zip(&places) {
        words[*at..at + record.len()].copy_from_slice(record);
    }
    longs(&mut words, &divided);
    words
}

/// Where the records go, and where they end: each in as few cache lines as there can be, the longest first, where the
/// least is left over.
fn lines(records: &[Vec<u64>]) -> (Vec<usize>, usize) {
    let mut end = (FW_P4_HEAD_WORDS as usize).next_multiple_of(LINE);
    // what is free at the end of lines
    let mut free = Vec::new();
    free.push(FW_P4_HEAD_WORDS as usize..end);
    let mut order: Vec<usize> = (0..records.len()).collect();
    order.sort_by_key(|record| std::cmp::Reverse(records[*record].len()));
    let mut places = vec![0; records.len()];
    for record in order {
        let count = records[record].len();
        let fitting = free.iter_mut().filter(|rest| rest.len() >= count);
        if let Some(rest) = fitting.min_by_key(|rest| rest.len()) {
            places[record] = rest.start;
            rest.start += count;
            continue;
        }
        places[record] = end;
        let begin = end;
        end += count.next_multiple_of(LINE);
        free.push(begin + count..end);
    }
    (places, end)
}

/// Of eight /24s each, whether they differ from the one before, and the place of the first one's leaf.
fn groups(bits: u64) -> [u16; FW_P4_GROUPS as usize] {
    let mut rank = 0;
    bits.to_le_bytes().map(|octet| {
        let of_first = rank + u16::from(octet & 1);
        rank += octet.count_ones() as u16;
        of_first << FW_P4_RANK_SHIFT | u16::from(octet >> 1) << FW_P4_BIT_SHIFT
    })
}

/// `fw_prefix4.ranks`.
pub fn ranks() -> [u8; 1 << FW_P4_RANK_SHIFT] {
    std::array::from_fn(|at| {
        let (bits, slot) = (at >> FW_P4_BIT_SHIFT, at % 8);
        // the first has no bit
        (bits & ((1 << slot) - 1)).count_ones() as u8
    })
}

/// Bits, of which the first is never set, and leaves.
fn record_of(first: u32, runs: &[Run]) -> (u64, Vec<u16>) {
    let begin = runs.partition_point(|(slot, _)| *slot <= first) - 1;
    let within = runs[begin..].iter();
    let within = within.take_while(|(slot, _)| *slot < first + RECORD_SLOTS);
    let (mut bits, mut leaves) = (0, Vec::new());
    for (slot, leaf) in within {
        let at = slot.saturating_sub(first);
        if at > 0 {
            bits |= 1 << at;
        }
        leaves.push(*leaf);
    }
    (bits, leaves)
}

/// Leaves by the /24 at which they begin, and the ranges within each /24 that is divided.
fn runs(first: u32, ranges: &[Range]) -> (Vec<Run>, Vec<Vec<(u32, NextHop)>>) {
    let (mut runs, mut divided): (Vec<Run>, Vec<_>) = (Vec::new(), Vec::new());
    let ranges = ranges.iter();
    let mut ranges = ranges.map(|range| (range.first - first, range.next_hop));
    let mut now = ranges.next().map_or(0, |(_, next_hop)| next_hop);
    let mut next = ranges.next();
    let mut slot = 0;
    while slot < SLOTS {
        let begin = slot << 8;
        if let Some((at, next_hop)) = next
            && at == begin
        {
            now = next_hop;
            next = ranges.next();
        }
        let until = next.map_or(SLOTS << 8, |(at, _)| at);
        if until - begin >= 256 {
            if runs.last().is_none_or(|(_, last)| *last != now) {
                runs.push((slot, now));
            }
            slot = until >> 8;
            continue;
        }
        let mut inner = vec![(0, now)];
        while let Some((at, next_hop)) = next
            && at - begin < 256
        {
            inner.push((at - begin, next_hop));
            now = next_hop;
            next = ranges.next();
        }
        // there are fewer than FW_P4_LONG of them in a chunk
        runs.push((slot, FW_P4_LONG as u16 | divided.len() as u16));
        divided.push(inner);
        slot += 1;
    }
    (runs, divided)
}

/// The divided /24s, then their next hops.
fn longs(words: &mut Vec<u64>, divided: &[Vec<(u32, NextHop)>]) {
    let at = words.len();
    words.resize(at + divided.len() * LONG_WORDS, 0);
    for (number, inner) in divided.iter().enumerate() {
        let mut bits = [0u64; 4];
        for (octet, _) in inner.iter().filter(|(octet, _)| *octet > 0) {
            bits[*octet as usize / 64] |= 1 << (octet % 64);
        }
        let long = at + number * LONG_WORDS;
        words[long..long + 4].copy_from_slice(&bits);
        words[long + 4] = tail(words.len() as u32, &bits);
        let leaves: Vec<u16> = inner.iter().map(|(_, next_hop)| *next_hop).collect();
        halves(words, &leaves);
    }
}

/// The last word of a divided /24: where its leaves are, and its ranks.
fn tail(leaves: u32, bits: &[u64; 4]) -> u64 {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&leaves.to_ne_bytes());
    let mut rank = 0;
    for (word, to) in bits.iter().zip(&mut bytes[4..]) {
        *to = rank;
        // at most 192 are set in three words
        rank = rank.wrapping_add(word.count_ones() as u8);
    }
    u64::from_ne_bytes(bytes)
}

/// Appends values of 16 bits as they lie in memory.
fn halves(words: &mut Vec<u64>, values: &[u16]) {
    words.extend(values.chunks(HALVES).map(|chunk| {
        let mut bytes = [0; 8];
        for (to, value) in bytes.chunks_mut(2).zip(chunk) {
            to.copy_from_slice(&value.to_ne_bytes());
        }
        u64::from_ne_bytes(bytes)
    }));
}
