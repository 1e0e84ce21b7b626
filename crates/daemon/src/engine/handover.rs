// SPDX-License-Identifier: MIT OR Apache-2.0
//! Going on where another daemon was, and leaving all to another one.

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Instant;

use freeway_api::{Failure, TakenOver, Upgraded};

use super::kernel::ROUNDS;
use super::poll::Polled;
use super::{ATTACH_START, Engine};
use crate::DaemonError;
use crate::succession::successor::{Handover, Successor};
use crate::succession::words::Estate;

/// What the daemon before has left to the engine.
pub struct Legacy {
    pub from: TakenOver,
    pub links: Vec<OwnedFd>,
    pub estate: Estate,
}

impl Engine {
    /// Attaches to the ports, in the places of another daemon's programs if there are any, and goes on.
    pub fn begin(&mut self, legacy: Option<Legacy>) -> Result<(), DaemonError> {
        let mut on = true;
        if let Some(legacy) = legacy {
            on = legacy.estate.on;
            self.succession.begin(legacy.from);
            self.datapath.inherit(legacy.links);
            self.ports.inherit_clsact(legacy.estate.clsact);
            // programs that make room for ours are not in the way
            self.polled = Polled::read(self.question());
        }
        self.update_ports_within(ATTACH_START)?;
        if let Some(refused) = self.datapath.refused() {
            return Err(DaemonError::Failure(format!(
                "the kernel does not let a program take another one's place: {refused}"
            )));
        }
        self.renounce_rest();
        self.switch(on)?;
        self.follow_exports()?;
        // that may have taken longer than a deadline, but nothing was learned yet
        let now_tick = self.now_tick()?;
        self.heart.renew(&self.datapath, now_tick);
        self.heartbeat()
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
        let estate = Estate {
            on: self.on,
            clsact: self.ports.clsact(),
            locks: handover.locks.len(),
            metrics: handover.metrics.is_some(),
        };
        let door = self.cores.listener().map(|door| door.as_raw_fd());
        let mut rest = vec![handover.control.as_raw_fd()];
        rest.extend(door);
        rest.extend(handover.locks.iter().map(AsRawFd::as_raw_fd));
        rest.extend(handover.metrics.iter().map(AsRawFd::as_raw_fd));
        let successor = &mut handover.successor;
        if let Err(failure) = successor.hand(&self.ports.links(), estate, &rest) {
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
        for _ in 0..ROUNDS {
            self.kernel_events(Instant::now())?;
            if !self.mirror.has_more() {
                break;
            }
        }
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
