// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happens with time: ageing, renewals, the end of quarantines.

use freeway_abi::FW_ST_SUSPENDED;

use crate::flow::Preparation;
use crate::key::ConnKey;
use crate::manager::{Manager, Retired};
use crate::op::{Op, StateView};

impl Manager {
    /// To be called about four times a second.
    pub fn tick(&mut self, now_tick: u32, view: &impl StateView, ops: &mut Vec<Op>) {
        self.end_quarantine(now_tick, view);
        let mut idle = Vec::new();
        let mut renew: Vec<(ConnKey, u32)> = Vec::new();
        for (&index, flow) in &mut self.flows {
            let state = view.state(index);
            if state.status == FW_ST_SUSPENDED {
                // its event may have been lost to a full ring
                idle.push((index, None));
                continue;
            }
            let idle_s = match flow.key.tuple.proto {
                6 => self.settings.idle_tcp_s,
                _ => self.settings.idle_udp_s,
            };
            let idle_ticks = now_tick.wrapping_sub(state.used_tick);
            if idle_ticks >= idle_s * self.settings.hz && idle_ticks < u32::MAX / 2 {
                // only what the kernel has not seen since is worth telling
                let unseen = state.used_tick.wrapping_sub(state.confirmed_tick);
                let known = state.packets > 0 && unseen < u32::MAX / 2;
                idle.push((index, known.then_some(idle_ticks / self.settings.hz)));
                continue;
            }
            if flow.key.tuple.proto != 6 {
                continue;
            }
            // A packet in the window that the kernel saw since then, such as a revalidation, has set MAXACK_SET
            // and DATA_UNACKNOWLEDGED again: a RST would not close, and an idle connection would end too early.
            let seen = flow
                .conn
                .and_then(|conn| self.conns.get(&conn))
                .is_some_and(|c| {
                    let since = state.confirmed_tick.wrapping_sub(c.prepared_tick);
                    since < u32::MAX / 2
                });
            if seen || state.bytes.wrapping_sub(flow.prepared_bytes) >= self.settings.prepare_bytes
            {
                flow.prepared_bytes = state.bytes;
                renew.extend(flow.conn.map(|conn| (conn, idle_ticks)));
            }
        }
        // once for each connection, by the direction used last
        renew.sort_unstable();
        renew.dedup_by_key(|(conn, _)| *conn);
        for (conn, idle_ticks) in renew {
            let Some(connection) = self.conns.get(&conn) else {
                continue;
            };
            if connection.preparation == Preparation::Done {
                let idle_s =
                    u32::try_from(idle_ticks.cast_signed()).unwrap_or(0) / self.settings.hz;
                ops.push(Op::Prepare { conn });
                ops.push(Op::SetTimeout {
                    orig: conn.orig,
                    zone: conn.zone,
                    seconds: connection.timeout_s.saturating_sub(idle_s).max(1),
                });
            }
        }
        idle.sort_unstable_by_key(|(index, _)| *index);
        for (index, idle_s) in idle {
            self.leave(index, idle_s, now_tick, ops);
        }
    }

    /// A flow leaves for idleness. The kernel missed its last packets, so the
    /// time left of its connection is written as if it had seen them.
    fn leave(&mut self, index: u32, idle_s: Option<u32>, now_tick: u32, ops: &mut Vec<Op>) {
        let Some(flow) = self.flows.get(&index) else {
            return;
        };
        if let (Some(conn), Some(idle_s)) = (flow.conn, idle_s)
            && let Some(connection) = self.conns.get(&conn)
            && connection.timeout_s > idle_s
        {
            if conn.orig.proto == 6 {
                ops.push(Op::Prepare { conn });
            }
            let seconds = connection.timeout_s - idle_s;
            ops.push(Op::SetTimeout {
                orig: conn.orig,
                zone: conn.zone,
                seconds,
            });
        }
        self.stats.aged += 1;
        self.remove(index, now_tick, ops);
    }

    /// After a second no packet can still hold a removed flow's state.
    fn end_quarantine(&mut self, now_tick: u32, view: &impl StateView) {
        while let Some(&(since, retired)) = self.quarantine.front() {
            if now_tick.wrapping_sub(since) < self.settings.hz {
                break;
            }
            self.quarantine.pop_front();
            if let Retired::State(index) = retired {
                let state = view.state(index);
                self.stats.retired_packets += state.packets;
                self.stats.retired_bytes += state.bytes;
            }
            self.recycle(retired);
        }
    }
}
