// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frame sizes of a stream, in a fixed order.

use crate::error::LabError;

/// Different sizes of one stream.
pub const SIZES: usize = 3;
/// Frames after which the order begins again, at most.
pub const FRAMES: usize = 64;

/// How many frames there are of which size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mix {
    parts: Vec<(u32, u32)>,
}

impl Mix {
    /// All of one size, FCS counted.
    pub fn of(frame_bytes: u32) -> Self {
        Self {
            parts: vec![(frame_bytes, 1)],
        }
    }

    /// FD.io CSIT's `IMIX_v4_1`: 28 frames of 64 bytes, 16 of 570 and 4 of 1518, FCS counted.
    pub fn imix() -> Self {
        Self {
            parts: vec![(64, 28), (570, 16), (1518, 4)],
        }
    }

    /// The sizes, FCS counted.
    pub fn sizes(&self) -> impl Iterator<Item = u32> + '_ {
        self.parts.iter().map(|(size, _)| *size)
    }

    /// Mean size of a frame if each is at least so long.
    pub fn mean_bytes(&self, at_least: u32) -> f64 {
        let frames: u32 = self.parts.iter().map(|(_, count)| count).sum();
        let bytes = self.parts.iter();
        let bytes = bytes.map(|(size, count)| f64::from((*size).max(at_least) * count));
        bytes.sum::<f64>() / f64::from(frames.max(1))
    }

    /// Which size each frame has, by the index in [`Mix::sizes`]: each kind as evenly as can be.
    pub(crate) fn order(&self) -> Result<Vec<u8>, LabError> {
        let frames: u32 = self.parts.iter().map(|(_, count)| count).sum();
        if frames == 0 || frames as usize > FRAMES || self.parts.len() > SIZES {
            return Err(LabError::Invalid(format!(
                "a mix of {} sizes and {frames} frames: at most {SIZES} and {FRAMES}",
                self.parts.len()
            )));
        }
        let mut behind: Vec<i64> = vec![0; self.parts.len()];
        let mut order = Vec::new();
        for _ in 0..frames {
            for (behind, (_, count)) in behind.iter_mut().zip(&self.parts) {
                *behind += i64::from(*count);
            }
            let most = (0..behind.len()).max_by_key(|index| behind[*index]);
            let most = most.unwrap_or(0);
            behind[most] -= i64::from(frames);
            order.push(most as u8);
        }
        Ok(order)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn imix_is_even() {
        let order = Mix::imix().order().unwrap();
        assert_eq!(order.len(), 48);
        let count = |of: &[u8], size| of.iter().filter(|index| **index == size).count();
        assert_eq!([0, 1, 2].map(|size| count(&order, size)), [28, 16, 4]);
        for quarter in order.chunks(12) {
            assert_eq!([0, 1, 2].map(|size| count(quarter, size)), [7, 4, 1]);
        }
        let mean = (28.0 * 64.0 + 16.0 * 570.0 + 4.0 * 1518.0) / 48.0;
        assert!((Mix::imix().mean_bytes(64) - mean).abs() < 1e-9);
    }

    #[test]
    fn one_size_is_a_mix() {
        assert_eq!(Mix::of(64).order().unwrap(), [0]);
        assert!((Mix::of(64).mean_bytes(74) - 74.0).abs() < 1e-9);
        let many = Mix {
            parts: vec![(64, 65)],
        };
        assert!(many.order().is_err());
    }
}
