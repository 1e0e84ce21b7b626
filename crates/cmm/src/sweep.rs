// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes of what is allowed: flows that no longer are leave, a bounded number of them in a call.

use freeway_kernel::model::CtStatus;

use crate::key::FlowKey;
use crate::manager::Manager;
use crate::op::Op;
use crate::policy::{Policy, RuleScope};
use crate::port::Path;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::walk::Walk;

/// Flows that are looked at for each that may leave.
const LOOKS: usize = 16;

impl Manager {
    /// What the ruleset's analysis says. Flows that are no longer allowed leave.
    pub fn set_ruleset(
        &mut self,
        unsafe_scopes: Vec<RuleScope>,
        mark_scopes: Vec<RuleScope>,
        now_tick: u32,
        ops: &mut Vec<Op>,
    ) {
        self.unsafe_scopes = unsafe_scopes;
        self.mark_scopes = mark_scopes;
        self.begin_sweep(false, now_tick, ops);
    }

    /// Whether connections without an answer may be fast; if not, their flows leave.
    pub fn set_one_way(&mut self, allowed: bool, now_tick: u32, ops: &mut Vec<Op>) {
        if std::mem::replace(&mut self.one_way, allowed) && !allowed {
            self.begin_sweep(false, now_tick, ops);
        }
    }

    /// Replaces the policy; flows that it no longer allows leave.
    pub fn set_policy(&mut self, policy: Policy, now_tick: u32, ops: &mut Vec<Op>) {
        self.settings.policy = policy;
        self.begin_sweep(false, now_tick, ops);
    }

    /// Conntrack's timeouts for TCP, in seconds, for connections that are learned from now on.
    pub fn set_tcp_timeouts(&mut self, established_s: u32, unacknowledged_s: u32) {
        self.settings.tcp_established_s = established_s;
        self.settings.tcp_unacknowledged_s = unacknowledged_s;
    }

    /// Seconds without a fast packet after which a flow of TCP, or of anything else, leaves.
    pub fn set_idle(&mut self, tcp_s: u32, udp_s: u32) {
        self.settings.idle_tcp_s = tcp_s;
        self.settings.idle_udp_s = udp_s;
    }

    /// Empties the table.
    pub fn flush(&mut self, now_tick: u32, ops: &mut Vec<Op>) {
        self.begin_sweep(true, now_tick, ops);
    }

    /// A packet socket takes a flow's frames, or no longer does. If it has to change its path, it is learned anew.
    pub fn set_sniffed(&mut self, index: u32, sniffed: bool, now_tick: u32, ops: &mut Vec<Op>) {
        let Some(record) = self.table.get(index) else {
            return;
        };
        if record.is_sniffed() == sniffed {
            return;
        }
        let (key, current) = (record.key(), record.path());
        let path = match record.is_group() {
            // tc does not copy
            true => Err(Refusal::Sniffed),
            false => self.path_of(
                (&key.tuple, &record.out()),
                (key.port, record.port_out),
                record.is_bound() || sniffed,
            ),
        };
        if path == Ok(current) {
            if let Some(record) = self.table.get_mut(index) {
                record.set_sniffed(sniffed);
            }
            return;
        }
        self.remove(index, now_tick, ops);
        if path.is_err() {
            self.refusals.note(key, Refusal::Sniffed);
        }
    }

    /// Every flow's index is below this one, and at least 1.
    #[must_use]
    pub fn index_end(&self) -> u32 {
        self.table.end()
    }

    /// Begins the walk and does its first part; [`Manager::work`] does the others.
    pub(crate) fn begin_sweep(&mut self, flush: bool, now_tick: u32, ops: &mut Vec<Op>) {
        let flush = flush || self.sweep.is_some_and(|sweep| sweep.flushes());
        self.sweep = Some(Walk::new(self.table.end(), flush));
        self.continue_sweep(now_tick, ops);
    }

    pub(crate) fn continue_sweep(&mut self, now_tick: u32, ops: &mut Vec<Op>) {
        let Some(mut sweep) = self.sweep else {
            return;
        };
        let (mut leave, mut looks) = (self.settings.work_max, LOOKS * self.settings.work_max);
        while leave > 0
            && looks > 0
            && let Some(index) = sweep.next()
        {
            let record = self.table.get(index);
            if record.is_some_and(|record| sweep.flushes() || !self.is_allowed(record)) {
                self.remove(index, now_tick, ops);
                leave -= 1;
            }
            looks -= 1;
        }
        self.sweep = (!sweep.is_over()).then_some(sweep);
    }

    /// Everything that may change about a flow's admission.
    fn is_allowed(&self, record: &Record) -> bool {
        let FlowKey { tuple, port } = record.key();
        let out = record.out();
        let connection = self.conns.get(record.conn);
        let one_way = connection.is_some_and(|c| CtStatus(c.status).one_way());
        let bound = record.is_bound() || record.is_sniffed();
        // what is bound already may be marked, and so may what has a class for it
        let classed =
            record.path() == Path::Engine && self.classes(port, record.port_out).is_some();
        let may_be_marked = record.is_bound() || classed;
        let marks = self.mark_scopes.iter().filter(|_| !may_be_marked);
        let scopes = self.unsafe_scopes.iter().chain(marks);
        let leaves = |port_out: u32| {
            let of_tc = record.path() == Path::Tc;
            // a station that has become known moves its flows itself
            let stays = of_tc && [port, port_out].iter().any(|at| self.is_by_station(*at));
            self.path_of((&tuple, &out), (port, port_out), bound || stays) == Ok(record.path())
                && self.settings.policy.allows(&tuple, &out, [port, port_out])
                && !self.may_leak(port, port_out, out.dst)
                && !scopes.clone().any(|s| {
                    s.concerns(record.conn != 0) && s.matches(&tuple, &out, port, port_out)
                })
        };
        (self.one_way || !one_way)
            && !self.nexthops.is_dead(record.nexthop)
            && match record.is_group() {
                true => self.exits(&record.flow()).into_iter().all(leaves),
                false => leaves(record.port_out),
            }
    }
}
