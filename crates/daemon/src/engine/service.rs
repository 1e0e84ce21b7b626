// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the service manager hears of the engine: that it is ready, that it takes its turns, and what it does.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use freeway_api::PortState;
use freeway_console::{count, plural};

use super::Engine;
use crate::supervisor::Supervisor;

/// A line that differs in its flows alone is not told sooner than so long after the one before.
const PAUSE: Duration = Duration::from_secs(5);
/// So long a start may take from the last turn on that attached programs.
const EXTENSION: Duration = Duration::from_secs(30);
/// How often it is told that the start goes on.
const GOES_ON: Duration = Duration::from_secs(1);

/// What was told.
pub(super) struct Service {
    supervisor: Supervisor,
    ready: bool,
    /// When it heard that the engine takes its turns.
    fed: Option<Instant>,
    /// When it heard that the start goes on.
    extended: Option<Instant>,
    line: String,
    /// The line without its flows.
    state: String,
    said: Instant,
    /// State of each port, and why, as they were logged.
    ports: BTreeMap<String, (PortState, String)>,
}

impl Service {
    pub(super) fn new(supervisor: Supervisor) -> Self {
        Self {
            supervisor,
            ready: false,
            fed: None,
            extended: None,
            line: String::new(),
            state: String::new(),
            said: Instant::now(),
            ports: BTreeMap::new(),
        }
    }

    /// At the end of a turn, and nowhere else: who hears nothing knows that there was none.
    fn turned(&mut self, now: Instant) {
        let Some(patience) = self.supervisor.patience() else {
            return;
        };
        // more often than half of it, as sd_watchdog_enabled(3) asks
        if self.fed.is_none_or(|fed| now - fed >= patience / 4) {
            self.supervisor.alive();
            self.fed = Some(now);
        }
    }

    fn starts(&mut self, now: Instant) {
        if self.extended.is_none_or(|before| now - before >= GOES_ON) {
            self.supervisor.extend(EXTENSION);
            self.extended = Some(now);
        }
    }

    /// Tells a line, unless it was told already or but for its flows a moment ago.
    fn say(&mut self, state: String, flows: u64, now: Instant) {
        let line = format!("{state}, {} fast", plural(flows, "flow"));
        let due = state != self.state || now - self.said >= PAUSE;
        if due && line != self.line {
            self.supervisor.status(&line);
            self.line = line;
            self.state = state;
            self.said = now;
        }
    }
}

impl Engine {
    /// At the end of each turn.
    pub(super) fn turned(&mut self) {
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
        self.service.turned(now);
    }

    /// Logs which ports have changed, and tells what the daemon does.
    pub(super) fn look_at_service(&mut self) {
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
    pub(super) fn leave_service(&self) {
        self.service.supervisor.stopping();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_that_come_and_go_are_told_now_and_then() {
        let mut service = Service::new(Supervisor::default());
        let start = Instant::now();
        let mut lines = Vec::new();
        for second in 0..12 {
            let state = if second < 6 { "on" } else { "off" };
            service.say(state.into(), second, start + Duration::from_secs(second));
            if lines.last() != Some(&service.line) {
                lines.push(service.line.clone());
            }
        }
        let flows = lines.iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!(
            flows,
            [
                "on, 0 flows fast",
                "on, 5 flows fast",
                "off, 6 flows fast",
                "off, 11 flows fast"
            ]
        );
    }

    #[test]
    fn nobody_is_told_of_turns_who_does_not_watch() {
        let mut service = Service::new(Supervisor::default());
        service.turned(Instant::now());
        assert_eq!(service.fed, None);
    }
}
