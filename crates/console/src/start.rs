// SPDX-License-Identifier: MIT OR Apache-2.0
//! The beginning and the end of a program.

use std::process::ExitCode;

use clap::Parser;

use crate::{Exit, Stop};

/// Parses the command line, runs what it says, and tells what became of it in an exit code and at most one line on standard
/// error. `help`: the command that shows the program's help.
pub fn start<C: Parser>(help: &str, run: impl FnOnce(C) -> Result<(), Stop>) -> ExitCode {
    let command_line = match C::try_parse() {
        Ok(command_line) => command_line,
        Err(error) => return usage(&error, help),
    };
    match run(command_line) {
        Ok(()) => ExitCode::SUCCESS,
        Err(stop) => {
            eprintln!("freeway: {stop}");
            stop.exit.into()
        }
    }
}

/// Help and version are answers; everything else is bad input, said in one line that names where help is.
fn usage(error: &clap::Error, help: &str) -> ExitCode {
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
