// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ranked bitmap: what is in it, and how it changes while it is read.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use crate::chunk::{chunk, ranks};
use crate::raw::{
    FW_P4_ALIGN_WORDS, FW_P4_CHUNK_BITS, FW_P4_CHUNKS, FW_P4_NEXTHOP_MAX, FW_P4_WORDS, fw_prefix4,
};
use crate::room::{Room, Run};
use crate::{NextHop, Prefix4, ranges};

unsafe extern "C" {
    fn fw_user_prefix4(table: *const fw_prefix4, address: u32) -> u32;
    fn fw_user_prefix4_burst(
        table: *const fw_prefix4,
        addresses: *const u32,
        next_hops: *mut u16,
        count: u32,
    );
}

/// The greatest number of a next hop.
pub const NEXT_HOP_MAX: NextHop = FW_P4_NEXTHOP_MAX as NextHop;

/// Bits of an address that tell where it is in its chunk, and of those that tell its chunk.
const SHIFT: u32 = FW_P4_CHUNK_BITS;
const CHUNK_LENGTH: u8 = (32 - SHIFT) as u8;
/// What all chunks without a route share.
const EMPTY: u32 = 0;

/// There is no room for what is to be in force. What was stays so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the table of prefixes is full")]
pub struct Full;

/// Prefixes and their next hops, and the structure that readers see.
///
/// One writer. Readers may look up at any time, wherever the memory is mapped: [`Table4::commit`] has all
/// changes since the last one in force with one word. What it replaced is used again only after [`Table4::release`], which
/// is to be called when no lookup that began before the commit is still under way.
pub struct Table4 {
    memory: NonNull<fw_prefix4>,
    owned: bool,
    routes: BTreeMap<Prefix4, NextHop>,
    changed: BTreeSet<u32>,
    /// Where each chunk is. Those that are the shared ones take none.
    places: Vec<Run>,
    /// With the commit that replaced them.
    replaced: VecDeque<(u64, Run)>,
    commits: u64,
    empty: Run,
    room: Room,
}

// SAFETY: the memory is reached by this alone, but for readers, who expect changes at any time.
unsafe impl Send for Table4 {}

impl Default for Table4 {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Table4 {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: allocated so by new().
            unsafe { dealloc(self.memory.as_ptr().cast(), Layout::new::<fw_prefix4>()) };
        }
    }
}

impl Table4 {
    /// Empty, in memory of its own.
    #[must_use]
    pub fn new() -> Self {
        let layout = Layout::new::<fw_prefix4>();
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
    pub unsafe fn at(memory: NonNull<fw_prefix4>) -> Self {
        let empty = chunk(0, &[]);
        let count = (empty.len() as u32).next_multiple_of(FW_P4_ALIGN_WORDS);
        let table = Self {
            memory,
            owned: false,
            routes: BTreeMap::new(),
            changed: BTreeSet::new(),
            places: vec![Run::default(); FW_P4_CHUNKS as usize],
            replaced: VecDeque::new(),
            commits: 0,
            empty: Run { at: EMPTY, count },
            room: Room::new(EMPTY + count, FW_P4_WORDS),
        };
        table.write(&empty, table.empty);
        // SAFETY: within the memory, which nobody reads yet.
        unsafe { (&raw mut (*memory.as_ptr()).ranks).write(ranks()) };
        table
    }

    /// Sets a prefix, or with `None` removes it, from the next commit on. Of a next hop, only the 15 bits of
    /// [`NEXT_HOP_MAX`] are kept.
    pub fn set(&mut self, prefix: Prefix4, next_hop: Option<NextHop>) {
        let before = match next_hop {
            Some(next_hop) => self.routes.insert(prefix, next_hop & NEXT_HOP_MAX),
            None => self.routes.remove(&prefix),
        };
        if before != next_hop {
            self.changed
                .extend(prefix.first() >> SHIFT..=prefix.last() >> SHIFT);
        }
    }

    /// Prefixes that are set.
    #[must_use]
    pub fn prefixes(&self) -> usize {
        self.routes.len()
    }

    /// All that are set, in order.
    pub fn routes(&self) -> impl Iterator<Item = (Prefix4, NextHop)> {
        self.routes
            .iter()
            .map(|(prefix, next_hop)| (*prefix, *next_hop))
    }

    /// Has the changes in force, all at once; how many chunks of 2,048 were built anew. On failure none of them is, and a
    /// later commit tries again.
    pub fn commit(&mut self) -> Result<usize, Full> {
        let mut built = Vec::with_capacity(self.changed.len());
        for number in self.changed.clone() {
            let Some(place) = self.build(number) else {
                for (_, place) in built {
                    self.room.give(place);
                }
                return Err(Full);
            };
            built.push((number, place));
        }
        self.changed.clear();
        self.commits += 1;
        let count = built.len();
        for (number, place) in built {
            let before = std::mem::replace(&mut self.places[number as usize], place);
            self.replaced.push_back((self.commits, before));
        }
        // SAFETY: within the memory, where readers read each word at once.
        let (generation, roots) = unsafe {
            let table = self.memory.as_ptr();
            let roots = (&raw mut (*table).root).cast::<u32>();
            (AtomicU32::from_ptr(&raw mut (*table).generation), roots)
        };
        let new = FW_P4_CHUNKS - generation.load(Ordering::Relaxed);
        fence(Ordering::Release);
        // a reader that was held up may still read this root: each of its words is a chunk that is there
        for (number, place) in self.places.iter().enumerate() {
            let at = new as usize + number;
            // SAFETY: as above; one of the two roots.
            unsafe { AtomicU32::from_ptr(roots.add(at)) }.store(place.at, Ordering::Relaxed);
        }
        generation.store(new, Ordering::Release);
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
    pub fn lookup(&self, address: u32) -> NextHop {
        // SAFETY: the memory is a table.
        unsafe { fw_user_prefix4(self.memory.as_ptr(), address) as NextHop }
    }

    /// Of many addresses; as many are looked up as both have room for.
    pub fn lookup_burst(&self, addresses: &[u32], next_hops: &mut [NextHop]) {
        let count = addresses.len().min(next_hops.len()) as u32;
        // SAFETY: the memory is a table, and both slices are so long.
        unsafe {
            fw_user_prefix4_burst(
                self.memory.as_ptr(),
                addresses.as_ptr(),
                next_hops.as_mut_ptr(),
                count,
            );
        }
    }

    /// What readers see.
    #[must_use]
    pub fn memory(&self) -> NonNull<fw_prefix4> {
        self.memory
    }

    /// Bytes that a lookup may read: the chunks in force, both roots, and the table of ranks.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let places = self.places.iter().chain([&self.empty]);
        let words: usize = places.map(|place| place.count as usize).sum();
        size_of_val(&ranks()) + size_of::<u64>() * words + 2 * size_of::<u32>() * self.places.len()
    }

    /// A chunk as it is to be, at a place that nobody reads; none if there is no room.
    fn build(&mut self, number: u32) -> Option<Run> {
        let first = number << SHIFT;
        let last = first | ((1 << SHIFT) - 1);
        let mut around = (0..=CHUNK_LENGTH).rev();
        let outside = around.find_map(|length| self.routes.get(&Prefix4::new(first, length)?));
        let outside = outside.copied().unwrap_or(0);
        let ends = Prefix4::new(first, CHUNK_LENGTH)?..=Prefix4::new(last, 32)?;
        let within = self.routes.range(ends);
        let within = within.filter(|(prefix, _)| prefix.length() > CHUNK_LENGTH);
        let within = within.map(|(prefix, next_hop)| (*prefix, *next_hop));
        let ranges = ranges(first, last, outside, within);
        if let [range] = ranges[..]
            && range.next_hop == 0
        {
            return Some(Run {
                at: EMPTY,
                count: 0,
            });
        }
        let words = chunk(first, &ranges);
        let count = (words.len() as u32).next_multiple_of(FW_P4_ALIGN_WORDS);
        let place = self.room.take(count)?;
        self.write(&words, place);
        Some(place)
    }

    fn write(&self, words: &[u64], place: Run) {
        // SAFETY: the place is as long, within the array, and nobody reads it.
        unsafe {
            let to = (&raw mut (*self.memory.as_ptr()).words).cast::<u64>();
            copy(words, to.add(place.at as usize));
        }
    }
}

/// # Safety
///
/// There is room for all of it.
unsafe fn copy<T: Copy>(from: &[T], to: *mut T) {
    // SAFETY: as the caller says; what is new does not overlap what is read.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
}
