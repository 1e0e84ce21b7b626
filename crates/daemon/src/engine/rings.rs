// SPDX-License-Identifier: MIT OR Apache-2.0
//! Outputs that are the bottleneck: while a driver's ring overflows, what leaves there goes through the qdisc.
//!
//! A redirected frame goes to the driver's ring past the qdisc. As long as the ring takes all, there is nothing for a
//! qdisc to do. Where it does not, the ring is a queue that only drops at its end, and the qdisc is the one that the
//! operator has chosen for that. Which it is shows at the ring itself: the driver drops (`xdp_devmap_xmit`).

mod look;

use freeway_kernel::queue::Queue;

/// Looks in a second.
const LOOKS_PER_S: u32 = 4;
/// Frames that a ring drops between two looks before it counts as full.
const DROPS_MIN: u64 = 16;
/// Looks that find the qdisc empty before frames are redirected again.
const CALM_MIN: u32 = 3 * LOOKS_PER_S;
/// The same where that was too early several times.
const CALM_MAX: u32 = 30 * LOOKS_PER_S;
/// Looks after which the next full ring is as the first one.
const FORGIVEN: u32 = 60 * LOOKS_PER_S;

/// An output's ring, and how it went.
#[derive(Debug, Default)]
pub(super) struct Ring {
    /// Frames that it has dropped.
    pub drops: u64,
    /// Those of the port's entry in the data plane, which begins anew now and then.
    seen: u64,
    full: Option<Full>,
    /// Empty looks that the next time takes, and looks since the last.
    calm_wanted: u32,
    since: u32,
}

#[derive(Clone, Copy, Debug)]
struct Full {
    /// What the ring dropped then.
    drops: u64,
    /// Looks in a row that found the qdisc empty.
    calm: u32,
    last: Queue,
}

impl Ring {
    pub(super) fn is_full(&self) -> bool {
        self.full.is_some()
    }

    /// Why what leaves here goes through the qdisc, if it does.
    fn reason<'a>(&self, kind: impl FnOnce() -> &'a str) -> Option<String> {
        let full = self.full?;
        Some(format!(
            "its ring was full ({} frames lost): what leaves here goes through its qdisc {} until nothing has waited there for {} s",
            full.drops,
            kind(),
            self.calm_wanted / LOOKS_PER_S
        ))
    }

    /// A look at the counters. `queue`: of the port's qdisc, if it has room for what waits; asked for when it matters. True
    /// if it is full now and was not, or the other way round.
    pub(super) fn look(&mut self, dropped: u64, queue: impl FnOnce() -> Option<Queue>) -> bool {
        // counted from 0 again
        let seen = std::mem::replace(&mut self.seen, dropped);
        let drops = dropped.checked_sub(seen).unwrap_or(dropped);
        self.drops += drops;
        self.since = self.since.saturating_add(1);
        if self.full.is_none() && drops < DROPS_MIN {
            return false;
        }
        let Some(queue) = queue() else {
            return self.full.take().is_some();
        };
        let Some(full) = &mut self.full else {
            self.calm_wanted = match self.since {
                FORGIVEN.. => CALM_MIN,
                _ => (self.calm_wanted * 2).clamp(CALM_MIN, CALM_MAX),
            };
            self.full = Some(Full {
                drops,
                calm: 0,
                last: queue,
            });
            return true;
        };
        let moved = (queue.drops, queue.requeues) != (full.last.drops, full.last.requeues);
        let waits = queue.packets > 0 || moved || drops > 0;
        full.calm = if waits { 0 } else { full.calm + 1 };
        full.last = queue;
        if full.calm < self.calm_wanted {
            return false;
        }
        (self.full, self.since) = (None, 0);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(packets: u32, requeues: u32) -> impl FnOnce() -> Option<Queue> {
        move || {
            Some(Queue {
                packets,
                drops: 0,
                requeues,
            })
        }
    }

    #[test]
    fn a_full_ring_sends_packets_through_the_qdisc_until_that_is_empty() {
        let mut ring = Ring::default();
        assert!(!ring.look(DROPS_MIN - 1, waiting(0, 0)), "a burst");
        assert!(ring.look(100, waiting(0, 0)));
        assert!(ring.reason(|| "fq_codel").unwrap().contains("fq_codel"));
        for look in 0..10 {
            assert!(!ring.look(100, waiting(look % 2, look)));
        }
        for _ in 1..CALM_MIN {
            assert!(!ring.look(100, waiting(0, 9)));
        }
        assert!(ring.look(100, waiting(0, 9)));
        assert_eq!(ring.reason(|| "fq_codel"), None);
        assert_eq!(ring.drops, 100);
    }

    #[test]
    fn too_early_is_later_the_next_time() {
        let mut ring = Ring::default();
        let mut dropped = 0;
        let mut looks = Vec::new();
        for _ in 0..6 {
            dropped += 50;
            assert!(ring.look(dropped, waiting(0, 0)));
            let ends = (1..1000).find(|_| ring.look(dropped, waiting(0, 0)));
            looks.push(ends.unwrap());
        }
        assert_eq!(looks, [3, 6, 12, 24, 30, 30].map(|s| s * LOOKS_PER_S));
        for _ in 0..FORGIVEN {
            ring.look(dropped, waiting(0, 0));
        }
        assert!(ring.look(dropped + 50, waiting(0, 0)));
        assert_eq!(ring.calm_wanted, CALM_MIN);
    }

    #[test]
    fn without_a_queue_nothing_would_be_better() {
        let mut ring = Ring::default();
        assert!(!ring.look(1000, || None));
        assert!(ring.look(2000, waiting(0, 0)));
        assert!(ring.look(2000, || None), "the qdisc is gone");
        // the port's entry began anew
        assert!(!ring.look(3, waiting(0, 0)));
        assert_eq!(ring.drops, 2003);
    }
}
