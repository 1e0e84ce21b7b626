// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scrubber follows the ruleset, its sets, and the ports.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use freeway_datapath::Hook;
use freeway_kernel::nft::{self, Element, SetChanges};
use freeway_kernel::reachability::SetName;
use freeway_kernel::scrub::{DropRule, Found, KeptRule, find};

use super::super::Engine;
use super::super::pace::WAITS;
use super::super::ports::Port;
use super::loader::Loaded;
use super::sets::{Mirrored, is_over};
use super::{Of, Rate};
use crate::DaemonError;
use crate::error::failure;

/// What timed out is forgotten so often; in the data plane an end holds by itself.
const FORGET: Duration = Duration::from_secs(30);
/// A table with room for so many addresses is doubled where it becomes too small.
const LARGE: u32 = 1 << 16;
/// An end that is further away is asked for again half-way.
const AWAY_MAX_TICKS: u32 = 1 << 30;
/// A set that is known, and whose reading anew was disturbed, is read again after so long.
const AGAIN_S: u32 = 1800;
/// Packets that the kernel was given and did not count, until a rule is not believed.
const UNCONFIRMED_MAX: u32 = 3;

impl Engine {
    /// Programs of the daemon.
    pub(in crate::engine) fn own_programs(&self) -> Vec<u32> {
        let mut ids = self.datapath.prog_ids();
        ids.extend(self.limits.prog_ids());
        ids.extend(self.scrub.prog_ids());
        ids.extend(self.routes.prog_ids());
        ids.extend(self.capture.prog_id());
        ids
    }

    /// The ruleset was read, or could not be.
    pub(in crate::engine) fn scrub_by(
        &mut self,
        ruleset: Option<Arc<nft::Ruleset>>,
    ) -> Result<(), DaemonError> {
        let drops = |ruleset: &Arc<nft::Ruleset>| find(ruleset, 0, "") != Found::default();
        self.scrub.judged = ruleset.is_some();
        self.scrub.ruleset = ruleset.filter(drops);
        self.scrub.doubted.clear();
        self.update_scrub()
    }

    /// Nothing that is known of sets is sure any more; the ruleset is about to be read.
    pub(in crate::engine) fn doubt_scrub(&mut self) -> Result<(), DaemonError> {
        self.scrub.doubt_rules();
        self.scrub.sets.clear();
        self.scrub.classes.clear();
        match &mut self.scrub.scrubber {
            Some(scrubber) => scrubber.clear().map_err(failure),
            None => Ok(()),
        }
    }

    /// Judges rules and ports, and has the data plane do what they allow.
    pub(in crate::engine) fn update_scrub(&mut self) -> Result<(), DaemonError> {
        if self.scrub.ruleset.is_none() && self.scrub.scrubber.is_none() {
            self.scrub.kept.clear();
            return Ok(());
        }
        let now_tick = self.now_tick()?;
        self.scrub.invalidate();
        let (mut wanted, mut kept, macs) = self.drop_rules();
        let unfit = self.scrub.choose_sets(wanted.keys(), now_tick);
        for (rule, why) in unfit {
            wanted.remove(&rule);
            kept.push(kept_for(&rule, &why));
        }
        self.make_scrubber(!wanted.is_empty())?;
        self.scrub.seen.retain(|rule, _| wanted.contains_key(rule));
        self.scrub.rates.retain(|of, _| match of {
            Of::Rule(rule) => wanted.contains_key(&**rule),
            _ => true,
        });
        for rule in self.scrub.number(&wanted, now_tick) {
            kept.push(kept_for(
                &rule,
                "there are more rules than the data plane has room for",
            ));
        }
        kept.sort();
        kept.dedup_by(|one, next| one.place == next.place);
        self.scrub.kept = kept;
        self.scrub.write_classes();
        self.place_programs(&macs);
        if let Some(scrubber) = &self.scrub.scrubber {
            scrubber.set_valid(self.scrub.judged);
        }
        Ok(())
    }

    /// Rules that may be taken over, with the ports where; those that may not; the ports' addresses.
    #[allow(clippy::type_complexity)]
    fn drop_rules(
        &mut self,
    ) -> (
        BTreeMap<DropRule, BTreeSet<u32>>,
        Vec<KeptRule>,
        BTreeMap<u32, [u8; 6]>,
    ) {
        let (mut wanted, mut kept) = (BTreeMap::<DropRule, BTreeSet<u32>>::new(), Vec::new());
        let (mut macs, mut ports_kept) = (BTreeMap::new(), BTreeMap::new());
        let Some(ruleset) = &self.scrub.ruleset else {
            return (wanted, kept, macs);
        };
        let off = self.scrub_is_off();
        let mut elsewhere: Option<(u32, &str)> = None;
        for link in self.business() {
            let why = match self.ports.by_index.get(&link.ifindex) {
                Some(port) => self.nothing_ahead(link, port),
                None => Some("it is new".into()),
            };
            let mac = link.mac.map(|mac| mac.0);
            match (why, mac) {
                (None, Some(mac)) => drop(macs.insert(link.ifindex, mac)),
                (why, _) => {
                    let why = why.unwrap_or_else(|| "it has no MAC address".into());
                    elsewhere.get_or_insert((link.ifindex, &link.name));
                    ports_kept.insert(link.name.clone(), why);
                    continue;
                }
            }
            let found = find(ruleset, link.ifindex, &link.name);
            kept.extend(found.kept);
            for rule in found.rules {
                wanted.entry(rule).or_default().insert(link.ifindex);
            }
        }
        if macs.is_empty() {
            let (ifindex, name) = elsewhere.unwrap_or((0, ""));
            let found = find(ruleset, ifindex, name);
            kept.extend(found.kept);
            let nowhere = "there is no port at which XDP could drop: see the reason at each port";
            kept.extend(found.rules.iter().map(|rule| kept_for(rule, nowhere)));
        }
        // what one port's packets meet as they should, another's may not
        kept.retain(|kept: &KeptRule| !wanted.keys().any(|rule| rule.place == kept.place));
        if let Some(why) = off {
            kept.extend(wanted.keys().map(|rule| kept_for(rule, &why)));
            wanted.clear();
        }
        for rule in &self.scrub.doubted {
            if wanted.remove(rule).is_some() {
                let why = "the rule's counter did not count what the kernel was given";
                kept.push(kept_for(rule, why));
            }
        }
        self.scrub.ports_kept = ports_kept;
        (wanted, kept, macs)
    }

    /// Why nothing is dropped at all.
    fn scrub_is_off(&self) -> Option<String> {
        if !self.config.policy.drops {
            return Some("policy.drops is false in the configuration".into());
        }
        let function = self.polled.foreign_hooks.first()?;
        Some(format!(
            "netfilter hook {function} is not known and may have to see every packet"
        ))
    }

    fn make_scrubber(&mut self, wanted: bool) -> Result<(), DaemonError> {
        if wanted && self.scrub.scrubber.is_none() {
            let scrubber = self.datapath.scrubber([0; 2]).map_err(failure)?;
            self.scrub.scrubber = Some(scrubber);
            self.scrub.classes.clear();
            self.pace.loads();
        }
        Ok(())
    }

    /// Each port's program as its rules ask.
    fn place_programs(&mut self, macs: &BTreeMap<u32, [u8; 6]>) {
        let plain = self.datapath.prog(Hook::Xdp);
        let before = self.scrub.prog_ids();
        let idle = self.manager.flow_count() == 0;
        let ports: Vec<u32> = self.ports.by_index.keys().copied().collect();
        for ifindex in ports {
            let mac = macs.get(&ifindex).copied();
            let here = self.scrub.here(ifindex, mac.unwrap_or_default());
            let wanted = mac.is_some() && here.by_source | here.by_destination != 0;
            let Some(port) = self.ports.by_index.get_mut(&ifindex) else {
                continue;
            };
            match (&mut self.scrub.scrubber, wanted) {
                (Some(scrubber), true) if !scrubber.has(ifindex) && !self.pace.may_load(idle) => {
                    let name = port.name.clone();
                    self.scrub.ports_kept.insert(name, WAITS.into());
                }
                (Some(scrubber), true) => {
                    let placed = scrubber
                        .at(ifindex, here)
                        .map_err(|error| error.to_string());
                    let placed = placed.and_then(|prog| port.scrub(prog.as_fd()));
                    if let Err(error) = placed {
                        tracing::warn!(
                            port = port.name,
                            reason = error,
                            "nothing is dropped ahead of the kernel"
                        );
                        self.scrub.ports_kept.insert(port.name.clone(), error);
                    }
                }
                _ if port.is_scrubbed() => match &plain {
                    Ok(plain) => {
                        if let Err(error) = port.restore(plain.as_fd()) {
                            tracing::warn!(port = port.name, "{error}");
                        }
                    }
                    Err(error) => tracing::warn!("{error}"),
                },
                _ => {}
            }
        }
        let gone: Vec<u32> = self
            .scrub
            .scrubber
            .iter()
            .flat_map(|scrubber| scrubber.ports())
            .filter(|ifindex| {
                let port = self.ports.by_index.get(ifindex);
                !port.is_some_and(Port::is_scrubbed)
            })
            .collect();
        for ifindex in gone {
            self.scrub.keep_counts(ifindex);
            if let Some(scrubber) = &mut self.scrub.scrubber {
                scrubber.leave(ifindex);
            }
        }
        let idle = |scrubber: &freeway_datapath::Scrubber| scrubber.ports().next().is_none();
        if self.scrub.sets.is_empty() && self.scrub.scrubber.as_ref().is_some_and(idle) {
            self.scrub.scrubber = None;
            self.scrub.classes.clear();
        }
        if before != self.scrub.prog_ids() {
            // or they would count as somebody else's
            self.ask_poller();
        }
    }

    /// The end of an element that was told of later than `since`, in ticks.
    fn until_tick(&self, element: &Element, since: Instant, now_tick: u32) -> u32 {
        let Some(ms) = element.expires_ms else {
            return 0;
        };
        let hz = u64::from(self.datapath.clock.hz());
        let elapsed = since.elapsed().as_millis() as u64;
        let left =
            ms.saturating_sub(elapsed) / 1000 * hz + ms.saturating_sub(elapsed) % 1000 * hz / 1000;
        let until = now_tick.wrapping_add(left.min(AWAY_MAX_TICKS.into()) as u32);
        // 0 is for good
        until.max(1)
    }

    /// Elements of a set came and went.
    pub(in crate::engine) fn scrub_set_changed(
        &mut self,
        name: &SetName,
        changes: &SetChanges,
        since: Instant,
        now_tick: u32,
    ) {
        if !self.scrub.sets.contains_key(name) {
            return;
        }
        let added: Vec<(Element, u32)> = changes
            .added
            .iter()
            .map(|element| (element.clone(), self.until_tick(element, since, now_tick)))
            .collect();
        let Some(set) = self.scrub.sets.get_mut(name) else {
            return;
        };
        look_again(set, &added, now_tick);
        let changed = set.heard(changes.removed.iter().cloned(), added.into_iter());
        self.scrub.place(&changed, now_tick);
        self.make_room();
    }

    /// A piece of a set was read.
    pub(in crate::engine) fn scrub_loaded(&mut self, loaded: Loaded) -> Result<(), DaemonError> {
        let (now_tick, hz) = (self.now_tick()?, self.datapath.clock.hz());
        let elements: Vec<(Element, u32)> = loaded
            .elements
            .into_iter()
            .map(|element| {
                let until = self.until_tick(&element, loaded.since, now_tick);
                (element, until)
            })
            .collect();
        let set = self.scrub.sets.get_mut(&loaded.set);
        let Some(set) = set.filter(|set| set.load == Some(loaded.load)) else {
            return Ok(());
        };
        look_again(set, &elements, now_tick);
        let mut changed = set.read(elements.into_iter());
        if let Some(end) = loaded.end {
            if let Err(error) = &end {
                tracing::debug!("reading the set {}: {error}", loaded.set.2);
            }
            let whole = end.unwrap_or(false);
            changed.extend(set.end(whole));
            if !whole && set.is_known() {
                set.again_tick = Some(now_tick.wrapping_add(AGAIN_S * hz).max(1));
            }
        }
        self.scrub.place(&changed, now_tick);
        self.make_room();
        Ok(())
    }

    /// A larger table, if addresses found no place or are about to.
    fn make_room(&mut self) {
        let Some(scrubber) = &self.scrub.scrubber else {
            return;
        };
        let (used, room) = (scrubber.used(), scrubber.room());
        let full = used.iter().zip(room).any(|(used, room)| *used > room);
        if !self.scrub.crowded && !full {
            return;
        }
        self.scrub.crowded = false;
        let wanted: Vec<u32> = used
            .iter()
            .zip(room)
            .map(|(used, room)| match room {
                room if 4 * used < 3 * room => room,
                // the larger it is, the less of it is in the caches
                LARGE.. => room * 2,
                room => room * 4,
            })
            .collect();
        let wanted = [wanted[0], wanted[1]];
        if wanted == room {
            return;
        }
        if let Err(error) = self.grow(wanted) {
            tracing::warn!("a larger table of what is dropped: {error}");
        }
    }

    fn grow(&mut self, room: [u32; 2]) -> Result<(), DaemonError> {
        let Some(before) = &self.scrub.scrubber else {
            return Ok(());
        };
        let mut larger = self
            .datapath
            .larger_scrubber(before, room)
            .map_err(failure)?;
        let links = self.mirror.links();
        let mut placed = Vec::new();
        for (ifindex, port) in &self.ports.by_index {
            let mac = links.get(ifindex).and_then(|link| link.mac);
            let Some(mac) = mac.filter(|_| port.is_scrubbed()) else {
                continue;
            };
            let here = self.scrub.here(*ifindex, mac.0);
            larger.at(*ifindex, here).map_err(failure)?;
            placed.push((*ifindex, here));
        }
        let plain = self.datapath.prog(Hook::Xdp).map_err(failure)?;
        // what is counted from here on is the larger one's
        let mut lost = false;
        for (ifindex, here) in placed {
            let Some(port) = self.ports.by_index.get_mut(&ifindex) else {
                continue;
            };
            let prog = larger.at(ifindex, here).map_err(|error| error.to_string());
            if let Err(error) = prog.and_then(|prog| port.scrub_anew(prog.as_fd())) {
                // its program goes by the smaller one, which nobody writes from here on
                tracing::warn!(port = port.name, reason = error, "a larger table");
                port.unscrub(plain.as_fd());
                lost = true;
            }
        }
        larger.carry_counts(before);
        // its place was none, or another address's
        let all: Vec<_> = self
            .scrub
            .sets
            .values()
            .flat_map(|set| set.items().collect::<Vec<_>>())
            .collect();
        self.scrub.scrubber = Some(larger);
        let missing: Vec<_> = all
            .into_iter()
            .filter(|item| match (item, &self.scrub.scrubber) {
                (super::sets::Item::Key(key), Some(scrubber)) => scrubber.get(key).is_none(),
                _ => false,
            })
            .collect();
        let now_tick = self.now_tick()?;
        self.scrub.place(&missing, now_tick);
        self.ask_poller();
        match lost {
            true => self.update_scrub(),
            false => Ok(()),
        }
    }

    /// Once a second: rates, what timed out, and whether the kernel's counters say the same.
    pub(in crate::engine) fn look_at_scrub(&mut self) -> Result<(), DaemonError> {
        if self.scrub.scrubber.is_none() {
            return Ok(());
        }
        let now_tick = self.now_tick()?;
        self.rate_drops();
        if self.scrub.forgot.elapsed() >= FORGET {
            self.scrub.forgot = Instant::now();
            let mut over = Vec::new();
            for (name, set) in &mut self.scrub.sets {
                over.extend(set.expire(now_tick));
                if set.load.is_none() && set.again_tick.is_some_and(|tick| is_over(tick, now_tick))
                {
                    set.begin(self.scrub.loader.load(name));
                }
            }
            self.scrub.place(&over, now_tick);
        }
        self.confirm_drops()
    }

    fn rate_drops(&mut self) {
        let seconds = self.scrub.looked.elapsed().as_secs_f64();
        if seconds < 0.5 {
            return;
        }
        self.scrub.looked = Instant::now();
        for (of, packets) in self.scrub.counts() {
            let rate = self
                .scrub
                .rates
                .entry(of)
                .or_insert(Rate { packets, per_s: 0 });
            let more = packets.saturating_sub(rate.packets) as f64;
            *rate = Rate {
                packets,
                per_s: (more / seconds).round() as u64,
            };
        }
    }

    /// A rule whose counter stands still while the kernel is given what it would drop is the kernel's again.
    fn confirm_drops(&mut self) -> Result<(), DaemonError> {
        let mut doubted = false;
        for rule in self.scrub.rules() {
            let numbers: Vec<u32> = self.scrub.numbers_of(&rule).collect();
            let passed = numbers
                .iter()
                .map(|number| self.scrub.counted(*number, None).passed);
            let passed: u64 = passed.sum();
            let before = self.scrub.seen.get(&rule).copied().unwrap_or_default();
            if !rule.counts || passed == before.1 {
                continue;
            }
            let Some(counter) = self.kernel_count(&rule) else {
                continue;
            };
            let missed = match counter == before.0 && before.1 != 0 {
                true => before.2 + 1,
                false => 0,
            };
            if missed >= UNCONFIRMED_MAX {
                tracing::warn!(
                    "{}: its counter does not count what it is given",
                    rule.place
                );
                self.scrub.doubted.insert(rule.clone());
                doubted = true;
            }
            self.scrub.seen.insert(rule, (counter, passed, missed));
        }
        match doubted {
            true => self.update_scrub(),
            false => Ok(()),
        }
    }

    /// What a rule's counter says.
    pub(super) fn kernel_count(&self, rule: &DropRule) -> Option<u64> {
        let place = &rule.place;
        let counter = nft::rule_counter(place.family, &place.table, &place.chain, place.handle);
        counter.ok().flatten()
    }
}

fn kept_for(rule: &DropRule, why: &str) -> KeptRule {
    KeptRule {
        place: rule.place.clone(),
        set: rule.set.2.clone(),
        reason: why.to_owned(),
    }
}

/// The set is read again in time, if an element ends later than a tick can say.
fn look_again(set: &mut Mirrored, elements: &[(Element, u32)], now_tick: u32) {
    let away = |until: &u32| *until == now_tick.wrapping_add(AWAY_MAX_TICKS).max(1);
    if elements.iter().any(|(_, until)| away(until)) {
        let again = now_tick.wrapping_add(AWAY_MAX_TICKS / 2).max(1);
        set.again_tick.get_or_insert(again);
    }
}
