// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long events take from the kernel's message to the data plane.

use std::time::Duration;

use freeway_api::Invalidation;
use freeway_cmm::Latency;

/// Times of events, in steps of 10 microseconds.
#[derive(Default)]
pub(super) struct Recorder {
    steps: Latency,
    worst: Duration,
}

const STEPS_PER_MS: f64 = 100.0;

impl Recorder {
    pub(super) fn record(&mut self, took: Duration) {
        let steps = took.as_micros() / 10;
        self.steps.record(u32::try_from(steps).unwrap_or(u32::MAX));
        self.worst = self.worst.max(took);
    }

    pub(super) fn report(&self) -> Invalidation {
        Invalidation {
            count: self.steps.count(),
            p50_ms: f64::from(self.steps.quantile_ms(0.50)) / STEPS_PER_MS,
            p99_ms: f64::from(self.steps.quantile_ms(0.99)) / STEPS_PER_MS,
            worst_ms: self.worst.as_secs_f64() * 1000.0,
        }
    }
}
