// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway config`, `freeway reload` and `freeway upgrade`.

use std::fmt::Write;

use freeway_api::{Reloaded, Upgraded};

use crate::config::{Checked, Key, Shown};

/// Comments begin here, where there is room.
const COMMENTS_AT: usize = 32;

/// What changed.
pub fn reloaded(reloaded: &Reloaded) -> String {
    let mut text = String::new();
    for change in &reloaded.changes {
        let _ = writeln!(text, "{}", change.words());
    }
    if text.is_empty() {
        text.push_str("Nothing changed\n");
    }
    text
}

/// Which daemon is there now.
pub fn upgraded(upgraded: &Upgraded) -> String {
    let (from, to) = (&upgraded.from, &upgraded.to);
    let flows = match upgraded.same_abi {
        true => "flows went along, as `freeway status` says",
        false => "flows are learned anew",
    };
    format!(
        "Version {} (process {}) has taken over from version {} (process {})\n\
         Everything was the kernel's for {:.0} ms; {flows}\n",
        to.version, to.pid, from.version, from.pid, upgraded.in_kernel_ms
    )
}

/// That nothing is wrong.
pub fn checked(checked: &Checked) -> String {
    match &checked.file {
        Some(file) => format!("{file} is a configuration that the daemon takes\n"),
        None => "There is no configuration: the defaults hold\n".into(),
    }
}

/// A configuration.
pub fn shown(shown: &Shown) -> String {
    let mut text = match &shown.file {
        Some(file) => format!("# {file}\n"),
        None => "# there is no configuration: the defaults hold\n".into(),
    };
    let mut before = None;
    for key in &shown.keys {
        let (table, name) = halves(key);
        if before != Some(table) {
            let _ = match table {
                // lists of tables come ahead of all tables
                "" => writeln!(text),
                _ => writeln!(text, "\n[{table}]"),
            };
            before = Some(table);
        }
        let line = match &key.value {
            Some(value) => format!("{name} = {value}"),
            None => format!("#{name} ="),
        };
        let from = match key.line {
            Some(line) => format!("line {line}"),
            None if key.value.is_none() => "default: none".into(),
            None => "default".into(),
        };
        let _ = writeln!(text, "{line:<COMMENTS_AT$} # {from}");
    }
    text
}

/// The tables around a key, and its name, which never needs quotes.
fn halves(key: &Key) -> (&str, &str) {
    key.key.rsplit_once('.').unwrap_or(("", &key.key))
}
