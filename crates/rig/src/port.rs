// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a port of a lab has counted.

use freeway_console::Stop;
use freeway_lab::Port;

/// Columns of /proc/net/dev.
const RX_BYTES: usize = 0;
const RX_PACKETS: usize = 1;
const TX_DROPPED: usize = 11;

/// The kernel's counters of a port, since it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters {
    /// Frame bytes that came in.
    pub rx_bytes: u64,
    /// Frames that came in.
    pub rx_packets: u64,
    /// Frames that it could not send; of a veth, those that found its peer's queue full.
    pub tx_dropped: u64,
}

impl Counters {
    /// Reads them.
    pub fn of(port: &Port) -> Result<Self, Stop> {
        let file = "/proc/thread-self/net/dev";
        let failed =
            |what: String| Stop::failure(format!("{file} in {}: {what}", port.netns.name()));
        let text = port.netns.enter(|| std::fs::read_to_string(file))?;
        let text = text.map_err(|error| failed(error.to_string()))?;
        Self::parse(&text, &port.name)
            .ok_or_else(|| failed(format!("no counters of {}", port.name)))
    }

    fn parse(text: &str, name: &str) -> Option<Self> {
        let mut lines = text.lines().map(str::trim_start);
        let columns = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        let columns: Vec<u64> = columns
            .split_whitespace()
            .map_while(|column| column.parse().ok())
            .collect();
        Some(Self {
            rx_bytes: *columns.get(RX_BYTES)?,
            rx_packets: *columns.get(RX_PACKETS)?,
            tx_dropped: *columns.get(TX_DROPPED)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_devices() {
        let text = "Inter-|   Receive\n face |bytes    packets\n    lo: 1 2 0 0 0 0 0 0 3 4 0 0 0 0 0 0\n  \
                    eth0:12345 6 0 0 0 0 0 0 7 8 0 9 0 0 0 0\n eth01: 7 8\n";
        let counters = Counters {
            rx_bytes: 12345,
            rx_packets: 6,
            tx_dropped: 9,
        };
        assert_eq!(Counters::parse(text, "eth0"), Some(counters));
        assert_eq!(Counters::parse(text, "eth01"), None);
        assert_eq!(Counters::parse(text, "eth"), None);
    }
}
