// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway bench`: a program of its own, so that a router's has none of what draws and counts.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use freeway_console::{Exit, Stop, program};

const NAME: &str = "freeway-bench";

/// Becomes that program.
pub fn run(arguments: &[OsString]) -> Result<(), Stop> {
    let Some(program) = program(NAME) else {
        return Err(Stop::new(
            Exit::Unavailable,
            format!(
                "{NAME} is neither beside this program nor in PATH: install the package {NAME}, or `make install`"
            ),
        ));
    };
    let error = Command::new(&program).args(arguments).exec();
    Err(Stop::failure(format!(
        "cannot run {}: {error}",
        program.display()
    )))
}
