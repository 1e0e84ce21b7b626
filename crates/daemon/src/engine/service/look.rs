// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the engine does, for the log and the service manager.

use std::collections::BTreeMap;
use std::time::Instant;

use freeway_api::PortState;
use freeway_console::{count, plural};

use super::super::Engine;

impl Engine {
    /// At the end of each turn.
    pub(in crate::engine) fn turned(&mut self) {
        let now = Instant::now();
        // the first turns attach to what is left of many ports
        if !self.service.ready {
            if self.ports.waiting() {
                self.service.starts(now);
            } else {
                self.service.ready = true;
                self.look_at_service();
                self.service.supervisor.ready();
            }
        }
        self.pace.begin_turn();
        self.service.turned(now);
    }

    /// Logs which ports have changed, and tells what the daemon does.
    pub(in crate::engine) fn look_at_service(&mut self) {
        let mut ports = BTreeMap::new();
        for (ifindex, port) in &self.ports.by_index {
            if let Some(link) = self.mirror.links().get(ifindex) {
                let reason = port.reasons.first().cloned().unwrap_or_default();
                ports.insert(link.name.clone(), (self.port_state(link, port), reason));
            }
        }
        for (name, now) in &ports {
            if self.service.ports.get(name) != Some(now) {
                log(name, now);
            }
        }
        let fast = ports
            .values()
            .filter(|(state, _)| *state == PortState::Fast);
        let state = format!(
            "{}: {} of {} fast",
            if self.on { "on" } else { "off" },
            count(fast.count() as u64),
            plural(ports.len() as u64, "port")
        );
        self.service.ports = ports;
        if self.service.supervisor.is_there() {
            let flows = self.manager.flow_count() as u64;
            self.service.say(state, flows, Instant::now());
        }
    }

    /// No more turns.
    pub(in crate::engine) fn leave_service(&self) {
        self.service.supervisor.stopping();
    }

    /// The same, for another process takes them.
    pub(in crate::engine) fn pass_service(&self, pid: u32) {
        self.service.supervisor.hand_over(pid);
    }
}

fn log(port: &str, (state, reason): &(PortState, String)) {
    let words = match state {
        PortState::Fast => "flows through the port may be fast",
        PortState::Kernel => "the port is the kernel's",
        PortState::Attaching => "the port is about to get its programs",
        PortState::Down => "the port has no link",
    };
    match reason.as_str() {
        "" => tracing::info!(port, "{words}"),
        reason => tracing::info!(port, reason, "{words}"),
    }
}
