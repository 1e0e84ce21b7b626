// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is wrong with a configuration: file, line, column and key, in one line.

use std::fmt;
use std::ops::Range;

use crate::{Exit, Stop};

/// What is wrong with a configuration, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fault {
    /// The file; none of one that cannot be read, which the message names.
    pub file: Option<String>,
    /// Line and column, from 1 on.
    pub place: Option<(usize, usize)>,
    /// The key.
    pub key: Option<String>,
    /// What is wrong.
    pub message: String,
}

impl Fault {
    /// In a file `name` with this text; `span`: the bytes that the parser complains of, where it says so.
    #[must_use]
    pub fn in_text(name: &str, text: &str, span: Option<Range<usize>>, message: &str) -> Self {
        Self {
            file: Some(name.to_owned()),
            place: span.as_ref().map(|span| place_in(text, span.start)),
            key: span.and_then(|span| key_at(text, span)),
            message: message.to_owned(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            f.write_str(file)?;
            if let Some((line, column)) = self.place {
                write!(f, ":{line}:{column}")?;
            }
            f.write_str(": ")?;
        }
        let named = |key: &&String| self.message.contains(&format!("`{key}`"));
        if let Some(key) = self.key.as_ref().filter(|key| !named(key)) {
            write!(f, "key `{key}`: ")?;
        }
        f.write_str(&self.message)
    }
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Stop::new(Exit::Config, fault.to_string())
    }
}

/// The error of a file `name` with this text; `span`: the bytes that the parser complains of, where it says so.
#[must_use]
pub fn unreadable(name: &str, text: &str, span: Option<Range<usize>>, message: &str) -> Stop {
    Fault::in_text(name, text, span, message).into()
}

/// Line and column of a byte in a text, from 1 on.
#[must_use]
pub fn place_in(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before
        .rsplit('\n')
        .next()
        .map_or(0, |line| line.chars().count())
        + 1;
    (line, column)
}

/// The key, if the span is one or lies in the value of an assignment.
fn key_at(text: &str, span: Range<usize>) -> Option<String> {
    let start = text
        .get(..span.start)
        .and_then(|before| before.rfind('\n'))
        .map_or(0, |at| at + 1);
    let before = text.get(start..span.start).unwrap_or_default();
    let key = match before.split_once('=') {
        Some((key, _)) => key.trim(),
        None => text.get(span).unwrap_or_default(),
    };
    let bare = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    (!key.is_empty() && key.chars().all(bare)).then(|| key.to_owned())
}
