// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the configuration allows.

use freeway_kernel::model::{Prefix, Tuple};

/// Flows that stay in the kernel. Every field that is set must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exclusion {
    /// IP protocol number.
    pub proto: Option<u8>,
    /// Either address is in it.
    pub prefix: Option<Prefix>,
    /// Either port is in it, inclusive.
    pub ports: Option<(u16, u16)>,
}

impl Exclusion {
    /// True if the tuple is excluded.
    #[must_use]
    pub fn matches(&self, tuple: &Tuple) -> bool {
        let in_range = |port: u16| self.ports.is_none_or(|(low, high)| (low..=high).contains(&port));
        self.proto.is_none_or(|proto| proto == tuple.proto)
            && self.prefix.is_none_or(|p| p.contains(tuple.src) || p.contains(tuple.dst))
            && (in_range(tuple.sport) || in_range(tuple.dport))
    }
}

/// The policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// TCP may be fast.
    pub tcp: bool,
    /// UDP may be fast.
    pub udp: bool,
    /// Exclusions.
    pub exclude: Vec<Exclusion>,
}

impl Default for Policy {
    fn default() -> Self {
        Self { tcp: true, udp: true, exclude: Vec::new() }
    }
}

impl Policy {
    /// True if the tuple may be fast.
    #[must_use]
    pub fn allows(&self, tuple: &Tuple) -> bool {
        let proto = match tuple.proto {
            6 => self.tcp,
            17 => self.udp,
            _ => false,
        };
        proto && !self.exclude.iter().any(|e| e.matches(tuple))
    }
}
