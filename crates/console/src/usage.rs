// SPDX-License-Identifier: MIT OR Apache-2.0
//! What became of a command line that does not parse.

use std::process::ExitCode;

use crate::Exit;

/// Help and version are answers; everything else is bad input, said in one line that names where help is.
pub fn usage(error: &clap::Error, help: &str) -> ExitCode {
    if !error.use_stderr() {
        // A reader that has left is no error.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let text = error.render().to_string();
    // clap lists what is missing on lines of its own, before an empty one.
    let lines: Vec<_> = text
        .lines()
        .take_while(|line| !line.trim().is_empty())
        .map(str::trim)
        .collect();
    let words = lines.join(" ");
    let words = words.strip_prefix("error: ").unwrap_or(&words);
    let what = if words.is_empty() { "bad input" } else { words };
    eprintln!("freeway: {what}; see `{help}`");
    Exit::Usage.into()
}
