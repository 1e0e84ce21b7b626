// SPDX-License-Identifier: MIT OR Apache-2.0
//! The manager's counters.

use std::collections::BTreeMap;

use crate::refusal::Refusal;

/// A histogram of waiting times with buckets of one millisecond up to a second.
#[derive(Clone, Debug)]
pub struct Latency {
    buckets: Vec<u64>,
    count: u64,
    max_ms: u32,
}

impl Default for Latency {
    fn default() -> Self {
        Self {
            buckets: vec![0; 1001],
            count: 0,
            max_ms: 0,
        }
    }
}

impl Latency {
    /// Adds one waiting time.
    pub fn record(&mut self, ms: u32) {
        self.buckets[(ms as usize).min(1000)] += 1;
        self.count += 1;
        self.max_ms = self.max_ms.max(ms);
    }

    /// How many were added.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The longest.
    #[must_use]
    pub fn max_ms(&self) -> u32 {
        self.max_ms
    }

    /// The waiting time below which `share` (0 to 1) of them lie; 0 without any.
    #[must_use]
    pub fn quantile_ms(&self, share: f64) -> u32 {
        let rank = (share * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (ms, count) in self.buckets.iter().enumerate() {
            seen += count;
            if self.count > 0 && seen >= rank {
                return if ms == 1000 { self.max_ms } else { ms as u32 };
            }
        }
        0
    }
}

/// Counters since start.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Candidates offered.
    pub candidates: u64,
    /// Flows entered.
    pub learned: u64,
    /// Flows replaced because the kernel's outcome changed.
    pub replaced: u64,
    /// Flows activated.
    pub activated: u64,
    /// Flows of a full table that left for hotter ones, or for those of a holder of less.
    pub displaced: u64,
    /// Flows removed for idleness.
    pub aged: u64,
    /// Suspensions that the data plane reported.
    pub suspended: u64,
    /// Flows removed because their connection ended or changed.
    pub ended: u64,
    /// Flows made to wait for confirmation by a narrow change.
    pub unconfirmed: u64,
    /// Hard epochs begun.
    pub epochs: u64,
    /// TCP connections prepared, renewals included.
    pub prepared: u64,
    /// Refusals.
    pub refused: BTreeMap<Refusal, u64>,
    /// Packets of flows that are no more.
    pub retired_packets: u64,
    /// Bytes of flows that are no more.
    pub retired_bytes: u64,
    /// From the first observation to activation.
    pub learnable_to_fast: Latency,
    /// Connections of which both directions were fast.
    pub connections: u64,
    /// From when both directions of a connection had been observed to activation of both.
    pub connection_to_fast: Latency,
}
