// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scheduler of an output (`engine/schedule.c`).

use std::ffi::CStr;
use std::ptr::NonNull;

use freeway_api::schedule::{Class, ClassCounts, Schedule as Described};

use crate::ffi::{
    FWE_CLASS_NONE, fwe_class, fwe_schedule, fwe_schedule_free, fwe_schedule_new,
    fwe_schedule_stats,
};

/// A scheduler, with what waits in it.
#[derive(Debug)]
pub struct Schedule {
    schedule: NonNull<fwe_schedule>,
    described: Described,
}

// SAFETY: one worker uses it at a time; counters may be read at any time.
unsafe impl Send for Schedule {}

fn record(class: &Class) -> fwe_class {
    fwe_class {
        id: class.id,
        above: class.above.unwrap_or(FWE_CLASS_NONE as u16),
        priority: class.priority,
        quantum: class.quantum,
        limit: class.limit,
        limit_bytes: class.limit_bytes,
        rate: class.rate,
        ceiling: class.ceiling,
        burst_ns: class.burst_ns,
        ceiling_burst_ns: class.ceiling_burst_ns,
        overhead: class.overhead,
        least: class.least,
    }
}

impl Schedule {
    /// As it is described; `room`: frames that may wait in all of it.
    pub fn new(described: Described, room: u32) -> Result<Self, String> {
        let classes: Vec<_> = described.classes.iter().map(record).collect();
        let other = described.other.unwrap_or(FWE_CLASS_NONE as u16);
        let mut error = std::ptr::null();
        let count = u32::try_from(classes.len()).map_err(|error| error.to_string())?;
        // SAFETY: so many classes; the error is a constant string.
        let schedule =
            unsafe { fwe_schedule_new(classes.as_ptr(), count, other, room, &raw mut error) };
        let schedule = NonNull::new(schedule).ok_or_else(|| {
            // SAFETY: as above.
            unsafe { CStr::from_ptr(error) }
                .to_string_lossy()
                .into_owned()
        })?;
        Ok(Self {
            schedule,
            described,
        })
    }

    pub(crate) fn as_ptr(&self) -> *mut fwe_schedule {
        self.schedule.as_ptr()
    }

    /// Of which port, and which classes it has.
    #[must_use]
    pub fn described(&self) -> &Described {
        &self.described
    }

    /// What has become of its classes' frames.
    #[must_use]
    pub fn counts(&self) -> Vec<ClassCounts> {
        let leaves = self.described.leaves();
        let counts = leaves.map(|(number, class)| {
            // SAFETY: there is such a class; plain numbers that the worker writes at any time.
            let stats = unsafe { fwe_schedule_stats(self.as_ptr(), number as u32).read_volatile() };
            ClassCounts {
                port: self.described.port,
                name: class.name.clone(),
                packets: stats.frames,
                bytes: stats.bytes,
                dropped: stats.dropped,
                waiting: stats.waiting,
                waiting_bytes: stats.waiting_bytes,
                delay_ns: stats.delay_ns,
                delays: stats.delays.to_vec(),
            }
        });
        counts.collect()
    }
}

impl Drop for Schedule {
    fn drop(&mut self) {
        // SAFETY: it lives, and no worker uses it any more.
        unsafe { fwe_schedule_free(self.as_ptr()) };
    }
}
