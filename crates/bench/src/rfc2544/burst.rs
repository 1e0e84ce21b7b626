// SPDX-License-Identifier: MIT OR Apache-2.0
//! Back-to-back frames (RFC 9004): the longest burst without loss, and the buffer that it implies.

use serde::{Deserialize, Serialize};

/// The first length, frames in each direction.
const FIRST: u64 = 16;
/// Lengths that differ by less than this part of them are not told apart.
const WIDTH: f64 = 0.02;

/// Bursts as fast as the generator can, and the router's buffer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BackToBack {
    /// Frames of the longest burst of which all arrived, in each direction; the mean of the repetitions.
    pub frames: f64,
    /// The shortest one found,
    pub least: u64,
    /// and the longest.
    pub most: u64,
    /// How often it was looked for.
    pub repetitions: u32,
    /// The time that such a burst takes, microseconds (implied buffer time).
    pub implied_us: f64,
    /// Less what is forwarded meanwhile (corrected buffer time).
    pub corrected_us: f64,
}

impl BackToBack {
    /// Of the lengths found, with the rate of a burst and the router's throughput, frames a second.
    pub fn of(lengths: &[u64], burst_pps: f64, throughput_pps: f64) -> Option<Self> {
        let (least, most) = (*lengths.iter().min()?, *lengths.iter().max()?);
        let frames = lengths.iter().sum::<u64>() as f64 / lengths.len() as f64;
        let implied_us = frames * 1e6 / burst_pps;
        Some(Self {
            frames,
            least,
            most,
            repetitions: lengths.len() as u32,
            implied_us,
            corrected_us: implied_us * (1.0 - throughput_pps / burst_pps).max(0.0),
        })
    }
}

/// The longest that holds; nothing if the longest that is allowed does.
pub fn longest<E>(
    allowed: u64,
    mut holds: impl FnMut(u64) -> Result<bool, E>,
) -> Result<Option<u64>, E> {
    let (mut lower, mut upper) = (0, FIRST.min(allowed));
    while holds(upper)? {
        if upper >= allowed {
            return Ok(None);
        }
        lower = upper;
        upper = (upper * 2).min(allowed);
    }
    while upper - lower > (lower as f64 * WIDTH).max(1.0) as u64 {
        let middle = u64::midpoint(lower, upper);
        if holds(middle)? {
            lower = middle;
        } else {
            upper = middle;
        }
    }
    Ok(Some(lower))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn longest_of(capacity: u64, allowed: u64) -> Option<u64> {
        let mut count = 0;
        let found = longest(allowed, |length| {
            count += 1;
            assert!((1..=allowed).contains(&length) && count < 40);
            Ok::<_, Infallible>(length <= capacity)
        });
        found.unwrap()
    }

    #[test]
    fn the_longest_burst_is_found() {
        for capacity in [0, 1, 15, 16, 17, 255, 300, 70_000] {
            let found = longest_of(capacity, 100_000).unwrap();
            assert!(found <= capacity, "{found} {capacity}");
            assert!(found + 1 + capacity / 50 >= capacity, "{found} {capacity}");
        }
        assert_eq!(longest_of(100_000, 100_000), None);
        assert_eq!(longest_of(5, 8), Some(5));
    }

    #[test]
    fn buffers_are_corrected_by_what_leaves_meanwhile() {
        let found = BackToBack::of(&[300, 340], 4e6, 1e6).unwrap();
        assert_eq!((found.frames, found.least, found.most), (320.0, 300, 340));
        assert_eq!((found.implied_us, found.corrected_us), (80.0, 60.0));
        assert_eq!(BackToBack::of(&[], 4e6, 1e6), None);
    }
}
