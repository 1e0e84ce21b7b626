// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a mirror follows.

/// How a [`Mirror`] listens.
#[derive(Clone, Debug)]
pub struct MirrorConfig {
    /// Receive buffer of each event socket, bytes. The kernel charges about twice a message's size.
    pub receive_buffer_bytes: usize,
    /// Routes kept in memory; with more in the kernel, resynchronisation reports [`Event::RoutesUnknown`].
    pub route_limit: usize,
    /// Listen to conntrack DESTROY and UPDATE events. They make every connection dearer for the kernel.
    pub conntrack_events: bool,
}

impl Default for MirrorConfig {
    fn default() -> Self {
        MirrorConfig {
            receive_buffer_bytes: 8 << 20,
            route_limit: 16_384,
            conntrack_events: true,
        }
    }
}
