// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was measured.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::pages::Pages;

/// A table of prefixes, and what its lookups take in each structure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// Prefixes.
    pub prefixes: usize,
    /// Next hops that are in use.
    pub next_hops: usize,
    /// Ranges of addresses that follow each other and differ in their next hop.
    pub ranges: usize,
    /// Addresses, in order of each pass.
    pub addresses: usize,
    /// Answers that were compared with the model's before anything was timed, of each structure.
    pub compared: usize,
    /// One address after the other in the model, a binary trie: millions a second.
    pub trie_mlps: f64,
    /// The structures.
    pub candidates: Vec<Candidate>,
}

/// A structure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// Its name.
    pub name: String,
    /// Whether it is DPDK's.
    pub dpdk: bool,
    /// What a lookup may read, in bytes for each prefix.
    pub bytes_per_prefix: f64,
    /// Seconds to build it.
    pub build_seconds: f64,
    /// Rates by size of pages, `4k` and, where there are such, `2m`.
    pub pages: BTreeMap<Pages, Rates>,
}

/// Millions of lookups a second, medians of the runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// One after the other, none depends on another.
    pub single_mlps: f64,
    /// Each address is known when the next hop before is.
    pub dependent_mlps: f64,
    /// 64 at a time.
    pub burst_mlps: f64,
    /// `single_mlps` of each run.
    pub single_samples: Vec<f64>,
}

impl Table {
    /// Of a structure.
    #[must_use]
    pub fn of(&self, name: &str) -> Option<&Candidate> {
        self.candidates
            .iter()
            .find(|candidate| candidate.name == name)
    }
}
