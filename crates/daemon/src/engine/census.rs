// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sums over all flows: a walk in pieces, when somebody asks. At a million flows it takes tens of milliseconds, so its
//! result is used again for a while: the walks take a bounded share of the processor however often somebody asks.

mod count;

use std::time::{Duration, Instant};

use freeway_abi::{FW_ST_ACTIVE, FW_ST_PREPARING, fw_state};
use freeway_api::{FlowCounts, Packets, Stats, Status, Top, TopQuery};
use nix::time::{ClockId, clock_gettime};

use super::rates::Rates;
use crate::Reply;

/// Flows looked at in one piece.
const PIECE: usize = 8192;
/// A result serves for so many times the processor's time that it took: walks take at most this part of it.
const SHARE: u32 = 20;
/// What a walk may take that is made anew for each question.
const CHEAP: Duration = Duration::from_millis(10);

/// What a walk finds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    /// By state; the capacity is not filled in.
    pub flows: FlowCounts,
    /// Forwarded by flows of the table, and by removed ones that no longer count.
    pub fast: Packets,
    /// The longest time, in ticks, by which a fast packet followed the last confirmation of its flow.
    pub staleness_ticks: u32,
}

/// Who waits for a result.
pub(super) enum Asker {
    Status(Reply<Status>),
    Stats(Reply<Stats>),
    Top(TopQuery, Reply<Top>, Instant),
}

struct Walk {
    /// The next index; past the end: of `retired`.
    cursor: u32,
    end: u32,
    /// States that were counted, one bit each: a flow may leave behind the cursor's back.
    seen: Vec<u64>,
    /// States of flows that left, at the end of the walk.
    retired: Option<std::vec::IntoIter<u32>>,
    sums: Sums,
    epoch: u32,
    worked: Duration,
}

struct Result {
    sums: Sums,
    /// In whose epoch the walk began.
    epoch: u32,
    finished: Instant,
    worked: Duration,
}

/// The last result, the walk under way, and who waits for it.
#[derive(Default)]
pub(super) struct Census {
    last: Option<Result>,
    walk: Option<Walk>,
    waiting: Vec<Asker>,
    pub rates: Option<Rates>,
    /// Indices of flows in the table, one bit each. Walking the shared table by it is in order of memory, and many
    /// times as fast as asking the manager for each flow.
    live: Vec<u64>,
}

impl Census {
    pub(super) fn running(&self) -> bool {
        self.walk.is_some()
    }

    /// A flow was entered.
    pub(super) fn entered(&mut self, index: u32) {
        let (word, bit) = place(index);
        if self.live.len() <= word {
            self.live.resize(word + 1, 0);
        }
        self.live[word] |= bit;
        if let Some(rates) = &mut self.rates {
            rates.entered(index);
        }
    }

    /// A flow was removed.
    pub(super) fn removed(&mut self, index: u32) {
        let (word, bit) = place(index);
        if let Some(word) = self.live.get_mut(word) {
            *word &= !bit;
        }
    }

    /// True if the index is of a flow in the table.
    pub(super) fn is_live(&self, index: u32) -> bool {
        let (word, bit) = place(index);
        self.live.get(word).is_some_and(|word| word & bit != 0)
    }

    /// Sums that are young enough.
    fn fresh(&self) -> Option<Sums> {
        let last = self.last.as_ref()?;
        (last.finished.elapsed() < last.serves()).then_some(last.sums)
    }
}

/// What this thread has had of the processor: a walk that waited for it was not dear.
fn processor_time() -> Duration {
    let clock = ClockId::CLOCK_THREAD_CPUTIME_ID;
    clock_gettime(clock).map_or(Duration::ZERO, Into::into)
}

/// Word and bit of an index.
fn place(index: u32) -> (usize, u64) {
    (index as usize / 64, 1 << (index % 64))
}

impl Result {
    /// How long it serves.
    fn serves(&self) -> Duration {
        if self.worked < CHEAP {
            Duration::ZERO
        } else {
            SHARE * self.worked
        }
    }
}

impl Sums {
    fn add(&mut self, state: &fw_state, epoch: u32) {
        self.fast.packets += state.packets;
        self.fast.bytes += state.bytes;
        match state.status {
            FW_ST_PREPARING => self.flows.preparing += 1,
            FW_ST_ACTIVE if state.epoch == epoch => self.flows.active += 1,
            FW_ST_ACTIVE => self.flows.unconfirmed += 1,
            _ => self.flows.suspended += 1,
        }
        if state.status == FW_ST_ACTIVE && state.packets > 0 {
            // up to its last fast packet: an idle flow forwards nothing stale
            let ticks = state.used_tick.wrapping_sub(state.confirmed_tick);
            if ticks < u32::MAX / 2 {
                self.staleness_ticks = self.staleness_ticks.max(ticks);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_summed() {
        let state = |status, epoch, used_tick, confirmed_tick| fw_state {
            packets: 2,
            bytes: 100,
            status,
            epoch,
            used_tick,
            confirmed_tick,
            ..fw_state::default()
        };
        let mut sums = Sums::default();
        sums.add(&state(FW_ST_ACTIVE, 7, 1000, 400), 7);
        // confirmed after its last fast packet
        sums.add(&state(FW_ST_ACTIVE, 6, 1000, 1001), 7);
        // across the wrap
        sums.add(&state(FW_ST_ACTIVE, 7, 100, 100u32.wrapping_sub(700)), 7);
        sums.add(&state(FW_ST_PREPARING, 7, 9000, 0), 7);
        assert_eq!(
            (
                sums.flows.active,
                sums.flows.unconfirmed,
                sums.flows.preparing
            ),
            (2, 1, 1)
        );
        assert_eq!((sums.fast.packets, sums.fast.bytes), (8, 400));
        assert_eq!(sums.staleness_ticks, 700);
    }

    #[test]
    fn indices_come_and_go() {
        let mut census = Census::default();
        for index in [1, 64, 1000] {
            census.entered(index);
        }
        census.removed(64);
        census.removed(5000);
        let live: Vec<u32> = (0..2000).filter(|index| census.is_live(*index)).collect();
        assert_eq!(live, [1, 1000]);
    }

    #[test]
    fn who_waits_for_the_processor_does_not_use_it() {
        let (began, since) = (processor_time(), Instant::now());
        std::thread::sleep(4 * CHEAP);
        assert!(since.elapsed() >= 4 * CHEAP);
        let idle = processor_time();
        assert!(began > Duration::ZERO && idle - began < CHEAP);
        while processor_time() == idle {}
    }

    #[test]
    fn a_result_serves_as_long_as_it_was_dear() {
        let mut census = Census::default();
        let result = |finished, worked| Result {
            epoch: 1,
            sums: Sums::default(),
            finished,
            worked,
        };
        assert!(census.fresh().is_none());
        census.last = Some(result(Instant::now(), Duration::from_secs(3600)));
        assert!(census.fresh().is_some());
        census.last = Some(result(Instant::now(), CHEAP / 2));
        assert!(census.fresh().is_none());
    }
}
