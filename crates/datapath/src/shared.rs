// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arrays that the data plane and the manager share by mmap(2).
//!
//! The data plane reads and writes them at any time. All access is therefore
//! volatile or atomic, field by field; no reference into the memory is handed out.

use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use freeway_abi::{
    FW_HASH_KEYS, FW_OFFER_SETS, FW_OLISTS, FW_PATHS_MAX, FW_SEEN_FLOWS, FW_ST_ACTIVE, Pod,
    fw_config, fw_control, fw_flow, fw_kept, fw_nexthop, fw_observation_set, fw_offer_set,
    fw_olist, fw_path_count, fw_seen, fw_slot, fw_state,
};

use crate::DatapathError;

/// A mapped BPF array of `T`.
pub(crate) struct Shared<T> {
    base: NonNull<u8>,
    bytes: usize,
    len: u32,
    kind: PhantomData<T>,
}

// SAFETY: the mapping belongs to the value and is only accessed atomically or
// by volatile reads and writes.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Shared<T> {}

impl<T: Pod> Shared<T> {
    pub(crate) fn map(fd: impl AsFd, name: &'static str, len: u32) -> Result<Self, DatapathError> {
        const { assert!(size_of::<T>().is_multiple_of(8)) };
        let bytes = (size_of::<T>() * len as usize).next_multiple_of(4096);
        // SAFETY: a fresh mapping of a map created with BPF_F_MMAPABLE.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_fd().as_raw_fd(),
                0,
            )
        };
        let base = (base != libc::MAP_FAILED)
            .then_some(base)
            .and_then(|p| NonNull::new(p.cast()));
        match base {
            Some(base) => Ok(Self {
                base,
                bytes,
                len,
                kind: PhantomData,
            }),
            None => Err(DatapathError::Mmap {
                map: name,
                source: io::Error::last_os_error(),
            }),
        }
    }

    /// Where it is mapped.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn slot(&self, index: u32) -> Option<NonNull<T>> {
        // SAFETY: in bounds of the mapping.
        (index < self.len).then(|| unsafe { self.base.cast::<T>().add(index as usize) })
    }

    /// A volatile move of a large value is code of many times its size; these are of such words.
    const BY_WORDS: bool = size_of::<T>() > 256
        && size_of::<T>().is_multiple_of(4)
        && align_of::<T>() >= align_of::<u32>();

    pub(crate) fn read(&self, index: u32) -> T {
        let Some(p) = self.slot(index) else {
            return T::default();
        };
        if !Self::BY_WORDS {
            // SAFETY: in bounds and aligned; any bit pattern is a value.
            return unsafe { p.read_volatile() };
        }
        let mut value = MaybeUninit::<T>::uninit();
        let (from, to) = (p.cast::<u32>(), value.as_mut_ptr().cast::<u32>());
        for at in 0..size_of::<T>() / 4 {
            // SAFETY: within both, and aligned.
            unsafe { to.add(at).write(from.add(at).read_volatile()) };
        }
        // SAFETY: all of it is written; any bit pattern is a value.
        unsafe { value.assume_init() }
    }

    pub(crate) fn write(&self, index: u32, value: T) {
        let Some(p) = self.slot(index) else {
            return;
        };
        if !Self::BY_WORDS {
            // SAFETY: in bounds and aligned.
            return unsafe { p.write_volatile(value) };
        }
        let (from, to) = ((&raw const value).cast::<u32>(), p.cast::<u32>());
        for at in 0..size_of::<T>() / 4 {
            // SAFETY: within both, and aligned.
            unsafe { to.add(at).write_volatile(from.add(at).read()) };
        }
    }

    /// Writes an element up to a field.
    pub(crate) fn write_below(&self, index: u32, value: T, offset: usize) {
        for (at, bytes) in value.as_bytes()[..offset].chunks_exact(4).enumerate() {
            let word = u32::from_ne_bytes(bytes.first_chunk().copied().unwrap_or_default());
            self.store(index, 4 * at, word);
        }
    }

    /// A 32-bit field of an element.
    pub(crate) fn atomic(&self, index: u32, offset: usize) -> Option<&AtomicU32> {
        debug_assert!(offset + 4 <= size_of::<T>() && offset.is_multiple_of(4));
        // SAFETY: in bounds and aligned; the memory lives as long as self.
        self.slot(index)
            .map(|p| unsafe { AtomicU32::from_ptr(p.cast::<u8>().add(offset).cast().as_ptr()) })
    }

    pub(crate) fn store(&self, index: u32, offset: usize, value: u32) {
        if let Some(field) = self.atomic(index, offset) {
            field.store(value, Ordering::Release);
        }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: mapped in map(), and nothing refers to it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// The flow table. Flows are known by the manager's index; their places in the array are the table's affair.
pub struct Flows {
    flows: Shared<fw_flow>,
    /// By index; 0: in no place.
    places: Box<[AtomicU32]>,
    config: fw_config,
}

/// Offset of a field of the state within a flow.
macro_rules! state_field {
    ($field:ident) => {
        std::mem::offset_of!(fw_flow, state) + std::mem::offset_of!(fw_state, $field)
    };
}

impl Flows {
    pub(crate) fn map(flows: impl AsFd, config: fw_config) -> Result<Self, DatapathError> {
        let len = config.flow_mask + 1;
        Ok(Self {
            flows: Shared::map(flows, ".data.flows", len)?,
            places: (0..len).map(|_| AtomicU32::new(0)).collect(),
            config,
        })
    }

    /// Element 0 is never used and reads as zeros.
    fn place(&self, index: u32) -> u32 {
        self.places
            .get(index as usize)
            .map_or(0, |place| place.load(Ordering::Acquire))
    }

    fn base(&self) -> *mut fw_flow {
        self.flows.base.as_ptr().cast()
    }

    /// Writes a flow and publishes it; false if no place that its key may have is free.
    /// The index must not be in the table, or have been released.
    #[must_use]
    pub fn insert(&self, index: u32, flow: &fw_flow) -> bool {
        let Some(known) = self.places.get(index as usize) else {
            return false;
        };
        // SAFETY: the mapped array is as long as the mask says, its fields are
        // written atomically, and this is the one writer.
        let place = unsafe { fw_table_insert(self.base(), &raw const self.config, flow, index) };
        known.store(place, Ordering::Release);
        place != 0
    }

    /// Hides a flow and returns a copy of it; the data plane may hold it a moment longer.
    pub fn remove(&self, index: u32) -> fw_flow {
        let place = self.place(index);
        let flow = self.flows.read(place);
        if place != 0 {
            // SAFETY: as in insert().
            unsafe { fw_table_remove(self.base(), &raw const self.config, place) };
        }
        flow
    }

    /// The place of a removed flow may be another's: no packet can hold it any more.
    pub fn release(&self, index: u32) {
        let place = self.place(index);
        if place != 0 {
            // SAFETY: as in insert().
            unsafe { fw_table_release(self.base(), place) };
            self.places[index as usize].store(0, Ordering::Release);
        }
    }

    /// A copy of a flow; single fields are consistent, the whole need not be.
    #[must_use]
    pub fn get(&self, index: u32) -> fw_flow {
        self.flows.read(self.place(index))
    }

    /// The source address of a flow's frames.
    #[must_use]
    pub fn sender(&self, index: u32) -> Option<[u8; 6]> {
        let place = self.place(index);
        (place != 0).then(|| {
            let mut mac = [0; 6];
            mac.copy_from_slice(&self.flows.read(place).l2_in[6..12]);
            mac
        })
    }

    /// A copy of a flow's state.
    #[must_use]
    pub fn state(&self, index: u32) -> fw_state {
        let Some(flow) = self.flows.slot(self.place(index)) else {
            return fw_state::default();
        };
        // SAFETY: in bounds and aligned; any bit pattern is a value.
        unsafe { (&raw const (*flow.as_ptr()).state).read_volatile() }
    }

    /// Changes the status if it is still `from`; false if the data plane was first.
    #[must_use]
    pub fn swap_status(&self, index: u32, from: u32, to: u32) -> bool {
        let place = self.place(index);
        self.flows
            .atomic(place, state_field!(status))
            .filter(|_| place != 0)
            .is_some_and(|status| {
                status
                    .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
                    .is_ok()
            })
    }

    fn store(&self, index: u32, offset: usize, value: u32) {
        let place = self.place(index);
        if place != 0 {
            self.flows.store(place, offset, value);
        }
    }

    /// Sets the status whatever it was.
    pub fn set_status(&self, index: u32, status: u32) {
        self.store(index, state_field!(status), status);
    }

    /// The flow waits in the kernel until tc egress confirms it.
    pub fn unconfirm(&self, index: u32) {
        self.store(index, state_field!(epoch), 0);
    }

    /// Names the flow of the other direction.
    pub fn set_peer(&self, index: u32, peer: u32) {
        self.store(index, state_field!(peer), self.place(peer));
    }
}

/// What took the paths of bridged frames (`struct fw_path_count`), by CPU and place.
pub struct PathCounts(Shared<fw_path_count>);

impl PathCounts {
    pub(crate) fn map(fd: impl AsFd, cpus: u32) -> Result<Self, DatapathError> {
        Shared::map(fd, "fw_path_counts", cpus * FW_PATHS_MAX).map(Self)
    }

    fn places(&self, count: u32) -> impl Iterator<Item = u32> {
        (count..self.0.len).step_by(FW_PATHS_MAX as usize)
    }

    /// The sum of all CPUs'.
    #[must_use]
    pub fn get(&self, count: u32) -> fw_path_count {
        let counts = self.places(count).map(|place| self.0.read(place));
        counts.fold(fw_path_count::default(), |sum, c| fw_path_count {
            packets: sum.packets.wrapping_add(c.packets),
            bytes: sum.bytes.wrapping_add(c.bytes),
        })
    }

    /// Counts from 0 on, for another path.
    pub(crate) fn clear(&self, count: u32) {
        for place in self.places(count) {
            self.0.write(place, fw_path_count::default());
        }
    }
}

/// Marks of TCP flows of which the kernel has confirmed a packet (`struct fw_seen`).
pub struct Seen(Shared<fw_seen>);

impl Seen {
    pub(crate) fn map(fd: impl AsFd, flow_mask: u32) -> Result<Self, DatapathError> {
        Shared::map(fd, "fw_seen_flows", seen_len(flow_mask)).map(Self)
    }

    /// Takes marks in the order of their indices until there are `most`; returns the index to go on with, which is
    /// the end of the range if there are no more.
    pub fn take(&self, indices: std::ops::Range<u32>, most: usize, seen: &mut Vec<u32>) -> u32 {
        let mut index = indices.start;
        while index < indices.end {
            let (chunk, at) = (index / FW_SEEN_FLOWS, index % FW_SEEN_FLOWS);
            let Some(marks) = self.0.slot(chunk) else {
                break;
            };
            let marks = marks.cast::<u8>();
            // SAFETY: a word of the chunk, in bounds and aligned.
            let word = at
                .is_multiple_of(8)
                .then(|| unsafe { marks.add(at as usize).cast::<u64>().read_volatile() });
            if word == Some(0) {
                index += 8;
                continue;
            }
            if seen.len() >= most {
                return index;
            }
            // SAFETY: a byte of the chunk, which the data plane only sets.
            let mark = unsafe { AtomicU8::from_ptr(marks.add(at as usize).as_ptr()) };
            // cleared first: what is marked later is another packet
            if mark.load(Ordering::Relaxed) != 0 && mark.swap(0, Ordering::AcqRel) != 0 {
                seen.push(index);
            }
            index += 1;
        }
        indices.end
    }
}

/// What connections were when their flows were learned (`struct fw_kept`), by index of the flow.
pub struct Kept(Shared<fw_kept>);

impl Kept {
    pub(crate) fn map(fd: impl AsFd, flow_mask: u32) -> Result<Self, DatapathError> {
        Shared::map(fd, "fw_kept_flows", flow_mask + 1).map(Self)
    }

    /// To be written ahead of the flow.
    pub fn set(&self, index: u32, kept: fw_kept) {
        self.0.write(index, kept);
    }

    /// A copy.
    #[must_use]
    pub fn get(&self, index: u32) -> fw_kept {
        self.0.read(index)
    }
}

/// Elements of the array of marks.
pub(crate) fn seen_len(flow_mask: u32) -> u32 {
    flow_mask / FW_SEEN_FLOWS + 1
}

/// What was observed at egress and offered lately (`struct fw_offer_set`, `struct fw_observation_set`).
pub struct Offers {
    offers: Shared<fw_offer_set>,
    observations: Shared<fw_observation_set>,
    config: fw_config,
}

impl Offers {
    pub(crate) fn map(
        offers: impl AsFd,
        observations: impl AsFd,
        config: fw_config,
    ) -> Result<Self, DatapathError> {
        Ok(Self {
            offers: Shared::map(offers, "fw_offers", FW_OFFER_SETS)?,
            observations: Shared::map(observations, "fw_observations", FW_OFFER_SETS)?,
            config,
        })
    }

    /// What is seen of this flow's tuple from now on is new.
    pub fn forget(&self, flow: &fw_flow) {
        // SAFETY: all of the mapped arrays.
        unsafe {
            fw_offers_forget(
                self.offers.base.as_ptr().cast(),
                self.observations.base.as_ptr().cast(),
                &raw const self.config,
                flow,
            );
        }
    }

    /// The same of all that is noted in a set.
    pub fn forget_set(&self, set: u32) {
        if set < FW_OFFER_SETS {
            // SAFETY: all of the mapped arrays, which have that many sets.
            unsafe {
                fw_offers_forget_set(
                    self.offers.base.as_ptr().cast(),
                    self.observations.base.as_ptr().cast(),
                    set,
                );
            }
        }
    }
}

/// Chooses size and secret of a table for so many flows.
pub(crate) fn configure_table(config: &mut fw_config, flows: u32, secret: [u64; HASH_KEYS]) {
    // SAFETY: writes to `config`, reads the array.
    unsafe { fw_table_config(config, flows, secret.as_ptr()) }
}

/// Secret words of a table.
pub(crate) const HASH_KEYS: usize = FW_HASH_KEYS as usize;

unsafe extern "C" {
    fn fw_table_config(config: *mut fw_config, flows: u32, random: *const u64);
    fn fw_table_insert(
        flows: *mut fw_flow,
        config: *const fw_config,
        flow: *const fw_flow,
        index: u32,
    ) -> u32;
    fn fw_table_remove(flows: *mut fw_flow, config: *const fw_config, place: u32);
    fn fw_table_release(flows: *mut fw_flow, place: u32);
    fn fw_offers_forget_set(
        offers: *mut fw_offer_set,
        observations: *mut fw_observation_set,
        set: u32,
    );
    fn fw_offers_forget(
        offers: *mut fw_offer_set,
        observations: *mut fw_observation_set,
        config: *const fw_config,
        flow: *const fw_flow,
    );
}

/// Where flows leave (`struct fw_nexthop`).
pub struct Nexthops(Shared<fw_nexthop>);

impl Nexthops {
    pub(crate) fn map(fd: impl AsFd, len: u32) -> Result<Self, DatapathError> {
        Shared::map(fd, ".data.nexthops", len).map(Self)
    }

    /// Number of elements; index 0 is unused.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.0.len
    }

    /// Writes a next hop that no flow refers to yet; `valid` goes last.
    pub fn set(&self, index: u32, nexthop: fw_nexthop) {
        self.0.write(
            index,
            fw_nexthop {
                valid: 0,
                ..nexthop
            },
        );
        self.0.store(
            index,
            std::mem::offset_of!(fw_nexthop, valid),
            nexthop.valid,
        );
    }

    /// One write, and every flow through it waits in the kernel.
    pub fn invalidate(&self, index: u32) {
        self.0
            .store(index, std::mem::offset_of!(fw_nexthop, valid), 0);
    }

    /// A copy.
    #[must_use]
    pub fn get(&self, index: u32) -> fw_nexthop {
        self.0.read(index)
    }
}

/// Where copies leave (`struct fw_olist`).
pub(crate) struct Olists(Shared<fw_olist>);

impl Olists {
    pub(crate) fn map(fd: impl AsFd) -> Result<Self, DatapathError> {
        Shared::map(fd, "fw_olists", FW_OLISTS).map(Self)
    }

    /// Writes a list that no flow refers to.
    pub(crate) fn set(&self, number: u32, olist: fw_olist) {
        self.0.write(number, olist);
    }
}

/// Observations under way (`struct fw_slot`).
pub struct Slots(Shared<fw_slot>);

impl Slots {
    pub(crate) fn map(fd: impl AsFd, len: u32) -> Result<Self, DatapathError> {
        Shared::map(fd, "fw_slots", len).map(Self)
    }

    /// The slot of a token; tokens count from 1.
    #[must_use]
    pub fn get(&self, token: u32) -> fw_slot {
        self.0.read(token.wrapping_sub(1))
    }
}

/// The line that every packet reads (`struct fw_control`).
pub struct Control(Shared<fw_control>);

macro_rules! control_field {
    ($(#[$doc:meta] $set:ident $get:ident $field:ident),* $(,)?) => {
        $(
            #[$doc]
            pub fn $set(&self, value: u32) {
                self.0.store(0, std::mem::offset_of!(fw_control, $field), value);
            }

            /// What the data plane reads now.
            #[must_use]
            pub fn $get(&self) -> u32 {
                self.0.read(0).$field
            }
        )*
    };
}

impl Control {
    pub(crate) fn map(fd: impl AsFd) -> Result<Self, DatapathError> {
        Shared::map(fd, ".data.control", 1).map(Self)
    }

    /// Switches forwarding.
    pub fn set_on(&self, on: bool) {
        let value = if on { FW_ST_ACTIVE } else { 0 };
        self.0.store(0, std::mem::offset_of!(fw_control, on), value);
    }

    /// True if forwarding is on.
    #[must_use]
    pub fn on(&self) -> bool {
        self.0.read(0).on != 0
    }

    control_field! {
        /// Past this tick every program passes everything to the kernel.
        set_deadline deadline deadline_tick,
        /// Non-zero: some flows are tc's.
        set_tc_forwards tc_forwards tc_forwards,
        /// Non-zero: learn.
        set_learn learn learn,
        /// The hard epoch, never 0.
        set_epoch epoch epoch,
        /// Non-zero: report the packets of the watched tuple.
        set_watch watch watch,
        /// Revalidations each CPU may let through in a tick.
        set_reval_budget reval_budget reval_budget,
        /// Connections each CPU may look up in a tick for its hits.
        set_check_budget check_budget check_budget,
        /// Candidates each CPU may offer in a tick.
        set_offer_budget offer_budget offer_budget,
        /// TCP frames each CPU keeps out of GRO in a tick.
        set_sample_budget sample_budget sample_budget,
        /// Non-zero: UDP connections without any reply may be learned.
        set_udp_one_way udp_one_way udp_one_way,
        /// Non-zero: there are multicast routes.
        set_multicast multicast multicast,
        /// `enum fw_bridges`: what is learned of bridged frames.
        set_bridges bridges bridges,
        /// Non-zero: there are edges of TCP connections, and what ends said before this tick counts no more.
        set_edges_tick edges_tick edges_tick,
        /// Non-zero: conntrack sees IPv4.
        set_tracks4 tracks4 tracks4,
        /// Non-zero: conntrack sees IPv6.
        set_tracks6 tracks6 tracks6,
    }
}
