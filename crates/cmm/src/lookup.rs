// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections that the data plane cannot look up: the kernel's functions for programs know TCP and UDP alone
//! (`__bpf_nf_ct_lookup`), and the engine is no such program. The daemon asks for them by turns.

use crate::key::ConnKey;
use crate::manager::Manager;

impl Manager {
    /// Those of at most `max` flows, beginning where the last call ended; each once.
    pub fn connections_to_ask_for(&mut self, max: usize) -> Vec<ConnKey> {
        let flows = self.table.unseen(self.next_asked, max);
        self.next_asked = flows.last().map_or(0, |index| index + 1);
        let records = flows.iter().filter_map(|index| self.table.get(*index));
        let mut keys: Vec<ConnKey> = records.filter_map(|record| record.conn_key()).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }
}
