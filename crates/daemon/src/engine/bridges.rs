// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ports of bridges: what XDP bridges, and what keeps it from that.

use std::collections::BTreeSet;

use freeway_abi::{FW_BRIDGES_GROUPS, FW_PATH_COPIES, fw_nexthop, fw_path};
use freeway_api::{BridgedFrames, RefusalCount};
use freeway_cmm::{
    BridgeOp, BridgePort, BridgeRefusal, BridgedLeg, BridgedPath, Fitness, Op, PathView,
    RoutedPort, Stations,
};
use freeway_datapath::Datapath;
use freeway_kernel::model::{Event, Link, PortDetail};

use super::Engine;
use super::configured::{forwards, wants_elsewhere, without_xdp};
use super::membership::is_member;
use super::poll::wanted_by;
use super::ports::Port;
use super::ports::attach::{attach_tc, attach_xdp};
use crate::{DaemonError, kinds};

/// The paths that the data plane has.
struct View<'a>(&'a Datapath);

impl PathView for View<'_> {
    fn path(&self, stations: &Stations) -> Option<fw_path> {
        self.0.path(&stations.record())
    }
}

impl Engine {
    /// What keeps XDP from bridging at a port until the administrator does something about it: it has no programs then.
    fn never_bridged(&self, link: &Link) -> Option<String> {
        if !self.config.policy.bridging {
            return Some("the configuration leaves bridging to the kernel".into());
        }
        let configured = wants_elsewhere(link, &self.config);
        if configured.is_some() {
            return configured;
        }
        if link.is_bond() {
            return Some("XDP does not bridge at a bond".into());
        }
        let reason = without_xdp(link, &self.config);
        if reason.is_some() {
            return reason;
        }
        let links = self.mirror.links().values();
        let mut others = links.filter(|other| {
            other.ifindex != link.ifindex
                && other.master == link.master
                && without_xdp(other, &self.config).is_none()
        });
        let hairpin = matches!(link.port, PortDetail::Bridge { hairpin: true, .. });
        let bridge = link
            .master
            .and_then(|index| self.mirror.links().get(&index));
        let routed = bridge.is_some_and(|bridge| forwards(bridge, &self.mirror));
        let alone = others.next().is_none() && !hairpin && !routed;
        alone.then(|| "no other port of the bridge has XDP".into())
    }

    /// What keeps it from that for now: the programs stay, for drivers may reset the link when those come and go.
    fn unbridged(&self, link: &Link, bridge: &Link) -> Option<String> {
        let reason = kinds::unbridged(link, bridge)
            .or_else(|| kinds::bridge_netfilter(bridge, &self.polled.sysctls));
        if let Some(reason) = reason {
            return Some(reason.into());
        }
        let mut above = self
            .mirror
            .links()
            .values()
            .filter(|upper| upper.link == Some(bridge.ifindex) && upper.link_netnsid.is_none());
        let takes = above.find(|upper| match upper.kind.as_deref() {
            Some("vlan") => upper.mac != bridge.mac,
            Some("macvlan" | "macvtap" | "ipvlan" | "ipvtap") => true,
            _ => false,
        });
        if let Some(upper) = takes {
            return Some(format!("{} takes frames from the bridge", upper.name));
        }
        if self.polled.promiscuous.contains(&bridge.ifindex) {
            return Some("the bridge itself takes all frames (promiscuous)".into());
        }
        if let Some(hook) = self.polled.bridge_hooks.first() {
            return Some(format!("netfilter hook {hook} must see its frames"));
        }
        if let Some(chain) = self.ruleset.frame_chain(&link.name) {
            return Some(format!("{chain} must see its frames"));
        }
        let taker = |port: Option<u32>| port.is_none_or(|index| index == link.ifindex);
        self.polled.taker(taker).map(wanted_by)
    }

    /// Judges a port of a bridge for what is bridged; what is routed the bridge takes part with.
    pub(super) fn judge_bridged(&mut self, link: &Link, port: &mut Port) {
        port.reasons
            .push("a port of a bridge: the bridge itself takes part with what is routed".into());
        let links = self.mirror.links();
        let bridge = link.master.and_then(|index| links.get(&index)).cloned();
        if let Some(reason) = self.never_bridged(link) {
            port.reasons.push(reason);
            self.leave(link.ifindex, port);
            return;
        }
        let Some(slot) = self.take_slot(link, port) else {
            return;
        };
        let had_clsact = self.had_clsact(link.ifindex);
        if !port.forget_lost(link) {
            self.leave(link.ifindex, port);
            return;
        }
        let attached = attach_xdp(&self.datapath, link, port, Some(slot), None)
            .and_then(|()| attach_tc(&self.datapath, link, port, had_clsact));
        if let Err(reason) = attached {
            port.reasons.push(reason);
            port.detach(link.ifindex);
            return;
        }
        let obstacles = self.obstacles(link);
        let Some(bridge) = bridge else { return };
        let kept = obstacles.all.into_iter().chain(obstacles.xdp);
        let before = port.reasons.len();
        port.reasons.extend(self.unbridged(link, &bridge));
        port.reasons.extend(kept);
        if port.reasons.len() > before {
            return;
        }
        let up = link.up && link.carrier && bridge.up;
        let output = self.judge_xdp_output(link, port, false) && up;
        let fit = Fitness { input: up, output };
        port.bridged = Some((bridge.ifindex, fit));
    }

    /// The bridge at whose ports XDP could serve a link, which is that bridge or a VLAN of it.
    pub(super) fn bridge_below(&self, link: &Link) -> Option<u32> {
        if link.is_bridge() {
            return Some(link.ifindex);
        }
        let (lower, tag, _) = self.carrier(link)?;
        let lower = self.mirror.links().get(&lower)?;
        (tag.is_some() && lower.is_bridge()).then_some(lower.ifindex)
    }

    /// How XDP can serve a bridge, or a VLAN of it, at the bridge's ports; or why it cannot.
    pub(super) fn by_station(&self, link: &Link, bridge: u32) -> Result<Fitness, String> {
        if !link.xdp.is_empty() {
            return Err("a foreign XDP program must see its packets".into());
        }
        if link.ifindex != bridge {
            return self.above_bridge(bridge);
        }
        let mut fit = Fitness::default();
        let bridged = self.ports.by_index.values().filter_map(|port| port.bridged);
        for (_, at) in bridged.filter(|(of, _)| *of == bridge) {
            fit.input |= at.input;
            fit.output |= at.output;
        }
        fit.any()
            .then_some(fit)
            .ok_or_else(|| "no port of the bridge has XDP for what is bridged: tc forwards".into())
    }

    /// Of a VLAN of a bridge, whose frames the bridge's own interface no longer sees: it is as fit as that.
    fn above_bridge(&self, bridge: u32) -> Result<Fitness, String> {
        let port = self.ports.by_index.get(&bridge);
        let fit = port.filter(|port| port.stations_of.is_some() && port.xdp.any());
        let fit = fit.ok_or("XDP does not serve the bridge below: tc forwards")?;
        match self.polled.taker(|port| port == Some(bridge)) {
            Some(inode) => Err(format!(
                "a packet socket at the bridge below (inode {inode}) may want its frames: tc forwards"
            )),
            None => Ok(fit.xdp),
        }
    }

    /// Tells which of the bridge's ports these are.
    pub(super) fn tell_bridged(
        &mut self,
        link: &Link,
        port: &Port,
        now_tick: u32,
        flow_ops: &mut Vec<Op>,
    ) {
        let mut ops = Vec::new();
        match port.stations_of.filter(|_| port.xdp.any()) {
            Some(bridge) => self.bridges.set_routed(
                RoutedPort {
                    ifindex: link.ifindex,
                    bridge,
                    mtu: link.mtu,
                    fit: port.xdp,
                },
                &mut ops,
            ),
            None => self.bridges.remove_routed(link.ifindex, &mut ops),
        }
        match port.bridged {
            Some((bridge, fit)) => self.bridges.set_port(
                BridgePort {
                    ifindex: link.ifindex,
                    bridge,
                    slot: port.slot.unwrap_or(0),
                    mtu: link.mtu,
                    fit,
                },
                &mut ops,
            ),
            None => self.bridges.remove_port(link.ifindex, &mut ops),
        }
        self.bridge(ops, now_tick, flow_ops);
    }

    /// A port is gone.
    pub(super) fn forget_bridged(&mut self, ifindex: u32, now_tick: u32, flow_ops: &mut Vec<Op>) {
        let mut ops = Vec::new();
        self.bridges.remove_routed(ifindex, &mut ops);
        self.bridges.remove_port(ifindex, &mut ops);
        self.bridge(ops, now_tick, flow_ops);
    }

    /// Carries out operations, in order; what flows make of them is added to theirs.
    pub(super) fn bridge(&mut self, ops: Vec<BridgeOp>, now_tick: u32, flow_ops: &mut Vec<Op>) {
        let mut failed = Vec::new();
        for op in ops {
            let done = match &op {
                BridgeOp::SetPath { stations, path } => {
                    self.datapath.set_path(&stations.record(), path)
                }
                BridgeOp::SetCopies {
                    stations,
                    ethertype,
                    path,
                    legs,
                } => {
                    let written = self.set_copies(stations, *ethertype, path, legs, now_tick);
                    if !written {
                        failed.push(*stations);
                    }
                    Ok(())
                }
                BridgeOp::RemovePath { stations, count } => {
                    if stations.dst[0] & 1 != 0 {
                        self.leave_list(stations, now_tick);
                    }
                    let removed = self.datapath.remove_path(&stations.record());
                    // the place may be another's next
                    let counted = self.datapath.path_counts.get(*count);
                    self.counts.bridged.packets += counted.packets;
                    self.counts.bridged.bytes += counted.bytes;
                    removed
                }
                BridgeOp::SetOwn { mac, own } => self.datapath.set_own_mac(*mac, *own),
                BridgeOp::SetRouted { port, routed } => {
                    self.datapath.set_routed_port(*port, *routed)
                }
                BridgeOp::Entry { port, mac, known } => {
                    self.manager.set_station_entry((*port, *mac), *known);
                    Ok(())
                }
                BridgeOp::Exit { port, mac, exit } => {
                    self.manager
                        .set_station_exit((*port, *mac), *exit, now_tick, flow_ops);
                    Ok(())
                }
                BridgeOp::ForgetOffer { set } => {
                    self.datapath.offers.forget_set(*set);
                    Ok(())
                }
            };
            if let Err(error) = done {
                tracing::warn!("a path of bridged frames: {error}");
            }
        }
        if !failed.is_empty() {
            let mut ops = Vec::new();
            for stations in failed {
                self.bridges.copies_failed(&stations, &mut ops);
            }
            // they are removals
            self.bridge(ops, now_tick, flow_ops);
        }
        let wanted = self.bridges.wanted();
        if wanted & FW_BRIDGES_GROUPS != 0 {
            self.datapath.prepare_copies();
        }
        self.datapath.control.set_bridges(wanted);
    }

    /// Has frames to a group copied; the list is written ahead of the path that leads to it.
    fn set_copies(
        &mut self,
        stations: &Stations,
        ethertype: u16,
        path: &fw_path,
        legs: &[BridgedLeg],
        now_tick: u32,
    ) -> bool {
        let list = self.manager.take_bridged_list(stations, ethertype, legs);
        let Some(list) = list else { return false };
        // the place may still have another's
        self.datapath.nexthops.invalidate(list.index);
        let mut path = *path;
        path.port = list.index;
        let written = self.datapath.set_olist(list.number, &list.legs);
        let written = written.and_then(|valid| {
            let nexthop = fw_nexthop {
                valid,
                ..list.nexthop
            };
            self.datapath.nexthops.set(list.index, nexthop);
            self.datapath.set_path(&stations.record(), &path)
        });
        if let Err(error) = &written {
            tracing::debug!("a group stays with the bridge: {error}");
            self.datapath.nexthops.invalidate(list.index);
            self.manager.leave_bridged_list(list.index, now_tick);
        }
        written.is_ok()
    }

    /// The list of a path that is about to be removed is used no more.
    fn leave_list(&mut self, stations: &Stations, now_tick: u32) {
        let path = self.datapath.path(&stations.record());
        if let Some(path) = path.filter(|path| path.devmap_slot == FW_PATH_COPIES) {
            self.datapath.nexthops.invalidate(path.port);
            self.manager.leave_bridged_list(path.port, now_tick);
        }
    }

    /// Says which bridges know who listens to groups, and show what they hand up themselves.
    pub(super) fn tell_snooping(&mut self, now_tick: u32, flow_ops: &mut Vec<Op>) {
        let links = self.mirror.links().values();
        let snooping: BTreeSet<u32> = links
            .filter(|link| self.snoops(link))
            .map(|link| link.ifindex)
            .collect();
        let mut ops = Vec::new();
        for bridge in self.bridges.snooping() {
            if !snooping.contains(&bridge) {
                self.bridges.set_snooping(bridge, false, &mut ops);
            }
        }
        for bridge in snooping {
            self.bridges.set_snooping(bridge, true, &mut ops);
        }
        self.bridge(ops, now_tick, flow_ops);
    }

    fn snoops(&self, link: &Link) -> bool {
        let watched = self.ports.by_index.get(&link.ifindex);
        let watched = watched.is_some_and(Port::sees_all_in_tc);
        if !self.config.policy.multicast || !watched || !kinds::snoops(link) {
            return false;
        }
        // where it routes multicast it may be given all of it
        let routes = |index: u32| {
            let mut netconf = self.mirror.netconf().values();
            netconf.any(|of| {
                i64::from(of.ifindex) == i64::from(index) && of.mc_forwarding == Some(true)
            })
        };
        let mut upper = self
            .mirror
            .links()
            .values()
            .filter(|upper| upper.link == Some(link.ifindex) && upper.link_netnsid.is_none());
        // one without programs does not show its copies
        let mut members =
            self.mirror.links().values().filter(|member| {
                member.master == Some(link.ifindex) && is_member(member) && member.up
            });
        let shown = members.all(|member| {
            let port = self.ports.by_index.get(&member.ifindex);
            port.is_some_and(Port::has_tc)
        });
        shown && !routes(link.ifindex) && !upper.any(|upper| routes(upper.ifindex))
    }

    /// What stations send is learned anew where it is better off.
    pub(super) fn move_stations(&mut self, now_tick: u32, ops: &mut Vec<Op>) {
        let flows = &self.datapath.flows;
        let sender = |index| flows.sender(index);
        self.manager.move_stations(sender, now_tick, ops);
    }

    /// The same at once, where it takes no time; flows that were just admitted are in the table.
    pub(super) fn follow_stations(&mut self) -> Result<(), DaemonError> {
        if !self.manager.few_move() {
            return Ok(());
        }
        let mut ops = Vec::new();
        self.move_stations(self.now_tick()?, &mut ops);
        self.execute(ops)
    }

    /// The kernel's bridges as they are now.
    pub(super) fn read_stations(&mut self, now_tick: u32) {
        let mut ops = Vec::new();
        for fdb in self.mirror.fdb().values() {
            self.bridges.learn_station(fdb, &mut ops);
        }
        for (key, excluded) in self.mirror.mdb() {
            self.bridges.learn_listener(*key, *excluded);
        }
        for port in self.mirror.router_ports() {
            self.bridges.learn_router_port(*port);
        }
        // nothing was learned yet
        self.bridge(ops, now_tick, &mut Vec::new());
    }

    /// Stations move; true if all that was learned of a bridge is in doubt.
    pub(super) fn bridge_event(
        &mut self,
        event: &Event,
        now_tick: u32,
        flow_ops: &mut Vec<Op>,
    ) -> bool {
        let mut ops = Vec::new();
        self.bridges.kernel_event(event, now_tick, &mut ops);
        let doubted = self.doubted_bridge(event);
        if let Some(bridge) = doubted {
            self.bridges.doubt(bridge, &mut ops);
        }
        if !ops.is_empty() {
            self.bridge(ops, now_tick, flow_ops);
        }
        doubted.is_some()
    }

    /// The bridge of which an event leaves nothing sure.
    fn doubted_bridge(&self, event: &Event) -> Option<u32> {
        let of_port = |index: u32| {
            let port = self.ports.by_index.get(&index)?;
            port.bridged.map(|(bridge, _)| bridge)
        };
        match event {
            Event::LinkChanged(link) if self.bridges.is_served(link.ifindex) => Some(link.ifindex),
            Event::LinkChanged(link) => {
                let lower = link.link.filter(|_| link.link_netnsid.is_none());
                // a port that bridges nothing may have begun to
                let master = || link.master.filter(|of| self.bridges.is_served(*of));
                of_port(link.ifindex)
                    .or_else(|| of_port(lower?))
                    .or_else(master)
            }
            Event::LinkGone { ifindex } => of_port(*ifindex),
            _ => None,
        }
    }

    /// Paths that nobody uses leave.
    pub(super) fn age_paths(&mut self, now_tick: u32, flow_ops: &mut Vec<Op>) {
        let mut ops = Vec::new();
        self.bridges.tick(now_tick, &View(&self.datapath), &mut ops);
        if !ops.is_empty() {
            self.bridge(ops, now_tick, flow_ops);
        }
    }

    /// What is bridged, in numbers.
    pub(super) fn bridged_frames(&self) -> BridgedFrames {
        let counted = |path: &BridgedPath| self.datapath.path_counts.get(path.count);
        let mut fast = self.counts.bridged;
        for count in self.bridges.paths().map(counted) {
            fast.packets += count.packets;
            fast.bytes += count.bytes;
        }
        let refused = self.bridges.refused();
        BridgedFrames {
            paths: self.bridges.paths().count() as u64,
            learned: self.bridges.learned(),
            packets: fast.packets,
            bytes: fast.bytes,
            refused: BridgeRefusal::ALL
                .iter()
                .map(|refusal| RefusalCount {
                    name: refusal.name().into(),
                    words: refusal.words().into(),
                    count: refused.get(refusal).copied().unwrap_or(0),
                })
                .collect(),
        }
    }
}
