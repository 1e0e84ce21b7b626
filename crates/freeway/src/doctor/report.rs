// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the doctor found.

use freeway_kernel::Error;
use serde::Serialize;

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
    /// What it is about: `kernel`, `port NAME`, `rules`, `connections`, `limits`, `engine`.
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
    pub fn add(&mut self, area: &str, severity: Severity, words: impl Into<String>) {
        self.push(area, severity, words.into(), None);
    }

    pub fn advise(
        &mut self,
        area: &str,
        severity: Severity,
        words: impl Into<String>,
        advice: impl Into<String>,
    ) {
        self.push(area, severity, words.into(), Some(advice.into()));
    }

    /// What could not be read: a problem, unless only a privilege is lacking.
    pub fn unread(&mut self, area: &str, what: &str, severity: Severity, error: &Error) {
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
    pub fn group(&mut self) {
        let mut areas: Vec<String> = Vec::new();
        for finding in &self.findings {
            if !areas.contains(&finding.area) {
                areas.push(finding.area.clone());
            }
        }
        self.findings
            .sort_by_key(|finding| areas.iter().position(|area| *area == finding.area));
    }

    pub fn push(&mut self, area: &str, severity: Severity, words: String, advice: Option<String>) {
        self.worst = self.worst.max(severity);
        self.findings.push(Finding {
            area: area.into(),
            severity,
            words,
            advice,
        });
    }
}
