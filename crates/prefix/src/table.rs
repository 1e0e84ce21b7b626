// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is in a table, and how it changes while it is read.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use crate::family::{Chunk, Family, Set};
use crate::raw::FW_P4_NEXTHOP_MAX;
use crate::room::{Room, Run};
use crate::{NextHop, Prefix};

/// The greatest number of a next hop.
pub const NEXT_HOP_MAX: NextHop = FW_P4_NEXTHOP_MAX as NextHop;

/// There is no room for what is to be in force. What was stays so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the table of prefixes is full")]
pub struct Full;

/// Prefixes and their next hops, and the structure that readers see.
///
/// One writer. Readers may look up at any time, wherever the memory is mapped: [`Table::commit`] has all
/// changes since the last one in force with one word. What it replaced is used again only after [`Table::release`], which
/// is to be called when no lookup that began before the commit is still under way.
pub struct Table<A: Family> {
    memory: NonNull<A::Memory>,
    owned: bool,
    routes: Set<A>,
    /// Chunks.
    changed: Vec<RangeInclusive<u32>>,
    /// Of each chunk. Those that their word of the root tells all of, or that share what is empty, take no place.
    places: Vec<Place>,
    /// Chunks of which the root that is not in force has another word.
    behind: Vec<u32>,
    /// With the commit that replaced them.
    replaced: VecDeque<(u64, Run)>,
    commits: u64,
    /// Words that are always the same.
    fixed: u32,
    room: Room,
}

/// IPv4's: a ranked bitmap.
pub type Table4 = Table<u32>;
/// IPv6's: intervals in trees of cache lines.
pub type Table6 = Table<u128>;

#[derive(Clone, Copy, Default)]
struct Place {
    run: Run,
    /// Its word of the root.
    root: u32,
}

// SAFETY: the memory is reached by this alone, but for readers, who expect changes at any time.
unsafe impl<A: Family> Send for Table<A> {}

impl<A: Family> Default for Table<A> {
    fn default() -> Self {
        Self::new()
    }
}

impl<A: Family> Drop for Table<A> {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: allocated so by new().
            unsafe { dealloc(self.memory.as_ptr().cast(), Layout::new::<A::Memory>()) };
        }
    }
}

impl<A: Family> Table<A> {
    /// Empty, in memory of its own.
    #[must_use]
    pub fn new() -> Self {
        let layout = Layout::new::<A::Memory>();
        // SAFETY: the layout is not empty.
        let memory = unsafe { alloc_zeroed(layout) };
        let Some(memory) = NonNull::new(memory.cast()) else {
            handle_alloc_error(layout)
        };
        // SAFETY: allocated, zero, and nobody else has it.
        let mut table = unsafe { Self::at(memory) };
        table.owned = true;
        table
    }

    /// Empty, in memory that readers map as well, such as a BPF array's.
    ///
    /// # Safety
    ///
    /// The memory is zero, aligned, outlives the table, and nobody else writes it.
    #[must_use]
    pub unsafe fn at(memory: NonNull<A::Memory>) -> Self {
        // SAFETY: as the caller says; nobody reads it yet.
        let fixed = unsafe { A::begin(memory.as_ptr()) };
        Self {
            memory,
            owned: false,
            routes: Set::new(),
            changed: Vec::new(),
            places: vec![Place::default(); A::CHUNKS as usize],
            behind: Vec::new(),
            replaced: VecDeque::new(),
            commits: 0,
            fixed,
            room: Room::new(fixed, A::WORDS),
        }
    }

    /// Sets a prefix, or with `None` removes it, from the next commit on. Of a next hop, only the 15 bits of
    /// [`NEXT_HOP_MAX`] are kept.
    pub fn set(&mut self, prefix: Prefix<A>, next_hop: Option<NextHop>) {
        let before = match next_hop {
            Some(next_hop) => self.routes.insert(prefix, next_hop & NEXT_HOP_MAX),
            None => self.routes.remove(&prefix),
        };
        if before != next_hop {
            self.changed.push(A::chunks_of(&prefix));
        }
    }

    /// Prefixes that are set.
    #[must_use]
    pub fn prefixes(&self) -> usize {
        self.routes.len()
    }

    /// All that are set, in order.
    pub fn routes(&self) -> impl Iterator<Item = (Prefix<A>, NextHop)> {
        self.routes
            .iter()
            .map(|(prefix, next_hop)| (*prefix, *next_hop))
    }

    /// Has the changes in force, all at once; how many chunks are others than before. On failure none of them is, and a
    /// later commit tries again.
    pub fn commit(&mut self) -> Result<usize, Full> {
        let changed = merged(std::mem::take(&mut self.changed));
        let mut built = Vec::new();
        for run in &changed {
            if self.build(run, &mut built).is_err() {
                for (_, place) in built {
                    self.room.give(place.run);
                }
                self.changed = changed;
                return Err(Full);
            }
        }
        self.commits += 1;
        let mut numbers = Vec::with_capacity(built.len());
        for (number, place) in built {
            let before = std::mem::replace(&mut self.places[number as usize], place);
            if before.run.count > 0 {
                self.replaced.push_back((self.commits, before.run));
            }
            numbers.push(number);
        }
        let generation = self.word(A::GENERATION_AT);
        let new = A::CHUNKS - generation.load(Ordering::Relaxed);
        fence(Ordering::Release);
        // It is as two commits ago. A reader that was held up may still read it: each of its words is a chunk that is there.
        for number in self.behind.iter().chain(&numbers) {
            let at = A::ROOT_AT + size_of::<u32>() * (new + number) as usize;
            let root = self.places[*number as usize].root;
            self.word(at).store(root, Ordering::Relaxed);
        }
        generation.store(new, Ordering::Release);
        let count = numbers.len();
        self.behind = numbers;
        Ok(count)
    }

    /// How many commits there were.
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.commits
    }

    /// What the first so many commits have replaced may be used again: no lookup that began before them is under way.
    pub fn release(&mut self, commits: u64) {
        while let Some((commit, place)) = self.replaced.front().copied()
            && commit <= commits
        {
            self.replaced.pop_front();
            self.room.give(place);
        }
    }

    /// The next hop of an address in host order, or 0.
    #[must_use]
    pub fn lookup(&self, address: A) -> NextHop {
        // SAFETY: the memory is a table.
        unsafe { A::lookup(self.memory.as_ptr(), address) }
    }

    /// Of many addresses; as many are looked up as both have room for.
    pub fn lookup_burst(&self, addresses: &[A], next_hops: &mut [NextHop]) {
        // SAFETY: the memory is a table.
        unsafe { A::lookup_burst(self.memory.as_ptr(), addresses, next_hops) };
    }

    /// What readers see.
    #[must_use]
    pub fn memory(&self) -> NonNull<A::Memory> {
        self.memory
    }

    /// Bytes that a lookup may read: the chunks in force, both roots, and what is always the same.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let places = self.places.iter();
        let words: u32 = places.map(|place| place.run.count).sum::<u32>() + self.fixed;
        A::FIXED_BYTES + size_of::<u64>() * words as usize
    }

    /// A word that readers read, by where it is in the memory.
    fn word(&self, at: usize) -> &AtomicU32 {
        // SAFETY: within the memory, where readers read each word at once.
        unsafe { AtomicU32::from_ptr(self.memory.as_ptr().byte_add(at).cast()) }
    }

    /// Chunks that follow each other, as they are to be, at places that nobody reads. Those that stay as they are are not
    /// among them.
    fn build(
        &mut self,
        numbers: &RangeInclusive<u32>,
        built: &mut Vec<(u32, Place)>,
    ) -> Result<(), Full> {
        let first = A::first_of(*numbers.start());
        let around = (0..=A::CHUNK_LENGTH).filter_map(|length| Prefix::new(first, length));
        let (before, here): (Vec<_>, Vec<_>) = around.partition(|prefix| prefix.first() < first);
        let Some(from) = here.first() else {
            return Ok(());
        };
        // those around what comes next, the innermost last
        let before = before.iter();
        let before = before.filter_map(|prefix| Some((prefix.last(), *self.routes.get(prefix)?)));
        let mut open: Vec<(A, NextHop)> = before.collect();
        // SAFETY: within the memory.
        let chunks: *mut u64 = unsafe { self.memory.as_ptr().byte_add(A::WORDS_AT).cast() };
        let mut routes = self.routes.range(*from..).peekable();
        for number in numbers.clone() {
            let first = A::first_of(number);
            let last = first | !A::mask(A::CHUNK_LENGTH);
            while open.pop_if(|(last, _)| *last < first).is_some() {}
            while let Some((prefix, next_hop)) = routes.next_if(|(prefix, _)| {
                prefix.first() == first && prefix.length() <= A::CHUNK_LENGTH
            }) {
                open.push((prefix.last(), *next_hop));
            }
            let outside = open.last().map_or(0, |(_, next_hop)| *next_hop);
            let mut within = Vec::new();
            while let Some((prefix, next_hop)) =
                routes.next_if(|(prefix, _)| prefix.first() <= last)
            {
                within.push((*prefix, *next_hop));
            }
            let Chunk { words, root } = A::chunk(first, outside, within);
            let before = self.places[number as usize];
            if words.is_empty() && before.run.count == 0 && before.root == root {
                continue;
            }
            let count = (words.len() as u32).next_multiple_of(A::ALIGN_WORDS);
            let run = self.room.take(count).ok_or(Full)?;
            // SAFETY: the place is as long, within the array, and nobody reads it.
            unsafe { copy(&words, chunks.add(run.at as usize)) };
            let root = run.at + root;
            built.push((number, Place { run, root }));
        }
        Ok(())
    }
}

/// In order, none touching another.
fn merged(mut ranges: Vec<RangeInclusive<u32>>) -> Vec<RangeInclusive<u32>> {
    ranges.sort_by_key(|range| *range.start());
    let mut merged: Vec<RangeInclusive<u32>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if *range.start() <= last.end() + 1 => {
                *last = *last.start()..=*last.end().max(range.end());
            }
            _ => merged.push(range),
        }
    }
    merged
}

/// # Safety
///
/// There is room for all of it.
unsafe fn copy<T: Copy>(from: &[T], to: *mut T) {
    // SAFETY: as the caller says; what is new does not overlap what is read.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
}
