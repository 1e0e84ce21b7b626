// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the program `freeway-engine` measures for us.

use std::process::{Command, Stdio};

use freeway_console::{Exit, Stop, program};
use serde::de::DeserializeOwned;

const NAME: &str = "freeway-engine";

/// What it prints for these arguments.
pub(crate) fn ask<T: DeserializeOwned>(arguments: impl FnOnce(&mut Command)) -> Result<T, Stop> {
    let Some(program) = program(NAME) else {
        return Err(Stop::new(
            Exit::Unavailable,
            format!("{NAME} is neither beside this program nor in PATH: `make engine` builds it"),
        ));
    };
    let mut command = Command::new(&program);
    arguments(&mut command);
    command.stderr(Stdio::inherit());
    let output = command
        .output()
        .map_err(|error| Stop::failure(format!("cannot run {}: {error}", program.display())))?;
    match output.status.code() {
        Some(0) => serde_json::from_slice(&output.stdout)
            .map_err(|error| Stop::failure(format!("{NAME} is another version: {error}"))),
        // it has said why
        Some(69) => Err(Stop::new(
            Exit::Unavailable,
            "the engine cannot be measured here",
        )),
        _ => Err(Stop::failure(format!("{NAME} failed: {}", output.status))),
    }
}
