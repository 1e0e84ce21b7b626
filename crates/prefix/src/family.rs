// SPDX-License-Identifier: MIT OR Apache-2.0
//! What differs between the tables of both families.

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::ops::RangeInclusive;

use crate::chunk4::{chunk as chunk4, ranks};
use crate::chunk6::chunk as chunk6;
use crate::raw::{
    FW_P4_ALIGN_WORDS, FW_P4_CHUNK_BITS, FW_P4_CHUNKS, FW_P4_WORDS, FW_P6_ALIGN_WORDS,
    FW_P6_CHUNK_BITS, FW_P6_CHUNKS, FW_P6_LEAF_SHIFT, FW_P6_WORDS, fw_prefix4, fw_prefix6,
};
use crate::{Address, NextHop, Prefix, ranges};

unsafe extern "C" {
    fn fw_user_prefix4(table: *const fw_prefix4, address: u32) -> u32;
    fn fw_user_prefix4_burst(
        table: *const fw_prefix4,
        addresses: *const u32,
        next_hops: *mut u16,
        count: u32,
    );
    fn fw_user_prefix6(table: *const fw_prefix6, high: u64, low: u64) -> u32;
    fn fw_user_prefix6_burst(
        table: *const fw_prefix6,
        addresses: *const [u64; 2],
        next_hops: *mut u16,
        count: u32,
    );
}

/// What is set, in order.
pub type Set<A> = BTreeMap<Prefix<A>, NextHop>;

/// A chunk as it is to be.
pub struct Chunk {
    /// None if its word of the root says all.
    pub words: Vec<u64>,
    /// Its word of the root, but for where it is.
    pub root: u32,
}

/// The structure of a family, by its addresses.
pub trait Family: Address {
    /// What readers see; all of it is zero at first.
    type Memory;
    /// Words of a root, of which there are two.
    const CHUNKS: u32;
    /// Words of chunks.
    const WORDS: u32;
    /// Where in the memory the word that switches is, the two roots, and those of chunks.
    const GENERATION_AT: usize;
    /// See there.
    const ROOT_AT: usize;
    /// See there.
    const WORDS_AT: usize;
    /// A chunk begins at a multiple of so many.
    const ALIGN_WORDS: u32;
    /// What the root and all that does not depend on routes take.
    const FIXED_BYTES: usize;
    /// Leading bits of an address that choose a chunk.
    const CHUNK_LENGTH: u8;

    /// Writes what is always the same. How many of the words for chunks that takes.
    ///
    /// # Safety
    ///
    /// The memory is there, and nobody else reaches it.
    unsafe fn begin(memory: *mut Self::Memory) -> u32;

    /// The chunks that a prefix concerns.
    fn chunks_of(prefix: &Prefix<Self>) -> RangeInclusive<u32>;

    /// The first address of a chunk.
    fn first_of(chunk: u32) -> Self;

    /// A chunk, by its first address, of prefixes longer than it; what they leave free leads to `outside`.
    fn chunk(first: Self, outside: NextHop, within: Vec<(Prefix<Self>, NextHop)>) -> Chunk;

    /// # Safety
    ///
    /// The memory is that of a table.
    unsafe fn lookup(memory: *const Self::Memory, address: Self) -> NextHop;

    /// # Safety
    ///
    /// The memory is that of a table.
    unsafe fn lookup_burst(
        memory: *const Self::Memory,
        addresses: &[Self],
        next_hops: &mut [NextHop],
    );
}

/// Bits of an address that tell where it is in its chunk.
const SHIFT4: u32 = FW_P4_CHUNK_BITS;

/// IPv4: a ranked bitmap.
impl Family for u32 {
    type Memory = fw_prefix4;
    const CHUNKS: u32 = FW_P4_CHUNKS;
    const WORDS: u32 = FW_P4_WORDS;
    const ALIGN_WORDS: u32 = FW_P4_ALIGN_WORDS;
    const GENERATION_AT: usize = offset_of!(fw_prefix4, generation);
    const ROOT_AT: usize = offset_of!(fw_prefix4, root);
    const WORDS_AT: usize = offset_of!(fw_prefix4, words);
    const FIXED_BYTES: usize = Self::WORDS_AT - offset_of!(fw_prefix4, ranks);
    const CHUNK_LENGTH: u8 = (32 - SHIFT4) as u8;

    unsafe fn begin(memory: *mut fw_prefix4) -> u32 {
        // what all chunks without a route share
        let empty = chunk4(0, &[]);
        // SAFETY: as the caller says; the chunk is shorter than the array.
        unsafe {
            (&raw mut (*memory).ranks).write(ranks());
            let words = (&raw mut (*memory).words).cast();
            std::ptr::copy_nonoverlapping(empty.as_ptr(), words, empty.len());
        }
        (empty.len() as u32).next_multiple_of(Self::ALIGN_WORDS)
    }

    fn chunks_of(prefix: &Prefix<u32>) -> RangeInclusive<u32> {
        prefix.first() >> SHIFT4..=prefix.last() >> SHIFT4
    }

    fn first_of(chunk: u32) -> u32 {
        chunk << SHIFT4
    }

    fn chunk(first: u32, outside: NextHop, within: Vec<(Prefix<u32>, NextHop)>) -> Chunk {
        let last = first | !u32::mask(Self::CHUNK_LENGTH);
        let ranges = ranges(first, last, outside, within);
        let empty = matches!(ranges[..], [range] if range.next_hop == 0);
        let words = if empty {
            Vec::new()
        } else {
            chunk4(first, &ranges)
        };
        Chunk { words, root: 0 }
    }

    unsafe fn lookup(memory: *const fw_prefix4, address: u32) -> NextHop {
        // SAFETY: as the caller says.
        unsafe { fw_user_prefix4(memory, address) as NextHop }
    }

    unsafe fn lookup_burst(memory: *const fw_prefix4, addresses: &[u32], hops: &mut [NextHop]) {
        let count = addresses.len().min(hops.len()) as u32;
        // SAFETY: as the caller says, and both slices are so long.
        unsafe {
            fw_user_prefix4_burst(memory, addresses.as_ptr(), hops.as_mut_ptr(), count);
        }
    }
}

/// Likewise.
const SHIFT6: u32 = u128::BITS - FW_P6_CHUNK_BITS;

/// IPv6: intervals in trees of cache lines.
impl Family for u128 {
    type Memory = fw_prefix6;
    const CHUNKS: u32 = FW_P6_CHUNKS;
    const WORDS: u32 = FW_P6_WORDS;
    const ALIGN_WORDS: u32 = FW_P6_ALIGN_WORDS;
    const GENERATION_AT: usize = offset_of!(fw_prefix6, generation);
    const ROOT_AT: usize = offset_of!(fw_prefix6, root);
    const WORDS_AT: usize = offset_of!(fw_prefix6, words);
    const FIXED_BYTES: usize = Self::WORDS_AT - Self::ROOT_AT;
    const CHUNK_LENGTH: u8 = FW_P6_CHUNK_BITS as u8;

    unsafe fn begin(_: *mut fw_prefix6) -> u32 {
        0
    }

    fn chunks_of(prefix: &Prefix<u128>) -> RangeInclusive<u32> {
        (prefix.first() >> SHIFT6) as u32..=(prefix.last() >> SHIFT6) as u32
    }

    fn first_of(chunk: u32) -> u128 {
        u128::from(chunk) << SHIFT6
    }

    fn chunk(_: u128, outside: NextHop, within: Vec<(Prefix<u128>, NextHop)>) -> Chunk {
        if within.is_empty() {
            return Chunk {
                words: Vec::new(),
                root: u32::from(outside) << FW_P6_LEAF_SHIFT,
            };
        }
        let (words, root) = chunk6(outside, &within);
        Chunk { words, root }
    }

    unsafe fn lookup(memory: *const fw_prefix6, address: u128) -> NextHop {
        // SAFETY: as the caller says.
        unsafe { fw_user_prefix6(memory, (address >> 64) as u64, address as u64) as NextHop }
    }

    unsafe fn lookup_burst(memory: *const fw_prefix6, addresses: &[u128], hops: &mut [NextHop]) {
        let halves = addresses.iter();
        let halves: Vec<[u64; 2]> = halves
            .map(|address| [(address >> 64) as u64, *address as u64])
            .collect();
        let count = addresses.len().min(hops.len()) as u32;
        // SAFETY: as the caller says, and both slices are so long.
        unsafe {
            fw_user_prefix6_burst(memory, halves.as_ptr(), hops.as_mut_ptr(), count);
        }
    }
}
