// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the service manager hears of the engine: that it is ready, that it takes its turns, and what it does.

mod look;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use freeway_api::PortState;
use freeway_console::plural;

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
