// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was forwarded between two looks.

mod top;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::{Duration, Instant};

use freeway_abi::fw_state;
use freeway_api::FlowPath;
use freeway_datapath::Datapath;

/// Most flows that are named.
pub(super) const FLOWS_MAX: usize = 200;

/// Rates are taken over at least so long, whoever asks.
pub(super) const INTERVAL_MIN: Duration = Duration::from_millis(500);

/// What was counted is forgotten when nobody has asked for so long.
pub(super) const UNUSED: Duration = Duration::from_secs(30);

/// Packets and bytes.
pub(super) type Count = (u64, u64);

/// What a state had counted at the walk before, for differences: both wrap.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Before {
    packets: u32,
    /// In units of 64 bytes: it wraps at 256 GiB.
    bytes_64: u32,
}

/// Who forwards a flow, where it comes in and where it leaves, by ifindex.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub path: FlowPath,
    pub ports: [u32; 2],
}

/// Rates over the last interval, and what the next one needs.
#[derive(Debug, Default)]
pub(super) struct Rates {
    wanted: Option<Instant>,
    /// Begin of the last walk that counted.
    begun: Option<Instant>,
    counting: bool,
    before: Vec<Before>,
    reasons: Vec<u64>,
    next: Interval,
    last: Interval,
}

/// Differences between two walks.
#[derive(Clone, Debug, Default)]
pub(super) struct Interval {
    length: Duration,
    fast: Count,
    /// By program: XDP, tc, the engine.
    paths: [Count; FlowPath::ALL.len()],
    /// By ifindex: what came in there and what left there.
    ports: BTreeMap<u32, [Count; 2]>,
    /// Bytes, index and packets of the busiest flows; the least is taken first.
    flows: BinaryHeap<Reverse<(u64, u32, u64)>>,
    reasons: Vec<u64>,
}

impl Rates {
    pub(super) fn wanted(&mut self, now: Instant) {
        self.wanted = Some(now);
    }

    pub(super) fn in_use(&self, now: Instant) -> bool {
        self.wanted
            .is_some_and(|at| now.duration_since(at) < UNUSED)
    }

    /// True if the last interval is young enough to be shown again.
    pub(super) fn serve(&self, now: Instant, serves: Duration) -> bool {
        self.begun
            .is_some_and(|begun| now.duration_since(begun) < INTERVAL_MIN.max(serves))
    }

    /// True if a walk that counted began then or later.
    pub(super) fn updated_since(&self, asked: Instant) -> bool {
        self.begun.is_some_and(|begun| begun >= asked)
    }

    /// A walk begins; it counts unless the one before was just now.
    pub(super) fn begin(&mut self, now: Instant, end: u32, datapath: &Datapath) {
        let length = self.begun.map_or(Duration::ZERO, |begun| now - begun);
        self.counting = self.begun.is_none() || length >= INTERVAL_MIN;
        if !self.counting {
            return;
        }
        self.begun = Some(now);
        self.before.resize(end as usize, Before::default());
        let reasons = datapath.reasons().unwrap_or_default();
        let before = std::mem::replace(&mut self.reasons, reasons);
        let pairs = self.reasons.iter().zip(&before);
        self.next = Interval {
            length,
            reasons: pairs
                .map(|(now, before)| now.saturating_sub(*before))
                .collect(),
            ..Interval::default()
        };
    }

    /// The index is another flow's from now on, which has counted nothing yet.
    pub(super) fn entered(&mut self, index: u32) {
        if let Some(before) = self.before.get_mut(index as usize) {
            *before = Before::default();
        }
    }

    /// A flow's state in the walk; `way`: asked only if it was used.
    pub(super) fn add(&mut self, index: u32, state: &fw_state, way: impl FnOnce() -> Way) {
        if !self.counting {
            return;
        }
        let Some(before) = self.before.get_mut(index as usize) else {
            return;
        };
        let now = Before {
            packets: state.packets as u32,
            bytes_64: (state.bytes / 64) as u32,
        };
        let old = std::mem::replace(before, now);
        // without a walk before there is no interval
        if self.next.length.is_zero() {
            return;
        }
        let packets = u64::from(now.packets.wrapping_sub(old.packets));
        let bytes = u64::from(now.bytes_64.wrapping_sub(old.bytes_64)) * 64;
        if packets == 0 {
            return;
        }
        add(&mut self.next.fast, packets, bytes);
        let way = way();
        add(&mut self.next.paths[way.path as usize], packets, bytes);
        for (side, port) in way.ports.into_iter().enumerate() {
            let port = self.next.ports.entry(port).or_default();
            add(&mut port[side], packets, bytes);
        }
        let busiest = &mut self.next.flows;
        let least = busiest.peek().map_or(0, |Reverse((bytes, ..))| *bytes);
        if busiest.len() < FLOWS_MAX || bytes > least {
            busiest.push(Reverse((bytes, index, packets)));
            if busiest.len() > FLOWS_MAX {
                busiest.pop();
            }
        }
    }

    pub(super) fn end(&mut self) {
        if std::mem::take(&mut self.counting) {
            self.last = std::mem::take(&mut self.next);
        }
    }
}

pub(super) fn add(count: &mut Count, packets: u64, bytes: u64) {
    count.0 += packets;
    count.1 += bytes;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(rates: &mut Rates, length: Duration, states: &[(u32, u64, u64)]) {
        rates.counting = true;
        let room = rates.before.len().max(8);
        rates.before.resize(room, Before::default());
        rates.next = Interval {
            length,
            ..Interval::default()
        };
        for &(index, packets, bytes) in states {
            let state = fw_state {
                packets,
                bytes,
                ..fw_state::default()
            };
            let path = FlowPath::ALL[index as usize % 2];
            let ports = [2, 3];
            rates.add(index, &state, || Way { path, ports });
        }
        rates.end();
    }

    #[test]
    fn differences_are_counted_and_a_reused_index_begins_anew() {
        let mut rates = Rates::default();
        walk(&mut rates, Duration::ZERO, &[(1, 100, 6400), (2, 50, 6400)]);
        assert_eq!(rates.last.fast, (0, 0), "the first walk has no interval");
        let second = Duration::from_secs(1);
        // flow 1 went on, index 2 is another flow, 3 is new, 4 is idle
        rates.entered(2);
        let states = [(1, 110, 12_800), (2, 7, 640), (3, 1, 64), (4, 0, 0)];
        walk(&mut rates, second, &states);
        assert_eq!(rates.last.fast, (18, 6400 + 640 + 64));
        assert_eq!(rates.last.ports[&2][0], (18, 7104));
        assert_eq!(rates.last.ports[&3][1], (18, 7104));
        // flows of odd numbers are tc's
        assert_eq!(rates.last.paths, [(7, 640), (11, 6464), (0, 0)]);
        assert_eq!(rates.last.flows.len(), 3);
        walk(&mut rates, second, &states);
        assert_eq!(rates.last.fast, (0, 0));
        // the 32-bit memory wraps
        let far = u64::from(u32::MAX) + 111;
        walk(&mut rates, second, &[(1, far, 12_800 + 6400)]);
        walk(&mut rates, second, &[(1, far + 3, 12_800 + 6400 + 640)]);
        assert_eq!(rates.last.fast, (3, 640));
    }

    #[test]
    fn the_busiest_are_kept() {
        let mut rates = Rates::default();
        let end = 2 * FLOWS_MAX as u32;
        rates.before.resize(end as usize, Before::default());
        let states: Vec<_> = (0..end).map(|i| (i, 1, 64 * u64::from(i + 1))).collect();
        walk(&mut rates, Duration::from_secs(1), &states);
        let indices = rates.last.flows.iter().map(|Reverse((_, index, _))| *index);
        assert_eq!(indices.min(), Some(end - FLOWS_MAX as u32));
    }
}
