// SPDX-License-Identifier: MIT OR Apache-2.0
//! A sample in words.

use freeway_lab::Sample;

/// `1,234 ns, 0.81 Mpps`.
pub fn figures(sample: &Sample) -> String {
    format!(
        "{:>7.1} ns a frame, {:>5.2} Mpps",
        sample.ns_per_frame,
        sample.mpps()
    )
}
