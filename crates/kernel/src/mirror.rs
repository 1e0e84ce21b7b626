// SPDX-License-Identifier: MIT OR Apache-2.0
//! The mirror: the kernel's network configuration, kept up to date by events.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::RawFd;

use crate::error::{Error, Result};
use crate::model::*;

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

/// The kernel's network configuration in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Mirror {}

impl Mirror {
    /// Subscribes, dumps everything, and returns the mirror in step with the kernel.
    pub fn open() -> Result<Mirror> {
        Mirror::open_with(MirrorConfig::default())
    }
    /// [`Mirror::open`] with a configuration.
    pub fn open_with(_config: MirrorConfig) -> Result<Mirror> {
        Err(Error::Missing {
            what: "mirror".into(),
            advice: "wait",
        })
    }
    /// The event sockets, to be polled for reading (level or edge triggered; `read` drains them).
    pub fn fds(&self) -> Vec<RawFd> {
        Vec::new()
    }
    /// Drains the event sockets without blocking, updates the state, appends what changed.
    pub fn read(&mut self, _events: &mut Vec<Event>) -> Result<()> {
        Ok(())
    }
    /// Dumps everything and returns the difference. Start-up is this against an empty state.
    pub fn resync(&mut self) -> Result<Vec<Event>> {
        Ok(Vec::new())
    }
    /// Links by ifindex.
    pub fn links(&self) -> &BTreeMap<u32, Link> {
        panic!("follows")
    }
    /// Addresses.
    pub fn addrs(&self) -> &BTreeSet<Addr> {
        panic!("follows")
    }
    /// Neighbours by interface and address.
    pub fn neighs(&self) -> &BTreeMap<(u32, IpAddr), Neigh> {
        panic!("follows")
    }
    /// FDB entries by bridge (or tunnel device), VLAN (0 without) and station.
    pub fn fdb(&self) -> &BTreeMap<(u32, u16, Mac), Fdb> {
        panic!("follows")
    }
    /// Policy rules.
    pub fn rules(&self) -> &BTreeSet<Rule> {
        panic!("follows")
    }
    /// Nexthop objects by identifier.
    pub fn nexthops(&self) -> &BTreeMap<u32, Nexthop> {
        panic!("follows")
    }
    /// Routes, or `None` when there are more than the limit.
    pub fn routes(&self) -> Option<&BTreeSet<Route>> {
        panic!("follows")
    }
    /// Qdiscs by interface, parent and handle.
    pub fn qdiscs(&self) -> &BTreeMap<(u32, u32, u32), Qdisc> {
        panic!("follows")
    }
    /// tc filters, in dump order, by interface.
    pub fn filters(&self) -> &BTreeMap<u32, Vec<Filter>> {
        panic!("follows")
    }
    /// Forwarding switches by family and interface (-1 all, -2 default).
    pub fn netconf(&self) -> &BTreeMap<(Family, i32), Netconf> {
        panic!("follows")
    }
    /// Generation of the nftables ruleset.
    pub fn ruleset_generation(&self) -> u32 {
        0
    }
    /// Number of IPsec policies.
    pub fn xfrm_policies(&self) -> usize {
        0
    }
    /// Number of IPsec states.
    pub fn xfrm_states(&self) -> usize {
        0
    }
    /// Interfaces that IPsec states or policies are offloaded to in packet mode.
    pub fn xfrm_offload_ports(&self) -> &BTreeSet<u32> {
        panic!("follows")
    }
}
