// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway reload`.

use serde::{Deserialize, Serialize};

/// The configuration was read again, and applied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    /// The file; `None`: there is none, and the defaults hold.
    pub file: Option<String>,
    /// What changed, by key.
    pub changes: Vec<KeyChange>,
}

/// A key whose value changed. Values are as TOML writes them, without what is absent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyChange {
    /// With its tables: `flows.tcp_idle_s`.
    pub key: String,
    /// What held before.
    pub from: Option<String>,
    /// What holds now.
    pub to: Option<String>,
}

impl KeyChange {
    /// As it is logged.
    #[must_use]
    pub fn words(&self) -> String {
        let value = |of: &Option<String>| of.clone().unwrap_or_else(|| "none".into());
        format!("{}: {} -> {}", self.key, value(&self.from), value(&self.to))
    }
}
