// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stations of bridges that route: XDP takes and sends their frames at the bridge's ports, once it is known where they
//! are. Until then, and where they have no XDP, their flows are tc's.

use freeway_abi::fw_candidate;

use crate::ends::{Mac, receiver, sender};
use crate::key::FlowKey;
use crate::manager::Manager;
use crate::nexthop::NexthopKey;
use crate::op::Op;
use crate::port::Path;
use crate::stations::StationExit;

impl Manager {
    pub(crate) fn is_by_station(&self, port: u32) -> bool {
        self.ports.get(&port).is_some_and(|port| port.by_station)
    }

    /// False if XDP would have to know a station that it does not.
    pub(crate) fn knows_stations(&self, c: &fw_candidate, key: &FlowKey) -> bool {
        let enters = || !key.tuple.dst.is_multicast() && self.stations.enters(key.port, sender(c));
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
        self.stations.set_entry(port, mac, known);
    }

    /// True if flows are to follow at once; where there are many, they do with the next tick, and one walk is for all
    /// stations.
    #[must_use]
    pub fn few_move(&self) -> bool {
        let few = self.settings.work_max;
        let flows = |port| self.table.at_port(port).take(few + 1);
        let flows = self.stations.moved_ports().flat_map(flows);
        self.stations.moved_ports().next().is_some() && flows.take(few + 1).count() <= few
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
        for (port, macs) in self.stations.take_moved() {
            let moves = |index: &u32| {
                let record = self.table.get(*index).filter(|record| !record.is_sniffed());
                // of those that are bound some are for what was seen before the station was known
                record.is_some_and(|record| {
                    let of_tc = record.path() == Path::Tc;
                    sender(*index).is_some_and(|mac| {
                        let known = self.stations.enters(port, mac);
                        macs.contains(&mac) && known == of_tc
                    })
                })
            };
            let flows = self.table.at_port(port).filter(moves);
            let flows: Vec<u32> = flows.take(work_max).collect();
            if flows.len() == work_max {
                self.stations.still_move(port, macs);
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
        if self.stations.set_exit(port, mac, exit) == exit {
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
