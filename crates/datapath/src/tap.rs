// SPDX-License-Identifier: MIT OR Apache-2.0
//! A capture of fast packets: a program in place of the plain one at some ports, and what it tells.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use freeway_abi::{Pod, fw_tap_count, fw_tap_frame};
use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, Program, RingBuffer, RingBufferBuilder};

use crate::DatapathError;
use crate::load::{get, handles, prog_fd};

const RING: &str = "fw_tap_ring";
const COUNTS: &str = "fw_tap_counts";

/// The program, for as long as somebody captures.
pub struct Tap {
    object: Object,
    prog: OwnedFd,
}

/// What it has done, summed over CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TapCounts {
    /// Packets that were told of.
    pub told: u64,
    /// Packets over the rate, or for which there was no room.
    pub lost: u64,
}

impl Tap {
    pub(crate) fn new(object: Object) -> Result<Self, DatapathError> {
        let prog = prog_fd(&object, "tap", "freeway_tap")?;
        Ok(Self { object, prog })
    }

    /// The program.
    #[must_use]
    pub fn prog(&self) -> BorrowedFd<'_> {
        self.prog.as_fd()
    }

    /// Its id.
    #[must_use]
    pub fn prog_id(&self) -> Option<u32> {
        Program::id_from_fd(self.prog.as_fd()).ok()
    }

    /// The reading end, for any thread.
    pub fn ring(&self) -> Result<TapRing, DatapathError> {
        let maps = handles(&self.object)?;
        let clone = |name| {
            let map = get(&maps, name)?;
            MapHandle::try_from(map).map_err(|source| DatapathError::Map { map: name, source })
        };
        Ok(TapRing {
            ring: clone(RING)?,
            counts: clone(COUNTS)?,
        })
    }
}

/// What a capture is told, not read yet.
pub struct TapRing {
    ring: MapHandle,
    counts: MapHandle,
}

impl fmt::Debug for TapRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TapRing")
    }
}

impl TapRing {
    /// Begins to read: each frame with as much of it as was taken.
    pub fn read<'a>(
        self,
        mut each: impl FnMut(&fw_tap_frame, &[u8]) + 'a,
    ) -> Result<TapReader<'a>, DatapathError> {
        let error = |source| DatapathError::Map { map: RING, source };
        let mut builder = RingBufferBuilder::new();
        let take = move |record: &[u8]| {
            if let Some(head) = fw_tap_frame::from_bytes(record)
                && let Some(octets) = record.get(size_of::<fw_tap_frame>()..)
                && let Some(octets) = octets.get(..head.taken as usize)
            {
                each(&head, octets);
            }
            0
        };
        builder.add(&self.ring, take).map_err(error)?;
        let ring = builder.build().map_err(error)?;
        let counts = self.counts;
        Ok(TapReader { ring, counts })
    }
}

/// What a capture is told, as it is read.
pub struct TapReader<'a> {
    ring: RingBuffer<'a>,
    counts: MapHandle,
}

impl TapReader<'_> {
    /// Reads what is there, or waits for some.
    pub fn wait(&self, patience: Duration) -> Result<(), DatapathError> {
        match self.ring.poll(patience) {
            Err(error) if error.kind() != libbpf_rs::ErrorKind::Interrupted => {
                Err(DatapathError::Map {
                    map: RING,
                    source: error,
                })
            }
            _ => Ok(()),
        }
    }

    /// What was told and what was not.
    pub fn counts(&self) -> TapCounts {
        let cpus = self
            .counts
            .lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY);
        let cpus = cpus.ok().flatten().unwrap_or_default();
        let counts = cpus
            .iter()
            .filter_map(|count| fw_tap_count::from_bytes(count));
        counts.fold(TapCounts::default(), |sum, count| TapCounts {
            told: sum.told + count.told,
            lost: sum.lost + count.over + count.lost,
        })
    }
}
