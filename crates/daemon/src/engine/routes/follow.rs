// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prefix paths follow ports, rules and routes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;

use freeway_abi::{FW_AF_INET6, FW_ROUTES_IPV4, FW_RP_OFF, fw_strayed};
use freeway_datapath::{Hook, RouteHook, RoutedByEngine, RoutedHere};
use freeway_kernel::model::{Addr, Event, Family, Link};
use freeway_kernel::reachability::Passage;

use super::super::Engine;
use super::super::ports::Port;
use super::answer::{prefix_words, refused_words};
use super::family::Sided;
use super::grounds::Reasons;
use super::routed::Routed;
use super::side::Side;
use super::{Entrance, Loaded, Table};
use crate::DaemonError;
use crate::error::failure;

impl Engine {
    /// Judges rules and ports anew.
    pub(in crate::engine) fn update_routes(&mut self) -> Result<(), DaemonError> {
        if self.config.policy.without_routes() {
            return Ok(());
        }
        let mut reasons = Reasons {
            ipv4: self.unrouted(Family::Ipv4),
            ipv6: self.unrouted(Family::Ipv6),
        };
        self.routes.devices6 = self.devices6(&reasons);
        let ports = self.ports.by_index.keys().copied();
        self.routes.bare = ports.filter(|port| !self.has_ipv4_address(*port)).collect();
        let (mut wanted, mut kept) = (BTreeMap::new(), BTreeMap::new());
        let passages = match reasons.of_both() {
            Some(_) => BTreeMap::new(),
            None => self.passages(),
        };
        for link in self.business() {
            let port = self.ports.by_index.get(&link.ifindex);
            let judged = match port.zip(passages.get(&link.ifindex)) {
                Some((port, passages)) => self.routed_here(link, port, &reasons, passages),
                // without a ruleset there is a reason of all
                None => (
                    None,
                    reasons.of_both().cloned().or(Some("it is new".into())),
                ),
            };
            let (here, reason) = judged;
            if let Some(here) = here {
                wanted.insert(link.ifindex, here);
            }
            if let Some(reason) = reason {
                kept.insert(link.name.clone(), reason);
            }
        }
        if !wanted.is_empty()
            && self.routes.table.is_none()
            && let Some(failed) = self.make_routes()
        {
            reasons = Reasons {
                ipv4: Some(failed.clone()),
                ipv6: Some(failed),
            };
            wanted.clear();
        }
        self.routes.ports_kept = kept;
        for (family, words) in [(Family::Ipv4, u32::NAME), (Family::Ipv6, u128::NAME)] {
            if self.routes.reasons.of(family) != reasons.of(family) {
                match reasons.of(family) {
                    // most routers track connections, and nobody asked
                    Some(reason)
                        if self.config.policy.routes.is_none() && !self.routes.has(family) =>
                    {
                        tracing::debug!("no prefix paths for {words}: {reason}");
                    }
                    Some(reason) => tracing::info!("no prefix paths for {words}: {reason}"),
                    None => tracing::info!("prefix paths for {words} where ports allow it"),
                }
            }
        }
        self.routes.reasons = reasons;
        let families = wanted.values().map(|port| port.here.families);
        self.routes.families = families.fold(0, |all, here| all | here);
        self.routes.unfiltered = wanted.values().any(|port| {
            let here = port.here;
            here.families & FW_ROUTES_IPV4 != 0 && u32::from(here.rp_filter) == FW_RP_OFF
        });
        if !self.are_placed(&wanted) {
            // what is looked at meanwhile is neither the old nor the new
            self.routes.invalidate();
            self.place_routes(&wanted);
            self.place_engine_routes(&wanted);
            tracing::debug!(ports = wanted.len(), "ports have other prefix paths");
        }
        if wanted.is_empty() {
            self.routes.past = self.routed();
            self.routes.table = None;
        }
        self.routes.placed = wanted;
        self.routes.held = false;
        self.tell_engine_tables();
        self.set_exits(&BTreeSet::new());
        Ok(())
    }

    /// How what each port hands in passes the ruleset; none if that cannot be read.
    fn passages(&mut self) -> BTreeMap<u32, [Passage; 2]> {
        let mut entrances = BTreeSet::new();
        entrances.extend(self.business().map(|link| self.entrance(link)));
        self.routes.passages.retain(|at, _| entrances.contains(at));
        let of = |at: Entrance| {
            let ifindex = at.ifindex;
            let passages = self.routes.passages(at)?;
            Some((ifindex, passages.clone()))
        };
        let mut passages = BTreeMap::new();
        passages.extend(entrances.into_iter().filter_map(of));
        passages
    }

    fn entrance(&self, link: &Link) -> Entrance {
        let port = self.ports.by_index.get(&link.ifindex);
        let carried = port.and_then(|port| port.carried.as_ref());
        let below = carried.and_then(|carried| self.mirror.links().get(&carried.base));
        Entrance {
            ifindex: link.ifindex,
            port: link.name.clone(),
            below: below.map(|below| below.name.clone()),
        }
    }

    /// Makes the table; or says why the kernel cannot have it, which is not asked again.
    fn make_routes(&mut self) -> Option<String> {
        if self.routes.failed.is_none() {
            match self.route_table() {
                Ok(table) => self.routes.table = Some(table),
                Err(error) => {
                    let reason = format!("the data plane cannot have its table: {error}");
                    tracing::warn!("no prefix paths: {reason}");
                    self.routes.failed = Some(reason);
                }
            }
        }
        self.routes.failed.clone()
    }

    /// A table with nothing in it, which is being filled.
    fn route_table(&mut self) -> Result<Table, DaemonError> {
        let engine = &self.config.engine;
        let workers = match engine.port.is_empty() {
            true => 0,
            false => engine.workers().len() as u32,
        };
        let data = self.datapath.route_table(workers).map_err(failure)?;
        let there = self.mirror.snapshot();
        self.routes.tables += 1;
        Ok(Table {
            number: self.routes.tables,
            data,
            v4: Side::start(&there)?,
            v6: Side::start(&there)?,
        })
    }

    /// Ports have what they were judged to have, and what they had: then nothing is to be written.
    fn are_placed(&self, wanted: &BTreeMap<u32, Routed>) -> bool {
        let is_placed = |(ifindex, routed): (&u32, &Routed)| {
            let [port, at] = [*ifindex, routed.at].map(|port| self.ports.by_index.get(&port));
            port.is_some_and(|port| port.by_routes)
                && at.is_some_and(|at| at.routed() == Some(routed.hook))
        };
        let is_wanted = |(ifindex, port): (&u32, &Port)| {
            let mut wanted = wanted.values();
            let hook = port.routed();
            hook.is_none_or(|hook| wanted.any(|to| (to.at, to.hook) == (*ifindex, hook)))
        };
        self.routes.placed == *wanted
            && wanted.iter().all(is_placed)
            && self.ports.by_index.iter().all(is_wanted)
    }

    /// Packets leave by prefixes where ports are fit for it, but for those that go, and VLANs above them: their slots are
    /// others' next.
    pub(in crate::engine) fn set_exits(&mut self, gone: &BTreeSet<u32>) {
        if self.routes.table.is_none() {
            return;
        }
        let mut placed = self.routes.placed.values();
        let in_tc = placed.any(|port| port.hook == RouteHook::Tc);
        let stays = |ifindex: &u32| {
            let port = self.ports.by_index.get(ifindex);
            let carried = port.and_then(|port| port.carried.as_ref());
            !gone.contains(ifindex) && carried.is_none_or(|carried| !gone.contains(&carried.base))
        };
        let [exits4, exits6] = [Family::Ipv4, Family::Ipv6].map(|family| {
            let mut exits = self.exits(family, in_tc);
            exits.retain(|ifindex, _| stays(ifindex));
            exits
        });
        if let Some(table) = &mut self.routes.table {
            table.v4.set_ports(&exits4);
            table.v6.set_ports(&exits6);
        }
        self.follow_routes();
    }

    /// Each port's program as it was judged; that of VLANs is at the device below.
    fn place_routes(&mut self, wanted: &BTreeMap<u32, Routed>) {
        let Some(table) = &mut self.routes.table else {
            return;
        };
        let mut programs: BTreeMap<u32, (RouteHook, RoutedHere)> = BTreeMap::new();
        for routed in wanted.values() {
            let (_, heres) = programs
                .entry(routed.at)
                .or_insert_with(|| (routed.hook, RoutedHere::new()));
            heres.insert(routed.vlan, routed.here);
        }
        let plain = |hook| match hook {
            RouteHook::Xdp => self.datapath.prog(Hook::Xdp),
            RouteHook::Tc => self.datapath.prog(Hook::IngressAlone),
        };
        let before = table.data.prog_ids();
        let mut failed = BTreeMap::new();
        for (ifindex, port) in &mut self.ports.by_index {
            let program = programs.get(ifindex);
            let hook = program.map(|(hook, _)| *hook);
            if let Some(other) = port.routed().filter(|there| Some(*there) != hook) {
                table.data.silence(other, *ifindex);
                let plain = plain(other).map_err(|error| error.to_string());
                if let Err(error) = plain.and_then(|plain| port.unroute(plain.as_fd())) {
                    tracing::warn!(port = port.name, "{error}");
                    failed.insert(*ifindex, error);
                    continue;
                }
            }
            let Some((hook, heres)) = program else {
                continue;
            };
            let placed = plain(*hook)
                .and_then(|next| table.data.at(*hook, *ifindex, heres, next.as_fd()))
                .map_err(|error| error.to_string());
            if let Err(error) = placed.and_then(|prog| port.route(*hook, prog.as_fd())) {
                tracing::warn!(port = port.name, "no prefix paths: {error}");
                failed.insert(*ifindex, error);
            }
        }
        for (ifindex, port) in &mut self.ports.by_index {
            let wanted = wanted.get(ifindex);
            let why = wanted.and_then(|routed| failed.get(&routed.at));
            port.by_routes = wanted.is_some() && why.is_none();
            if let Some(why) = why {
                self.routes
                    .ports_kept
                    .insert(port.name.clone(), why.clone());
            }
        }
        let by_index = &self.ports.by_index;
        let there = |ifindex: u32| by_index.get(&ifindex).and_then(Port::routed);
        table
            .data
            .retain(|hook, ifindex| there(ifindex) == Some(hook));
        if before != table.data.prog_ids() {
            // or they would count as somebody else's
            self.ask_poller();
        }
    }

    /// What the engine is to know at its ports.
    fn place_engine_routes(&mut self, wanted: &BTreeMap<u32, Routed>) {
        let Some(table) = &mut self.routes.table else {
            return;
        };
        let mut heres = RoutedByEngine::new();
        for routed in wanted.values() {
            let placed = self.ports.by_index.get(&routed.at);
            let placed = placed.is_some_and(|port| port.routed() == Some(RouteHook::Tc));
            if let Some(at) = routed.engine.filter(|_| placed) {
                heres.insert(at, routed.here);
            }
        }
        let unplaced = table.data.set_engine(&heres);
        for (ifindex, port) in &mut self.ports.by_index {
            let engine = wanted.get(ifindex).and_then(|routed| routed.engine);
            port.by_engine_routes =
                engine.is_some_and(|at| heres.contains_key(&at) && !unplaced.contains(&at));
        }
        if unplaced.len() != self.routes.unplaced && !unplaced.is_empty() {
            tracing::warn!(
                "no room for {} of the engine's ports and VLANs: without a flow, what comes in there is forwarded by tc",
                unplaced.len()
            );
        }
        self.routes.unplaced = unplaced.len();
    }

    /// Where its tables are, if there are any.
    fn tell_engine_tables(&mut self) {
        let table = self.routes.table.as_ref();
        let table = table.map(|table| (table.number, &table.data));
        self.cores.tell_routes(table);
    }

    /// Brings what changed into the data plane, and has it be used if all of it is there.
    pub(in crate::engine) fn follow_routes(&mut self) {
        let Some(table) = &mut self.routes.table else {
            return;
        };
        table.v4.follow();
        table.v6.follow();
        if let Some(own) = table.v4.own_addresses() {
            table.data.set_own(own.into_iter().map(Ipv4Addr::from));
        }
        self.carry_routes();
    }

    /// A piece of it.
    pub(in crate::engine) fn carry_routes(&mut self) {
        let slots = |oif: u32| self.ports.by_index.get(&oif).and_then(|port| port.slot);
        let has = |family| self.routes.has(family) && !self.routes.held;
        let [ipv4, ipv6] = [Family::Ipv4, Family::Ipv6].map(has);
        let refused = self.refused_sources();
        let ipv4 = ipv4 && refused.is_none();
        if refused != self.routes.refused {
            match &refused {
                Some(prefix) => {
                    tracing::info!("no prefix paths for IPv4: {}", refused_words(prefix));
                }
                None => tracing::info!(
                    "prefix paths for IPv4 again: the kernel refuses no network of sources"
                ),
            }
            self.routes.refused = refused;
        }
        let Some(table) = &mut self.routes.table else {
            return;
        };
        table.v4.carry(&mut table.data, slots, ipv4);
        table.v6.carry(&mut table.data, slots, ipv6);
    }

    /// A piece of the kernel's routes was read.
    pub(in crate::engine) fn routes_loaded(&mut self, loaded: Loaded) {
        let Some(table) = &mut self.routes.table else {
            return;
        };
        let end = match loaded {
            Loaded::Ipv4(piece) => table.v4.load(piece),
            Loaded::Ipv6(piece) => table.v6.load(piece),
        };
        if end {
            self.follow_routes();
        }
    }

    /// What nothing tells of, and what waits.
    pub(in crate::engine) fn look_at_routes(&mut self) -> Result<(), DaemonError> {
        if self.config.policy.without_routes() {
            return Ok(());
        }
        let reasons = Reasons {
            ipv4: self.unrouted(Family::Ipv4),
            ipv6: self.unrouted(Family::Ipv6),
        };
        if self.routes.held
            || reasons != self.routes.reasons
            || self.devices6(&reasons) != self.routes.devices6
        {
            self.update_routes()?;
        }
        self.tell_engine_tables();
        if let Some(table) = &mut self.routes.table {
            table.v4.look();
            table.v6.look();
            self.carry_routes();
        }
        Ok(())
    }

    /// A packet left otherwise than by the next hop that it asked for.
    pub(in crate::engine) fn strayed(&mut self, strayed: &fw_strayed) -> Result<(), DaemonError> {
        let Some(table) = &mut self.routes.table else {
            return Ok(());
        };
        // of a route that is no longer the table's, nothing is to be learned
        let leaf = table.data.leaf_of(strayed.ev.state);
        let octets = strayed.daddr_be.map(u32::to_ne_bytes);
        let (to, known, withdrawn) = if strayed.family == FW_AF_INET6 {
            let address = u128::from_be_bytes(octets.as_flattened().try_into().unwrap_or_default());
            let known = leaf == Some(table.data.lookup(address));
            let withdrawn = (known && strayed.changed == 0).then(|| table.v6.withdraw(address));
            (
                IpAddr::V6(address.into()),
                known,
                withdrawn.flatten().map(|p| prefix_words(&p)),
            )
        } else {
            let address = u32::from_be_bytes(octets[0]);
            let known = leaf == Some(table.data.lookup(address));
            let withdrawn = (known && strayed.changed == 0).then(|| table.v4.withdraw(address));
            (
                IpAddr::V4(address.into()),
                known,
                withdrawn.flatten().map(|p| prefix_words(&p)),
            )
        };
        if !known {
            return Ok(());
        }
        self.routes.strayed += 1;
        let link = self.mirror.links().get(&strayed.port_out);
        let at = link.map_or_else(|| strayed.port_out.to_string(), |link| link.name.clone());
        if strayed.changed != 0 {
            let reason = format!("the kernel changed a packet to {to} that left at {at}");
            tracing::warn!("prefix paths: {reason}");
            self.routes.doubted = Some(reason);
            return self.update_routes();
        }
        if let Some(prefix) = withdrawn {
            tracing::warn!("the kernel sent a packet to {to} at {at}: prefix {prefix} is its own");
        }
        self.follow_routes();
        Ok(())
    }

    /// True of an event after which ports are to be judged anew, beside those of rules of the firewall.
    pub(in crate::engine) fn may_change_routed(&self, event: &Event) -> bool {
        match event {
            Event::RuleChanged(_) => true,
            // a device that has none left may not have the family any more
            Event::AddrGone(address) if address.local.is_ipv6() => true,
            // or is strict about sources
            Event::AddrGone(Addr { ifindex, .. }) | Event::AddrChanged(Addr { ifindex, .. }) => {
                let bare = !self.has_ipv4_address(*ifindex);
                bare != self.routes.bare.contains(ifindex)
            }
            _ => self.routes.concerns(event),
        }
    }
}
