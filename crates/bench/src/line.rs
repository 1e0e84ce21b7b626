// SPDX-License-Identifier: MIT OR Apache-2.0
//! The arithmetic of a 1 Gb/s link.

/// Of the link, a second.
const LINE_BITS: f64 = 1e9;
/// Inter-frame gap, 12 octets, preamble and start of the frame, 8 (IEEE 802.3).
const BETWEEN_FRAMES: f64 = 12.0 + 8.0;

/// Frames a second that fill a link of 1 Gb/s in one direction; their mean size with FCS, octets.
pub fn line_pps(frame_bytes: f64) -> f64 {
    LINE_BITS / (8.0 * (frame_bytes + BETWEEN_FRAMES))
}

#[cfg(test)]
mod tests {
    use super::line_pps;

    #[test]
    fn short_and_full_frames_fill_a_link() {
        assert_eq!(line_pps(64.0).round(), 1_488_095.0);
        assert_eq!(line_pps(1518.0).round(), 81_274.0);
    }
}
