// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a lab's router has forwarded, and what of it was Freeway's.

use freeway_console::Stop;
use freeway_lab::Lab;

use crate::{Counters, RouterDaemon};

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
            server_bytes: Counters::of(lab.server_port())?.rx_bytes,
            client_packets: Counters::of(lab.client_port())?.rx_packets,
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
