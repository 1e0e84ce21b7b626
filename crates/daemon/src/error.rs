// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why the daemon ended.

use freeway_console::{Exit, Stop};

/// Why the daemon ended, each message one line that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The configuration names what does not exist here, or asks for what cannot be.
    #[error("{0}")]
    Config(String),
    /// The kernel lacks what the configuration asks for.
    #[error("{0}")]
    Unavailable(String),
    /// The kernel lacks a feature, or something failed.
    #[error("{0}")]
    Failure(String),
}

impl From<DaemonError> for Stop {
    fn from(error: DaemonError) -> Self {
        let exit = match error {
            DaemonError::Config(_) => Exit::Config,
            DaemonError::Unavailable(_) => Exit::Unavailable,
            DaemonError::Failure(_) => Exit::Failure,
        };
        Stop::new(exit, error.to_string())
    }
}

pub(crate) fn failure(error: impl std::fmt::Display) -> DaemonError {
    DaemonError::Failure(error.to_string())
}
