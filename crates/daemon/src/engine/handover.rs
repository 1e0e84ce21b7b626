// SPDX-License-Identifier: MIT OR Apache-2.0
//! Going on where another daemon was, and leaving all to another one.

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Instant;

use freeway_api::{Failure, TakenOver, Upgraded};
use freeway_cmm::{Around, FlowKey};

use super::kernel::ROUNDS;
use super::ports::attach;
use super::{ATTACH_START, Engine, failure};
use crate::DaemonError;
use crate::succession::flows;
use crate::succession::successor::{Handover, Successor};
use crate::succession::words::Estate;

/// What the daemon before has left to the engine.
pub struct Legacy {
    pub from: TakenOver,
    pub links: Vec<OwnedFd>,
    pub flows: Option<OwnedFd>,
    pub estate: Estate,
}

impl Engine {
    /// Loads what the ports that there are may need, while the daemon before still forwards.
    pub fn load_ahead(&self) -> Result<(), DaemonError> {
        let mut links = self.mirror.links().values();
        let load = |link| attach::load(&self.datapath, link);
        links.try_for_each(load).map_err(failure)
    }

    /// Attaches to the ports, in the places of another daemon's programs if there are any, and goes on.
    pub fn begin(&mut self, legacy: Option<Legacy>) -> Result<(), DaemonError> {
        self.log_absent();
        let mut on = true;
        let mut handed = None;
        if let Some(legacy) = legacy {
            handed = legacy.flows.map(|flows| (flows, legacy.estate.asked));
            on = legacy.estate.on;
            self.succession.begin(legacy.from);
            self.datapath.inherit(legacy.links);
            self.ports.inherit_clsact(legacy.estate.clsact);
            // programs that make room for ours are not in the way
            self.poll_now();
        }
        self.update_ports_within(ATTACH_START)?;
        if let Some(refused) = self.datapath.refused() {
            return Err(DaemonError::Failure(format!(
                "the kernel does not let a program take another one's place: {refused}"
            )));
        }
        self.renounce_rest();
        if let Some((flows, asked)) = handed.filter(|_| on) {
            self.adopt(flows, asked)?;
            // before a packet meets them
            self.hear(ROUNDS)?;
        }
        self.switch(on)?;
        self.follow_exports()?;
        // that may have taken longer than a deadline, but nothing was learned yet
        let now_tick = self.now_tick()?;
        self.heart.renew(&self.datapath, now_tick);
        self.heartbeat()
    }

    /// Enters the flows of the daemon before, all of them or, if the list is not whole, none. `asked`: what that one knew of
    /// what sends no event.
    ///
    /// That one looked at the kernel after this one had read it, so between the two nothing was missed: whatever happened
    /// since is still to be heard, and comes after the flows are there. Nothing may have been heard before.
    fn adopt(&mut self, flows: OwnedFd, asked: u64) -> Result<(), DaemonError> {
        let listed = match flows::read(flows) {
            Ok(Some(listed)) => listed,
            Ok(None) => {
                tracing::warn!("the list of flows is not whole: they are learned anew");
                return Ok(());
            }
            Err(error) => {
                tracing::warn!("reading the list of flows: {error}: they are learned anew");
                return Ok(());
            }
        };
        let (now_tick, mut ops) = (self.now_tick()?, Vec::new());
        let mut adopted = 0;
        for c in &listed {
            let around = Around {
                sniffed: FlowKey::of(c).is_some_and(|key| self.sniffed(&key, c)),
                ..Around::PLAIN
            };
            adopted += u64::from(self.manager.adopt(c, around, now_tick, &mut ops));
        }
        if asked != self.polled.digest() {
            tracing::info!("something has changed meanwhile: flows wait to be confirmed");
            self.manager.new_epoch(&mut ops);
        }
        self.execute(ops)?;
        tracing::info!("{adopted} of {} flows are fast as before", listed.len());
        self.succession.adopted(adopted);
        Ok(())
    }

    /// Flows that are fast, once everything that the kernel has told was heard; none if something is not settled.
    fn list_flows(&mut self) -> Result<Option<OwnedFd>, DaemonError> {
        self.hear(ROUNDS)?;
        if !self.on || self.mirror.has_more() || self.manager.is_unsettled() || self.lost.some() {
            return Ok(None);
        }
        let datapath = &self.datapath;
        let handed = |index: u32| {
            let flow = datapath.flows.get(index);
            self.manager.handed(index, &flow, datapath.kept.get(index))
        };
        let indices = self.manager.flows().map(|(index, _)| index);
        let listed: Vec<_> = indices.filter_map(handed).take(flows::FLOWS_MAX).collect();
        match flows::write(&listed) {
            Ok(file) => Ok(Some(file)),
            Err(error) => {
                tracing::warn!("listing flows for the new daemon: {error}");
                Ok(None)
            }
        }
    }

    /// Once all ports have what they are to have, nothing that was inherited is left for them.
    pub(super) fn renounce_rest(&self) {
        if !self.ports.waiting() {
            self.datapath.renounce();
        }
    }

    /// Leaves everything to a successor, or goes on as before. The task does nothing else meanwhile.
    pub(super) fn hand_over(
        &mut self,
        mut handover: Handover,
    ) -> Result<Result<Upgraded, Failure>, DaemonError> {
        self.end_capture();
        let begun = Instant::now();
        // no frame meets two tables, and no event that waits can be late for one
        self.datapath.control.set_on(false);
        self.datapath.control.set_learn(0);
        self.settle_accounts();
        let listed = match handover.successor.adopts() {
            true => self.list_flows()?,
            false => None,
        };
        // events may have it learn again
        self.datapath.control.set_learn(0);
        let estate = Estate {
            on: self.on,
            clsact: self.ports.clsact(),
            locks: handover.locks.len(),
            metrics: handover.metrics.is_some(),
            asked: self.polled.digest(),
        };
        let door = self.cores.listener().map(|door| door.as_raw_fd());
        let mut rest = vec![handover.control.as_raw_fd()];
        rest.extend(door);
        rest.extend(handover.locks.iter().map(AsRawFd::as_raw_fd));
        rest.extend(handover.metrics.iter().map(AsRawFd::as_raw_fd));
        let listed = listed.as_ref().map(AsRawFd::as_raw_fd);
        let successor = &mut handover.successor;
        if let Err(failure) = successor.hand(&self.ports.links(), listed, estate, &rest) {
            // ended before its programs make room again
            drop(handover);
            self.take_back()?;
            return Ok(Err(failure));
        }
        self.ports.leave();
        self.cores.leave();
        let upgraded = successor.told(begun.elapsed());
        self.succession.end(handover.successor);
        Ok(Ok(upgraded))
    }

    /// Programs of a successor that has failed make room for ours.
    fn take_back(&mut self) -> Result<(), DaemonError> {
        self.ports.put_back(&self.datapath);
        self.hear(ROUNDS)?;
        let mut ops = Vec::new();
        self.manager.new_epoch(&mut ops);
        self.execute(ops)?;
        // all is learned anew if it has taken long
        self.heartbeat()?;
        self.datapath.control.set_on(self.on);
        self.datapath.control.set_learn(self.on.into());
        // those ahead of the fast path come back, too
        self.update_ports()?;
        self.ask_poller();
        Ok(())
    }

    /// Another process does all from now on.
    pub(super) fn step_back(&mut self, mut successor: Successor) {
        self.pass_service(successor.pid());
        successor.leave();
        self.close_accounts();
    }
}
