// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ports as the manager knows them.

/// A port and what it is fit for; the daemon decides and tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Interface index.
    pub ifindex: u32,
    /// Slot in the device map.
    pub slot: u32,
    /// L3 MTU in bytes.
    pub mtu: u32,
    /// MAC address.
    pub mac: Option<[u8; 6]>,
    /// XDP receives here.
    pub input: bool,
    /// XDP may redirect to it.
    pub output: bool,
}
