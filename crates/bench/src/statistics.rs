// SPDX-License-Identifier: MIT OR Apache-2.0
//! What repetitions say, and whether two sets of them differ.
//!
//! Ratios and times are positive and err by factors, so all is done with their logarithms: Student's t for an interval,
//! Welch's t-test for a difference (the variances of two builds need not be equal).

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::median::median;

/// Of the intervals, and one less the level of the test.
pub const CONFIDENCE: f64 = 0.95;
/// How they are called.
pub const INTERVAL_METHOD: &str =
    "95 % confidence interval by Student's t over the logarithms of the runs' values";
/// How the test is called.
pub const TEST_METHOD: &str =
    "Welch's t-test over the logarithms of the runs' values, two-sided, 5 %";

/// What repetitions say.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The middle value.
    pub median: f64,
    /// The confidence interval's ends; none of a single repetition, and of what is not positive: net of what was measured
    /// beside it, a disturbed repetition may be less than nothing.
    pub low: Option<f64>,
    /// Its upper end.
    pub high: Option<f64>,
    /// Repetitions.
    pub runs: usize,
}

/// Two sets of repetitions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// The second over the first, geometric means.
    pub change: f64,
    /// The confidence interval's ends.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// How likely as large a difference is by chance.
    pub p: f64,
}

impl Difference {
    /// True if chance does not explain it.
    pub fn is_significant(&self) -> bool {
        self.p < 1.0 - CONFIDENCE
    }
}

/// Of logarithms.
struct Moments {
    mean: f64,
    /// Of the mean.
    variance: f64,
    freedom: f64,
}

/// `None` of fewer than two values, or of one that has no logarithm.
fn moments(values: &[f64]) -> Option<Moments> {
    let count = values.len() as f64;
    let usable = |value: &f64| value.is_finite() && *value > 0.0;
    if values.len() < 2 || !values.iter().all(usable) {
        return None;
    }
    let mean = values.iter().map(|value| value.ln()).sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value.ln() - mean).powi(2)).sum();
    let freedom = count - 1.0;
    Some(Moments {
        mean,
        variance: squares / freedom / count,
        freedom,
    })
}

fn t(freedom: f64) -> Option<StudentsT> {
    StudentsT::new(0.0, 1.0, freedom).ok()
}

/// Of which so much lies between its negative and itself.
fn quantile(freedom: f64) -> Option<f64> {
    Some(t(freedom)?.inverse_cdf((1.0 + CONFIDENCE) / 2.0))
}

/// Of a set; `None` if it is empty or holds what is no number. One that holds what has no logarithm has no interval.
pub fn summary(values: &[f64]) -> Option<Summary> {
    if values.is_empty() || !values.iter().all(|value| value.is_finite()) {
        return None;
    }
    let ends = moments(values).and_then(|of| {
        let half = quantile(of.freedom)? * of.variance.sqrt();
        Some([(of.mean - half).exp(), (of.mean + half).exp()])
    });
    Some(Summary {
        median: median(values.to_vec()),
        low: ends.map(|[low, _]| low),
        high: ends.map(|[_, high]| high),
        runs: values.len(),
    })
}

/// How the second set differs from the first; `None` if one has fewer than two usable values.
pub fn difference(first: &[f64], second: &[f64]) -> Option<Difference> {
    let (a, b) = (moments(first)?, moments(second)?);
    let (change, variance) = (b.mean - a.mean, a.variance + b.variance);
    if variance == 0.0 {
        let same = change == 0.0;
        let change = change.exp();
        return Some(Difference {
            change,
            low: change,
            high: change,
            p: if same { 1.0 } else { 0.0 },
        });
    }
    // Welch and Satterthwaite
    let freedom =
        variance.powi(2) / (a.variance.powi(2) / a.freedom + b.variance.powi(2) / b.freedom);
    let half = quantile(freedom)? * variance.sqrt();
    let p = 2.0 * t(freedom)?.cdf(-(change / variance.sqrt()).abs());
    Some(Difference {
        change: change.exp(),
        low: (change - half).exp(),
        high: (change + half).exp(),
        p,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(value: f64, expected: f64) {
        assert!(
            (value / expected - 1.0).abs() < 1e-3,
            "{value} is not {expected}"
        );
    }

    #[test]
    fn intervals_are_students() {
        // exp(1..=5): mean 3, standard deviation 1.5811, t(4, 0.975) = 2.7764
        let values: Vec<f64> = (1..=5).map(|e| f64::from(e).exp()).collect();
        let of = summary(&values).unwrap();
        near(of.median, 3f64.exp());
        let half = 2.776_445 * 2.5f64.sqrt() / 5f64.sqrt();
        near(of.low.unwrap(), (3.0 - half).exp());
        near(of.high.unwrap(), (3.0 + half).exp());
        assert_eq!(of.runs, 5);
    }

    #[test]
    fn one_run_has_no_interval() {
        let of = summary(&[2.0]).unwrap();
        assert_eq!((of.median, of.low, of.high), (2.0, None, None));
        assert_eq!(summary(&[]), None);
        let of = summary(&[1.0, -1.0, 2.0]).unwrap();
        assert_eq!((of.median, of.low, of.high), (1.0, None, None));
        assert_eq!(summary(&[1.0, f64::NAN]), None);
        assert_eq!(difference(&[1.0], &[1.0, 2.0]), None);
        assert_eq!(difference(&[1.0, -2.0], &[1.0, 2.0]), None);
    }

    #[test]
    fn differences_are_welchs() {
        // t = 2.8868 with 4.96 degrees of freedom
        let a = [1.0, 2.0, 3.0, 4.0].map(f64::exp);
        let b = [5.0, 6.0, 4.0].map(f64::exp);
        let of = difference(&a, &b).unwrap();
        near(of.change, 2.5f64.exp());
        near(of.p, 0.034_648);
        assert!(of.is_significant());
        assert!(of.low > 1.0 && of.high > of.change);
        let same = difference(&a, &a).unwrap();
        near(same.p, 1.0);
        assert!(!same.is_significant());
    }

    #[test]
    fn constants_differ_or_do_not() {
        let of = difference(&[2.0, 2.0], &[3.0, 3.0]).unwrap();
        near(of.change, 1.5);
        assert_eq!(of.p, 0.0);
        assert_eq!(difference(&[2.0, 2.0], &[2.0, 2.0]).unwrap().p, 1.0);
    }

    /// With intervals of 95 % about a twentieth of equal sets differ.
    #[test]
    fn equal_builds_rarely_differ() {
        let mut state = 1u64;
        let mut noise = || {
            // the sum of twelve is nearly normal
            let sum: f64 = (0..12)
                .map(|_| {
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    (state >> 33) as f64 / (1u64 << 31) as f64
                })
                .sum();
            (0.05 * (sum - 6.0)).exp()
        };
        let mut set = || (0..4).map(|_| noise()).collect::<Vec<f64>>();
        let differ = (0..1000)
            .filter(|_| difference(&set(), &set()).unwrap().is_significant())
            .count();
        assert!((20..80).contains(&differ), "{differ}");
    }
}
