// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who listens to groups at a bridge (its multicast database).

use std::net::IpAddr;

use serde::Serialize;

/// A port behind which somebody listens to a group (RTM_NEWMDB, `struct br_mdb_entry`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct MdbKey {
    /// The bridge.
    pub bridge: u32,
    /// The group.
    pub group: IpAddr,
    /// VLAN of a filtering bridge, else 0.
    pub vlan: u16,
    /// The one source that this is about; `None`: any.
    pub source: Option<IpAddr>,
    /// The port; the bridge's own index if the machine itself listens.
    pub port: u32,
}

/// The same, and whether it is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Mdb {
    /// What it is about.
    pub key: MdbKey,
    /// It has nothing (MDB_FLAGS_BLOCKED), or only what entries with a source say (MCAST_INCLUDE).
    pub excluded: bool,
}

/// A port behind which there is a multicast router (MDBA_ROUTER_PORT).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct RouterPort {
    /// The bridge.
    pub bridge: u32,
    /// The port.
    pub port: u32,
    /// VLAN, where the bridge snoops by VLAN; else 0.
    pub vlan: u16,
}
