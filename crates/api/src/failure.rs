// SPDX-License-Identifier: MIT OR Apache-2.0
//! The body of every answer that is not a success.

use serde::{Deserialize, Serialize};

/// What failed, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{error}{}", hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default())]
pub struct Failure {
    /// What failed, on what.
    pub error: String,
    /// What to do.
    pub hint: Option<String>,
    /// Whose fault it is; chooses the HTTP status.
    #[serde(default)]
    pub kind: FailureKind,
}

/// Whose fault a failure is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The request makes no sense (400).
    Request,
    /// Only root may ask for it (403).
    Privilege,
    /// The configuration is wrong (422).
    Config,
    /// The daemon cannot do it now (503).
    Unavailable,
    /// Something failed inside (500).
    #[default]
    Internal,
}

impl Failure {
    /// A request that makes no sense.
    pub fn request(error: impl Into<String>, hint: impl Into<String>) -> Self {
        Failure {
            error: error.into(),
            hint: Some(hint.into()),
            kind: FailureKind::Request,
        }
    }

    /// What only root may ask for.
    pub fn privilege(error: impl Into<String>) -> Self {
        Failure {
            error: error.into(),
            hint: Some("become root".into()),
            kind: FailureKind::Privilege,
        }
    }

    /// A configuration that is wrong.
    pub fn config(error: impl Into<String>, hint: impl Into<String>) -> Self {
        Failure {
            error: error.into(),
            hint: Some(hint.into()),
            kind: FailureKind::Config,
        }
    }

    /// Something that cannot be done now.
    pub fn unavailable(error: impl Into<String>, hint: impl Into<String>) -> Self {
        Failure {
            error: error.into(),
            hint: Some(hint.into()),
            kind: FailureKind::Unavailable,
        }
    }

    /// Something that failed inside.
    pub fn internal(error: impl Into<String>) -> Self {
        Failure {
            error: error.into(),
            hint: None,
            kind: FailureKind::Internal,
        }
    }
}
