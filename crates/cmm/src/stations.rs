// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stations of bridges that route, as far as XDP knows them.

use std::collections::{BTreeMap, BTreeSet};

use crate::ends::Mac;
use crate::port::{Framing, Tag};

/// How XDP sends to a station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StationExit {
    /// The bridge's port where it is.
    pub device: u32,
    /// That port's slot in the device map.
    pub slot: u32,
    /// What frames have there.
    pub tag: Tag,
}

impl StationExit {
    pub(crate) fn framing(&self) -> Framing {
        Framing {
            tags: [self.tag, Tag::default()],
            session: None,
        }
    }
}

/// The stations, by the bridge or the VLAN of it, and MAC address.
#[derive(Debug, Default)]
pub(crate) struct KnownStations {
    /// What they send comes in through XDP.
    entries: BTreeSet<(u32, Mac)>,
    /// Those for which that has changed, and not all flows have followed.
    moved: BTreeMap<u32, BTreeSet<Mac>>,
    exits: BTreeMap<(u32, Mac), StationExit>,
}

impl KnownStations {
    /// What the station sends comes in through XDP.
    pub fn enters(&self, port: u32, mac: Mac) -> bool {
        self.entries.contains(&(port, mac))
    }

    /// That has come to be, or is no longer so.
    pub fn set_entry(&mut self, port: u32, mac: Mac, known: bool) {
        let changed = match known {
            true => self.entries.insert((port, mac)),
            false => self.entries.remove(&(port, mac)),
        };
        if changed {
            self.moved.entry(port).or_default().insert(mac);
        }
    }

    /// Ports with stations for which it has changed, and not all flows have followed.
    pub fn moved_ports(&self) -> impl Iterator<Item = u32> {
        self.moved.keys().copied()
    }

    /// These stations, which are followed now.
    pub fn take_moved(&mut self) -> BTreeMap<u32, BTreeSet<Mac>> {
        std::mem::take(&mut self.moved)
    }

    /// Not all flows could follow.
    pub fn still_move(&mut self, port: u32, macs: BTreeSet<Mac>) {
        self.moved.insert(port, macs);
    }

    /// How XDP sends to a station from now on; returns how it did.
    pub fn set_exit(
        &mut self,
        port: u32,
        mac: Mac,
        exit: Option<StationExit>,
    ) -> Option<StationExit> {
        match exit {
            Some(exit) => self.exits.insert((port, mac), exit),
            None => self.exits.remove(&(port, mac)),
        }
    }

    /// How XDP sends to a station.
    pub fn exit(&self, port: u32, mac: Mac) -> Option<StationExit> {
        self.exits.get(&(port, mac)).copied()
    }

    /// The port is gone, and with it what is known of its stations.
    pub fn forget(&mut self, port: u32) {
        self.entries.retain(|(of, _)| *of != port);
        self.moved.remove(&port);
        self.exits.retain(|(of, _), _| *of != port);
    }
}
