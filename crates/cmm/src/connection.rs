// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections: what joins their directions, and what conntrack must be told before they are fast.

use freeway_abi::{FW_R_CLOSING, fw_candidate};

use crate::conns::Conn;
use crate::flow::Preparation;
use crate::key::{ConnKey, FlowKey};
use crate::manager::Manager;
use crate::op::Op;
use crate::refusal::Refusal;

impl Manager {
    /// Makes a flow that was just entered a direction of its connection, and activates it if nothing is to be prepared.
    pub(crate) fn join_connection(
        &mut self,
        c: &fw_candidate,
        index: u32,
        now_tick: u32,
        ops: &mut Vec<Op>,
    ) {
        let record = self.table.get(index);
        let Some((orig, key)) = record.map(|record| (record.orig(), record.key())) else {
            return;
        };
        if c.conn.present == 0 {
            return self.activate(index, now_tick, ops);
        }
        let dir = usize::from(c.conn.dir != 0);
        let vrfs = self.vrfs(key.port, c.port_out);
        let known = self.conns.find(&self.table, &orig, vrfs);
        let number = known.unwrap_or_else(|| {
            let mut conn = Conn::new(c.conn.status, c.conn.mark, self.timeout_s(c), now_tick);
            conn.flows[dir] = index;
            conn.vrfs = vrfs;
            self.conns.insert(&orig, conn)
        });
        if let Some(record) = self.table.get_mut(index) {
            record.conn = number;
        }
        let Some(conn) = self.conns.get_mut(number) else {
            return;
        };
        let before = std::mem::replace(&mut conn.flows[dir], index);
        let (peer, preparation) = (conn.flows[1 - dir], conn.preparation);
        if before != 0 && before != index {
            // the direction comes in at another port now
            self.remove(before, now_tick, ops);
        }
        if peer != 0 {
            ops.push(Op::SetPeer { index, peer });
            ops.push(Op::SetPeer {
                index: peer,
                peer: index,
            });
        }
        if orig.proto != 6 {
            return self.activate(index, now_tick, ops);
        }
        let conn = ConnKey { orig, zone: 0 };
        match preparation {
            Preparation::Asked => {}
            Preparation::None => {
                self.set_preparation(number, Preparation::Asked);
                ops.push(Op::Prepare {
                    conn,
                    timeout_s: None,
                });
            }
            Preparation::Done => {
                self.activate(index, now_tick, ops);
                // The kernel has seen this direction's packets since.
                ops.push(Op::Prepare {
                    conn,
                    timeout_s: None,
                });
            }
        }
    }

    fn set_preparation(&mut self, number: u32, preparation: Preparation) {
        if let Some(conn) = self.conns.get_mut(number) {
            conn.preparation = preparation;
        }
    }

    /// Seconds that the kernel gives a connection after each packet.
    fn timeout_s(&self, c: &fw_candidate) -> u32 {
        let seen_s = c.conn.timeout_ticks.div_ceil(self.settings.hz);
        let tcp = c.key.port_proto & 0xff == 6;
        // with a timeout policy of its own the sysctls say nothing
        if tcp && c.conn.timeout_policy == 0 && seen_s <= self.settings.tcp_unacknowledged_s {
            // learned from a packet with data, which is acknowledged by now
            self.settings.tcp_established_s
        } else {
            seen_s
        }
    }

    fn activate(&mut self, index: u32, now_tick: u32, ops: &mut Vec<Op>) {
        let Some(record) = self.table.get_mut(index) else {
            return;
        };
        record.set_active();
        let (first_tick, number) = (record.first_tick, record.conn);
        self.stats.activated += 1;
        let waited_ms = self.ms(now_tick.wrapping_sub(first_tick));
        self.stats.learnable_to_fast.record(waited_ms);
        ops.push(Op::Activate { index });
        self.note_both_fast(number, now_tick);
    }

    /// The first time that both directions of a connection are fast.
    fn note_both_fast(&mut self, number: u32, now_tick: u32) {
        let Some(conn) = self.conns.get(number).filter(|conn| !conn.both_fast) else {
            return;
        };
        let active = |index: u32| self.table.get(index).filter(|r| r.is_active());
        let [Some(orig), Some(reply)] = conn.flows.map(active) else {
            return;
        };
        let since = |tick: u32| now_tick.wrapping_sub(tick);
        // learnable is the connection when both of its directions are
        let waited = since(orig.first_tick).min(since(reply.first_tick));
        let waited_ms = self.ms(waited);
        self.stats.connections += 1;
        self.stats.connection_to_fast.record(waited_ms);
        if let Some(conn) = self.conns.get_mut(number) {
            conn.both_fast = true;
        }
    }

    fn ms(&self, ticks: u32) -> u32 {
        let ms = u64::from(ticks) * 1000 / u64::from(self.settings.hz);
        u32::try_from(ms).unwrap_or(u32::MAX)
    }

    /// conntrack's answer to [`Op::Prepare`].
    pub fn prepared(&mut self, conn: &ConnKey, ok: bool, now_tick: u32, ops: &mut Vec<Op>) {
        // what VRFs share was prepared for all
        for number in self.connections_of(conn) {
            self.connection_prepared(number, ok, now_tick, ops);
        }
    }

    fn connection_prepared(&mut self, number: u32, ok: bool, now_tick: u32, ops: &mut Vec<Op>) {
        if !ok {
            *self.stats.refused.entry(Refusal::Preparation).or_default() += 1;
            self.end_connection(number, now_tick, ops);
            return;
        }
        self.stats.prepared += 1;
        let Some(conn) = self.conns.get_mut(number) else {
            return;
        };
        conn.preparation = Preparation::Done;
        conn.prepared_tick = now_tick;
        for index in conn.indices() {
            if self.table.get(index).is_some_and(|r| !r.is_active()) {
                self.activate(index, now_tick, ops);
            }
        }
    }

    /// The data plane suspended the connection of this flow.
    pub fn suspended(&mut self, index: u32, reason: u32, now_tick: u32, ops: &mut Vec<Op>) {
        self.stats.suspended += 1;
        let Some(record) = self.table.get(index) else {
            return;
        };
        if record.conn != 0 {
            return self.end_connection(record.conn, now_tick, ops);
        }
        // Without a connection nothing links the directions but their tuples.
        let inverse = FlowKey {
            tuple: record.out().inverse(),
            port: record.port_out,
        };
        self.remove(index, now_tick, ops);
        if let (Some(peer), FW_R_CLOSING) = (self.table.find(&inverse), reason) {
            self.remove(peer, now_tick, ops);
        }
    }

    /// Both directions leave the table.
    pub(crate) fn end_connection(&mut self, number: u32, now_tick: u32, ops: &mut Vec<Op>) {
        let Some(indices) = self.conns.get(number).map(|conn| conn.indices()) else {
            return;
        };
        for index in indices {
            self.stats.ended += 1;
            self.remove(index, now_tick, ops);
        }
    }
}
