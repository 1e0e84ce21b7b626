// SPDX-License-Identifier: MIT OR Apache-2.0
//! The schedulers of all outputs.

use freeway_api::schedule::{ClassCounts, Schedule as Described};

use crate::ffi::{FWE_PORTS_MAX, fwe_schedules};
use crate::schedule::Schedule;

/// Those of the outputs, in their order, and as a worker has them.
pub(crate) struct Schedulers {
    schedules: Vec<Option<Schedule>>,
    given: Box<fwe_schedules>,
}

/// What the worker used before; it lives until another one is used.
pub(crate) struct Retired {
    _schedules: Vec<Schedule>,
    _given: Box<fwe_schedules>,
}

impl Schedulers {
    /// No output has one.
    pub fn none() -> Self {
        let of = [std::ptr::null_mut(); FWE_PORTS_MAX as usize];
        Self {
            schedules: Vec::new(),
            given: Box::new(fwe_schedules { of }),
        }
    }

    /// For the worker, as long as this lives.
    pub fn given(&self) -> &fwe_schedules {
        &self.given
    }

    /// Other ones; in each `room` frames may wait, and `prepare` is called for each that is new. What they replace, and the
    /// outputs that have none for a reason.
    pub fn set(
        &mut self,
        wanted: Vec<Option<Described>>,
        room: u32,
        mut prepare: impl FnMut(usize, &Schedule) -> Result<(), String>,
    ) -> (Retired, Vec<(usize, String)>) {
        let mut old = std::mem::take(&mut self.schedules);
        let (mut retired, mut refused) = (Vec::new(), Vec::new());
        for (number, wanted) in wanted.into_iter().enumerate() {
            let was = old.get_mut(number).and_then(Option::take);
            if was.as_ref().map(Schedule::described) == wanted.as_ref() {
                self.schedules.push(was);
                continue;
            }
            retired.extend(was);
            let new = wanted.map(|described| {
                let schedule = Schedule::new(described, room)?;
                prepare(number, &schedule).map(|()| schedule)
            });
            let new = new.transpose().unwrap_or_else(|error| {
                refused.push((number, error));
                None
            });
            self.schedules.push(new);
        }
        retired.extend(old.into_iter().flatten());
        let mut given = Self::none().given;
        for (to, schedule) in given.of.iter_mut().zip(&self.schedules) {
            *to = schedule.as_ref().map_or(*to, Schedule::as_ptr);
        }
        let retired = Retired {
            _schedules: retired,
            _given: std::mem::replace(&mut self.given, given),
        };
        (retired, refused)
    }

    /// What has become of the frames of each one's classes.
    pub fn counts(&self) -> impl Iterator<Item = Vec<ClassCounts>> {
        self.schedules.iter().flatten().map(Schedule::counts)
    }
}
