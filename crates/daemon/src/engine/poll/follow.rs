// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the polling thread is asked, and what follows from what it found.

use freeway_cmm::{ConnKey, Settings};
use freeway_kernel::model::{Connection, Link};

use super::super::Engine;
use super::{Polled, Question};
use crate::DaemonError;

/// Flows whose connections are asked for in a poll; the more there are, the longer a round takes.
const ASKED_MAX: usize = 1024;

impl Engine {
    /// Has the polling thread look at what sends no event.
    pub(in crate::engine) fn ask_poller(&mut self) {
        if self.poller.is_free() {
            let question = self.question();
            self.poller.ask(question);
        }
    }

    /// Looks at once; what follows is the caller's.
    pub(in crate::engine) fn poll_now(&mut self) {
        let question = self.question();
        self.polled = self.poller.read(question).after(&self.polled);
    }

    fn question(&mut self) -> Question {
        Question {
            places: self.business().cloned().collect(),
            ours: self.own_programs(),
            connections: self.manager.connections_to_ask_for(ASKED_MAX),
        }
    }

    /// Connections as conntrack has them; `None`: it has none.
    fn looked_up(
        &mut self,
        connections: Vec<(ConnKey, Option<Connection>)>,
    ) -> Result<(), DaemonError> {
        if connections.is_empty() {
            return Ok(());
        }
        let (mut ops, now_tick) = (Vec::new(), self.now_tick()?);
        for (key, found) in connections {
            match found {
                Some(found) => self.manager.connection_updated(&found, now_tick, &mut ops),
                None => self.manager.connection_gone(&key, now_tick, &mut ops),
            }
        }
        self.execute(ops)
    }

    /// Applies what differs from the look before.
    pub(in crate::engine) fn polled(&mut self, mut polled: Polled) -> Result<(), DaemonError> {
        self.looked_up(std::mem::take(&mut polled.connections))?;
        if polled.ours != self.own_programs() {
            // programs were loaded meanwhile, and counted as somebody else's
            self.ask_poller();
            return Ok(());
        }
        let polled = polled.after(&self.polled);
        let tracked = self.tracks();
        let before = std::mem::replace(&mut self.polled, polled);
        if self.poller.take_again() {
            self.ask_poller();
        }
        let carried_anew = self.look_at_sessions();
        if carried_anew {
            // rules of the devices below concern it, or no longer
            self.update_ruleset()?;
        }
        if self.retry_redirects()
            || carried_anew
            || before.ports_differ(&self.polled)
            || self.new_faults()
            || self.ports.lost_programs() > 0
        {
            self.update_ports()?;
        }
        let mut ops = Vec::new();
        // of bridges and bonds their links tell
        let taken = |link: &Link| {
            link.master.is_none() && before.taken_otherwise(&self.polled, link.ifindex)
        };
        if self.business().any(taken) {
            // what has left so far may be somebody else's
            self.manager.new_epoch(&mut ops);
            self.execute(std::mem::take(&mut ops))?;
        }
        if before.foreign_hooks != self.polled.foreign_hooks || before.legacy != self.polled.legacy
        {
            // as for a commit of nftables
            self.routes.invalidate();
            self.datapath.control.set_learn(0);
            self.manager.new_epoch(&mut ops);
            self.execute(std::mem::take(&mut ops))?;
            self.read_ruleset()?;
            self.datapath.control.set_learn(self.on.into());
        }
        if self.tracks() != tracked {
            self.routes.invalidate();
            self.set_tracking(tracked)?;
            self.update_ports()?;
        }
        if before.sysctls != self.polled.sysctls {
            self.routes.invalidate();
            self.update_policy()?;
            self.set_tcp_timeouts();
            self.manager.new_epoch(&mut ops);
            self.execute(std::mem::take(&mut ops))?;
            self.update_ports()?;
        }
        if before.memberships != self.polled.memberships {
            self.look_at_memberships(&mut ops)?;
        }
        if before.sniffers != self.polled.sniffers {
            self.sniff.begin();
            // all that is bridged may be meant
            self.update_ports()?;
        }
        self.execute(ops)
    }

    pub(in crate::engine) fn set_tcp_timeouts(&mut self) {
        let sysctls = &self.polled.sysctls;
        let defaults = Settings::default();
        let seconds = |value: Option<u64>, default| {
            value.map_or(default, |s| s.try_into().unwrap_or(default))
        };
        self.manager.set_tcp_timeouts(
            seconds(
                sysctls.tcp_timeout_established_s,
                defaults.tcp_established_s,
            ),
            seconds(
                sysctls.tcp_timeout_unacknowledged_s,
                defaults.tcp_unacknowledged_s,
            ),
        );
    }
}
