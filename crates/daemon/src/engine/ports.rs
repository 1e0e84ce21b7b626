// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which ports take part, and why the others do not.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use freeway_abi::fw_framing;
use freeway_api::PathChoice;
use freeway_cmm::{Exclusion, Fitness, Framing, Policy, Port as ManagedPort, Session, Tag, Tags};
use freeway_datapath::{Attachment, Datapath, DatapathError, Hook};
use freeway_kernel::mirror::Mirror;
use freeway_kernel::model::{Family, Framing as LinkFraming, Link, LinkDetail, Prefix, Qdisc};
use freeway_kernel::{clsact, netdev};

use super::Engine;
use super::bonds::is_part;
use super::bridges::is_member;
use super::poll::Obstacles;
use super::redirects::Redirects;
use super::rings::Ring;
use crate::DaemonError;
use crate::config::Config;
use crate::kinds::{self, Bonded};

/// Qdiscs that pass packets on in order and do not shape them.
const UNSHAPED: [&str; 8] = [
    "noqueue",
    "mq",
    "pfifo_fast",
    "pfifo",
    "bfifo",
    "fq",
    "fq_codel",
    "clsact",
];
/// Classifiers that go by the packet, its mark and its priority.
const CLASSIFIERS: [&str; 5] = ["u32", "fw", "flower", "matchall", "bpf"];
/// Hardware type of the loopback (linux/if_arp.h).
const ARPHRD_LOOPBACK: u16 = 772;
/// Octets by which a redirected frame may exceed the MTU beside its Ethernet header (`xdp_ok_fwd_dev()`).
const VLAN_HLEN: u32 = 4;

/// So long a turn attaches programs to new ports: for each program the kernel waits for an RCU grace period
/// (`tcx_entry_sync()` in include/net/tcx.h), and events must not wait for hundreds of them.
const ATTACH_TURN: Duration = Duration::from_millis(100);

/// A VLAN or PPPoE session whose frames XDP takes and sends, with all that is around its packets, at the device below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Carried {
    /// The device with XDP.
    pub base: u32,
    /// All devices below, that one last.
    below: Vec<u32>,
    pub framing: Framing,
}

impl Carried {
    fn record(&self) -> fw_framing {
        self.framing.record(self.base)
    }

    /// Each device below, and the tags of its frames: the nearest one's have the fewest.
    pub(super) fn seen_below(&self) -> impl Iterator<Item = (u32, &[Tag])> {
        let tags = self.framing.tags.iter().filter(|tag| tag.protocol != 0);
        let tags = &self.framing.tags[..tags.count()];
        let devices = self.below.iter().rev().enumerate();
        devices.map(|(above, port)| (*port, tags.get(above..).unwrap_or_default()))
    }
}

/// What a link is a piece of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Within {
    #[default]
    Nothing,
    Bridge,
    Bond,
}

impl Within {
    fn of(link: &Link) -> Self {
        match (is_member(link), is_part(link)) {
            (true, _) => Within::Bridge,
            (_, true) => Within::Bond,
            _ => Within::Nothing,
        }
    }
}

/// A port as it was last judged.
#[derive(Debug, Default)]
pub(super) struct Port {
    pub name: String,
    /// In the device map, from when it first was fit for a program until it goes.
    pub slot: Option<u32>,
    pub xdp: Fitness,
    pub tc: Fitness,
    pub up: bool,
    pub reasons: Vec<String>,
    pub redirects: Redirects,
    pub ring: Ring,
    pub xdp_features: Vec<String>,
    /// All slots were taken.
    no_room: bool,
    xdp_program: Option<Attachment>,
    /// XDP serves it at the device below.
    pub carried: Option<Carried>,
    /// Its programs are those of such a piece.
    within: Within,
    /// What XDP could do here for the bond that it is a part of.
    pub part: Option<Fitness>,
    /// The bond whose frames XDP takes for what comes in here.
    pub enters: Option<u32>,
    /// It is a bond, and XDP serves it at its parts: its carrier, and of each part whether what comes in there is its.
    pub by_parts: Option<(bool, Vec<(u32, bool)>)>,
    /// Its bridge, and what XDP may do with frames that are bridged.
    pub bridged: Option<(u32, Fitness)>,
    /// XDP serves it at the ports of this bridge, which is itself or below, for stations that are known there.
    pub stations_of: Option<u32>,
    tc_programs: Vec<Attachment>,
    /// The tc programs know that there is none of XDP.
    alone: bool,
    /// Its clsact qdisc was made for the filters in `tc_programs`.
    clsact: bool,
    /// An attempt to attach failed; not tried again before the link changes.
    failed: Option<(u32, String)>,
    /// Likewise of XDP.
    xdp_failed: Option<(u32, String)>,
}

impl Port {
    /// Flows through it may be fast.
    pub(super) fn is_fit(&self) -> bool {
        self.xdp.any() || self.tc.any()
    }

    /// Programs that somebody else has taken off.
    fn lost_programs(&self) -> usize {
        let programs = self.tc_programs.iter().chain(&self.xdp_program);
        programs.filter(|program| !program.holds()).count()
    }

    /// Forgets those, so that they are attached again. False if they went with the link, whose event is on its way.
    pub(super) fn forget_lost(&mut self, link: &Link) -> bool {
        if self.lost_programs() == 0 {
            return true;
        }
        if !netdev::exists(link.ifindex) {
            self.reasons.push("it is gone".into());
            return false;
        }
        tracing::warn!(port = link.name, "somebody took programs off");
        if !self.tc_programs.iter().all(Attachment::holds) {
            self.tc_programs.clear();
        }
        self.xdp_program.take_if(|program| !program.holds());
        true
    }

    /// Its tc programs see what leaves, and what XDP has passed.
    pub(super) fn has_tc(&self) -> bool {
        !self.tc_programs.is_empty()
    }

    /// Its tc programs see all that comes in, and know that XDP does not.
    pub(super) fn sees_all_in_tc(&self) -> bool {
        self.alone && self.has_tc()
    }

    /// XDP sees its frames.
    pub(super) fn has_xdp(&self) -> bool {
        self.xdp_program.is_some() || self.carried.is_some() || self.by_parts.is_some()
    }

    /// Takes the programs off, and clsact if nobody else uses it.
    pub(super) fn detach(&mut self, ifindex: u32) {
        self.xdp_program = None;
        self.tc_programs.clear();
        if std::mem::take(&mut self.clsact)
            && let Err(error) = clsact::remove_unused(ifindex)
        {
            tracing::debug!("{error}");
        }
    }
}

/// All ports that are Freeway's business.
#[derive(Debug, Default)]
pub(super) struct Ports {
    pub by_index: BTreeMap<u32, Port>,
    slots: Slots,
    /// New ones, whose programs are attached in later turns.
    waiting: BTreeSet<u32>,
    /// When this turn has attached long enough.
    attach_until: Option<Instant>,
}

/// The slots of the device map.
#[derive(Debug)]
struct Slots {
    taken: Vec<bool>,
    next: usize,
}

impl Default for Slots {
    fn default() -> Self {
        Self::new(freeway_abi::FW_PORTS_MAX as usize)
    }
}

impl Slots {
    fn new(number: usize) -> Self {
        Self {
            taken: vec![false; number],
            next: 0,
        }
    }

    /// By turns, so that one that became free rests, and no packet can still be on its way to who had it.
    fn take(&mut self) -> Option<u32> {
        let number = self.taken.len();
        let mut turns = (0..number).map(|turn| (self.next + turn) % number);
        let slot = turns.find(|slot| !self.taken[*slot])?;
        self.taken[slot] = true;
        self.next = slot + 1;
        u32::try_from(slot).ok()
    }

    fn release(&mut self, slot: u32) {
        if let Some(taken) = self.taken.get_mut(slot as usize) {
            *taken = false;
        }
    }
}

impl Ports {
    /// Names in the configuration must exist.
    pub(super) fn check_names(&self, config: &Config, mirror: &Mirror) -> Result<(), DaemonError> {
        let exists = |name: &str| mirror.links().values().any(|link| link.name == name);
        let interfaces = config.daemon.interfaces.iter().map(|n| (n, "interface"));
        let ports = config.port.keys().map(|n| (n, "[port] table"));
        let excluded = config.policy.exclude.iter().flat_map(|e| &e.port);
        let excluded = excluded.map(|n| (n, "[[policy.exclude]] port"));
        for (name, place) in interfaces.chain(ports).chain(excluded) {
            if !exists(name) {
                let names: Vec<&str> = mirror.links().values().map(|l| l.name.as_str()).collect();
                return Err(DaemonError::Config(format!(
                    "{place} {name}: no such network interface; there are: {}",
                    names.join(", ")
                )));
            }
        }
        let vrf = |name: &&String| {
            let link = mirror.link_by_name(name);
            link.is_some_and(Link::is_vrf)
        };
        match config.port.keys().find(vrf) {
            Some(name) => Err(DaemonError::Config(format!(
                "[port] table {name}: a VRF has no path of its own; have a table for each of its ports"
            ))),
            None => Ok(()),
        }
    }

    /// Programs that somebody else has taken off, of all ports.
    pub(super) fn lost_programs(&self) -> u64 {
        self.by_index
            .values()
            .map(|port| port.lost_programs() as u64)
            .sum()
    }

    pub(super) fn detach_all(&mut self) {
        for (ifindex, port) in &mut self.by_index {
            port.detach(*ifindex);
        }
    }

    /// True if a port's programs are to be attached in a later turn.
    pub(super) fn put_off(&mut self, ifindex: u32) -> bool {
        let late = !self.in_time();
        if late {
            self.waiting.insert(ifindex);
        }
        late
    }

    /// This turn may attach more.
    fn in_time(&self) -> bool {
        self.attach_until.is_none_or(|end| Instant::now() < end)
    }

    /// True if programs are to be attached to new ports.
    pub(super) fn waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// True if this one is such a port.
    pub(super) fn waits(&self, ifindex: u32) -> bool {
        self.waiting.contains(&ifindex)
    }

    /// Indices of the ports that would take part, were there room for them.
    pub(super) fn without_room(&self) -> impl Iterator<Item = u32> {
        let ports = self.by_index.iter().filter(|(_, port)| port.no_room);
        ports.map(|(index, _)| *index)
    }
}

/// What keeps a port from the fast path for good, until something about it changes.
fn unfit(link: &Link, config: &Config) -> Option<String> {
    let options = config.port.get(&link.name).cloned().unwrap_or_default();
    if options.path == PathChoice::Kernel {
        return Some("the configuration leaves it to the kernel".into());
    }
    kinds::unsupported(link)
}

fn wants_tc(link: &Link, config: &Config) -> Option<String> {
    let path = config.port.get(&link.name).map(|options| options.path);
    (path == Some(PathChoice::Tc)).then(|| "the configuration wants tc".into())
}

/// Why XDP is not to have a port's frames, nor those of what it is a piece of.
pub(super) fn wants_elsewhere(link: &Link, config: &Config) -> Option<String> {
    let path = config.port.get(&link.name).map(|options| options.path);
    matches!(path, Some(PathChoice::Tc | PathChoice::Kernel))
        .then(|| "the configuration wants another path than XDP".into())
}

/// What keeps XDP from a port that tc may forward for.
pub(super) fn without_xdp(link: &Link, config: &Config) -> Option<String> {
    let wire_true = config.port.get(&link.name).is_some_and(|p| p.wire_true);
    wants_tc(link, config).or_else(|| kinds::without_xdp(link, wire_true))
}

/// Ports that a name in the policy means: a VRF's are all that belong to it.
fn named(name: &str, links: &BTreeMap<u32, Link>) -> Vec<u32> {
    let link = links.values().find(|link| link.name == name);
    let Some(link) = link else { return Vec::new() };
    let vrf = link.is_vrf().then_some(link.ifindex);
    let is_meant = |of: &&Link| of.ifindex == link.ifindex || (vrf.is_some() && of.vrf() == vrf);
    let meant = links.values().filter(is_meant);
    meant.map(|link| link.ifindex).collect()
}

/// The configuration's policy in the manager's terms.
pub(super) fn policy(config: &Config, mirror: &Mirror) -> Policy {
    let links = mirror.links();
    let networks = |list: &[freeway_api::Prefix]| {
        list.iter()
            .map(|p| Prefix {
                addr: p.addr,
                len: p.len,
            })
            .collect()
    };
    let ranges = |list: &[freeway_api::PortRange]| list.iter().map(|r| (r.first, r.last)).collect();
    let exclusion = |e: &crate::config::Exclude| Exclusion {
        proto: e.proto.map(|p| p.0),
        src: networks(&e.src),
        dst: networks(&e.dst),
        sport: ranges(&e.sport),
        dport: ranges(&e.dport),
        ifindex: (!e.port.is_empty())
            .then(|| e.port.iter().flat_map(|name| named(name, links)).collect()),
    };
    Policy {
        tcp: config.policy.tcp,
        udp: config.policy.udp,
        icmp: config.policy.icmp,
        esp: config.policy.tunnels,
        gre: config.policy.tunnels,
        multicast: config.policy.multicast,
        exclude: config.policy.exclude.iter().map(exclusion).collect(),
    }
}

pub(super) fn forwards(link: &Link, mirror: &Mirror) -> bool {
    let on = |family, index| {
        let conf = mirror.netconf().get(&(family, index));
        conf.and_then(|c| c.forwarding)
    };
    let index = link.ifindex.cast_signed();
    [Family::Ipv4, Family::Ipv6].into_iter().any(|family| {
        on(family, index)
            .or_else(|| on(family, -1))
            .unwrap_or(false)
    })
}

impl Engine {
    /// Judges every port anew, attaches, and tells the manager.
    pub(super) fn update_ports(&mut self) -> Result<(), DaemonError> {
        self.update_ports_within(ATTACH_TURN)
    }

    /// The same; ports that are new when the time is over wait for [`Engine::attach_waiting`].
    pub(super) fn update_ports_within(&mut self, time: Duration) -> Result<(), DaemonError> {
        self.ports.attach_until = Some(Instant::now() + time);
        self.ports.waiting.clear();
        let now_tick = self.now_tick()?;
        let mut ops = Vec::new();
        let mut links: Vec<Link> = self.business().cloned().collect();
        let mut gone: BTreeSet<u32> = self.ports.by_index.keys().copied().collect();
        for link in &links {
            gone.remove(&link.ifindex);
        }
        // a VLAN or session is as fit for XDP as the device below
        links.sort_by_cached_key(|link| (self.carriers(link), link.ifindex));
        for ifindex in &gone {
            self.forget_bridged(*ifindex, now_tick, &mut ops);
            self.manager.remove_port(*ifindex, now_tick, &mut ops);
        }
        self.withdraw_from_bonds(now_tick, &mut ops);
        // no flow may name a slot that leads elsewhere
        self.execute(std::mem::take(&mut ops))?;
        for ifindex in gone {
            let Some(mut port) = self.ports.by_index.remove(&ifindex) else {
                continue;
            };
            self.leave(ifindex, &mut port);
            if !netdev::exists(ifindex) {
                tracing::info!("port {} is gone", port.name);
            }
            if let Some(slot) = port.slot {
                let _ = self.datapath.clear_port(slot, ifindex);
                self.ports.slots.release(slot);
            }
        }
        let mut unknown = false;
        for link in &links {
            unknown |= self.polled.obstacles(link.ifindex).is_none();
            self.update_port(link, now_tick, &mut ops);
        }
        self.tell_snooping(now_tick, &mut ops);
        if unknown {
            self.ask_poller();
        }
        self.execute(ops)
    }

    /// Attaches to some of the ports that wait.
    pub(super) fn attach_waiting(&mut self) -> Result<(), DaemonError> {
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
        // VLANs and bridges are as fit as the devices below, which may have come late
        let rests =
            |link: &Link| link.is_carried() || link.is_bond() || self.bridge_below(link).is_some();
        if self.ports.waiting.is_empty() && self.business().any(rests) {
            self.update_ports()?;
        }
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
            None if port.by_parts.is_some()
                || (port.xdp_program.is_some() && port.within == Within::Nothing) =>
            {
                Carried {
                    base: lower,
                    below: Vec::new(),
                    framing: Framing::default(),
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
    pub(super) fn carrier(&self, link: &Link) -> Option<(u32, Option<Tag>, Option<Session>)> {
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
    pub(super) fn leave(&self, ifindex: u32, port: &mut Port) {
        self.uncarry(port);
        self.close(ifindex, port);
        port.by_parts = None;
        port.detach(ifindex);
    }

    /// What comes in so is no longer its.
    fn uncarry(&self, port: &mut Port) {
        let carried = port.carried.take();
        let cleared = carried.map(|carried| self.datapath.clear_framing(&carried.record()));
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
    pub(super) fn business(&self) -> impl Iterator<Item = &Link> {
        let links = self.mirror.links().values();
        links.filter(|l| (l.kind.is_some() || l.hw_type != ARPHRD_LOOPBACK) && self.concerns(l))
    }

    /// True if a port has lost redirected frames since it was judged.
    pub(super) fn new_faults(&self) -> bool {
        let mut judged = self
            .ports
            .by_index
            .iter()
            .filter(|(_, p)| p.xdp_program.is_some() || p.by_parts.is_some());
        judged.any(|(index, port)| self.datapath.fault(*index).failed != port.redirects.lost)
    }

    /// Has redirects be tried again where the driver refused them and says by now that it takes them; true if there are
    /// any.
    pub(super) fn retry_redirects(&mut self) -> bool {
        let mut any = false;
        for (index, port) in &mut self.ports.by_index {
            let (told, can_send) = self.polled.xdp_features(*index);
            any |= can_send && !told.is_empty() && port.redirects.retry();
        }
        any
    }

    pub(super) fn concerns(&self, link: &Link) -> bool {
        let chosen = &self.config.daemon.interfaces;
        if link.name == "lo" {
            return false;
        }
        chosen.is_empty() || chosen.contains(&link.name)
    }

    fn update_port(&mut self, link: &Link, now_tick: u32, ops: &mut Vec<freeway_cmm::Op>) {
        let port = self.ports.by_index.remove(&link.ifindex);
        let mut port = port.unwrap_or_default();
        port.name.clone_from(&link.name);
        self.judge(link, &mut port);
        port.up = link.up && link.carrier;
        self.tell_bridged(link, &port, now_tick, ops);
        self.manager.set_port(managed(link, &port), now_tick, ops);
        self.ports.by_index.insert(link.ifindex, port);
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
        if let Some(reason) = unfit(link, &self.config) {
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
        let had_clsact = self.qdiscs(link.ifindex).any(|q| q.kind == "clsact");
        if !port.forget_lost(link) {
            self.leave(link.ifindex, port);
            return;
        }
        let bridge = self.bridge_below(link);
        let below = match (bridge, wants_tc(link, &self.config)) {
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
        // what comes in for a VLAN that is down is dropped, but not at the device below
        let takes = port.carried.is_none() || link.up;
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
    pub(super) fn take_slot(&mut self, link: &Link, port: &mut Port) -> Option<u32> {
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
    pub(super) fn chain<'a>(&'a self, link: &'a Link) -> Vec<&'a Link> {
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
    pub(super) fn judge_xdp_output(&self, link: &Link, port: &mut Port, tc: bool) -> bool {
        if !port.has_xdp() && port.stations_of.is_none() {
            return false;
        }
        let shaping = |q: &&Qdisc| q.parent != 0xffff_fff1 && !UNSHAPED.contains(&q.kind.as_str());
        let shaper = self.qdiscs(link.ifindex).find(shaping);
        if let Some(qdisc) = shaper {
            port.reasons.push(format!(
                "its qdisc {} must see what leaves here: that goes through {}",
                qdisc.kind,
                if tc { "tc" } else { "the kernel" }
            ));
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

    pub(super) fn qdiscs(&self, ifindex: u32) -> impl Iterator<Item = &Qdisc> {
        qdiscs(&self.mirror, ifindex)
    }

    /// What keeps the port from a path.
    pub(super) fn obstacles(&self, link: &Link) -> Obstacles {
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

/// The qdiscs of a port.
pub(super) fn qdiscs(mirror: &Mirror, ifindex: u32) -> impl Iterator<Item = &Qdisc> {
    let all = mirror.qdiscs();
    let of_port = all.range((ifindex, 0, 0)..=(ifindex, u32::MAX, u32::MAX));
    of_port.map(|(_, qdisc)| qdisc)
}

/// A port in the manager's terms.
fn managed(link: &Link, port: &Port) -> ManagedPort {
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
        vrf: link.vrf().unwrap_or(0),
    }
}

/// What an attempt to attach depends on.
fn state_of(link: &Link) -> u32 {
    link.mtu << 1 | u32::from(link.up)
}

/// Does what failed before only if the link has changed since.
fn attempt(
    link: &Link,
    failed: &mut Option<(u32, String)>,
    attach: impl FnOnce() -> Result<(), DatapathError>,
) -> Result<(), String> {
    match failed {
        Some((state, reason)) if *state == state_of(link) => return Err(reason.clone()),
        _ => *failed = None,
    }
    attach().map_err(|error| {
        let reason = error.to_string();
        match netdev::exists(link.ifindex) {
            true => tracing::warn!(port = link.name, "{reason}"),
            false => tracing::debug!(port = link.name, "{reason}"),
        }
        *failed = Some((state_of(link), reason.clone()));
        reason
    })
}

/// An error is why there is no program. `slot`: what is sent there leaves here; none at a part of a bond.
pub(super) fn attach_xdp(
    datapath: &Datapath,
    link: &Link,
    port: &mut Port,
    slot: Option<u32>,
    without: Option<String>,
) -> Result<(), String> {
    if let Some(reason) = without {
        port.xdp_program = None;
        return Err(reason);
    }
    if port.xdp_program.is_some() {
        return Ok(());
    }
    let hook = match port.within {
        Within::Nothing => Hook::Xdp,
        Within::Bridge => Hook::BridgeXdp,
        Within::Bond => Hook::BondXdp,
    };
    let program = &mut port.xdp_program;
    attempt(link, &mut port.xdp_failed, || {
        let attachment = datapath.attach(link.ifindex, hook)?;
        if let Some(slot) = slot {
            datapath.set_port(slot, link.ifindex)?;
        }
        *program = Some(attachment);
        Ok(())
    })
}

pub(super) fn attach_tc(
    datapath: &Datapath,
    link: &Link,
    port: &mut Port,
    had_clsact: bool,
) -> Result<(), String> {
    let alone = !port.has_xdp();
    if !port.tc_programs.is_empty() && port.alone == alone {
        return Ok(());
    }
    port.alone = alone;
    port.tc_programs.clear();
    let of_bridge = port.within == Within::Bridge;
    let (programs, clsact) = (&mut port.tc_programs, &mut port.clsact);
    let attached = attempt(link, &mut port.failed, || {
        datapath.sweep(link.ifindex);
        let (ingress, egress) = match (link.framing(), alone) {
            _ if of_bridge => (Hook::BridgeIngress, Hook::BridgeEgress),
            (LinkFraming::Bare, true) => (Hook::RawIngressAlone, Hook::RawEgress),
            (LinkFraming::Bare, false) => (Hook::RawIngress, Hook::RawEgress),
            (_, true) => (Hook::IngressAlone, Hook::Egress),
            (_, false) => (Hook::Ingress, Hook::Egress),
        };
        let ingress = datapath.attach(link.ifindex, ingress)?;
        *clsact |= !had_clsact && matches!(ingress, Attachment::Filter(_));
        *programs = vec![ingress];
        programs.push(datapath.attach(link.ifindex, egress)?);
        Ok(())
    });
    attached.inspect_err(|_| port.detach(link.ifindex))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::tests::link;
    use freeway_kernel::model::PortDetail;

    #[test]
    fn slots_rest_before_they_are_used_again() {
        let mut slots = Slots::new(3);
        assert_eq!([slots.take(), slots.take()], [Some(0), Some(1)]);
        slots.release(0);
        assert_eq!(
            [slots.take(), slots.take(), slots.take()],
            [Some(2), Some(0), None]
        );
        slots.release(1);
        assert_eq!([slots.take(), slots.take()], [Some(1), None]);
    }

    #[test]
    fn the_configuration_decides() {
        let config = |text| Config::parse(text, "x").unwrap();
        let kernel = config("[port.p0]\npath = \"kernel\"\n");
        let reason = unfit(&link(None), &kernel).unwrap();
        assert!(reason.contains("configuration"), "{reason}");
        assert_eq!(unfit(&link(None), &Config::default()), None);
        let veth = link(Some("veth"));
        let wire = config("[port.p0]\nwire_true = true\n");
        assert_eq!(without_xdp(&veth, &wire), None);
        assert!(without_xdp(&veth, &config("[port.p1]\nwire_true = true\n")).is_some());
        let tc = config("[port.p0]\nwire_true = true\npath = \"tc\"\n");
        assert!(without_xdp(&veth, &tc).unwrap().contains("configuration"));
    }

    #[test]
    fn a_vrf_means_its_ports() {
        let port = |ifindex, name: &str, vrf: Option<u32>| Link {
            ifindex,
            name: name.into(),
            master: vrf,
            port: vrf.map_or_else(PortDetail::default, |_| PortDetail::Vrf),
            ..link(None)
        };
        let mut blue = port(4, "blue", None);
        blue.detail = LinkDetail::Vrf { table: 10 };
        let links = [
            port(2, "lan0", Some(4)),
            port(3, "wan0", None),
            blue,
            port(5, "lan1", Some(4)),
        ];
        let links = links.into_iter().map(|link| (link.ifindex, link)).collect();
        assert_eq!(named("blue", &links), [2, 4, 5]);
        assert_eq!(named("lan0", &links), [2]);
        assert!(named("lan9", &links).is_empty());
    }
}
