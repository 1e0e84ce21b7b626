// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prefix paths follow ports, rules and routes.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;

use freeway_abi::{fw_hop, fw_route_here, fw_strayed};
use freeway_datapath::Hook;
use freeway_kernel::model::{Event, Family};
use freeway_routing::{Hop, Routing};

use super::super::Engine;
use super::loader::{Loaded, Loader};
use super::{PREFIXES_PER_TURN, Table, WITHDRAWN};
use crate::DaemonError;
use crate::error::failure;

impl Engine {
    /// Judges rules and ports anew.
    pub(in crate::engine) fn update_routes(&mut self) -> Result<(), DaemonError> {
        if !self.config.policy.routes {
            return Ok(());
        }
        self.routes.invalidate();
        let mut reason = self.unrouted();
        let (mut wanted, mut kept) = (BTreeMap::new(), BTreeMap::new());
        for link in self.business() {
            let judged = match (&reason, self.ports.by_index.get(&link.ifindex)) {
                (Some(reason), _) => Err(reason.clone()),
                (None, Some(port)) => self.routed_here(link, port),
                (None, None) => Err("it is new".into()),
            };
            match judged {
                Ok(here) => drop(wanted.insert(link.ifindex, here)),
                Err(reason) => drop(kept.insert(link.name.clone(), reason)),
            }
        }
        if !wanted.is_empty() && self.routes.table.is_none() {
            reason = self.make_routes();
            wanted.retain(|_, _| reason.is_none());
        }
        self.routes.ports_kept = kept;
        if self.routes.reason != reason {
            match &reason {
                Some(reason) => tracing::info!("no prefix paths: {reason}"),
                None => tracing::info!("prefix paths at {} ports", wanted.len()),
            }
        }
        self.routes.reason = reason;
        self.place_routes(&wanted);
        if wanted.is_empty() {
            self.routes.table = None;
        }
        let exits = self.exits();
        if let Some(table) = &mut self.routes.table {
            table.routing.set_ports(&exits);
        }
        self.follow_routes()
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
        let mut table = Table {
            routing: Routing::new(),
            data: self.datapath.route_table().map_err(failure)?,
            loader: Loader::start()?,
            neighbours: BTreeMap::new(),
            hops: BTreeMap::new(),
            prefixes: std::collections::VecDeque::new(),
            full: false,
            withdrawn: None,
        };
        for event in self.mirror.snapshot() {
            if !matches!(event, Event::RouteChanged(..)) {
                table.routing.event(&event);
            }
        }
        table.routing.begin_load();
        table.loader.load();
        Ok(table)
    }

    /// Each port's program as it was judged.
    fn place_routes(&mut self, wanted: &BTreeMap<u32, fw_route_here>) {
        let Some(table) = &mut self.routes.table else {
            return;
        };
        let plain = self.datapath.prog(Hook::Xdp);
        let before = table.data.prog_ids();
        for (ifindex, port) in &mut self.ports.by_index {
            match (wanted.get(ifindex), &plain) {
                (Some(here), _) => {
                    let placed = table.data.at(*ifindex, *here);
                    let placed = placed.map_err(|error| error.to_string());
                    if let Err(error) = placed.and_then(|prog| port.route(prog.as_fd())) {
                        tracing::warn!(port = port.name, "no prefix paths: {error}");
                        self.routes.ports_kept.insert(port.name.clone(), error);
                    }
                }
                (None, Ok(plain)) if port.is_routed() => {
                    if let Err(error) = port.restore(plain.as_fd()) {
                        tracing::warn!(port = port.name, "{error}");
                    }
                }
                _ => {}
            }
        }
        let by_index = &self.ports.by_index;
        let stays = |ifindex: &u32| by_index.get(ifindex).is_some_and(|port| port.is_routed());
        let gone: Vec<u32> = table.data.ports().filter(|index| !stays(index)).collect();
        for ifindex in gone {
            table.data.leave(ifindex);
        }
        if before != table.data.prog_ids() {
            // or they would count as somebody else's
            self.ask_poller();
        }
    }

    /// Brings what changed into the data plane, and has it be used if all of it is there.
    pub(in crate::engine) fn follow_routes(&mut self) -> Result<(), DaemonError> {
        let Some(table) = &mut self.routes.table else {
            return Ok(());
        };
        let changes = table.routing.changes();
        for (leaf, hop) in changes.hops {
            if let Some(hop) = &hop {
                table.neighbours.insert(leaf, hop.gateway);
            }
            table.hops.insert(leaf, hop);
        }
        table.prefixes.extend(changes.prefixes);
        let own = table.routing.own_addresses().into_iter();
        table.data.set_own(own.map(Ipv4Addr::from));
        self.carry_routes();
        Ok(())
    }

    /// A piece of it.
    pub(in crate::engine) fn carry_routes(&mut self) {
        let slots = |oif: u32| self.ports.by_index.get(&oif).and_then(|port| port.slot);
        let Some(table) = &mut self.routes.table else {
            return;
        };
        let data = &mut table.data;
        table.hops.retain(|leaf, hop| {
            let owner = hop.as_ref().map_or(0, owner_of);
            let record = hop.as_ref().and_then(|hop| record(hop, slots(hop.oif)?));
            // the leaf rests, or all records do: later
            !data.set_hop(*leaf, owner, record)
        });
        let more = table.prefixes.len() > PREFIXES_PER_TURN;
        let count = table.prefixes.len().min(PREFIXES_PER_TURN);
        if more {
            data.set_valid(false);
        }
        // one that is full has room again once what was replaced has rested
        if count > 0 || table.full {
            let full = data.set_prefixes(table.prefixes.drain(..count)).is_err();
            if full != table.full {
                match full {
                    true => {
                        tracing::warn!("no room for all prefixes: they are the kernel's for now")
                    }
                    false => tracing::info!("there is room for all prefixes again"),
                }
                table.full = full;
            }
        }
        let known = self.routes.reason.is_none() && table.routing.ready();
        data.set_valid(known && table.prefixes.is_empty() && !table.full);
    }

    /// A piece of the kernel's routes was read.
    pub(in crate::engine) fn routes_loaded(&mut self, loaded: Loaded) -> Result<(), DaemonError> {
        let Some(table) = &mut self.routes.table else {
            return Ok(());
        };
        match loaded {
            Loaded::Routes(routes) => table.routing.load(routes),
            Loaded::End(whole) => {
                table.loader.busy = false;
                table.routing.end_load(whole);
                tracing::debug!(whole, counts = ?table.routing.counts(), "the routes were read");
                return self.follow_routes();
            }
        }
        Ok(())
    }

    /// What nothing tells of, and what waits.
    pub(in crate::engine) fn look_at_routes(&mut self) -> Result<(), DaemonError> {
        if !self.config.policy.routes {
            return Ok(());
        }
        if self.unrouted() != self.routes.reason {
            self.update_routes()?;
        }
        if let Some(table) = &mut self.routes.table {
            let withdrawn = table.withdrawn.is_some_and(|at| at.elapsed() >= WITHDRAWN);
            if (table.routing.wants_load() || withdrawn) && !table.loader.busy {
                table.withdrawn = table.withdrawn.filter(|_| !withdrawn);
                table.routing.begin_load();
                table.loader.load();
            }
            self.carry_routes();
        }
        Ok(())
    }

    /// A packet left otherwise than by the next hop that it asked for.
    pub(in crate::engine) fn strayed(&mut self, strayed: &fw_strayed) -> Result<(), DaemonError> {
        let address = u32::from_be(strayed.daddr_be);
        let Some(table) = &mut self.routes.table else {
            return Ok(());
        };
        // of a route that is no longer the table's, nothing is to be learned
        let leaf = table.data.leaf_of(strayed.ev.state);
        if leaf != Some(table.data.lookup(address.into())) {
            return Ok(());
        }
        self.routes.strayed += 1;
        let name = |ifindex: u32| {
            let link = self.mirror.links().get(&ifindex);
            link.map_or_else(|| ifindex.to_string(), |link| link.name.clone())
        };
        let (to, at) = (Ipv4Addr::from(address), name(strayed.port_out));
        if strayed.changed != 0 {
            let reason = format!("the kernel changed a packet to {to} that left at {at}");
            tracing::warn!("prefix paths: {reason}");
            self.routes.doubted = Some(reason);
            return self.update_routes();
        }
        if let Some(prefix) = table.routing.withdraw(address) {
            table.withdrawn = Some(std::time::Instant::now());
            let prefix = format!("{}/{}", Ipv4Addr::from(prefix.first()), prefix.length());
            tracing::warn!("the kernel sent a packet to {to} at {at}: prefix {prefix} is its own");
        }
        self.follow_routes()
    }

    /// True of an event after which ports are to be judged anew, beside those of links and rules of the firewall.
    pub(in crate::engine) fn may_change_routed(&self, event: &Event) -> bool {
        match event {
            Event::RuleChanged(rule) => rule.family == Family::Ipv4,
            _ => false,
        }
    }
}

/// The same of two only if they are to the same neighbour.
fn owner_of(hop: &Hop) -> u64 {
    u64::from(hop.oif) << 32 | u64::from(hop.gateway)
}

fn record(hop: &Hop, devmap_slot: u32) -> Option<fw_hop> {
    let mut record = fw_hop {
        port: hop.oif,
        len_max: hop.len_max,
        devmap_slot,
        ..fw_hop::default()
    };
    record.l2[..6].copy_from_slice(&hop.dst_mac);
    record.l2[6..12].copy_from_slice(&hop.src_mac);
    record.l2[12..].copy_from_slice(&[0x08, 0x00]);
    Some(record)
}
