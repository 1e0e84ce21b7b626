// SPDX-License-Identifier: MIT OR Apache-2.0
//! report.json: one document with everything that was measured.

use std::fs;
use std::path::Path;

use freeway_console::{Exit, Stop};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::machine::Description;
use super::outcome::Outcome;

/// What marks the document.
pub const FORMAT: &str = "freeway bench report";
/// Of its shape; greater if older readers would misunderstand it.
pub const VERSION: u32 = 1;

/// The document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`FORMAT`].
    pub format: String,
    /// [`VERSION`].
    pub version: u32,
    /// When it began, RFC 3339, UTC.
    pub date: String,
    /// The command line.
    pub command: String,
    /// The short form, `--quick`.
    pub quick: bool,
    /// How long it took.
    pub elapsed_s: f64,
    /// What was measured on.
    pub machine: Description,
    /// How, in sentences.
    pub method: Vec<String>,
    /// The scenarios, in order.
    pub scenarios: Vec<Scenario>,
}

/// A scenario, measured or not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Raw")]
pub struct Scenario {
    /// One word.
    pub name: String,
    /// What it is, for people.
    pub title: String,
    /// The command that measures it alone, with the same settings.
    pub command: String,
    /// How long it took.
    pub elapsed_s: f64,
    /// Why there is no result.
    pub missing: Option<String>,
    /// It failed, although this machine has what it needs.
    pub failed: bool,
    /// Which bench command's result it is; none if it is missing.
    pub bench: Option<String>,
    /// What that command prints with `--json`.
    pub result: Option<Outcome>,
}

/// A scenario as it is read.
#[derive(Deserialize)]
struct Raw {
    name: String,
    title: String,
    command: String,
    elapsed_s: f64,
    missing: Option<String>,
    #[serde(default)]
    failed: bool,
    bench: Option<String>,
    result: Option<Value>,
}

impl TryFrom<Raw> for Scenario {
    type Error = String;

    fn try_from(raw: Raw) -> Result<Self, String> {
        let result = match (&raw.bench, raw.result) {
            (Some(bench), Some(value)) => Some(
                Outcome::read(bench, value)
                    .map_err(|why| format!("scenario `{}`: {why}", raw.name))?,
            ),
            _ if raw.missing.is_some() => None,
            _ => {
                return Err(format!(
                    "scenario `{}` has no result, and no reason why",
                    raw.name
                ));
            }
        };
        Ok(Self {
            name: raw.name,
            title: raw.title,
            command: raw.command,
            elapsed_s: raw.elapsed_s,
            missing: raw.missing,
            failed: raw.failed,
            bench: raw.bench,
            result,
        })
    }
}

impl Report {
    /// Those that were measured, with their results.
    pub fn measured(&self) -> impl Iterator<Item = (&Scenario, &Outcome)> {
        let with = |scenario| -> Option<(&Scenario, &Outcome)> {
            let scenario: &Scenario = scenario;
            Some((scenario, scenario.result.as_ref()?))
        };
        self.scenarios.iter().filter_map(with)
    }

    /// The result of a scenario.
    pub fn result(&self, name: &str) -> Option<&Outcome> {
        let mut measured = self.measured();
        measured.find_map(|(scenario, outcome)| (scenario.name == name).then_some(outcome))
    }
}

/// What a file holds: a report, or the result of one bench command.
#[derive(Clone, Debug, PartialEq)]
pub enum Document {
    /// A report.
    Report(Box<Report>),
    /// A result.
    Single(Box<Outcome>),
}

fn unfit(file: &Path, why: impl std::fmt::Display) -> Stop {
    Stop::new(Exit::BAD_FILE, format!("{}: {why}", file.display()))
}

impl Document {
    /// Reads a file.
    pub fn read(file: &Path) -> Result<Self, Stop> {
        let text = fs::read_to_string(file).map_err(|error| {
            let what = format!(
                "cannot read it: {error}; name a report.json or what a bench command printed with --json"
            );
            unfit(file, what)
        })?;
        Self::parse(&text).map_err(|why| unfit(file, why))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| {
            format!("this is no JSON: {error}; write it with `freeway bench report --output DIR`")
        })?;
        if value.get("format").and_then(Value::as_str) == Some(FORMAT) {
            return Self::report(value);
        }
        let Some(bench) = Outcome::command_of(&value) else {
            return Err(
                "this is neither a report nor the result of a bench command; \
                 name a report.json or what a bench command printed with --json"
                    .into(),
            );
        };
        let outcome = Outcome::read(bench, value).map_err(|why| {
            format!("this is not what `freeway bench {bench} --json` prints: {why}; measure again")
        })?;
        Ok(Document::Single(Box::new(outcome)))
    }

    fn report(value: Value) -> Result<Self, String> {
        let version = value.get("version").and_then(Value::as_u64);
        if version != Some(VERSION.into()) {
            let version = version.map_or("unknown".into(), |version| version.to_string());
            return Err(format!(
                "the report's version is {version}, this freeway reads {VERSION}; measure again, or use the freeway that wrote it"
            ));
        }
        let report = serde_json::from_value(value)
            .map_err(|error| format!("the report is damaged: {error}; measure again"))?;
        Ok(Document::Report(Box::new(report)))
    }
}

impl Report {
    /// Reads a file that must hold a report.
    pub fn read(file: &Path) -> Result<Self, Stop> {
        match Document::read(file)? {
            Document::Report(report) => Ok(*report),
            Document::Single(outcome) => Err(unfit(
                file,
                format!(
                    "this is the result of `bench {}` alone; name a report.json of `freeway bench report`",
                    outcome.bench()
                ),
            )),
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A report of invented figures.
    pub const EXAMPLE: &str = include_str!("../../../../tests/data/report.json");

    /// The same, read.
    pub fn example() -> Report {
        match Document::parse(EXAMPLE).unwrap() {
            Document::Report(report) => *report,
            Document::Single(_) => panic!("no report"),
        }
    }

    #[test]
    fn reports_are_read_as_written() {
        let report = example();
        let again = serde_json::to_string(&report).unwrap();
        assert_eq!(
            Document::parse(&again),
            Ok(Document::Report(Box::new(report)))
        );
    }

    #[test]
    fn single_results_are_told_apart() {
        for (scenario, outcome) in example().measured() {
            let text = serde_json::to_string(outcome).unwrap();
            let read = Document::parse(&text);
            let expected = Document::Single(Box::new(outcome.clone()));
            assert_eq!(read, Ok(expected), "{}", scenario.name);
        }
    }

    #[test]
    fn damage_is_named() {
        let refusal = |text: &str| Document::parse(text).unwrap_err();
        assert!(refusal("{").contains("line 1 column 1"), "{}", refusal("{"));
        assert!(refusal("[]").contains("neither a report"));
        let newer = EXAMPLE.replacen("\"version\": 1", "\"version\": 2", 1);
        assert!(refusal(&newer).contains("version is 2"));
        let mut value: Value = serde_json::from_str(EXAMPLE).unwrap();
        value["scenarios"][0]["result"]["samples"]["kernel_net_ns"] = Value::Null;
        let why = refusal(&value.to_string());
        assert!(
            why.contains("scenario `routed`: invalid type: null"),
            "{why}"
        );
        value["scenarios"][0]["result"] = Value::Null;
        let why = refusal(&value.to_string());
        assert!(why.contains("`routed` has no result"), "{why}");
    }
}
