// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stations of bridges that route: XDP takes and sends their frames at the bridge's ports, once it is known where they
//! are. Until then, and where they have no XDP, their flows are tc's.

use std::collections::{BTreeMap, BTreeSet};

use freeway_abi::fw_candidate;

use crate::key::FlowKey;
use crate::manager::Manager;
use crate::nexthop::NexthopKey;
use crate::op::Op;
use crate::port::{Framing, Path, Tag};

type Mac = [u8; 6];

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
    pub fn exit(&self, port: u32, mac: Mac) -> Option<StationExit> {
        self.exits.get(&(port, mac)).copied()
    }

    pub fn forget(&mut self, port: u32) {
        self.entries.retain(|(of, _)| *of != port);
        self.moved.remove(&port);
        self.exits.retain(|(of, _), _| *of != port);
    }
}

/// Whom a frame came from.
fn sender(c: &fw_candidate) -> Mac {
    let mut mac = [0; 6];
    mac.copy_from_slice(&c.l2_in[6..12]);
    mac
}

/// Whom it goes to.
pub(crate) fn receiver(c: &fw_candidate) -> Mac {
    let mut mac = [0; 6];
    mac.copy_from_slice(&c.l2_out[..6]);
    mac
}

impl Manager {
    pub(crate) fn is_by_station(&self, port: u32) -> bool {
        self.ports.get(&port).is_some_and(|port| port.by_station)
    }

    /// False if XDP would have to know a station that it does not.
    pub(crate) fn knows_stations(&self, c: &fw_candidate, key: &FlowKey) -> bool {
        let entry = (key.port, sender(c));
        let enters = || !key.tuple.dst.is_multicast() && self.stations.entries.contains(&entry);
        (!self.is_by_station(key.port) || enters())
            && (!self.is_by_station(c.port_out)
                || self.stations.exit(c.port_out, receiver(c)).is_some())
    }

    /// The slot of the device map through which a next hop leads; `None`: there is none any more.
    pub(crate) fn slot_of(&self, exit: &NexthopKey) -> Option<u32> {
        if exit.device == 0 {
            return self.ports.get(&exit.port).map(|port| port.slot);
        }
        let mut mac = [0; 6];
        mac.copy_from_slice(&exit.l2[..6]);
        let station = self.stations.exit(exit.port, mac)?;
        (station.device == exit.device).then_some(station.slot)
    }

    /// What a station sends to the router comes in through XDP, or no longer; its flows follow with
    /// [`Manager::move_stations`].
    pub fn set_station_entry(&mut self, (port, mac): (u32, Mac), known: bool) {
        let changed = match known {
            true => self.stations.entries.insert((port, mac)),
            false => self.stations.entries.remove(&(port, mac)),
        };
        if changed {
            self.stations.moved.entry(port).or_default().insert(mac);
        }
    }

    /// True if flows are to follow at once; where there are many, they do with the next tick, and one walk is for all
    /// stations.
    #[must_use]
    pub fn few_move(&self) -> bool {
        let few = self.settings.work_max;
        let moved = self.stations.moved.keys();
        let flows = moved.flat_map(|port| self.table.at_port(*port).take(few + 1));
        !self.stations.moved.is_empty() && flows.take(few + 1).count() <= few
    }

    /// Flows of stations whose way in has changed are learned anew, at most as many as in one call of others.
    /// `sender`: the source address of a flow's frames.
    pub fn move_stations(
        &mut self,
        sender: impl Fn(u32) -> Option<Mac>,
        now_tick: u32,
        ops: &mut Vec<Op>,
    ) {
        let work_max = self.settings.work_max;
        for (port, macs) in std::mem::take(&mut self.stations.moved) {
            let moves = |index: &u32| {
                let record = self.table.get(*index).filter(|record| !record.is_sniffed());
                // of those that are bound some are for what was seen before the station was known
                record.is_some_and(|record| {
                    let of_tc = record.path() == Path::Tc;
                    sender(*index).is_some_and(|mac| {
                        let known = self.stations.entries.contains(&(port, mac));
                        macs.contains(&mac) && known == of_tc
                    })
                })
            };
            let flows = self.table.at_port(port).filter(moves);
            let flows: Vec<u32> = flows.take(work_max).collect();
            if flows.len() == work_max {
                self.stations.moved.insert(port, macs);
            }
            for index in flows {
                self.remove(index, now_tick, ops);
            }
        }
    }

    /// How XDP sends to a station, or that it no longer does. Flows to it are learned anew.
    pub fn set_station_exit(
        &mut self,
        (port, mac): (u32, Mac),
        exit: Option<StationExit>,
        now_tick: u32,
        ops: &mut Vec<Op>,
    ) {
        let before = match exit {
            Some(exit) => self.stations.exits.insert((port, mac), exit),
            None => self.stations.exits.remove(&(port, mac)),
        };
        if before == exit {
            return;
        }
        let behind = self.nexthops.behind(port, mac).into_iter();
        let of_xdp = |index: &u32| self.nexthops.key(*index).is_some_and(|key| key.device != 0);
        let (old, of_tc): (Vec<u32>, Vec<u32>) = behind.partition(of_xdp);
        let through = |nexthops: &[u32]| -> Vec<u32> {
            let flows = nexthops.iter().flat_map(|n| self.table.through(*n));
            flows.collect()
        };
        let moves = |index: &u32| {
            let record = self.table.get(*index);
            exit.is_some() && record.is_some_and(|r| !r.is_bound() && !r.is_sniffed())
        };
        // the others move when they are learned again
        let better = through(&of_tc).into_iter().filter(moves);
        let better: Vec<u32> = better.take(self.settings.work_max).collect();
        match self.narrow(through(&old).into_iter()) {
            Some(flows) => {
                // one write for each next hop first: nothing goes there any more
                ops.extend(
                    old.iter()
                        .map(|index| Op::InvalidateNexthop { index: *index }),
                );
                for index in flows {
                    self.remove(index, now_tick, ops);
                }
            }
            None => self.end_nexthops(&old, now_tick, ops),
        }
        for index in better {
            self.remove(index, now_tick, ops);
        }
    }
}
