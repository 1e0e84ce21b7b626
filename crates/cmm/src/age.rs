// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happens with time: ageing, renewals, the end of quarantines.
//!
//! Two ways lead to a flow. The data plane marks those whose packets the kernel has seen, and a mark is read within
//! a tick. A scan comes by every flow, slowly, for all else. Neither takes long in one call: the rest is
//! [`Manager::work`]'s.

use freeway_abi::{FW_ST_SUSPENDED, fw_state};

use crate::flow::Preparation;
use crate::indices::Retired;
use crate::manager::Manager;
use crate::op::{Op, StateView};
use crate::table::Kind;

/// Flows that are looked at for each that may leave.
const LOOKS: usize = 8;
/// Indices that leave quarantine for each flow that may leave the table.
const RETURNS: usize = 4;

impl Manager {
    /// To be called about four times a second.
    pub fn tick(&mut self, now_tick: u32, view: &impl StateView, ops: &mut Vec<Op>) {
        let round = (self.settings.scan_s * self.settings.hz).max(1);
        self.scan.begin(round, self.table.end(), now_tick);
        self.work(now_tick, view, ops);
    }

    /// True if a call of [`Manager::work`] has something left to do.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.sweep.is_some() || self.scan.has_work()
    }

    /// A bounded part of what is due.
    pub fn work(&mut self, now_tick: u32, view: &impl StateView, ops: &mut Vec<Op>) {
        self.recent.age(self.settings.hz, now_tick);
        self.end_quarantine(now_tick, view, ops);
        self.renew_marked(now_tick, view, ops);
        self.continue_sweep(now_tick, ops);
        self.continue_scan(now_tick, view, ops);
    }

    /// A packet in the window that the kernel saw since the preparation, such as a revalidation, has set MAXACK_SET
    /// and DATA_UNACKNOWLEDGED again: a RST would not close, and an idle connection would end too early.
    fn renew_marked(&mut self, now_tick: u32, view: &impl StateView, ops: &mut Vec<Op>) {
        let Some(from) = self.scan.marks() else {
            return;
        };
        let mut marked = Vec::new();
        let end = self.table.end();
        let next = view.take_seen(from..end, self.settings.work_max, &mut marked);
        self.scan.read_marks((next < end).then_some(next));
        for index in marked {
            if self.table.kind(index) == Kind::Tcp {
                self.renew(index, &view.state(index), now_tick, view, ops);
            }
        }
    }

    fn renew(
        &mut self,
        index: u32,
        state: &fw_state,
        now_tick: u32,
        view: &impl StateView,
        ops: &mut Vec<Op>,
    ) {
        let Some(record) = self.table.get(index) else {
            return;
        };
        let (Some(key), Some(conn)) = (record.conn_key(), self.conns.get(record.conn)) else {
            return;
        };
        if conn.preparation != Preparation::Done {
            return;
        }
        let seen = state.confirmed_tick.wrapping_sub(conn.prepared_tick) < u32::MAX / 2;
        let mib = (state.bytes >> 20) as u32;
        let many = mib.wrapping_sub(record.prepared_mib) >= self.prepare_mib();
        if !seen && !many {
            return;
        }
        let other = conn.indices().find(|other| *other != index);
        let other = other.map(|other| view.state(other));
        let states = [Some(*state), other];
        let mut states = states.iter().flatten();
        // The kernel closes it: what is written now would keep what is left of it for days. One that had closed before it was
        // learned never has a fast packet; of such the kernel has seen all.
        if states.clone().any(|state| state.status == FW_ST_SUSPENDED)
            || states.all(|state| state.packets == 0)
        {
            return;
        }
        let idle_ticks = other
            .map(|other| idle_ticks(&other, now_tick))
            .into_iter()
            .fold(idle_ticks(state, now_tick), u32::min);
        let idle_s = idle_ticks / self.settings.hz;
        let timeout_s = Some(conn.timeout_s.saturating_sub(idle_s).max(1));
        if let Some(record) = self.table.get_mut(index) {
            record.prepared_mib = mib;
        }
        let number = self.table.get(index).map_or(0, |record| record.conn);
        if let Some(conn) = self.conns.get_mut(number) {
            // once for both directions
            conn.prepared_tick = now_tick.wrapping_add(1);
        }
        ops.push(Op::Prepare {
            conn: key,
            timeout_s,
        });
    }

    fn prepare_mib(&self) -> u32 {
        u32::try_from(self.settings.prepare_bytes >> 20).unwrap_or(u32::MAX)
    }

    fn continue_scan(&mut self, now_tick: u32, view: &impl StateView, ops: &mut Vec<Op>) {
        let (mut leave, mut looks) = (self.settings.work_max, LOOKS * self.settings.work_max);
        while leave > 0
            && looks > 0
            && let Some(index) = self.scan.next(self.table.end())
        {
            looks -= 1;
            let kind = self.table.kind(index);
            if kind != Kind::Free && self.look(index, kind, now_tick, view, ops) {
                leave -= 1;
            }
        }
    }

    /// True if the flow left.
    fn look(
        &mut self,
        index: u32,
        kind: Kind,
        now_tick: u32,
        view: &impl StateView,
        ops: &mut Vec<Op>,
    ) -> bool {
        let state = view.state(index);
        if state.status == FW_ST_SUSPENDED {
            // its event may have been lost to a full ring
            self.leave(index, None, now_tick, ops);
            return true;
        }
        let idle_s = match kind {
            Kind::Tcp => self.settings.idle_tcp_s,
            _ => self.settings.idle_udp_s,
        };
        let idle_ticks = now_tick.wrapping_sub(state.used_tick);
        // only what the kernel has not seen since is worth telling
        let unseen = state.used_tick.wrapping_sub(state.confirmed_tick);
        let known = state.packets > 0 && unseen < u32::MAX / 2;
        let idle_s = if known && idle_ticks >= self.settings.hz {
            idle_s.min(self.told_after_s(index))
        } else {
            idle_s
        };
        if idle_ticks >= idle_s * self.settings.hz && idle_ticks < u32::MAX / 2 {
            let idle_s = known.then_some(idle_ticks / self.settings.hz);
            self.leave(index, idle_s, now_tick, ops);
            return true;
        }
        self.shares
            .look(index, state.packets, now_tick, self.settings.hz);
        if kind == Kind::Tcp {
            self.renew(index, &state, now_tick, view, ops);
        }
        false
    }

    /// For conntrack an idle connection has been idle for up to an interval longer, a quarter of its timeout. It is to
    /// be told before it ends the connection for that.
    fn told_after_s(&self, index: u32) -> u32 {
        let conn = self.table.get(index).map(|record| record.conn);
        let conn = conn.and_then(|number| self.conns.get(number));
        conn.map_or(u32::MAX, |conn| (conn.timeout_s / 4).max(1))
    }

    /// A flow leaves for idleness. The kernel missed its last packets: with the last flow of a connection the
    /// time left is written as if it had seen them.
    fn leave(&mut self, index: u32, idle_s: Option<u32>, now_tick: u32, ops: &mut Vec<Op>) {
        let Some(record) = self.table.get(index) else {
            return;
        };
        if let (Some(key), Some(idle_s)) = (record.conn_key(), idle_s)
            && let Some(conn) = self.conns.get(record.conn)
            && conn.timeout_s > idle_s
            && conn.indices().count() == 1
            // others may be of the same connection, in another VRF, or also such as are not here
            && !key.orig.is_of_addresses()
            && self.connections_of(&key).len() == 1
        {
            let seconds = conn.timeout_s - idle_s;
            if record.proto == 6 {
                // as liberal as it was
                ops.push(Op::Prepare {
                    conn: key,
                    timeout_s: Some(seconds),
                });
            } else {
                ops.push(Op::SetTimeout {
                    orig: key.orig,
                    zone: key.zone,
                    seconds,
                });
            }
        }
        self.stats.aged += 1;
        self.remove(index, now_tick, ops);
    }

    /// After a second no packet can still hold a removed flow's state.
    fn end_quarantine(&mut self, now_tick: u32, view: &impl StateView, ops: &mut Vec<Op>) {
        for _ in 0..RETURNS * self.settings.work_max {
            let Some(retired) = self.indices.released(self.settings.hz, now_tick) else {
                break;
            };
            if let Retired::State(index) = retired {
                let state = view.state(index);
                self.stats.retired_packets += state.packets;
                self.stats.retired_bytes += state.bytes;
                ops.push(Op::ReleaseFlow { index });
            }
            self.recycle(retired);
        }
    }
}

/// How long neither path has forwarded a packet of the flow.
fn idle_ticks(state: &fw_state, now_tick: u32) -> u32 {
    let since = |tick: u32| u32::try_from(now_tick.wrapping_sub(tick).cast_signed()).unwrap_or(0);
    since(state.used_tick).min(since(state.confirmed_tick))
}
