// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exit codes, and errors that carry one.

use std::fmt;
use std::process::ExitCode;

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Something failed.
    Failure = 1,
    /// No daemon answers, or a file is not what it should be: [`Exit::BAD_FILE`].
    NoDaemon = 2,
    /// Bad input on the command line (EX_USAGE).
    Usage = 64,
    /// This machine lacks what is needed: a tool, a part of the kernel (EX_UNAVAILABLE).
    Unavailable = 69,
    /// The caller lacks a privilege (EX_NOPERM).
    Privilege = 77,
    /// The configuration is wrong (EX_CONFIG).
    Config = 78,
}

impl Exit {
    /// A file that was named cannot be read, or is something else. As with diff(1), 2 is trouble.
    pub const BAD_FILE: Exit = Exit::NoDaemon;
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// The exit codes, for help and man pages.
pub const EXIT_CODES: &str = "\
Exit codes:
  0   success
  1   failure
  2   no daemon answers; `bench diff`, `bench replay`, `bench report --from`: a file is not what it should be
  64  bad input on the command line
  69  this machine lacks what is needed: a tool, a part of the kernel
  77  a privilege is lacking
  78  the configuration is wrong";

/// An error that ends the process: one line, and an exit code.
#[derive(Debug)]
pub struct Stop {
    /// The code.
    pub exit: Exit,
    /// What failed, on what, and what to do.
    pub message: String,
}

impl Stop {
    /// Ends with `exit` and one line.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Stop {
            exit,
            message: message.into(),
        }
    }

    /// Ends with exit code 1 and one line.
    pub fn failure(message: impl Into<String>) -> Self {
        Stop::new(Exit::Failure, message)
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Libraries put advice on lines of its own; one line is what logs and people expect.
        let mut lines = self
            .message
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty());
        f.write_str(lines.next().unwrap_or("unknown failure"))?;
        lines.try_for_each(|line| write!(f, "; {line}"))
    }
}

impl std::error::Error for Stop {}
