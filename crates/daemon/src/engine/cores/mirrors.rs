// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the engine copies for who looks on: the rules of `[[policy.steer]]` that name a mirror.

use std::os::fd::AsFd;

use freeway_api::SteerRule;
use freeway_api::engine::Answer;
use freeway_api::handover;

use super::super::Engine;

impl Engine {
    /// Tells the engine of them, if they are others than it was told.
    pub(in crate::engine) fn tell_mirrors(&mut self) {
        let told = self.cores.there.as_ref().map(|there| &there.mirrors);
        if told.is_some_and(|told| *told != self.mirror_rules()) {
            self.give_mirrors();
        }
    }

    /// Tells an engine that may have been told anything.
    pub(super) fn give_mirrors(&mut self) {
        let rules = self.mirror_rules();
        let Some(there) = &mut self.cores.there else {
            return;
        };
        there.mirrors.clone_from(&rules);
        let sent = handover::send(there.socket.as_fd(), &Answer::Mirrors(rules), &[]);
        if let Err(error) = sent {
            tracing::warn!("the engine (process {}): {error}", there.status.pid);
        }
    }

    fn mirror_rules(&self) -> Vec<SteerRule> {
        let rules = self.config.policy.steer.iter();
        let mirrors = rules.filter(|rule| rule.mirror.is_some());
        mirrors.cloned().collect()
    }
}
