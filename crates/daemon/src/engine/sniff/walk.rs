// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flows are looked at, piece by piece.

use freeway_cmm::FlowKey;
use freeway_kernel::model::Tuple;

use super::super::Engine;
use super::*;
use crate::DaemonError;

impl Engine {
    /// True if a packet socket takes a flow's frames, at its ports or at the devices below.
    pub(in crate::engine) fn is_sniffed(&self, key: &FlowKey, out: &Tuple, port_out: u32) -> bool {
        let carried = |port: u32| {
            let port = self.ports.by_index.get(&port);
            port.and_then(|port| port.carried.as_ref())
        };
        let below = [carried(key.port), carried(port_out)];
        self.polled.sniffed(key, (out, port_out), below)
    }

    pub(in crate::engine) fn sniff_piece(&mut self) -> Result<(), DaemonError> {
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
