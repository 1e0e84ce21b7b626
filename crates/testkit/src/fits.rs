// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a page is fit for a terminal.

/// Columns of a terminal, and of a pipe.
const WIDTH: usize = 80;

/// Fails if a line is wider than the terminal, ends in spaces, or has colours.
#[track_caller]
pub fn check_fits(text: &str) {
    assert!(text.ends_with('\n'), "{text}");
    for line in text.lines() {
        let width = line.chars().count();
        assert!(width <= WIDTH, "{width} columns: {line}");
        assert_eq!(line, line.trim_end());
        assert!(!line.contains('\x1b'), "{line:?}");
    }
}
