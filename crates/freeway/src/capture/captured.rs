// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is said of a capture at its end.

use freeway_console::plural;
use serde::Serialize;

/// `freeway capture --json`.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct Captured {
    /// The file.
    pub file: String,
    /// Packets in it.
    pub packets: u64,
    /// Their frames: as they came in, and as they left.
    pub frames: u64,
    /// Packets that are not: over the rate, or there was no room.
    pub lost: u64,
    /// Ports at which nothing could be captured, and why.
    pub kept: Vec<String>,
}

impl Captured {
    /// In a terminal.
    pub fn words(&self) -> String {
        let mut text = format!(
            "Captured {} ({}), lost {}\n",
            plural(self.packets, "packet"),
            plural(self.frames, "frame"),
            self.lost
        );
        for kept in &self.kept {
            text.push_str(&format!("  without {kept}\n"));
        }
        text
    }
}
