// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times of frames from sender to receiver, in a histogram of high dynamic range.

use freeway_console::plural;
use freeway_lab::Metered;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// What the plot shows.
const CURVE: [f64; 12] = [
    0.0, 50.0, 75.0, 90.0, 95.0, 98.0, 99.0, 99.5, 99.8, 99.9, 99.95, 99.99,
];
/// The histogram's own, a minute.
const NS_MAX: u64 = 60_000_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;

/// One-way latencies at a load. Times are microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Percent of the PDR; 0 for no load, some 100 frames a second.
    pub percent_of_pdr: u32,
    /// Frames a second that were sent in each direction.
    pub offered_pps: f64,
    /// Share of them that did not arrive.
    pub loss_ratio: f64,
    /// Share of its CPU that the router had; none without a router, and of one whose CPU is not known.
    pub router_cpu: Option<f64>,
    /// Frames whose time was taken.
    pub samples: u64,
    /// Half of them took no longer, as the next: none if there are too few samples for it;
    pub p50_us: Option<f64>,
    /// nine of ten,
    pub p90_us: Option<f64>,
    /// 99 of 100,
    pub p99_us: Option<f64>,
    /// 999 of 1000.
    pub p99_9_us: Option<f64>,
    /// The longest.
    pub max_us: f64,
    /// Percentile and time, for a plot, as far as there are samples for it.
    pub curve: Vec<[f64; 2]>,
}

impl Latency {
    /// Percentiles and the longest, microseconds, as tables have them.
    pub fn cells(&self) -> [String; 5] {
        let times = [self.p50_us, self.p90_us, self.p99_us, self.p99_9_us];
        let [p50, p90, p99, p99_9] = times.map(cell);
        [p50, p90, p99, p99_9, cell(Some(self.max_us))]
    }

    /// Of what meters saw; the load's own fields are not set. Nothing without samples.
    pub fn of(metered: &[Metered]) -> Option<Self> {
        let mut histogram =
            Histogram::<u64>::new_with_bounds(1, NS_MAX, SIGNIFICANT_DIGITS).ok()?;
        for (ns, count) in metered.iter().flat_map(|metered| &metered.times) {
            histogram.saturating_record_n(*ns, *count);
        }
        let samples = histogram.len();
        if samples == 0 {
            return None;
        }
        let max_ns = metered.iter().map(|metered| metered.max_ns).max()?;
        // a bucket's middle may be beyond the longest
        let us = |percentile| histogram.value_at_percentile(percentile).min(max_ns) as f64 / 1e3;
        // beyond that a percentile is the maximum's
        let told = |percentile: &f64| (100.0 - percentile) / 100.0 * samples as f64 >= 1.0 - 1e-6;
        let mut curve: Vec<[f64; 2]> = CURVE
            .into_iter()
            .filter(told)
            .map(|percentile| [percentile, us(percentile)])
            .collect();
        if let Some([_, first]) = curve.first_mut() {
            *first = (histogram.min().min(max_ns)) as f64 / 1e3;
        }
        let of = |percentile| told(&percentile).then(|| us(percentile));
        Some(Self {
            samples,
            p50_us: of(50.0),
            p90_us: of(90.0),
            p99_us: of(99.0),
            p99_9_us: of(99.9),
            max_us: max_ns as f64 / 1e3,
            curve,
            ..Self::default()
        })
    }
}

fn cell(us: Option<f64>) -> String {
    us.map_or_else(|| "-".into(), |us| format!("{us:.1}"))
}

/// That frames arrived before they were sent, if any did.
pub fn early(who: &str, metered: &[Metered]) -> Option<String> {
    let early: u64 = metered.iter().map(|metered| metered.early).sum();
    (early > 0).then(|| {
        format!(
            "{who}: {} had a time that had not come yet, for the clocks of two CPUs differ; latencies are as inexact",
            plural(early, "frame")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_all_meters() {
        let meter = |times: &[(u64, u64)], max_ns| Metered {
            times: times.to_vec(),
            max_ns,
            ..Metered::default()
        };
        let latency = Latency::of(&[
            meter(&[(10_000, 500), (20_000, 400)], 20_100),
            meter(&[(50_000, 90), (900_000, 10)], 890_000),
        ])
        .unwrap();
        assert_eq!(latency.samples, 1000);
        let near = |found: Option<f64>, wanted: f64| {
            found.is_some_and(|found| (found / wanted - 1.0).abs() < 0.002)
        };
        assert!(near(latency.p50_us, 10.0), "{latency:?}");
        assert!(near(latency.p90_us, 20.0), "{latency:?}");
        assert!(near(latency.p99_us, 50.0), "{latency:?}");
        assert!(near(latency.p99_9_us, 890.0), "{latency:?}");
        assert_eq!(latency.max_us, 890.0);
        // 1000 frames tell the 99.9th percentile and no more
        assert_eq!(latency.curve.last().unwrap()[0], 99.9);
        assert!(
            latency
                .curve
                .is_sorted_by(|a, b| a[0] < b[0] && a[1] <= b[1])
        );
        assert_eq!(Latency::of(&[Metered::default()]), None);
    }

    #[test]
    fn percentiles_need_samples() {
        let of = |frames| {
            let metered = Metered {
                times: vec![(10_000, frames)],
                max_ns: 10_000,
                ..Metered::default()
            };
            let latency = Latency::of(&[metered]).unwrap();
            let cells = latency.cells().map(|cell| cell != "-");
            let json = serde_json::to_value(&latency).unwrap();
            assert_eq!(json["p99_us"].is_null(), !cells[2]);
            cells
        };
        assert_eq!(of(1), [false, false, false, false, true]);
        assert_eq!(of(20), [true, true, false, false, true]);
        assert_eq!(of(999), [true, true, true, false, true]);
        assert_eq!(of(1000), [true; 5]);
    }

    #[test]
    fn negative_times_are_told() {
        let metered = |early| Metered {
            early,
            ..Metered::default()
        };
        assert_eq!(early("64 bytes", &[metered(0)]), None);
        let words = early("64 bytes", &[metered(2), metered(1)]).unwrap();
        assert!(words.starts_with("64 bytes: 3 frames"), "{words}");
    }
}
