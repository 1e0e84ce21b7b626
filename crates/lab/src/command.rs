// SPDX-License-Identifier: MIT OR Apache-2.0
//! Running external tools, with errors that say which one failed and why.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use crate::error::{Context, LabError};

/// The command as a person would type it.
pub(crate) fn line(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        line.push(' ');
        line.push_str(&argument.to_string_lossy());
    }
    line
}

/// Splits at white space; there is no quoting.
pub(crate) fn parse(line: &str) -> Result<Command, LabError> {
    let mut words = line.split_whitespace();
    let program = words
        .next()
        .ok_or_else(|| LabError::Invalid("an empty command".into()))?;
    let mut command = Command::new(program);
    command.args(words);
    Ok(command)
}

pub(crate) fn run(command: &mut Command) -> Result<Output, LabError> {
    let output = command
        .output()
        .context(format!("start `{}`", line(command)))?;
    check(command, output)
}

pub(crate) fn run_with_input(command: &mut Command, input: &str) -> Result<Output, LabError> {
    let what = line(command);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().context(format!("start `{what}`"))?;
    // A tool that ends before it has read everything says why on standard error.
    let written = child
        .stdin
        .take()
        .map_or(Ok(()), |mut pipe| pipe.write_all(input.as_bytes()));
    let output = child
        .wait_with_output()
        .context(format!("wait for `{what}`"))?;
    let output = check(command, output)?;
    written.context(format!("write to `{what}`"))?;
    Ok(output)
}

fn check(command: &Command, output: Output) -> Result<Output, LabError> {
    if output.status.success() {
        return Ok(output);
    }
    Err(LabError::Command {
        command: line(command),
        status: output.status.to_string(),
        stderr: String::from_utf8_lossy(&output.stderr)
            .trim()
            .replace('\n', "; "),
    })
}
