// SPDX-License-Identifier: MIT OR Apache-2.0
//! Destinations of routes that lead to VRFs' own interfaces.

use std::collections::BTreeSet;
use std::net::IpAddr;

use freeway_kernel::model::Prefix;

/// Destinations of routes to VRFs' own interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leaks {
    /// Not known: there may be a route to any.
    Unknown,
    /// These.
    To(BTreeSet<Prefix>),
    /// These, and from a VRF's own table routes may lead back to ports outside of it, so that a packet may pass its
    /// interface and leave in the VRF where it came in.
    ThereAndBack(BTreeSet<Prefix>),
}

impl Default for Leaks {
    fn default() -> Self {
        Leaks::To(BTreeSet::new())
    }
}

impl Leaks {
    /// True if a route to these is known as one.
    #[must_use]
    pub fn name(&self, to: &Prefix) -> bool {
        match self {
            Leaks::Unknown => true,
            Leaks::To(networks) | Leaks::ThereAndBack(networks) => networks.contains(to),
        }
    }

    pub(crate) fn contain(&self, ip: IpAddr) -> bool {
        match self {
            Leaks::Unknown => true,
            Leaks::To(networks) | Leaks::ThereAndBack(networks) => {
                networks.iter().any(|net| net.contains(ip))
            }
        }
    }
}
