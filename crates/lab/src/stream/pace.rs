// SPDX-License-Identifier: MIT OR Apache-2.0
//! When a sender in user space has frames to send, and which of them have the time in them: as the program has it.

use super::offer::{Offer, Offered};

/// Frames between two looks at the clock, at most.
const BURST: u64 = 16;
/// A sender that was held up makes up for so many frames, half a veth's queue; others it leaves out.
const LAG_MAX: u64 = 128;

/// An offer under way. Times are CLOCK_MONOTONIC.
#[derive(Debug)]
pub(super) struct Pace {
    start_ns: u64,
    end_ns: u64,
    /// All ways together; 0: as fast as the CPU can.
    per_s: u64,
    frames: Option<u64>,
    stamp_ns: u64,
    stamp_spread: u64,
    next_stamp_ns: u64,
    stamp_in: u64,
    last_ns: u64,
    random: u64,
    offered: Offered,
}

impl Pace {
    pub(super) fn new(offer: &Offer, ways: u64, start_ns: u64) -> Self {
        Self {
            start_ns,
            end_ns: start_ns + offer.duration.as_nanos() as u64,
            per_s: offer.per_s(ways),
            frames: offer.frames,
            stamp_ns: offer.stamp_ns(),
            stamp_spread: offer.stamp_spread(),
            next_stamp_ns: 0,
            stamp_in: 0,
            last_ns: start_ns,
            random: start_ns | 1,
            offered: Offered::default(),
        }
    }

    /// Frames that are due, at most [`BURST`]; nothing when it is over.
    pub(super) fn due(&mut self, now_ns: u64) -> Option<u64> {
        let left = self.frames.map(|frames| frames - self.offered.frames);
        if now_ns >= self.end_ns || left == Some(0) {
            return None;
        }
        let mut lag = BURST;
        if self.per_s > 0 {
            let passed = self.offered.frames + self.offered.left_out;
            let by_now = u128::from(now_ns - self.start_ns) * u128::from(self.per_s);
            lag = ((by_now / 1_000_000_000) as u64).saturating_sub(passed);
            self.offered.left_out += lag.saturating_sub(LAG_MAX);
        }
        let due = lag.min(BURST).min(left.unwrap_or(u64::MAX));
        if due > 0 {
            self.last_ns = now_ns;
            self.plan_stamp(now_ns);
        }
        Some(due)
    }

    /// Any frame of a burst, and at no regular times: the first of a burst finds the shortest queues.
    fn plan_stamp(&mut self, now_ns: u64) {
        if self.stamp_ns > 0 && self.stamp_in == 0 && now_ns >= self.next_stamp_ns {
            self.stamp_in = 1 + (self.random() & self.stamp_spread);
            let spread = (u128::from(self.random()) * u128::from(self.stamp_ns)) >> 32;
            self.next_stamp_ns = now_ns + self.stamp_ns / 2 + spread as u64;
        }
    }

    /// 32 bits (Marsaglia's xorshift64).
    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random >> 32
    }

    /// Counts a frame that is about to leave, and says whether the time is to be in it.
    pub(super) fn count(&mut self) -> bool {
        self.offered.frames += 1;
        let stamped = self.stamp_in == 1;
        self.stamp_in = self.stamp_in.saturating_sub(1);
        self.offered.stamped += u64::from(stamped);
        stamped
    }

    /// What it came to.
    pub(super) fn offered(&self, now_ns: u64) -> Offered {
        Offered {
            elapsed_ns: now_ns.min(self.end_ns) - self.start_ns,
            last_ns: self.last_ns - self.start_ns,
            ..self.offered
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn take(pace: &mut Pace, now_ns: u64) -> u64 {
        let due = pace.due(now_ns).unwrap();
        for _ in 0..due {
            pace.count();
        }
        due
    }

    #[test]
    fn frames_are_due_evenly_and_the_lag_is_bounded() {
        let offer = Offer::load(1_000_000, Duration::from_millis(2), 0);
        let mut pace = Pace::new(&offer, 2, 5000);
        // two directions, a frame each 500 ns
        assert_eq!(take(&mut pace, 5400), 0);
        assert_eq!(take(&mut pace, 5500), 1);
        assert_eq!(take(&mut pace, 7000), 3);
        assert_eq!(pace.offered(7000).last_ns, 2000);
        // of 996, 128 are made up for
        let mut burst = 0;
        for _ in 0..9 {
            burst += take(&mut pace, 505_000);
        }
        assert_eq!((burst, pace.offered(505_000).left_out), (128, 996 - 128));
        assert_eq!(pace.due(2_005_000), None);
        assert_eq!(pace.offered(3_000_000).elapsed_ns, 2_000_000);
    }

    #[test]
    fn an_offer_of_frames_ends_with_them() {
        let offer = Offer {
            frames: Some(20),
            ..Offer::full(Duration::from_secs(1), 0)
        };
        let mut pace = Pace::new(&offer, 1, 0);
        assert_eq!((take(&mut pace, 10), take(&mut pace, 20)), (16, 4));
        assert_eq!(pace.due(30), None);
        assert_eq!(pace.offered(30).frames, 20);
    }

    #[test]
    fn some_frames_have_the_time() {
        let all = Offer {
            stamps: Some(Duration::ZERO),
            ..Offer::load(1000, Duration::from_secs(1), 0)
        };
        let mut pace = Pace::new(&all, 1, 0);
        for millisecond in 1..=100 {
            assert_eq!(take(&mut pace, millisecond * 1_000_000), 1);
        }
        assert_eq!(pace.offered(0).stamped, 100);
        // of a burst that a delay has made, one
        assert_eq!(take(&mut pace, 110_000_000), 10);
        assert_eq!(pace.offered(0).stamped, 101);
        let some = Offer {
            stamps: Some(Duration::from_millis(1)),
            ..Offer::load(100_000, Duration::from_secs(1), 0)
        };
        let mut pace = Pace::new(&some, 1, 0);
        for microsecond in 1..100_000 {
            take(&mut pace, microsecond * 1000);
        }
        let stamped = pace.offered(0).stamped;
        assert!((50..=200).contains(&stamped), "{stamped}");
    }
}
