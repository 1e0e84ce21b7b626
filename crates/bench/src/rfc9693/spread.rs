// SPDX-License-Identifier: MIT OR Apache-2.0
//! A figure of several runs.

use serde::{Deserialize, Serialize};

use crate::median::median;

/// What repetitions say. With fewer than a hundred the least and the most are the 1st and the 99th percentile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The middle value.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
}

impl Spread {
    /// Of values, if there are any.
    pub fn of(values: &[f64]) -> Option<Self> {
        let ends = [f64::min, f64::max].map(|end| values.iter().copied().reduce(end));
        let [Some(least), Some(most)] = ends else {
            return None;
        };
        Some(Self {
            median: median(values.to_vec()),
            least,
            most,
        })
    }
}
