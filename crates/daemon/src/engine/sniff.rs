// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flows whose frames a packet socket takes go to tc, where it sees them, and back when it no longer does; in pieces.

use freeway_cmm::FlowKey;
use freeway_kernel::model::Tuple;

use super::Engine;
use crate::DaemonError;

/// Flows looked at in one piece: for each, two frames are built and the sockets' filters run.
const PIECE: u32 = 256;

/// The walk over the flows, if one is under way.
#[derive(Debug, Default)]
pub(super) struct Sniff {
    cursor: Option<u32>,
}

impl Sniff {
    /// Looks at every flow anew.
    pub(super) fn begin(&mut self) {
        self.cursor = Some(0);
    }

    pub(super) fn running(&self) -> bool {
        self.cursor.is_some()
    }
}

impl Engine {
    /// True if a packet socket takes a flow's frames, at its ports or at the devices below.
    pub(super) fn is_sniffed(&self, key: &FlowKey, out: &Tuple, port_out: u32) -> bool {
        let carried = |port: u32| {
            let port = self.ports.by_index.get(&port);
            port.and_then(|port| port.carried.as_ref())
        };
        let below = [carried(key.port), carried(port_out)];
        self.polled.sniffed(key, (out, port_out), below)
    }

    pub(super) fn sniff_piece(&mut self) -> Result<(), DaemonError> {
        let Some(from) = self.sniff.cursor else {
            return Ok(());
        };
        let end = self.manager.index_end();
        let to = from.saturating_add(PIECE).min(end);
        let now_tick = self.now_tick()?;
        let mut ops = Vec::new();
        for index in from..to {
            if let Some(flow) = self.manager.flow(index) {
                let exits = self.manager.exits(&flow);
                let sniffs = |port: u32| self.is_sniffed(&flow.key, &flow.out, port);
                let sniffed = exits.into_iter().any(sniffs);
                self.manager.set_sniffed(index, sniffed, now_tick, &mut ops);
            }
        }
        self.sniff.cursor = (to < end).then_some(to);
        self.execute(ops)
    }
}
