// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flows that leave the table, and what becomes of their indices.

use freeway_abi::FW_INDEX_NONE;

use crate::indices::Retired;
use crate::manager::Manager;
use crate::op::Op;
use crate::refusal::Refusal;

impl Manager {
    pub(crate) fn remove(&mut self, index: u32, now_tick: u32, ops: &mut Vec<Op>) {
        self.remove_but(index, None, now_tick, ops);
    }

    /// As [`Manager::remove`], but a next hop stays although no flow goes through it.
    pub(crate) fn remove_but(
        &mut self,
        index: u32,
        keep: Option<u32>,
        now_tick: u32,
        ops: &mut Vec<Op>,
    ) {
        let Some((record, last)) = self.table.remove(index) else {
            return;
        };
        self.shares.leave(&record);
        ops.push(Op::RemoveFlow { index });
        if last && keep != Some(record.nexthop) {
            self.nexthops.release(record.nexthop);
            self.indices
                .retire(Retired::Nexthop(record.nexthop), now_tick);
        }
        self.indices.retire(Retired::State(index), now_tick);
        let Some(conn) = self.conns.get_mut(record.conn) else {
            return;
        };
        let dir = usize::from(record.is_reply());
        if conn.flows[dir] != index {
            // another flow has taken its place
            return;
        }
        conn.flows[dir] = 0;
        match conn.flows[1 - dir] {
            0 => self.conns.remove(record.conn, &record.orig()),
            // the index will be another flow's
            peer => ops.push(Op::SetPeer {
                index: peer,
                peer: FW_INDEX_NONE,
            }),
        }
    }

    /// The table did not take the flow.
    pub fn insert_failed(&mut self, index: u32, now_tick: u32, ops: &mut Vec<Op>) {
        if let Some(key) = self.table.get(index).map(|record| record.key()) {
            *self.stats.refused.entry(Refusal::TableFull).or_default() += 1;
            self.refusals.note(key, Refusal::TableFull);
        }
        self.remove(index, now_tick, ops);
    }

    pub(crate) fn recycle(&mut self, retired: Retired) {
        match retired {
            Retired::State(index) => self.indices.give_back(index),
            Retired::Nexthop(index) => self.nexthops.recycle(index),
        }
    }
}
