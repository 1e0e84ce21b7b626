// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway doctor`: what this machine, its drivers and its rules allow, and what to change. Needs no daemon.

mod conntrack;
mod kernel;
mod limits;
mod ports;
mod rules;

use std::path::Path;
use std::time::Duration;

use freeway_api::Client;
use freeway_console::Stop;
use freeway_daemon::config::Config;
use freeway_kernel::Error;
use serde::Serialize;

/// How long a daemon may take to say what it does.
const PATIENCE: Duration = Duration::from_secs(2);

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// False if privileges were lacking to see everything.
    pub complete: bool,
    /// The worst severity of all findings.
    pub worst: Severity,
    /// Everything that was looked at, area by area.
    pub findings: Vec<Finding>,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it is about: `kernel`, `port NAME`, `rules`, `connections`, `limits`.
    pub area: String,
    /// How bad it is.
    pub severity: Severity,
    /// What was found, in words.
    pub words: String,
    /// What to change.
    pub advice: Option<String>,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// As it should be.
    #[default]
    Good,
    /// Worth knowing.
    Note,
    /// Some traffic stays in the kernel.
    Warning,
    /// Freeway cannot work.
    Problem,
}

impl Report {
    fn add(&mut self, area: &str, severity: Severity, words: impl Into<String>) {
        self.push(area, severity, words.into(), None);
    }

    fn advise(
        &mut self,
        area: &str,
        severity: Severity,
        words: impl Into<String>,
        advice: impl Into<String>,
    ) {
        self.push(area, severity, words.into(), Some(advice.into()));
    }

    /// What could not be read: a problem, unless only a privilege is lacking.
    fn unread(&mut self, area: &str, what: &str, severity: Severity, error: &Error) {
        match error.errno() {
            Some(libc::EPERM | libc::EACCES) => {
                self.complete = false;
                self.add(
                    area,
                    Severity::Note,
                    format!("{what} cannot be read without root"),
                );
            }
            _ => self.add(area, severity, format!("{what} cannot be read: {error}")),
        }
    }

    /// Puts the findings of an area together, areas in the order of their first.
    fn group(&mut self) {
        let mut areas: Vec<String> = Vec::new();
        for finding in &self.findings {
            if !areas.contains(&finding.area) {
                areas.push(finding.area.clone());
            }
        }
        self.findings
            .sort_by_key(|finding| areas.iter().position(|area| *area == finding.area));
    }

    fn push(&mut self, area: &str, severity: Severity, words: String, advice: Option<String>) {
        self.worst = self.worst.max(severity);
        self.findings.push(Finding {
            area: area.into(),
            severity,
            words,
            advice,
        });
    }
}

/// Looks at everything. `interfaces` restricts the ports.
pub fn examine(config: Option<&Path>, interfaces: &[String]) -> Result<Report, Stop> {
    let mut config = Config::load(config)?;
    if !interfaces.is_empty() {
        config.daemon.interfaces = interfaces.to_vec();
    }
    let complete = nix::unistd::geteuid().is_root();
    let mut report = Report {
        complete,
        ..Report::default()
    };
    kernel::examine(&mut report);
    // A daemon that runs here knows its ports best.
    let daemon = Client::new(None)
        .and_then(|client| client.patience(PATIENCE).status())
        .ok();
    ports::examine(&mut report, &config, daemon.as_ref())?;
    rules::examine(&mut report);
    conntrack::examine(&mut report, &config);
    limits::examine(&mut report, &config, daemon.as_ref());
    report.group();
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_of_an_area_stay_together() {
        let mut report = Report::default();
        for (area, severity, words) in [
            ("b", Severity::Good, "1"),
            ("a", Severity::Warning, "2"),
            ("b", Severity::Note, "3"),
        ] {
            report.add(area, severity, words);
        }
        report.group();
        let order: Vec<_> = report.findings.iter().map(|f| f.words.as_str()).collect();
        assert_eq!(order, ["1", "3", "2"]);
        assert_eq!(report.worst, Severity::Warning);
    }
}
