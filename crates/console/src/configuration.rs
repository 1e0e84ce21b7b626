// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is wrong with a configuration: file, line, column and key, in one line.

use std::ops::Range;

use crate::{Exit, Stop};

/// The error of a file `name` with this text; `span`: the bytes that the parser complains of, where it says so.
#[must_use]
pub fn unreadable(name: &str, text: &str, span: Option<Range<usize>>, message: &str) -> Stop {
    let place_and_key = span.map_or_else(
        || ": ".to_owned(),
        |span| {
            let place = place(text, span.start);
            format!("{place}: {}", key_at(text, span, message))
        },
    );
    Stop::new(Exit::Config, format!("{name}{place_and_key}{message}"))
}

/// `:line:column` of a byte in a text.
fn place(text: &str, at: usize) -> String {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before
        .rsplit('\n')
        .next()
        .map_or(0, |line| line.chars().count())
        + 1;
    format!(":{line}:{column}")
}

/// `key 'x': ` if the span is a key, or lies in the value of an assignment, and the message does not name it.
fn key_at(text: &str, span: Range<usize>, message: &str) -> String {
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
    if key.is_empty() || !key.chars().all(bare) || message.contains(&format!("`{key}`")) {
        return String::new();
    }
    format!("key `{key}`: ")
}
