// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a ruleset means for the fast path.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde::Serialize;

use super::finding::Finding;
use super::uses::{SetName, SetUse};

/// What a ruleset means for the fast path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Analysis {
    /// True if there are no findings (marks do not count).
    pub safe: bool,
    /// Expressions that must see every packet.
    pub findings: Vec<Finding>,
    /// Expressions that set mark, connection mark or priority: shown by no frame.
    pub marks: Vec<Finding>,
    /// How the packet's way looks into named sets.
    #[serde(skip)]
    pub uses: BTreeMap<SetName, SetUse>,
}

impl Analysis {
    /// Adds how packets of another state look into sets.
    pub fn add_uses(&mut self, other: Analysis) {
        for (name, other) in other.uses {
            match self.uses.entry(name) {
                Entry::Vacant(entry) => drop(entry.insert(other)),
                Entry::Occupied(mut entry) => entry.get_mut().join(other),
            }
        }
    }
}
