// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can fail in the lab.

use std::io;

use freeway_console::{Exit, Stop};

/// A failure, on what, and where possible what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// The caller lacks the privilege to create namespaces.
    #[error("the lab creates network namespaces and loads BPF programs: run it as root")]
    NotRoot,
    /// No topology of that name.
    #[error("no topology is called `{name}`; there are: {known}")]
    UnknownTopology {
        /// The name asked for.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// An external tool failed.
    #[error("`{command}` failed ({status}): {stderr}")]
    Command {
        /// The command line.
        command: String,
        /// How it ended.
        status: String,
        /// What it printed on standard error.
        stderr: String,
    },
    /// A system call or file operation failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried, on what.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// Loading or using a BPF program failed.
    #[error("{what}: {source}")]
    Bpf {
        /// What was tried, on what.
        what: String,
        /// libbpf's error.
        source: libbpf_rs::Error,
    },
    /// The running kernel lacks what was asked for.
    #[error("{0}")]
    Unsupported(String),
    /// A request that makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// What should have arrived has not.
    #[error("{0}")]
    Incomplete(String),
    /// The process is being ended by a signal; nothing new is created.
    #[error("interrupted")]
    Interrupted,
}

/// Adds what was tried to an error.
pub(crate) trait Context<T> {
    /// `what` names the operation and its object.
    fn context(self, what: impl Into<String>) -> Result<T, LabError>;
}

impl<T> Context<T> for io::Result<T> {
    fn context(self, what: impl Into<String>) -> Result<T, LabError> {
        self.map_err(|source| LabError::Io {
            what: what.into(),
            source,
        })
    }
}

impl<T> Context<T> for nix::Result<T> {
    fn context(self, what: impl Into<String>) -> Result<T, LabError> {
        self.map_err(|errno| LabError::Io {
            what: what.into(),
            source: errno.into(),
        })
    }
}

impl<T> Context<T> for libbpf_rs::Result<T> {
    fn context(self, what: impl Into<String>) -> Result<T, LabError> {
        self.map_err(|source| LabError::Bpf {
            what: what.into(),
            source,
        })
    }
}

impl From<LabError> for Stop {
    fn from(error: LabError) -> Self {
        let exit = match error {
            LabError::NotRoot => Exit::Privilege,
            LabError::UnknownTopology { .. } | LabError::Invalid(_) => Exit::Usage,
            LabError::Unsupported(_) => Exit::Unavailable,
            _ => Exit::Failure,
        };
        Stop::new(exit, error.to_string())
    }
}
