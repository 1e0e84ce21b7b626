// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an event leaves in doubt.

use std::collections::BTreeSet;

/// What must be read anew because its events do not say enough.
#[derive(Debug, Default)]
pub struct Dirty {
    /// Links whose qdiscs and filters changed.
    pub traffic_control: BTreeSet<u32>,
    /// Entries of multicast forwarding changed.
    pub mroutes: bool,
    /// Multicast forwarding gained or lost interfaces.
    pub mroute_links: bool,
    /// Links that are gone.
    pub links_gone: BTreeSet<u32>,
    /// IPsec policies or states changed.
    pub xfrm: bool,
}
