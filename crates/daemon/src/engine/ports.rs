// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which ports take part, and why the others do not.

mod ahead;
pub(super) mod attach;
pub(super) mod judge;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use freeway_abi::{fw_framed, fw_framing};
use freeway_cmm::{Fitness, Framing, Tag};
use freeway_datapath::{Attachment, Datapath, Front, RouteHook};
use freeway_kernel::model::Link;
use freeway_kernel::{clsact, netdev};

use super::membership::{is_member, is_part};
use super::redirects::Redirects;
use super::rings::Ring;

/// Hardware type of the loopback (linux/if_arp.h).
const ARPHRD_LOOPBACK: u16 = 772;
/// The tag's protocol (linux/if_ether.h).
pub(super) const ETH_P_8021Q: u16 = 0x8100;
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
    /// That device is a port of the engine, which does what XDP does elsewhere.
    pub by_engine: bool,
}

impl Carried {
    /// The VLAN, where its frames have one 802.1Q tag and nothing else around them, for XDP; 0 is none here.
    pub(super) fn plain_vlan(&self) -> Option<u16> {
        self.lone_vlan().filter(|_| !self.by_engine)
    }

    fn lone_vlan(&self) -> Option<u16> {
        let mut tags = self.framing.tags.iter().filter(|tag| tag.protocol != 0);
        let tag = tags.next().filter(|tag| tag.protocol == ETH_P_8021Q)?;
        let plain = tags.next().is_none() && self.framing.session.is_none();
        (plain && tag.vlan != 0).then_some(tag.vlan)
    }

    /// The same at a port of the engine.
    pub(super) fn vlan_at_engine(&self) -> Option<u16> {
        self.lone_vlan().filter(|_| self.by_engine)
    }

    fn record(&self) -> fw_framing {
        self.framing.record(self.base)
    }

    /// How the frames of a link come in at the base, and that they are its.
    pub(super) fn records(&self, ifindex: u32) -> (fw_framing, fw_framed) {
        (self.record(), self.framing.framed(ifindex))
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
    pub(super) fn of(link: &Link) -> Self {
        match (is_member(link), is_part(link)) {
            (true, _) => Within::Bridge,
            (_, true) => Within::Bond,
            _ => Within::Nothing,
        }
    }
}

/// What XDP does at a port ahead of the fast path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Ahead {
    #[default]
    Nothing,
    /// It drops.
    Scrub,
    /// It forwards by prefixes.
    Route,
    /// It is the fast path itself, and tells of what it forwards.
    Tap,
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
    /// The program there is another one, with the fast path behind it.
    ahead: Ahead,
    /// That one; none: the plain one.
    behind: Option<OwnedFd>,
    /// Limits, ahead of whatever else is there.
    front: Option<Front>,
    /// XDP serves it at the device below.
    pub carried: Option<Carried>,
    /// Its programs are those of such a piece.
    pub within: Within,
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
    /// Packets leave by prefixes in tc, ahead of the program that is there.
    tc_routed: bool,
    /// What comes in here leaves by prefixes, by a program here or at the device below.
    pub by_routes: bool,
    /// The engine has it leave so as well, ahead of tc.
    pub by_engine_routes: bool,
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
        self.programs().filter(|program| !program.holds()).count()
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
            self.clear_tc();
        }
        if self
            .xdp_program
            .take_if(|program| !program.holds())
            .is_some()
        {
            self.forget_programs();
        }
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
        let carried = self.carried.as_ref();
        self.xdp_program.is_some()
            || carried.is_some_and(|carried| !carried.by_engine)
            || self.by_parts.is_some()
    }

    /// Why XDP has no program at the port itself; `None`: it has.
    pub(super) fn without_xdp(&self) -> Option<String> {
        if self.xdp_program.is_some() {
            return None;
        }
        let none = "XDP does not run at the port itself";
        let why = self.reasons.first();
        Some(why.map_or_else(|| none.to_owned(), |why| format!("{none}: {why}")))
    }

    /// What is dropped ahead of the kernel is dropped here.
    pub(super) fn is_scrubbed(&self) -> bool {
        self.ahead == Ahead::Scrub
    }

    /// Has the scrubber's program take the fast path's place, unless it has.
    pub(super) fn scrub(&mut self, prog: BorrowedFd<'_>) -> Result<(), String> {
        match self.ahead {
            Ahead::Scrub => Ok(()),
            _ => self.scrub_anew(prog),
        }
    }

    /// The same of another one.
    pub(super) fn scrub_anew(&mut self, prog: BorrowedFd<'_>) -> Result<(), String> {
        self.put(prog)?;
        self.ahead = Ahead::Scrub;
        Ok(())
    }

    /// The fast path's is there again.
    pub(super) fn restore(&mut self, plain: BorrowedFd<'_>) -> Result<(), String> {
        self.put(plain)?;
        self.behind = None;
        self.ahead = Ahead::Nothing;
        Ok(())
    }

    /// The scrubber's program is not to stay, whether or not the fast path's can take its place: the next one that is put
    /// there does.
    pub(super) fn unscrub(&mut self, plain: BorrowedFd<'_>) {
        if let Err(error) = self.restore(plain) {
            tracing::warn!(port = self.name, "{error}");
            self.ahead = Ahead::Nothing;
        }
    }

    /// Where a program that forwards by prefixes is, if one is.
    pub(super) fn routed(&self) -> Option<RouteHook> {
        match self.ahead {
            Ahead::Route => Some(RouteHook::Xdp),
            _ => self.tc_routed.then_some(RouteHook::Tc),
        }
    }

    /// Has them leave so, unless they do.
    pub(super) fn route(&mut self, hook: RouteHook, prog: BorrowedFd<'_>) -> Result<(), String> {
        if self.routed() == Some(hook) {
            return Ok(());
        }
        match hook {
            RouteHook::Xdp => {
                self.put(prog)?;
                self.ahead = Ahead::Route;
            }
            RouteHook::Tc => {
                self.put_tc(prog)?;
                self.tc_routed = true;
            }
        }
        Ok(())
    }

    /// The fast path alone is there again.
    pub(super) fn unroute(&mut self, plain: BorrowedFd<'_>) -> Result<(), String> {
        match self.routed() {
            Some(RouteHook::Xdp) => self.restore(plain),
            Some(RouteHook::Tc) => {
                self.put_tc(plain)?;
                self.tc_routed = false;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn put_tc(&self, prog: BorrowedFd<'_>) -> Result<(), String> {
        let ingress = self.tc_programs.first().ok_or("there is no tc program")?;
        let done = ingress.replace(prog);
        done.map_err(|error| format!("its tc program cannot be replaced: {error}"))
    }

    fn clear_tc(&mut self) {
        self.tc_programs.clear();
        self.tc_routed = false;
    }

    /// Why a capture cannot have what comes in here.
    pub(super) fn untappable(&self) -> Option<&'static str> {
        match (&self.xdp_program, self.within) {
            (None, _) => Some("no fast packet comes in there in XDP itself"),
            (_, Within::Bridge) => Some("a port of a bridge"),
            (_, Within::Bond) => Some("a part of a bond"),
            _ if self.is_scrubbed() => Some("rules of the firewall drop there in XDP"),
            _ if self.ahead == Ahead::Route => {
                Some("what comes in leaves by the kernel's routes, ahead of flows")
            }
            _ => None,
        }
    }

    /// The program there tells of what it forwards.
    pub(super) fn is_tapped(&self) -> bool {
        self.ahead == Ahead::Tap
    }

    /// Has such a program take the plain one's place.
    pub(super) fn tap(&mut self, prog: BorrowedFd<'_>) -> Result<(), String> {
        self.put(prog)?;
        self.ahead = Ahead::Tap;
        Ok(())
    }

    /// Sources are limited here.
    pub(super) fn is_limited(&self) -> bool {
        self.front.is_some()
    }

    /// Has limits ahead of the program that is there.
    pub(super) fn limit(&mut self, front: Front, plain: BorrowedFd<'_>) -> Result<(), String> {
        let behind = self.behind.as_ref().map_or(plain, AsFd::as_fd);
        front.lead_to(behind).map_err(|error| error.to_string())?;
        self.attach(front.prog())?;
        self.front = Some(front);
        Ok(())
    }

    /// That program is alone again.
    pub(super) fn unlimit(&mut self, plain: BorrowedFd<'_>) -> Result<(), String> {
        let behind = self.behind.as_ref().map_or(plain, AsFd::as_fd);
        self.attach(behind)?;
        self.front = None;
        Ok(())
    }

    /// In the plain one's place, behind limits.
    fn put(&mut self, prog: BorrowedFd<'_>) -> Result<(), String> {
        let behind = prog.try_clone_to_owned();
        let behind = behind.map_err(|error| format!("its XDP program cannot be kept: {error}"))?;
        match &self.front {
            Some(front) => front.lead_to(prog).map_err(|error| error.to_string())?,
            None => self.attach(prog)?,
        }
        self.behind = Some(behind);
        Ok(())
    }

    fn attach(&self, prog: BorrowedFd<'_>) -> Result<(), String> {
        let program = self.xdp_program.as_ref().ok_or("there is no program")?;
        let done = program.replace(prog);
        done.map_err(|error| format!("its XDP program cannot be replaced: {error}"))
    }

    /// None of those that take the plain one's place is there.
    fn forget_programs(&mut self) {
        self.ahead = Ahead::Nothing;
        self.behind = None;
        self.front = None;
    }

    /// All that are attached.
    fn programs(&self) -> impl Iterator<Item = &Attachment> {
        self.tc_programs.iter().chain(&self.xdp_program)
    }

    /// Takes the programs off, and clsact if nobody else uses it.
    pub(super) fn detach(&mut self, ifindex: u32) {
        self.xdp_program = None;
        self.forget_programs();
        self.clear_tc();
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
    /// Those whose clsact qdisc a daemon before has made for its filters.
    clsact_before: BTreeSet<u32>,
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

    /// Links of all programs, for whoever is to have them, too.
    pub(super) fn links(&self) -> Vec<RawFd> {
        let ports = self.by_index.values();
        let links = ports.flat_map(Port::programs).filter_map(Attachment::link);
        links.map(|link| link.as_raw_fd()).collect()
    }

    /// Ports whose clsact qdisc is Freeway's.
    pub(super) fn clsact(&self) -> Vec<u32> {
        let ports = self.by_index.iter();
        let ours = ports.filter(|(_, port)| port.clsact);
        ours.map(|(ifindex, _)| *ifindex).collect()
    }

    /// Another daemon has made clsact qdiscs there, and leaves them.
    pub(super) fn inherit_clsact(&mut self, ports: Vec<u32>) {
        self.clsact_before = ports.into_iter().collect();
    }

    /// True if a port's clsact qdisc is one of those; it is the port's from now on.
    pub(super) fn take_clsact(&mut self, ifindex: u32) -> bool {
        self.clsact_before.remove(&ifindex)
    }

    /// Has all programs be ours again, the fast path's at each port, after another daemon has tried to put its own there.
    pub(super) fn put_back(&mut self, datapath: &Datapath) {
        for (ifindex, port) in &mut self.by_index {
            port.forget_programs();
            port.tc_routed = false;
            let put = |program| datapath.put_back(*ifindex, program);
            let failed: Vec<_> = port.programs().filter_map(|p| put(p).err()).collect();
            for error in failed {
                tracing::warn!(port = port.name, "{error}");
            }
        }
    }

    /// Leaves all programs where they are: they are another daemon's.
    pub(super) fn leave(&mut self) {
        for port in self.by_index.values_mut() {
            port.clsact = false;
            let tc = port.tc_programs.drain(..);
            tc.chain(port.xdp_program.take())
                .for_each(Attachment::disown);
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
