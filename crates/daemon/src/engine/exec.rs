// SPDX-License-Identifier: MIT OR Apache-2.0
//! Carrying out the manager's operations.

use freeway_abi::{FW_FLOW_CT, FW_ST_ACTIVE, FW_ST_PREPARING, fw_flow, fw_nexthop};
use freeway_cmm::{ConnKey, Op};
use freeway_kernel::conntrack::{SetTimeout, TcpPrepare};
use freeway_kernel::model::TcpState;
use freeway_kernel::sysctl;

use super::Engine;
use crate::DaemonError;

/// What the kernel gives a connection that has ended, at most (`nf_conntrack_tcp_timeout_time_wait`).
const ENDED_S: u32 = 120;

/// conntrack follows the sequence numbers of its connection.
fn is_tcp(flow: &fw_flow) -> bool {
    // `proto` is IPv4's alone
    flow.key.port_proto & 0xff == 6 && u32::from(flow.flags) & FW_FLOW_CT != 0
}

impl Engine {
    /// tc looks at packets that come in while it has flows, or has to tell of a watched tuple.
    pub(super) fn set_tc_forwards(&self) {
        let looks = self.manager.tc_flow_count() > 0 || self.explanations.watching();
        self.datapath.control.set_tc_forwards(looks.into());
    }

    /// In order; conntrack's answers may bring further operations.
    pub(super) fn execute(&mut self, mut ops: Vec<Op>) -> Result<(), DaemonError> {
        loop {
            let mut prepare = Vec::new();
            let mut timeouts = Vec::new();
            let (mut failed, mut failed_lists) = (Vec::new(), Vec::new());
            for op in ops.drain(..) {
                self.carry_out(
                    op,
                    &mut prepare,
                    &mut timeouts,
                    &mut failed,
                    &mut failed_lists,
                );
            }
            // what no flow needs costs nothing
            self.set_tc_forwards();
            let multicast = self.manager.routes_multicast();
            if multicast {
                self.datapath.prepare_copies();
            }
            self.datapath.control.set_multicast(multicast.into());
            let now_tick = self.now_tick()?;
            for index in failed {
                self.manager.insert_failed(index, now_tick, &mut ops);
            }
            for nexthop in failed_lists {
                self.manager.list_failed(nexthop, now_tick, &mut ops);
            }
            self.prepare(&prepare, now_tick, &mut ops);
            for result in self.conntrack.set_timeouts(&timeouts) {
                // the connection may be gone, which is as good
                if let Err(error) = result {
                    tracing::debug!("writing a connection's timeout: {error}");
                }
            }
            if ops.is_empty() {
                return Ok(());
            }
        }
    }

    fn carry_out(
        &mut self,
        op: Op,
        prepare: &mut Vec<TcpPrepare>,
        timeouts: &mut Vec<SetTimeout>,
        failed: &mut Vec<u32>,
        failed_lists: &mut Vec<u32>,
    ) {
        let datapath = &self.datapath;
        match op {
            Op::SetNexthop { index, nexthop } => datapath.nexthops.set(index, *nexthop),
            Op::SetOlist {
                index,
                number,
                legs,
                nexthop,
            } => {
                // the place may still have another's
                datapath.nexthops.invalidate(index);
                match datapath.set_olist(number, &legs) {
                    Ok(valid) => datapath
                        .nexthops
                        .set(index, fw_nexthop { valid, ..*nexthop }),
                    Err(error) => {
                        tracing::debug!("a group stays in the kernel: {error}");
                        failed_lists.push(index);
                    }
                }
            }
            Op::InvalidateNexthop { index } => datapath.nexthops.invalidate(index),
            Op::InsertFlow {
                index,
                flow,
                kept,
                conn,
            } => {
                datapath.kept.set(index, kept);
                if is_tcp(&flow)
                    && let Err(error) = datapath.enter_edges(&flow)
                {
                    tracing::debug!("what a connection's ends say is not noted: {error}");
                }
                if datapath.flows.insert(index, &flow) {
                    // offers that stay silence their flows
                    datapath.offers.forget(&flow);
                    self.census.entered(index);
                    if let Some(conn) = conn {
                        self.accounting.entered(index, &flow, conn, datapath);
                    }
                } else {
                    failed.push(index);
                }
            }
            Op::RemoveFlow { index } => {
                let flow = datapath.flows.remove(index);
                if is_tcp(&flow)
                    && let Err(error) = datapath.leave_edges(&flow)
                {
                    tracing::debug!("what a connection's ends said is forgotten: {error}");
                }
                datapath.offers.forget(&flow);
                self.census.removed(index);
            }
            Op::ReleaseFlow { index } => {
                self.accounting.released(index, datapath);
                datapath.flows.release(index);
            }
            Op::ForgetOffer { flow } => datapath.offers.forget(&flow),
            Op::Activate { index } => {
                // false: the data plane saw the connection close meanwhile
                let _ = datapath
                    .flows
                    .swap_status(index, FW_ST_PREPARING, FW_ST_ACTIVE);
            }
            Op::SetPeer { index, peer } => datapath.flows.set_peer(index, peer),
            Op::Unconfirm { index } => datapath.flows.unconfirm(index),
            Op::ForgetEnds { now_tick } => datapath.forget_edges(now_tick),
            Op::SetEpoch { epoch } => datapath.control.set_epoch(epoch),
            Op::Prepare { conn, timeout_s } => prepare.push(TcpPrepare {
                orig: conn.orig,
                zone: conn.zone,
                timeout_s,
            }),
            Op::SetTimeout {
                orig,
                zone,
                seconds,
            } => {
                timeouts.push(SetTimeout {
                    orig,
                    zone,
                    seconds,
                });
            }
        }
    }

    /// If conntrack has it as one that closes or has closed, or not at all, or nobody knows: the seconds for which it keeps
    /// such a one.
    fn kept_after_end_s(&mut self, conn: &ConnKey) -> Option<u32> {
        let Ok(Some(found)) = self.conntrack.get(&conn.orig, conn.zone) else {
            return Some(ENDED_S);
        };
        let state = found.tcp?.state;
        let ended = state != TcpState::Established;
        ended.then(|| sysctl::tcp_timeout_s(state).unwrap_or(ENDED_S))
    }

    /// Both directions pass the data plane before conntrack, and neither has begun to close.
    fn goes_on(&self, conn: &ConnKey) -> bool {
        let active = |index: u32| self.datapath.flows.state(index).status == FW_ST_ACTIVE;
        let known = self.manager.connection(conn);
        known.is_some_and(|known| known.flows.iter().all(|flow| flow.is_some_and(active)))
    }

    fn prepare(&mut self, batch: &[TcpPrepare], now_tick: u32, ops: &mut Vec<Op>) {
        let results = self.conntrack.prepare_tcp(batch);
        let (mut ended, mut done) = (Vec::new(), Vec::with_capacity(batch.len()));
        for (message, result) in batch.iter().zip(results) {
            if let Err(error) = &result {
                tracing::debug!(flow = %message.orig, reason = %error, "preparing a connection");
            }
            let conn = ConnKey {
                orig: message.orig,
                zone: message.zone,
            };
            let mut ok = result.is_ok();
            match message.timeout_s {
                // It may have closed before its flows were there: no segment would take them back, and another connection
                // with these ports would meet them.
                None => ok &= self.kept_after_end_s(&conn).is_none(),
                // or before it was given time, which would keep what is left of it for days
                Some(_) if ok && !self.goes_on(&conn) => {
                    if let Some(seconds) = self.kept_after_end_s(&conn) {
                        ended.push(SetTimeout {
                            orig: message.orig,
                            zone: message.zone,
                            seconds,
                        });
                    }
                }
                Some(_) => {}
            }
            done.push((conn, ok));
        }
        for result in self.conntrack.set_timeouts(&ended) {
            if let Err(error) = result {
                tracing::debug!("writing the timeout of a connection that has ended: {error}");
            }
        }
        for (conn, ok) in done {
            self.manager.prepared(&conn, ok, now_tick, ops);
        }
    }
}

#[cfg(test)]
mod tests {
    use freeway_abi::{FW_KEY_IP6, fw_key4};

    use super::*;

    #[test]
    fn tcp_is_known_in_both_families() {
        let flow = |family: u32, proto: u32| fw_flow {
            key: fw_key4 {
                port_proto: family | 7 << 8 | proto,
                ..fw_key4::default()
            },
            flags: FW_FLOW_CT as u8,
            ..fw_flow::default()
        };
        for family in [0, FW_KEY_IP6] {
            assert!(is_tcp(&flow(family, 6)));
            assert!(!is_tcp(&flow(family, 17)));
        }
        let untracked = fw_flow {
            flags: 0,
            ..flow(0, 6)
        };
        assert!(!is_tcp(&untracked));
    }
}
