// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bridged frames: which stations' may take the path that the kernel's own have shown; and those that a bridge hands up
//! to the router, or that the router sends through it, for the manager of routed flows to know where stations are.
//!
//! The data plane proves what the bridge did with a frame. Here it is compared with the bridge's forwarding database
//! as the kernel tells it, and taken back as soon as that says otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use freeway_abi::{
    FW_BRIDGES_GROUPS, FW_BRIDGES_LEARN, FW_BRIDGES_ROUTED, FW_PATH_UP, FW_PATHS_MAX, FW_TAG_LEN,
    fw_crossed, fw_group, fw_path,
};
use freeway_kernel::model::{Event, Fdb};

use crate::bridged::{
    BridgeOp, BridgePort, BridgeRefusal, BridgedPath, LINK_LEN, REVALIDATE_S, RoutedPort, Stations,
    VLAN_MASK, Way, vlan_of,
};
use crate::ends::Mac;
use crate::port::Tag;
use crate::snooped::Snooped;
use crate::stations::StationExit;

/// Seconds without a frame after which a path leaves.
const IDLE_S: u32 = 60;
/// Paths looked at in one call.
const LOOKED_AT: usize = 256;

/// The paths as the data plane has them.
pub trait PathView {
    /// A copy of one.
    fn path(&self, stations: &Stations) -> Option<fw_path>;
}

/// What is written of a path.
struct Admitted {
    bridge: u32,
    way: Way,
    /// Of the port out.
    slot: u32,
    /// Octets of the longest frame.
    len_max: u16,
}

/// Where a station is, by VLAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    port: u32,
    local: bool,
}

/// What is known of bridges.
#[derive(Debug)]
pub struct Bridges {
    pub(crate) hz: u32,
    pub(crate) ports: BTreeMap<u32, BridgePort>,
    pub(crate) routed: BTreeMap<u32, RoutedPort>,
    /// By bridge, address and VLAN.
    places: BTreeMap<(u32, Mac, u16), Place>,
    /// Addresses of the router's own, and how many places they have.
    own: BTreeMap<Mac, u32>,
    pub(crate) paths: BTreeMap<Stations, BridgedPath>,
    /// Paths by either end.
    pub(crate) of_station: BTreeSet<(u32, Mac, Stations)>,
    free: Vec<u32>,
    /// Places of counters that were never used.
    fresh: u32,
    /// How far the last look went.
    looked: Option<Stations>,
    pub(crate) refused: BTreeMap<BridgeRefusal, u64>,
    pub(crate) learned: u64,
    pub(crate) snooped: Snooped,
}

fn place_key(fdb: &Fdb) -> Option<(u32, Mac, u16)> {
    Some((fdb.master?, fdb.mac.0, fdb.vlan.unwrap_or(0)))
}

impl Bridges {
    /// None yet. `hz`: ticks a second.
    #[must_use]
    pub fn new(hz: u32) -> Self {
        Self {
            hz,
            ports: BTreeMap::new(),
            routed: BTreeMap::new(),
            places: BTreeMap::new(),
            own: BTreeMap::new(),
            paths: BTreeMap::new(),
            of_station: BTreeSet::new(),
            free: Vec::new(),
            fresh: 0,
            looked: None,
            refused: BTreeMap::new(),
            learned: 0,
            snooped: Snooped::default(),
        }
    }

    /// True if there is anything to learn.
    #[must_use]
    pub fn learns(&self) -> bool {
        self.ports.values().any(|port| port.fit.any())
    }

    /// What is to be learned: bits `FW_BRIDGES_*`.
    #[must_use]
    pub fn wanted(&self) -> u32 {
        if !self.learns() {
            return 0;
        }
        let if_so = |so: bool, bit: u32| if so { bit } else { 0 };
        FW_BRIDGES_LEARN
            | if_so(!self.routed.is_empty(), FW_BRIDGES_ROUTED)
            | if_so(self.snooped.any_bridge(), FW_BRIDGES_GROUPS)
    }

    /// All paths between stations, or to those of a group.
    pub fn paths(&self) -> impl Iterator<Item = &BridgedPath> {
        let paths = self.paths.values();
        paths.filter(|path| matches!(path.way, Way::Across | Way::Copies))
    }

    /// Paths that were learned since the start.
    #[must_use]
    pub fn learned(&self) -> u64 {
        self.learned
    }

    /// Offers that were refused, by reason.
    #[must_use]
    pub fn refused(&self) -> &BTreeMap<BridgeRefusal, u64> {
        &self.refused
    }

    /// A port is new or changed: its paths are learned anew.
    pub fn set_port(&mut self, port: BridgePort, ops: &mut Vec<BridgeOp>) {
        if self.ports.get(&port.ifindex) != Some(&port) {
            self.leave_port(port.ifindex, ops);
            self.ports.insert(port.ifindex, port);
        }
    }

    /// A port is no longer one.
    pub fn remove_port(&mut self, ifindex: u32, ops: &mut Vec<BridgeOp>) {
        if self.ports.remove(&ifindex).is_some() {
            self.leave_port(ifindex, ops);
        }
    }

    /// A bridge, or a VLAN of it, takes part with what is routed, or does otherwise than before.
    pub fn set_routed(&mut self, port: RoutedPort, ops: &mut Vec<BridgeOp>) {
        if self.routed.get(&port.ifindex) == Some(&port) {
            return;
        }
        self.leave_port(port.ifindex, ops);
        ops.push(BridgeOp::SetRouted {
            port: port.ifindex,
            routed: port.fit.output,
        });
        self.routed.insert(port.ifindex, port);
    }

    /// It does not.
    pub fn remove_routed(&mut self, ifindex: u32, ops: &mut Vec<BridgeOp>) {
        if self.routed.remove(&ifindex).is_some() {
            self.leave_port(ifindex, ops);
            ops.push(BridgeOp::SetRouted {
                port: ifindex,
                routed: false,
            });
        }
    }

    /// A bridge or a port of it is another than before: what is sent to stations shows anew where it leaves.
    pub fn doubt(&mut self, bridge: u32, ops: &mut Vec<BridgeOp>) {
        let down = |path: &&BridgedPath| path.way == Way::Down && path.bridge == bridge;
        let down = self.paths.values().filter(down);
        let down: Vec<_> = down.map(|path| path.stations).collect();
        self.remove(&down, ops);
        self.doubt_all_groups(bridge, ops);
    }

    /// Everything is the kernel's.
    pub fn flush(&mut self, ops: &mut Vec<BridgeOp>) {
        let all: Vec<_> = self.paths.keys().copied().collect();
        self.end(&all, ops);
    }

    fn leave_port(&mut self, ifindex: u32, ops: &mut Vec<BridgeOp>) {
        let through = |path: &&BridgedPath| {
            path.stations.port == ifindex
                || path.port_out == ifindex
                || self.snooped.leaves_at(&path.stations, ifindex)
        };
        let paths = self.paths.values().filter(through);
        let paths: Vec<_> = paths.map(|path| path.stations).collect();
        self.end(&paths, ops);
    }

    /// What the forwarding database has at the start.
    pub fn learn_station(&mut self, fdb: &Fdb, ops: &mut Vec<BridgeOp>) {
        if let Some(key) = place_key(fdb) {
            let place = Place {
                port: fdb.ifindex,
                local: fdb.local,
            };
            self.set_place(key, Some(place), ops);
        }
    }

    fn set_place(&mut self, key: (u32, Mac, u16), place: Option<Place>, ops: &mut Vec<BridgeOp>) {
        let before = match place {
            Some(place) => self.places.insert(key, place),
            None => self.places.remove(&key),
        };
        let mac = key.1;
        let [was, is] = [before, place].map(|place| place.is_some_and(|place| place.local));
        if was == is {
            return;
        }
        let places = self.own.entry(mac).or_default();
        *places = if is {
            *places + 1
        } else {
            places.saturating_sub(1)
        };
        let own = *places > 0;
        if !own {
            self.own.remove(&mac);
        }
        ops.push(BridgeOp::SetOwn { mac, own });
    }

    /// A station appears, moves, or is forgotten; somebody joins a group, or leaves it.
    pub fn kernel_event(&mut self, event: &Event, now_tick: u32, ops: &mut Vec<BridgeOp>) {
        self.snoop_event(event, now_tick, ops);
        let (fdb, gone) = match event {
            Event::FdbChanged(fdb) => (fdb, false),
            Event::FdbGone(fdb) => (fdb, true),
            _ => return,
        };
        let Some(key) = place_key(fdb) else { return };
        if gone {
            self.set_place(key, None, ops);
        } else {
            self.learn_station(fdb, ops);
        }
        let (bridge, mac, _) = key;
        let own = self.own.contains_key(&mac);
        let stays = |path: &BridgedPath| {
            let is_dst = path.stations.dst == mac;
            match (path.way, is_dst) {
                (Way::Up, true) | (Way::Down, false) => own,
                (_, true) => !gone && !own && path.port_out == fdb.ifindex,
                (_, false) => !gone && !own && path.stations.port == fdb.ifindex,
            }
        };
        let from = (bridge, mac, FIRST);
        let ends = self.of_station.range(from..).map(|(b, m, s)| (*b, *m, *s));
        let of_it = ends.take_while(|(b, m, _)| (*b, *m) == (bridge, mac));
        let leave: Vec<_> = of_it
            .map(|(_, _, stations)| stations)
            .filter(|stations| self.paths.get(stations).is_some_and(|path| !stays(path)))
            .collect();
        // of one that has moved to a port with XDP the flows wait there
        match gone || own {
            true => self.end(&leave, ops),
            false => self.remove(&leave, ops),
        }
        // of one that is nowhere, or where XDP takes nothing, they do not
        let port = self.ports.get(&fdb.ifindex);
        let lost = match gone {
            true => self.places_of(bridge, mac, 0).next().is_none(),
            false => !fdb.local && !port.is_some_and(|port| port.fit.input),
        };
        if lost {
            let routed = self.routed.values();
            for routed in routed.filter(|routed| routed.bridge == bridge) {
                self.leave_entry(bridge, mac, routed.ifindex, ops);
            }
        }
    }

    /// Frames crossed a bridge twice in the same way, or what it hands up or is given to send.
    pub fn crossed(
        &mut self,
        crossed: &fw_crossed,
        epoch: u32,
        now_tick: u32,
        ops: &mut Vec<BridgeOp>,
    ) {
        let stations = Stations::of(&crossed.key);
        if stations.dst[0] & 1 != 0 {
            return self.gather(crossed, epoch, now_tick, ops);
        }
        if crossed.epoch != epoch {
            // the bridge may do otherwise now
            ops.push(BridgeOp::ForgetOffer { set: crossed.set });
            return;
        }
        let admitted = self.admit(&stations, crossed);
        let before = self.paths.get(&stations).copied();
        // the kernel has just done otherwise, or again
        self.remove(&[stations], ops);
        if let Some(old) = before
            && old.way == Way::Up
            && old.port_out != crossed.port_out
        {
            self.leave_entry(old.bridge, stations.src, old.port_out, ops);
        }
        let admitted = admitted.and_then(|admitted| {
            let count = self.take_count().ok_or(BridgeRefusal::TableFull)?;
            Ok((admitted, count))
        });
        let (admitted, count) = match admitted {
            Ok(admitted) => admitted,
            Err(refusal) => {
                *self.refused.entry(refusal).or_default() += 1;
                if let Some(up) = self.routed.get(&crossed.port_out) {
                    self.leave_entry(up.bridge, stations.src, crossed.port_out, ops);
                }
                return;
            }
        };
        let Admitted {
            bridge,
            way,
            slot,
            len_max,
        } = admitted;
        let interval = REVALIDATE_S * self.hz;
        ops.push(BridgeOp::ForgetOffer { set: crossed.set });
        ops.push(BridgeOp::SetPath {
            stations,
            path: Box::new(fw_path {
                key: crossed.key,
                epoch: crossed.epoch,
                reval_tick: now_tick.wrapping_add(interval),
                interval,
                used_tick: now_tick,
                port: crossed.port_out,
                devmap_slot: slot,
                tag: crossed.tag_out,
                count,
                len_max,
                misses: 0,
                group: fw_group::default(),
            }),
        });
        let tag_out_be = [crossed.tag_out.tpid_be, crossed.tag_out.tci_be];
        match way {
            Way::Across | Way::Copies => self.learned += 1,
            Way::Up => ops.push(BridgeOp::Entry {
                port: crossed.port_out,
                mac: stations.src,
                known: true,
            }),
            Way::Down => ops.push(BridgeOp::Exit {
                port: stations.port,
                mac: stations.dst,
                exit: Some(StationExit {
                    device: crossed.port_out,
                    slot,
                    tag: Tag {
                        protocol: u16::from_be(tag_out_be[0]),
                        vlan: u16::from_be(tag_out_be[1]),
                    },
                }),
            }),
        }
        for mac in [stations.dst, stations.src] {
            self.of_station.insert((bridge, mac, stations));
        }
        self.paths.insert(
            stations,
            BridgedPath {
                way,
                bridge,
                stations,
                port_out: crossed.port_out,
                tag_out_be,
                count,
            },
        );
    }

    fn admit(&self, stations: &Stations, crossed: &fw_crossed) -> Result<Admitted, BridgeRefusal> {
        let [from, to] = [stations.port, crossed.port_out].map(|index| self.ports.get(&index));
        let [down, up] = [stations.port, crossed.port_out].map(|index| self.routed.get(&index));
        match (from, to, down, up) {
            (Some(from), Some(to), ..) => self.across(from, to, stations, crossed),
            (Some(from), None, _, Some(up)) => self.up(from, up, stations, crossed),
            (None, Some(to), Some(down), _) => self.down(down, to, stations, crossed),
            _ => Err(BridgeRefusal::Port),
        }
    }

    /// From one station to another.
    fn across(
        &self,
        from: &BridgePort,
        to: &BridgePort,
        stations: &Stations,
        crossed: &fw_crossed,
    ) -> Result<Admitted, BridgeRefusal> {
        if !from.fit.input || !to.fit.output || from.bridge != to.bridge {
            return Err(BridgeRefusal::Port);
        }
        let tag_out_be = [crossed.tag_out.tpid_be, crossed.tag_out.tci_be];
        if !self.agrees(from, to, stations, tag_out_be) {
            return Err(BridgeRefusal::Station);
        }
        let tag_len = |there: bool| if there { FW_TAG_LEN } else { 0 };
        let len_out_max = to.mtu + LINK_LEN;
        let len_max =
            len_out_max + tag_len(stations.tag_be[0] != 0) - tag_len(crossed.tag_out.tpid_be != 0);
        Ok(Admitted {
            bridge: from.bridge,
            way: Way::Across,
            slot: to.slot,
            len_max: len_max.try_into().unwrap_or(u16::MAX),
        })
    }

    /// To the router: its flows know how long their frames may be.
    fn up(
        &self,
        from: &BridgePort,
        up: &RoutedPort,
        stations: &Stations,
        crossed: &fw_crossed,
    ) -> Result<Admitted, BridgeRefusal> {
        if !from.fit.input || !up.fit.input || from.bridge != up.bridge {
            return Err(BridgeRefusal::Port);
        }
        let vlan = u16::from_be(stations.tag_be[1]) & VLAN_MASK;
        let mut places = self.places_of(from.bridge, stations.src, vlan);
        let known = places.any(|place| place.port == from.ifindex && !place.local);
        if crossed.tag_out.tpid_be != 0 || !self.is_own(from.bridge, stations.dst) || !known {
            return Err(BridgeRefusal::Station);
        }
        Ok(Admitted {
            bridge: from.bridge,
            way: Way::Up,
            slot: FW_PATH_UP,
            len_max: u16::MAX,
        })
    }

    /// From the router: of longer frames than its own the port would lose some.
    fn down(
        &self,
        down: &RoutedPort,
        to: &BridgePort,
        stations: &Stations,
        crossed: &fw_crossed,
    ) -> Result<Admitted, BridgeRefusal> {
        let fits = to.fit.output && down.fit.output && to.bridge == down.bridge;
        if !fits || to.mtu < down.mtu {
            return Err(BridgeRefusal::Port);
        }
        let tci = u16::from_be(crossed.tag_out.tci_be);
        let places: Vec<Place> = self
            .places_of(down.bridge, stations.dst, tci & VLAN_MASK)
            .collect();
        let there = |place: &Place| place.port == to.ifindex && !place.local;
        let known = !places.is_empty() && places.iter().all(there);
        // a tag with priority is not every frame's
        if tci & !VLAN_MASK != 0 || !self.is_own(down.bridge, stations.src) || !known {
            return Err(BridgeRefusal::Station);
        }
        Ok(Admitted {
            bridge: down.bridge,
            way: Way::Down,
            slot: to.slot,
            len_max: u16::MAX,
        })
    }

    /// Where a station is, in a VLAN, or, if that is 0, in each.
    fn places_of(&self, bridge: u32, mac: Mac, vlan: u16) -> impl Iterator<Item = Place> {
        let key = |vlan| (bridge, mac, vlan);
        let places = self.places.range(key(0)..=key(u16::MAX));
        // a bridge that does not look at tags knows none
        let of_vlan = move |known: u16| vlan == 0 || known == 0 || known == vlan;
        places
            .filter(move |((_, _, known), _)| of_vlan(*known))
            .map(|(_, place)| *place)
    }

    pub(crate) fn is_own(&self, bridge: u32, mac: Mac) -> bool {
        self.places_of(bridge, mac, 0).any(|place| place.local)
    }

    /// Does the forwarding database send the frames there? Of a port without programs nobody sees a flooded copy. In
    /// which VLAN they are a tag tells; else it may be any that knows their sender there, or none.
    fn agrees(
        &self,
        from: &BridgePort,
        to: &BridgePort,
        stations: &Stations,
        tag_out_be: [u16; 2],
    ) -> bool {
        let is_at = |mac: Mac, vlan: u16, port: u32| {
            let place = self.places.get(&(from.bridge, mac, vlan));
            place.is_some_and(|place| place.port == port && !place.local)
        };
        let vlan = vlan_of(&[stations.tag_be, tag_out_be]);
        let vlans = self.vlans_of_sender(from, stations.src, vlan);
        let mut places = vlans.iter();
        !vlans.is_empty()
            && places.all(|vlan| is_at(stations.dst, *vlan, to.ifindex))
            && !self.is_own(from.bridge, stations.dst)
            && !self.is_own(from.bridge, stations.src)
    }

    /// The VLANs in which a station is known at a port: those of a frame that a tag says to be of `vlan`, or of any.
    pub(crate) fn vlans_of_sender(
        &self,
        from: &BridgePort,
        src: Mac,
        vlan: Option<u16>,
    ) -> Vec<u16> {
        let key = |vlan| (from.bridge, src, vlan);
        let places = self.places.range(key(0)..=key(u16::MAX));
        let places = places.filter(|(_, place)| place.port == from.ifindex);
        let vlans = places.map(|((_, _, vlan), _)| *vlan);
        // a bridge that does not look at tags knows none
        vlans
            .filter(|known| vlan.is_none_or(|vlan| [0, vlan].contains(known)))
            .collect()
    }

    /// A bridge some port of which is served.
    #[must_use]
    pub fn is_served(&self, bridge: u32) -> bool {
        self.ports.values().any(|port| port.bridge == bridge)
    }

    pub(crate) fn take_count(&mut self) -> Option<u32> {
        if let Some(count) = self.free.pop() {
            return Some(count);
        }
        (self.fresh < FW_PATHS_MAX).then(|| {
            self.fresh += 1;
            self.fresh - 1
        })
    }

    /// As [`Bridges::remove`]; what a station sends to the router is no longer XDP's where that was its last path.
    fn end(&mut self, paths: &[Stations], ops: &mut Vec<BridgeOp>) {
        let up = paths.iter().filter_map(|stations| self.paths.get(stations));
        let up = up.filter(|path| path.way == Way::Up);
        let up: Vec<BridgedPath> = up.copied().collect();
        self.remove(paths, ops);
        for BridgedPath {
            bridge,
            stations,
            port_out,
            ..
        } in up
        {
            self.leave_entry(bridge, stations.src, port_out, ops);
        }
    }

    /// What a station sends no longer comes in through XDP, unless another path of it leads there.
    fn leave_entry(&self, bridge: u32, mac: Mac, port: u32, ops: &mut Vec<BridgeOp>) {
        let of_it = self.of_station.range((bridge, mac, FIRST)..);
        let mut of_it = of_it.take_while(|(b, m, _)| (*b, *m) == (bridge, mac));
        let enters = |path: &BridgedPath| {
            path.way == Way::Up && path.port_out == port && path.stations.src == mac
        };
        if !of_it.any(|(_, _, other)| self.paths.get(other).is_some_and(enters)) {
            let known = false;
            ops.push(BridgeOp::Entry { port, mac, known });
        }
    }

    pub(crate) fn remove(&mut self, paths: &[Stations], ops: &mut Vec<BridgeOp>) {
        for stations in paths {
            let Some(path) = self.paths.remove(stations) else {
                continue;
            };
            for mac in [stations.dst, stations.src] {
                self.of_station.remove(&(path.bridge, mac, *stations));
            }
            self.free.push(path.count);
            self.snooped.forget(stations);
            if path.way == Way::Down {
                ops.push(BridgeOp::Exit {
                    port: stations.port,
                    mac: stations.dst,
                    exit: None,
                });
            }
            ops.push(BridgeOp::RemovePath {
                stations: *stations,
                count: path.count,
            });
        }
    }

    /// Some of the paths that nobody uses leave.
    pub fn tick(&mut self, now_tick: u32, view: &impl PathView, ops: &mut Vec<BridgeOp>) {
        self.age_changes(now_tick);
        let from = self.looked.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.paths.range((from, Bound::Unbounded));
        let looked: Vec<_> = next
            .take(LOOKED_AT)
            .map(|(stations, _)| *stations)
            .collect();
        self.looked = looked.last().copied().filter(|_| looked.len() == LOOKED_AT);
        let idle = |stations: &Stations| {
            let known = self.paths.get(stations);
            let down = known.is_some_and(|path| path.way == Way::Down);
            view.path(stations).is_none_or(|path| {
                // the kernel has sent elsewhere: flows do not look at these paths
                if down && path.epoch == 0 {
                    return true;
                }
                let unused = now_tick.wrapping_sub(path.used_tick);
                // it may have been used since the tick was read
                unused < u32::MAX / 2 && unused > IDLE_S * self.hz
            })
        };
        let leave: Vec<_> = looked.into_iter().filter(idle).collect();
        self.end(&leave, ops);
    }
}

/// Less than all others.
const FIRST: Stations = Stations {
    port: 0,
    dst: [0; 6],
    src: [0; 6],
    tag_be: [0; 2],
};
