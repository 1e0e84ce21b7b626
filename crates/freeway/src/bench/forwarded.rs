// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a lab's router has forwarded, and what of it was Freeway's.

use freeway_lab::{Lab, Port};

use crate::exit::Stop;
use crate::router::RouterDaemon;

/// Counters of the server's port and of the daemon.
#[derive(Clone, Copy, Debug)]
pub struct Forwarded {
    /// Frame bytes that reached the server.
    pub server_bytes: u64,
    /// Packets that reached the client.
    pub client_packets: u64,
    fast_packets: u64,
    punted_packets: u64,
}

impl Forwarded {
    /// Reads them.
    pub fn now(lab: &Lab, daemon: Option<&RouterDaemon>) -> Result<Self, Stop> {
        let stats = daemon.map(RouterDaemon::stats).transpose()?;
        let stats = stats.unwrap_or_default();
        // what XDP leaves to tc is counted there
        let to_tc = freeway_abi::Reason::get(freeway_abi::FW_R_OWNER).name;
        let punts = stats.reasons.iter();
        let punts = punts.filter(|r| r.stage == "punt" && r.name != to_tc);
        Ok(Self {
            server_bytes: received(lab.server_port())?.bytes,
            client_packets: received(lab.client_port())?.packets,
            fast_packets: stats.fast.packets,
            punted_packets: punts.map(|reason| reason.packets).sum(),
        })
    }

    /// What has come since then.
    pub fn since(&self, before: &Forwarded) -> Self {
        Self {
            server_bytes: self.server_bytes.saturating_sub(before.server_bytes),
            client_packets: self.client_packets.saturating_sub(before.client_packets),
            fast_packets: self.fast_packets.saturating_sub(before.fast_packets),
            punted_packets: self.punted_packets.saturating_sub(before.punted_packets),
        }
    }

    /// Freeway's share of the packets that its programs saw.
    pub fn fast_share(&self) -> f64 {
        let seen = self.fast_packets + self.punted_packets;
        self.fast_packets as f64 / seen.max(1) as f64
    }
}

/// What a port has received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Received {
    bytes: u64,
    packets: u64,
}

fn received(port: &Port) -> Result<Received, Stop> {
    let file = "/proc/thread-self/net/dev";
    let failed = |what: String| Stop::failure(format!("{file} in {}: {what}", port.netns.name()));
    let text = port.netns.enter(|| std::fs::read_to_string(file))?;
    let text = text.map_err(|error| failed(error.to_string()))?;
    let counters = counters_of(&text, &port.name);
    counters.ok_or_else(|| failed(format!("no counters of {}", port.name)))
}

/// The first counters of a device in /proc/net/dev.
fn counters_of(text: &str, name: &str) -> Option<Received> {
    let mut lines = text.lines().map(str::trim_start);
    let counters = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let mut counters = counters.split_whitespace().map(str::parse);
    Some(Received {
        bytes: counters.next()?.ok()?,
        packets: counters.next()?.ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_devices() {
        let text = "Inter-|   Receive\n face |bytes    packets\n    lo: 1 2\n  eth0:12345 6 0\n eth01: 7 8\n";
        let received = |bytes, packets| Some(Received { bytes, packets });
        assert_eq!(counters_of(text, "eth0"), received(12345, 6));
        assert_eq!(counters_of(text, "eth01"), received(7, 8));
        assert_eq!(counters_of(text, "eth"), None);
    }
}
