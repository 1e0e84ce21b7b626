// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ports are judged, and get their programs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use freeway_api::PathChoice;
use freeway_cmm::{Fitness, Framing, Port as ManagedPort, Served, Session, Tag, Tags};
use freeway_kernel::model::{Link, LinkDetail, Qdisc};
use freeway_kernel::netdev;

use super::super::Engine;
use super::super::configured::{forwards, unfit, wants_tc, without_xdp};
use super::super::poll::Obstacles;
use super::super::qdiscs::{CLASSIFIERS, qdiscs};
use super::attach::{attach_tc, attach_xdp};
use super::*;
use crate::DaemonError;
use crate::kinds::{self, Bonded};

impl Engine {
    /// Judges every port anew, attaches, and tells the manager.
    pub(in crate::engine) fn update_ports(&mut self) -> Result<(), DaemonError> {
        self.update_ports_within(ATTACH_TURN)
    }

    /// The same; ports that are new when the time is over wait for [`Engine::attach_waiting`].
    pub(in crate::engine) fn update_ports_within(
        &mut self,
        time: Duration,
    ) -> Result<(), DaemonError> {
        self.ports.attach_until = Some(Instant::now() + time);
        self.ports.waiting.clear();
        // taking programs off waits for the kernel
        self.withdraw(&self.moved())?;
        let now_tick = self.now_tick()?;
        let mut ops = Vec::new();
        let mut links: Vec<Link> = self.business().cloned().collect();
        let mut gone: BTreeSet<u32> = self.ports.by_index.keys().copied().collect();
        for link in &links {
            gone.remove(&link.ifindex);
        }
        // a VLAN or session is as fit for XDP as the device below
        links.sort_by_cached_key(|link| (self.carriers(link), link.ifindex));
        self.withdraw_from_bonds(now_tick, &mut ops);
        for ifindex in &gone {
            self.forget_bridged(*ifindex, now_tick, &mut ops);
            self.manager.remove_port(*ifindex, now_tick, &mut ops);
        }
        // no flow or next hop may name a slot that leads elsewhere
        self.execute(std::mem::take(&mut ops))?;
        if !gone.is_empty() {
            self.set_exits(&gone);
        }
        for ifindex in gone {
            let Some(mut port) = self.ports.by_index.remove(&ifindex) else {
                continue;
            };
            self.leave(ifindex, &mut port);
            if !netdev::exists(ifindex) {
                tracing::info!(port = port.name, "the port is gone");
            }
            if let Some(slot) = port.slot {
                let _ = self.datapath.clear_port(slot, ifindex);
                self.ports.slots.release(slot);
            }
        }
        self.want_schedules();
        let mut unknown = false;
        for link in &links {
            unknown |= self.polled.obstacles(link.ifindex).is_none();
            self.update_port(link, now_tick, &mut ops);
        }
        self.tell_snooping(now_tick, &mut ops);
        if unknown {
            self.ask_poller();
        }
        self.execute(ops)?;
        self.tell_framings();
        self.tell_schedules();
        self.update_limits()?;
        self.update_scrub()?;
        self.update_routes()?;
        self.place_taps();
        Ok(())
    }

    /// Attaches to some of the ports that wait.
    pub(in crate::engine) fn attach_waiting(&mut self) -> Result<(), DaemonError> {
        let until = Instant::now() + ATTACH_TURN;
        self.ports.attach_until = Some(until);
        let now_tick = self.now_tick()?;
        let mut ops = Vec::new();
        while Instant::now() < until
            && let Some(ifindex) = self.ports.waiting.pop_first()
        {
            if let Some(link) = self.mirror.links().get(&ifindex).cloned() {
                self.update_port(&link, now_tick, &mut ops);
            }
        }
        self.execute(ops)?;
        self.update_limits()?;
        self.update_scrub()?;
        self.update_routes()?;
        self.place_taps();
        // VLANs and bridges are as fit as the devices below, which may have come late
        let rests =
            |link: &Link| link.is_carried() || link.is_bond() || self.bridge_below(link).is_some();
        if self.ports.waiting.is_empty() && self.business().any(rests) {
            self.update_ports()?;
        }
        self.renounce_rest();
        Ok(())
    }

    /// How many devices carry a link, one above the other, at most what XDP could serve and one more.
    fn carriers(&self, link: &Link) -> usize {
        let links = self.mirror.links();
        let below = |link: &&Link| {
            if link.is_bridge() || link.is_bond() {
                return links.values().find(|l| l.master == Some(link.ifindex));
            }
            let lower = match link.is_vlan() {
                true => link.link,
                false => self.sessions.of(link).map(|(lower, _)| lower),
            };
            links.get(&lower?)
        };
        std::iter::successors(Some(link), below)
            .take(Tags::default().len() + 3)
            .count()
    }

    /// How XDP can serve a link at the device below, and what that is fit for; or why it cannot.
    fn carried(&self, link: &Link) -> Result<(Carried, Fitness), String> {
        let none = || kinds::without_xdp(link, false).unwrap_or_default();
        if !link.xdp.is_empty() {
            return Err("a foreign XDP program must see its packets".into());
        }
        let (lower, tag, session) = self.carrier(link).ok_or_else(none)?;
        let port = self.ports.by_index.get(&lower).ok_or_else(none)?;
        let mut carried = match &port.carried {
            Some(carried) => carried.clone(),
            None if self.cores.serve(lower)
                || port.by_parts.is_some()
                || (port.xdp_program.is_some() && port.within == Within::Nothing) =>
            {
                Carried {
                    base: lower,
                    below: Vec::new(),
                    framing: Framing::default(),
                    by_engine: self.cores.serve(lower),
                }
            }
            None => return Err(none()),
        };
        if carried.framing.session.is_some() {
            return Err(none());
        }
        let base = self.mirror.links().get(&carried.base);
        if port.by_parts.is_some()
            && base.is_some_and(|bond| kinds::bonded(bond) != Ok(Bonded::Whatever))
        {
            return Err(
                "the bond below chooses its part by what is in a packet, where XDP's have their tags: tc forwards"
                    .into(),
            );
        }
        if let Some(tag) = tag {
            let mut tags = carried.framing.tags.iter_mut();
            let free = tags.find(|tag| tag.protocol == 0);
            *free.ok_or("it has more tags than XDP takes off: tc forwards")? = tag;
        }
        carried.framing.session = session;
        carried.below.insert(0, lower);
        let room = base.map_or(0, |base| base.mtu + VLAN_HLEN);
        if link.mtu + u32::from(carried.framing.outer_len()) > room {
            return Err(format!(
                "its frames of {} bytes and what is around them are longer than XDP may send at the device below (at most {room}): tc forwards",
                link.mtu
            ));
        }
        Ok((carried, port.xdp))
    }

    /// The device below a VLAN or a PPPoE session, and what is around its packets there.
    pub(in crate::engine) fn carrier(
        &self,
        link: &Link,
    ) -> Option<(u32, Option<Tag>, Option<Session>)> {
        match link.detail {
            LinkDetail::Vlan {
                id,
                protocol,
                egress_map: false,
                ..
            } => {
                let lower = link.link.filter(|_| link.link_netnsid.is_none())?;
                Some((lower, Some(Tag { protocol, vlan: id }), None))
            }
            _ => {
                let (lower, session) = self.sessions.of(link)?;
                Some((lower, None, Some(session)))
            }
        }
    }

    /// Nothing of Freeway stays at a port.
    pub(in crate::engine) fn leave(&self, ifindex: u32, port: &mut Port) {
        self.uncarry(port);
        self.close(ifindex, port);
        port.by_parts = None;
        port.detach(ifindex);
    }

    /// What comes in so is no longer its.
    fn uncarry(&self, port: &mut Port) {
        let carried = port.carried.take();
        let cleared = carried.filter(|carried| !carried.by_engine);
        let cleared = cleared.map(|carried| self.datapath.clear_framing(&carried.record()));
        if let Some(Err(error)) = cleared {
            tracing::warn!("{error}");
        }
    }

    /// Has XDP serve a link at the device below, if that can be; returns what that is fit for.
    fn serve_below(&self, link: &Link, port: &mut Port, slot: u32) -> Result<Fitness, String> {
        let wanted = match wants_tc(link, &self.config) {
            Some(reason) => Err(reason),
            None => self.carried(link),
        };
        if port.carried.as_ref() != wanted.as_ref().ok().map(|(carried, _)| carried) {
            self.uncarry(port);
        }
        let (carried, fitness) = wanted?;
        if carried.by_engine {
            let (framing, framed) = carried.records(link.ifindex);
            port.carried = Some(carried);
            // until then its frames go up the TAP as they come
            let told = self.cores.frames(&framing, &framed);
            return Ok(if told { fitness } else { Fitness::default() });
        }
        // always, for the kernel empties a slot with its device
        let result = self.datapath.set_output(slot, carried.base);
        let result = result.and_then(|()| match port.carried {
            Some(_) => Ok(()),
            None => {
                let framed = carried.framing.framed(link.ifindex);
                self.datapath.set_framing(&carried.record(), &framed)
            }
        });
        if let Err(error) = result {
            self.uncarry(port);
            return Err(error.to_string());
        }
        port.carried = Some(carried);
        Ok(fitness)
    }

    /// The links that are Freeway's business.
    pub(in crate::engine) fn business(&self) -> impl Iterator<Item = &Link> {
        let links = self.mirror.links().values();
        links.filter(|l| (l.kind.is_some() || l.hw_type != ARPHRD_LOOPBACK) && self.concerns(l))
    }

    /// True if a port has lost redirected frames since it was judged.
    pub(in crate::engine) fn new_faults(&self) -> bool {
        let mut judged = self
            .ports
            .by_index
            .iter()
            .filter(|(_, p)| p.xdp_program.is_some() || p.by_parts.is_some());
        judged.any(|(index, port)| self.datapath.fault(*index).failed != port.redirects.lost)
    }

    /// Has redirects be tried again where the driver refused them and says by now that it takes them; true if there are
    /// any.
    pub(in crate::engine) fn retry_redirects(&mut self) -> bool {
        let mut any = false;
        for (index, port) in &mut self.ports.by_index {
            let (told, can_send) = self.polled.xdp_features(*index);
            any |= can_send && !told.is_empty() && port.redirects.retry();
        }
        any
    }

    pub(in crate::engine) fn concerns(&self, link: &Link) -> bool {
        let chosen = &self.config.daemon.interfaces;
        if link.name == "lo" {
            return false;
        }
        chosen.is_empty() || chosen.contains(&link.name)
    }

    /// True of a port of the engine's, or a VLAN or session at one.
    pub(in crate::engine) fn by_engine(&self, ifindex: u32, port: &Port) -> bool {
        let carried = port.carried.as_ref();
        self.cores.serve(ifindex) || carried.is_some_and(|carried| carried.by_engine)
    }

    fn update_port(&mut self, link: &Link, now_tick: u32, ops: &mut Vec<freeway_cmm::Op>) {
        let port = self.ports.by_index.remove(&link.ifindex);
        let mut port = port.unwrap_or_default();
        port.name.clone_from(&link.name);
        self.judge(link, &mut port);
        port.up = link.up && link.carrier;
        self.tell_bridged(link, &port, now_tick, ops);
        let by_xdp = port.xdp_program.is_some() && port.within == Within::Nothing;
        let managed = ManagedPort {
            engine: match self.by_engine(link.ifindex, &port) {
                true => Served::Whole,
                false => self.cores.served(link.ifindex, by_xdp),
            },
            classes: {
                let base = port.carried.as_ref().map_or(link.ifindex, |c| c.base);
                let schedule = self.cores.schedule(base);
                schedule.map(|schedule| Arc::clone(&schedule.classes))
            },
            ..managed(link, &port)
        };
        self.manager.set_port(managed, now_tick, ops);
        self.ports.by_index.insert(link.ifindex, port);
    }

    /// Ports that have become parts of another device, or are none any more.
    fn moved(&self) -> BTreeSet<u32> {
        let links = self.mirror.links();
        let moved = |(ifindex, port): (&u32, &Port)| {
            let link = links.get(ifindex)?;
            (Within::of(link) != port.within).then_some(*ifindex)
        };
        self.ports.by_index.iter().filter_map(moved).collect()
    }

    /// XDP sends nothing more through bonds whose parts change, until they are judged.
    fn withdraw_from_bonds(&mut self, now_tick: u32, ops: &mut Vec<freeway_cmm::Op>) {
        let bonds = self.bonds_that_change();
        let concerned = self.ports.by_index.iter().filter(|(ifindex, port)| {
            let carried = port.carried.as_ref();
            bonds.contains(ifindex) || carried.is_some_and(|c| bonds.contains(&c.base))
        });
        let links = self.mirror.links();
        let without = concerned.filter_map(|(ifindex, port)| {
            let xdp = Fitness::default();
            Some(ManagedPort {
                xdp,
                ..managed(links.get(ifindex)?, port)
            })
        });
        for port in without.collect::<Vec<_>>() {
            self.manager.set_port(port, now_tick, ops);
        }
    }

    fn judge(&mut self, link: &Link, port: &mut Port) {
        port.reasons.clear();
        port.no_room = false;
        port.xdp = Fitness::default();
        port.tc = Fitness::default();
        port.bridged = None;
        port.stations_of = None;
        port.part = None;
        let within = Within::of(link);
        if std::mem::replace(&mut port.within, within) != within {
            self.leave(link.ifindex, port);
            port.xdp_failed = None;
        }
        match within {
            Within::Nothing => {}
            Within::Bridge => return self.judge_bridged(link, port),
            Within::Bond => return self.judge_part(link, port),
        }
        let explicit = self.config.daemon.interfaces.contains(&link.name);
        if let Some(reason) = unfit(link, self.mirror.links(), &self.config) {
            port.reasons.push(reason);
        } else if !explicit && !forwards(link, &self.mirror) {
            port.reasons
                .push("it does not forward (net.ipv4.ip_forward, net.ipv6.conf forwarding)".into());
        }
        if !port.reasons.is_empty() {
            self.leave(link.ifindex, port);
            return;
        }
        let Some(slot) = self.take_slot(link, port) else {
            return;
        };
        let in_time = self.ports.in_time();
        let had_clsact = self.had_clsact(link.ifindex);
        if !port.forget_lost(link) {
            self.leave(link.ifindex, port);
            return;
        }
        let bridge = self.bridge_below(link);
        let below = match (bridge, wants_tc(link, &self.config)) {
            (_, None) if self.cores.serve(link.ifindex) => Ok(Fitness::FULL),
            (Some(bridge), None) => self.by_station(link, bridge).inspect(|_| {
                port.stations_of = Some(bridge);
            }),
            _ if link.is_carried() => self.serve_below(link, port, slot),
            (_, None) if link.is_bond() => self.by_parts(link, port, slot),
            _ => attach_xdp(
                &self.datapath,
                link,
                port,
                Some(slot),
                without_xdp(link, &self.config),
            )
            .map(|()| Fitness::FULL),
        };
        let below = below.unwrap_or_else(|reason| {
            port.by_parts = None;
            port.reasons.push(reason);
            Fitness::default()
        });
        let other_hooks = !port.tc_programs.is_empty() && port.alone == port.has_xdp();
        if other_hooks && !in_time {
            // those that are there do, but for counters and what GRO hides
            self.ports.waiting.insert(link.ifindex);
        } else if let Err(reason) = attach_tc(&self.datapath, link, port, had_clsact) {
            port.reasons.push(reason);
            return;
        }
        let obstacles = self.obstacles(link);
        if !obstacles.all.is_empty() {
            port.reasons.extend(obstacles.all);
            return;
        }
        let options = self.config.port.get(&link.name);
        let tc = options.is_none_or(|options| options.path != PathChoice::Xdp);
        let up = link.up && link.carrier;
        // what comes in for a VLAN that is down is dropped, but not at the device below; nor does an engine's own device
        // know of a TAP that is down
        let takes = !(port.carried.is_some() || self.cores.serve(link.ifindex)) || link.up;
        port.xdp.input = below.input && takes && obstacles.xdp.is_empty();
        port.tc.input = tc && obstacles.tc.is_empty();
        port.tc.output = tc && up && self.judge_classifiers(link, port);
        let sends = self.judge_xdp_output(link, port, tc);
        port.xdp.output = below.output && sends && up;
        port.reasons.extend(obstacles.xdp);
        if tc {
            port.reasons.extend(obstacles.tc);
        }
    }

    /// The port's place in the device map; `None`: its programs cannot be attached now.
    pub(in crate::engine) fn take_slot(&mut self, link: &Link, port: &mut Port) -> Option<u32> {
        port.slot = port.slot.or_else(|| self.ports.slots.take());
        if port.slot.is_none() {
            port.no_room = true;
            port.reasons.push(format!(
                "{} ports take part, which is the most: leave out others (path = \"kernel\" in [port.NAME]), \
                 or name those that matter (-i)",
                freeway_abi::FW_PORTS_MAX
            ));
        } else if port.tc_programs.is_empty() && self.ports.put_off(link.ifindex) {
            port.reasons
                .push("it is new, and its programs are about to be attached".into());
            return None;
        }
        port.slot
    }

    /// True if what is sent through tc is classified by the qdiscs on its way as the kernel's own is.
    fn judge_classifiers(&self, link: &Link, port: &mut Port) -> bool {
        for device in self.chain(link) {
            let filters = self.mirror.filters().get(&device.ifindex);
            let of_qdiscs = filters.into_iter().flatten().filter(|f| !f.is_hooked());
            let other = of_qdiscs
                .map(|f| f.kind.as_str())
                .find(|kind| !CLASSIFIERS.contains(kind));
            if let Some(kind) = other {
                port.reasons.push(format!(
                    "a {kind} filter of a qdisc of {} may go by what only the kernel's own packets have",
                    device.name
                ));
                return false;
            }
        }
        true
    }

    /// A link and those below it that frames sent there may leave through.
    pub(in crate::engine) fn chain<'a>(&'a self, link: &'a Link) -> Vec<&'a Link> {
        let links = self.mirror.links();
        let mut chain = vec![link];
        let mut next = 0;
        while let Some(link) = chain.get(next).copied() {
            next += 1;
            let below: Vec<&Link> = match link.kind.as_deref() {
                Some("vlan" | "macvlan") if link.link_netnsid.is_none() => {
                    let lower = link.link.and_then(|index| links.get(&index));
                    lower.into_iter().collect()
                }
                Some("ppp") => {
                    let device = self.sessions.of(link);
                    let lower = device.and_then(|(index, _)| links.get(&index));
                    lower.into_iter().collect()
                }
                Some("bridge" | "bond") => {
                    let members = links.values().filter(|l| l.master == Some(link.ifindex));
                    members.collect()
                }
                _ => continue,
            };
            for link in below {
                if !chain.iter().any(|known| known.ifindex == link.ifindex) {
                    chain.push(link);
                }
            }
        }
        chain
    }

    /// True if XDP may send there; `tc`: else tc may.
    pub(in crate::engine) fn judge_xdp_output(
        &self,
        link: &Link,
        port: &mut Port,
        tc: bool,
    ) -> bool {
        let by_engine = self.by_engine(link.ifindex, port);
        if !port.has_xdp() && port.stations_of.is_none() && !by_engine {
            return false;
        }
        let shaper = self.shaper(link);
        let scheduled = match self.cores.serve(link.ifindex) {
            true => self.schedules(link),
            false => Err(String::new()),
        };
        if let Some(qdisc) = shaper.filter(|_| scheduled.is_err()) {
            let why = scheduled.as_ref().err().filter(|why| !why.is_empty());
            let why = why.map_or_else(String::new, |why| format!(" ({why})"));
            port.reasons.push(format!(
                "its qdisc {} must see what leaves here{why}: that goes through {}",
                qdisc.kind,
                if tc { "tc" } else { "the kernel" }
            ));
        }
        if by_engine && self.cores.serve(link.ifindex) {
            if let Err(why) = &scheduled
                && shaper.is_none()
            {
                port.reasons.push(format!("its schedule: {why}"));
            }
            return scheduled.is_ok();
        }
        if by_engine {
            return shaper.is_none();
        }
        let full = self.overflows(link, port);
        let has_room = full.is_none();
        port.reasons.extend(full);
        if port.carried.is_some() || port.stations_of.is_some() {
            return shaper.is_none() && has_room;
        }
        let (features, can_send) = self.polled.xdp_features(link.ifindex);
        port.xdp_features = features;
        if port.redirects.look(link, can_send) {
            // what was lost before is forgotten
            let _ = port
                .slot
                .map(|slot| self.datapath.set_port(slot, link.ifindex));
        }
        port.redirects.count(self.datapath.fault(link.ifindex));
        let refused = port.redirects.refused(link);
        let takes = refused.is_empty();
        port.reasons.extend(refused);
        shaper.is_none() && takes && has_room
    }

    /// A qdisc of a port that does not pass packets on as they come.
    pub(in crate::engine) fn shaper(&self, link: &Link) -> Option<&Qdisc> {
        let shaping =
            |q: &&Qdisc| q.parent != 0xffff_fff1 && !kinds::UNSHAPED.contains(&q.kind.as_str());
        self.qdiscs(link.ifindex).find(shaping)
    }

    /// True if a port has a clsact qdisc that Freeway did not make.
    pub(in crate::engine) fn had_clsact(&mut self, ifindex: u32) -> bool {
        let there = self.qdiscs(ifindex).any(|q| q.kind == "clsact");
        !self.ports.take_clsact(ifindex) && there
    }

    pub(in crate::engine) fn qdiscs(&self, ifindex: u32) -> impl Iterator<Item = &Qdisc> {
        qdiscs(&self.mirror, ifindex)
    }

    /// What keeps the port from a path.
    pub(in crate::engine) fn obstacles(&self, link: &Link) -> Obstacles {
        let mut obstacles = match self.polled.obstacles(link.ifindex) {
            Some(obstacles) => obstacles.clone(),
            None => Obstacles {
                all: vec!["it is new, and what hangs on it is being looked at".into()],
                ..Obstacles::default()
            },
        };
        obstacles.all.extend(self.kept_for_vrf(link));
        let foreign = |f: &&freeway_kernel::model::Filter| {
            !f.prog_id
                .is_some_and(|id| self.datapath.prog_ids().contains(&id))
                && f.name.as_deref().is_none_or(|n| !n.starts_with("freeway"))
        };
        let filters = self.mirror.filters().get(&link.ifindex);
        let hooked = filters.into_iter().flatten().filter(|f| f.is_hooked());
        for filter in hooked.filter(foreign) {
            let name = filter.name.as_deref().unwrap_or("");
            obstacles.all.push(format!(
                "a foreign tc filter ({} {name}) must see its packets",
                filter.kind
            ));
        }
        if self.mirror.xfrm_offload_ports().contains(&link.ifindex) {
            let reason = "IPsec is offloaded to it: frames for it are not what leaves";
            obstacles.all.push(reason.into());
        }
        obstacles
    }
}

/// A port in the manager's terms.
pub(in crate::engine) fn managed(link: &Link, port: &Port) -> ManagedPort {
    let carried = port.carried.as_ref();
    ManagedPort {
        ifindex: link.ifindex,
        slot: port.slot.unwrap_or(0),
        device: carried.map_or(link.ifindex, |c| c.base),
        mtu: link.mtu,
        mac: link.mac.map(|m| m.0),
        framing: carried.map_or_else(Framing::default, |c| c.framing),
        xdp: port.xdp,
        by_station: port.stations_of.is_some(),
        tc: port.tc,
        engine: Served::No,
        classes: None,
        vrf: link.vrf().unwrap_or(0),
    }
}
