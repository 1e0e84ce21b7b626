// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors: what failed, on what, and what to do.

use std::io;

/// The result of every fallible call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a conversation with the kernel failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call on a socket or file failed before the kernel could answer.
    #[error("cannot {what}: {source}; {advice}")]
    System {
        /// What was tried, as an infinitive without "to".
        what: String,
        /// The error of the system call.
        source: io::Error,
        /// What to do about it.
        advice: &'static str,
    },
    /// The kernel answered a request with an error.
    #[error("the kernel refused to {what}: {source}{}; {advice}", note(.message))]
    Refused {
        /// What was asked, as an infinitive without "to".
        what: String,
        /// The error in the kernel's answer.
        source: io::Error,
        /// The kernel's own words (extended acknowledgement), if it sent any.
        message: Option<String>,
        /// What to do about it.
        advice: &'static str,
    },
    /// The kernel lacks a whole subsystem.
    #[error("this kernel has no {what}; {advice}")]
    Missing {
        /// The subsystem.
        what: String,
        /// What to do about it.
        advice: &'static str,
    },
    /// A message of the kernel could not be understood.
    #[error(
        "cannot decode the kernel's answer to '{what}': {detail}; report this with the kernel version"
    )]
    Malformed {
        /// What was asked.
        what: String,
        /// What is wrong with the answer.
        detail: String,
    },
    /// What was dumped kept changing while it was read.
    #[error(
        "{what} kept changing in each of {attempts} attempts to read it; try again when it is quiet"
    )]
    Unstable {
        /// What was read.
        what: String,
        /// How often it was tried.
        attempts: u32,
    },
}

fn note(message: &Option<String>) -> String {
    match message {
        Some(text) => format!(" ({text})"),
        None => String::new(),
    }
}

impl Error {
    /// A failed system call, with advice chosen by its error number.
    pub(crate) fn system(what: impl Into<String>, source: io::Error) -> Self {
        let advice = advice(&source);
        Error::System {
            what: what.into(),
            source,
            advice,
        }
    }

    /// A refused request, with advice chosen by its error number.
    pub(crate) fn refused(
        what: impl Into<String>,
        source: io::Error,
        message: Option<String>,
    ) -> Self {
        let advice = advice(&source);
        Error::Refused {
            what: what.into(),
            source,
            message,
            advice,
        }
    }

    /// The operating system's error number, if there is one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Error::System { source, .. } | Error::Refused { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }
}

fn advice(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            "run as root or with CAP_NET_ADMIN in this network namespace"
        }
        Some(libc::EPROTONOSUPPORT | libc::EAFNOSUPPORT | libc::EOPNOTSUPP) => {
            "load the kernel module or use a kernel that has this feature"
        }
        Some(libc::ENOBUFS) => "raise the receive buffer and read again",
        Some(libc::EAGAIN) => "the kernel did not answer in time, try again",
        Some(libc::ENODEV) => "the interface is gone, look again",
        Some(libc::ENOENT) => "it is gone or was never there, look again",
        Some(libc::EBUSY) => "something else holds it, try again",
        _ => "see `freeway doctor`",
    }
}
