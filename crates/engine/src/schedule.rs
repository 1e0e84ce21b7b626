// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scheduler of an output (`engine/schedule.c`).

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::ptr::NonNull;

use freeway_api::schedule::{Class, ClassCounts, Schedule as Described};

use crate::ffi::{
    FWE_CLASS_NONE, FWE_STEER_DSCP, FWE_STEER_MARK, FWE_STEER_PRIOMAP, FWE_STEER_PRIORITY,
    fwe_class, fwe_schedule, fwe_schedule_free, fwe_schedule_new, fwe_schedule_stats,
    fwe_steer_rule,
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

    /// How the kernel's own frames find their leaf: rules and the queue of the rest for its TAP, and the leaf of each queue.
    #[must_use]
    pub fn steering(&self) -> (Vec<fwe_steer_rule>, u32, Vec<u16>) {
        // the first queue is for what passes all classes
        let mut leaves = vec![FWE_CLASS_NONE as u16];
        let mut queues = BTreeMap::new();
        for (number, _) in self.described.leaves() {
            queues.insert(number as u16, leaves.len() as u32);
            leaves.push(number as u16 + 1);
        }
        let queue = |class: u16| queues.get(&class).copied().unwrap_or(0);
        let rule = |kind, value, mask, queue| fwe_steer_rule {
            kind,
            value,
            mask,
            queue,
        };
        let rules = &self.described.rules;
        let past = rules
            .past
            .iter()
            .map(|of| rule(FWE_STEER_PRIORITY, *of, 0, 0));
        let priorities = rules.priorities.iter();
        let priorities =
            priorities.map(|(of, class)| rule(FWE_STEER_PRIORITY, *of, 0, queue(*class)));
        let marks = rules.marks.iter();
        let marks = marks.map(|(of, mask, class)| rule(FWE_STEER_MARK, *of, *mask, queue(*class)));
        let dscps = rules.dscps.iter();
        let dscps = dscps.map(|(of, class)| rule(FWE_STEER_DSCP, (*of).into(), 0, queue(*class)));
        let map = (0..).zip(&rules.priomap);
        let map = map.map(|(of, class)| rule(FWE_STEER_PRIOMAP, of, 0, queue(*class)));
        let all = past.chain(priorities).chain(marks).chain(dscps).chain(map);
        (all.collect(), self.described.other.map_or(0, queue), leaves)
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
