// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a generator can do by itself.

use std::time::{Duration, Instant};

use freeway_console::Stop;

use crate::median::median;

/// The rate is the median of so many passes.
const PASSES: usize = 3;
/// For so long another pass is made for each without a frame.
const PATIENCE: Duration = Duration::from_secs(10);

/// Frames a second of a pass, by what makes one. A pass without a frame tells nothing: the sender may not have run in all of its
/// time. Fails with these words if no other can be had.
pub fn ceiling(none: &str, mut pass_pps: impl FnMut() -> Result<f64, Stop>) -> Result<f64, Stop> {
    let began = Instant::now();
    let mut rates = Vec::new();
    while rates.len() < PASSES {
        match pass_pps()? {
            pps if pps >= 1.0 => rates.push(pps),
            _ if began.elapsed() >= PATIENCE => return Err(Stop::failure(none)),
            _ => {}
        }
    }
    Ok(median(rates))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_without_a_frame_tell_nothing() {
        let mut passes = [0.0, 7.0, 0.0, 0.0, 9.0, 8.0, 1000.0].into_iter();
        let found = ceiling("none", || Ok(passes.next().unwrap()));
        assert_eq!(found.unwrap(), 8.0);
        assert_eq!(passes.next(), Some(1000.0));
    }
}
