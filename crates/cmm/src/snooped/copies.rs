// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a bridge copies: lists for it, and the paths that lead to them.

use freeway_abi::{FW_L2_MAX, FW_OLIST_MAX, FW_PATH_COPIES, FW_TAG_LEN, fw_crossed, fw_path};
use freeway_kernel::model::{Event, MdbKey, RouterPort};

use super::{Copied, Gathering, Whose};
use crate::bridge::Bridges;
use crate::bridged::{
    BridgeOp, BridgePort, BridgeRefusal, BridgedLeg, BridgedList, BridgedPath, LINK_LEN, Stations,
    Way, vlan_of,
};
use crate::indices::Retired;
use crate::manager::Manager;
use crate::memory::MEMORY_MAX;
use crate::nexthop::NexthopKey;
use crate::port::{Framing, Tag};

/// The kernel copies in one go, and the events of one go come together: after so many ticks there are no more.
const SETTLED_TICKS: u32 = 2;

impl Manager {
    /// A list for what a bridge copies; `None`: there are too many.
    pub fn take_bridged_list(
        &mut self,
        stations: &Stations,
        ethertype: u16,
        legs: &[BridgedLeg],
    ) -> Option<BridgedList> {
        let mut l2 = [0; FW_L2_MAX as usize];
        l2[..6].copy_from_slice(&stations.dst);
        l2[6..12].copy_from_slice(&stations.src);
        l2[12..14].copy_from_slice(&ethertype.to_be_bytes());
        let key = |leg: &BridgedLeg| NexthopKey {
            port: leg.port,
            l2,
            l2_len: 14,
            framing: Framing {
                tags: [
                    // with priority, as the kernel's copy has it
                    Tag {
                        protocol: u16::from_be(leg.tag_be[0]),
                        vlan: u16::from_be(leg.tag_be[1]),
                    },
                    Tag::default(),
                ],
                session: None,
            },
            device: 0,
            mark: 0,
            priority: 0,
            leaf: 0,
        };
        let keys: Vec<NexthopKey> = legs.iter().map(key).collect();
        let nexthop = *keys.first()?;
        let records = keys.iter().zip(legs);
        let records = records.map(|(key, leg)| key.record(leg.slot)).collect();
        let (index, number) = self.nexthops.take_bridged(keys)?;
        Some(BridgedList {
            index,
            number,
            legs: records,
            nexthop: nexthop.list_record(number),
        })
    }

    /// No path leads to a bridge's list any more; its next hop is to be invalid.
    pub fn leave_bridged_list(&mut self, index: u32, now_tick: u32) {
        self.nexthops.release(index);
        self.indices.retire(Retired::Nexthop(index), now_tick);
    }
}

impl Bridges {
    /// A bridge knows who listens to groups, and its own interface shows what it hands up; or it is not so.
    pub fn set_snooping(&mut self, bridge: u32, snoops: bool, ops: &mut Vec<BridgeOp>) {
        let changed = match snoops {
            true => self.snooped.bridges.insert(bridge),
            false => self.snooped.bridges.remove(&bridge),
        };
        if changed && !snoops {
            self.doubt_groups(bridge, |_| true, ops);
        }
    }

    /// Bridges of which [`Bridges::set_snooping`] said so.
    #[must_use]
    pub fn snooping(&self) -> Vec<u32> {
        self.snooped.bridges.iter().copied().collect()
    }

    /// True if copies wait for others of their frame.
    #[must_use]
    pub fn is_gathering(&self) -> bool {
        !self.snooped.gathering.is_empty()
    }

    /// Who listens at the start, and whether that is excluded.
    pub fn learn_listener(&mut self, key: MdbKey, excluded: bool) {
        self.snooped.mdb.insert(key, excluded);
    }

    /// A port with a multicast router at the start.
    pub fn learn_router_port(&mut self, port: RouterPort) {
        self.snooped.routers.insert(port);
    }

    /// Somebody joins or leaves: what is sent to that group shows anew where it goes.
    pub(crate) fn snoop_event(&mut self, event: &Event, now_tick: u32, ops: &mut Vec<BridgeOp>) {
        let snooped = &mut self.snooped;
        let (bridge, group) = match event {
            Event::MdbChanged(entry) => {
                snooped.mdb.insert(entry.key, entry.excluded);
                (entry.key.bridge, Some(entry.key.group))
            }
            Event::MdbGone(entry) => {
                snooped.mdb.remove(&entry.key);
                (entry.key.bridge, Some(entry.key.group))
            }
            Event::RouterPortNew(port) => {
                snooped.routers.insert(*port);
                (port.bridge, None)
            }
            Event::RouterPortGone(port) => {
                snooped.routers.remove(port);
                (port.bridge, None)
            }
            Event::LinkGone { ifindex } => {
                let there = |key: &MdbKey| ![key.bridge, key.port].contains(ifindex);
                snooped.mdb.retain(|key, _| there(key));
                let there = |at: &RouterPort| ![at.bridge, at.port].contains(ifindex);
                snooped.routers.retain(there);
                return;
            }
            _ => return,
        };
        snooped.changed_tick.insert((bridge, group), now_tick);
        let concerns = |whose: &Whose| group.is_none_or(|group| whose.group == group);
        self.doubt_groups(bridge, concerns, ops);
    }

    /// All groups of a bridge are learned anew.
    pub(crate) fn doubt_all_groups(&mut self, bridge: u32, ops: &mut Vec<BridgeOp>) {
        self.doubt_groups(bridge, |_| true, ops);
    }

    fn doubt_groups(
        &mut self,
        bridge: u32,
        concerns: impl Fn(&Whose) -> bool,
        ops: &mut Vec<BridgeOp>,
    ) {
        let there = |stations: &Stations| {
            let path = self.paths.get(stations);
            path.is_some_and(|path| path.bridge == bridge)
        };
        let copied = self.snooped.copied.iter();
        let copied = copied.filter(|(stations, copied)| there(stations) && concerns(&copied.whose));
        let leave: Vec<_> = copied.map(|(stations, _)| *stations).collect();
        self.remove(&leave, ops);
        let ports = &self.ports;
        let seen = |whose: &Whose| {
            let port = ports.get(&whose.stations.port);
            concerns(whose) && port.is_none_or(|port| port.bridge == bridge)
        };
        self.snooped.forget_seen(seen, ops);
    }

    /// A copy of a frame. The first of the next frame says that the frame before has no more.
    pub(crate) fn gather(
        &mut self,
        crossed: &fw_crossed,
        epoch: u32,
        now_tick: u32,
        ops: &mut Vec<BridgeOp>,
    ) {
        let whose = Whose::of(crossed);
        let open = self.snooped.gathering.get_mut(&whose);
        if let Some(open) = open.filter(|open| open.token == crossed.token && crossed.copy != 0) {
            open.copies.push(*crossed);
            return;
        }
        if let Some(done) = self.snooped.gathering.remove(&whose) {
            self.gathered(&whose, done, epoch, now_tick, ops);
        }
        if self.snooped.gathering.len() >= MEMORY_MAX {
            *self.refused.entry(BridgeRefusal::TableFull).or_default() += 1;
            return;
        }
        let gathering = Gathering {
            token: crossed.token,
            since_tick: crossed.ev.tick,
            copies: vec![*crossed],
        };
        self.snooped.gathering.insert(whose, gathering);
    }

    /// Frames of which no more copies can come; to be called when the data plane has had time for them.
    pub fn settle_groups(&mut self, epoch: u32, now_tick: u32, ops: &mut Vec<BridgeOp>) {
        let settled = |(_, open): &(&Whose, &Gathering)| {
            now_tick.wrapping_sub(open.since_tick) >= SETTLED_TICKS
        };
        let open = self.snooped.gathering.iter().filter(settled);
        let settled: Vec<Whose> = open.map(|(whose, _)| *whose).collect();
        for whose in settled {
            if let Some(done) = self.snooped.gathering.remove(&whose) {
                self.gathered(&whose, done, epoch, now_tick, ops);
            }
        }
    }

    fn gathered(
        &mut self,
        whose: &Whose,
        done: Gathering,
        epoch: u32,
        now_tick: u32,
        ops: &mut Vec<BridgeOp>,
    ) {
        let Some(first) = done.copies.first().copied() else {
            return;
        };
        let bridge = self.ports.get(&first.key.port).map(|port| port.bridge);
        let stale = bridge.is_some_and(|bridge| self.snooped.is_stale(bridge, whose, first.tick));
        if first.epoch != epoch || stale {
            // the bridge may do otherwise now
            self.snooped.before.remove(whose);
            ops.push(BridgeOp::ForgetOffer { set: first.set });
            return;
        }
        let known = self.snooped.copied.get(&whose.stations);
        let known = known.filter(|known| known.whose == *whose);
        let known = known.map(|known| known.legs.clone());
        let (bridge, legs, len_max) = match self.admit_copies(whose, &done.copies) {
            Ok(admitted) => admitted,
            Err(refusal) => {
                if known.is_some() {
                    self.remove(&[whose.stations], ops);
                }
                return self.refuse_copies(whose, refusal);
            }
        };
        if known.as_ref() == Some(&legs) {
            // the data plane has confirmed it
            ops.push(BridgeOp::ForgetOffer { set: first.set });
            return;
        }
        if self.snooped.before.get(whose) != Some(&legs) {
            if self.snooped.before.len() >= MEMORY_MAX {
                self.snooped.before.clear();
            }
            // once more, and soon; one that keeps changing has to wait
            if self.snooped.before.insert(*whose, legs).is_none() {
                ops.push(BridgeOp::ForgetOffer { set: first.set });
            }
            return;
        }
        self.snooped.before.remove(whose);
        if known.is_some() {
            self.remove(&[whose.stations], ops);
        } else if self.paths.contains_key(&whose.stations) {
            return self.refuse_copies(whose, BridgeRefusal::Taken);
        }
        let Some(count) = self.take_count() else {
            return self.refuse_copies(whose, BridgeRefusal::TableFull);
        };
        let interval = crate::bridged::REVALIDATE_S * self.hz;
        let path = Box::new(fw_path {
            key: first.key,
            epoch,
            reval_tick: now_tick.wrapping_add(interval),
            interval,
            used_tick: now_tick,
            port: 0,
            devmap_slot: FW_PATH_COPIES,
            tag: Default::default(),
            count,
            len_max,
            misses: 0,
            group: first.group,
        });
        let stations = whose.stations;
        for mac in [stations.dst, stations.src] {
            self.of_station.insert((bridge, mac, stations));
        }
        let bridged = BridgedPath {
            way: Way::Copies,
            bridge,
            stations,
            port_out: 0,
            tag_out_be: [0; 2],
            count,
        };
        self.paths.insert(stations, bridged);
        let copied = Copied {
            whose: *whose,
            legs: legs.clone(),
        };
        self.snooped.copied.insert(stations, copied);
        self.learned += 1;
        let v6 = whose.group.is_ipv6();
        ops.push(BridgeOp::ForgetOffer { set: first.set });
        ops.push(BridgeOp::SetCopies {
            stations,
            ethertype: if v6 { 0x86dd } else { 0x0800 },
            path,
            legs,
        });
    }

    fn refuse_copies(&mut self, whose: &Whose, refusal: BridgeRefusal) {
        self.snooped.before.remove(whose);
        *self.refused.entry(refusal).or_default() += 1;
    }

    /// A list was not written: its frames are the kernel's.
    pub fn copies_failed(&mut self, stations: &Stations, ops: &mut Vec<BridgeOp>) {
        *self.refused.entry(BridgeRefusal::TableFull).or_default() += 1;
        self.remove(&[*stations], ops);
    }

    fn admit_copies(
        &self,
        whose: &Whose,
        copies: &[fw_crossed],
    ) -> Result<(u32, Vec<BridgedLeg>, u16), BridgeRefusal> {
        let stations = &whose.stations;
        let from = self.ports.get(&stations.port);
        let from = from.filter(|from| from.fit.input);
        let from = from.ok_or(BridgeRefusal::Port)?;
        let bridge = from.bridge;
        if !self.snooped.bridges.contains(&bridge) {
            return Err(BridgeRefusal::Snooping);
        }
        let (mut legs, mut len_max) = (Vec::new(), u32::from(u16::MAX));
        let tag_len = |tpid_be: u16| if tpid_be != 0 { FW_TAG_LEN } else { 0 };
        for (number, copy) in copies.iter().enumerate() {
            // an event that is lost may be that of a copy
            if copy.copy as usize != number {
                return Err(BridgeRefusal::Group);
            }
            let up = copy.port_out == bridge || self.routed.contains_key(&copy.port_out);
            if up {
                return Err(BridgeRefusal::Host);
            }
            let to = self.ports.get(&copy.port_out);
            let to = to.filter(|to| to.fit.output && to.bridge == bridge);
            let to = to.ok_or(BridgeRefusal::Port)?;
            let len = to.mtu + LINK_LEN + tag_len(stations.tag_be[0]);
            len_max = len_max.min(len - tag_len(copy.tag_out.tpid_be));
            legs.push(BridgedLeg {
                port: to.ifindex,
                slot: to.slot,
                tag_be: [copy.tag_out.tpid_be, copy.tag_out.tci_be],
            });
        }
        legs.sort_unstable();
        let twice = legs.windows(2).any(|pair| pair[0].port == pair[1].port);
        if twice || legs.len() > FW_OLIST_MAX as usize {
            return Err(BridgeRefusal::Group);
        }
        self.agree_copies(whose, from, &legs)?;
        Ok((bridge, legs, len_max.try_into().unwrap_or(u16::MAX)))
    }

    /// Does the database send them there, and to no other port? In which VLAN they are a tag tells; else it may be any
    /// that knows their sender there. Which IP version a router is of nobody tells: it may have a copy.
    fn agree_copies(
        &self,
        whose: &Whose,
        from: &BridgePort,
        legs: &[BridgedLeg],
    ) -> Result<(), BridgeRefusal> {
        let (bridge, src) = (from.bridge, whose.stations.src);
        let mut tags = vec![whose.stations.tag_be];
        tags.extend(legs.iter().map(|leg| leg.tag_be));
        let vlans = self.vlans_of_sender(from, src, vlan_of(&tags));
        if vlans.is_empty() || self.is_own(bridge, src) {
            return Err(BridgeRefusal::Station);
        }
        for vlan in vlans {
            let named = self.snooped.named(bridge, vlan, whose);
            let mut named = named.ok_or(BridgeRefusal::Host)?;
            let sent = |port: u32| legs.iter().any(|leg| leg.port == port);
            let may = |leg: &BridgedLeg| {
                named.contains(&leg.port) || self.snooped.is_router(bridge, leg.port)
            };
            let only = legs.iter().all(may);
            // a frame does not leave where it came in
            named.remove(&from.ifindex);
            if !only || !named.iter().all(|port| sent(*port)) {
                return Err(BridgeRefusal::Group);
            }
        }
        Ok(())
    }

    /// When that was long ago a tick would seem to be ahead of it.
    pub(crate) fn age_changes(&mut self, now_tick: u32) {
        let hz = self.hz;
        let recent =
            |tick: &u32| now_tick.wrapping_sub(*tick).cast_signed() < (10 * hz).cast_signed();
        self.snooped.changed_tick.retain(|_, tick| recent(tick));
    }
}
