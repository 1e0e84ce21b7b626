// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prefix paths: packets without a flow leave by the kernel's routes, at ports where nothing else decides.

mod answer;
mod family;
mod follow;
mod grounds;
mod judge;
mod loader;
mod routed;
mod side;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use freeway_abi::{FW_ROUTES_IPV4, FW_ROUTES_IPV6};
use freeway_api::Packets;
use freeway_datapath::{MapMemory, RouteTable};
use freeway_kernel::model::{Event, Family};
use freeway_kernel::nft::Ruleset;
use freeway_kernel::reachability::{Passage, passage};
use freeway_prefix::Prefix;

use self::grounds::{Device6, Reasons};
use self::routed::Routed;
use self::side::Side;

/// Where packets come in, by what rules may name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entrance {
    ifindex: u32,
    port: String,
    /// The device below a VLAN.
    below: Option<String>,
}

/// What is known of prefix paths.
#[derive(Default)]
pub(super) struct Routes {
    /// None: no port has them.
    table: Option<Table>,
    /// Why no port has, by family.
    reasons: Reasons,
    ports_kept: BTreeMap<String, String>,
    /// What ports were last judged to have.
    placed: BTreeMap<u32, Routed>,
    /// Ports are to be judged: until that was done everything is the kernel's.
    held: bool,
    /// IP versions that some port has prefix paths of: `fw_route_here.families`.
    families: u32,
    /// Some port forwards IPv4 without `rp_filter`.
    unfiltered: bool,
    /// Sources that keep all of IPv4 from prefix paths.
    refused: Option<Prefix<u32>>,
    /// Ports without an IPv4 address, as they were last judged.
    bare: BTreeSet<u32>,
    /// The firewall as it was last read.
    rules: Option<Arc<Ruleset>>,
    /// It may let packets pass conntrack by.
    bypasses: bool,
    /// How what ports hand in passes it, by IP version.
    passages: BTreeMap<Entrance, [Passage; 2]>,
    /// The kernel changed a packet that nothing was to change: until the ruleset is another one.
    doubted: Option<String>,
    /// Why there can be no table.
    failed: Option<String>,
    strayed: u64,
    /// The engine's ports and VLANs that found no room.
    unplaced: usize,
    /// Tables that were made.
    tables: u64,
    /// What left by tables that are no more.
    past: Packets,
    /// What nothing tells of, as ports were last judged by it.
    devices6: BTreeMap<u32, Device6>,
}

/// The data plane's tables, and what they are made of.
struct Table {
    /// Of all that were made.
    number: u64,
    data: RouteTable,
    v4: Side<u32>,
    v6: Side<u128>,
}

impl Routes {
    /// The ruleset was read, if it can be.
    pub(super) fn set_rules(&mut self, rules: Option<Arc<Ruleset>>) {
        self.bypasses = rules
            .as_ref()
            .is_some_and(|rules| rules.bypasses_conntrack());
        self.rules = rules;
        self.passages.clear();
        self.doubted = None;
    }

    /// How what a port hands in passes the ruleset, if that can be read.
    fn passages(&mut self, at: Entrance) -> Option<&[Passage; 2]> {
        let rules = self.rules.as_ref()?;
        let judge = |at: &Entrance| {
            let of = |ip| passage(rules, ip, at.ifindex, &at.port, at.below.as_deref());
            [of(Family::Ipv4), of(Family::Ipv6)]
        };
        Some(self.passages.entry(at).or_insert_with_key(judge))
    }

    /// Some port has prefix paths of a family.
    fn has(&self, family: Family) -> bool {
        let bit = match family {
            Family::Ipv4 => FW_ROUTES_IPV4,
            Family::Ipv6 => FW_ROUTES_IPV6,
        };
        self.table.is_some() && self.families & bit != 0
    }

    /// From there the kernel takes no packets, and where nothing filters sources they are not looked up here. `looked_up`: the
    /// kernel does.
    fn refused_sources(&self, looked_up: bool) -> Option<Prefix<u32>> {
        let table = self.table.as_ref().filter(|_| self.unfiltered)?;
        table.v4.routing().refused(looked_up)
    }

    /// True of an event by which a port with prefix paths may be judged otherwise.
    pub(super) fn concerns(&self, event: &Event) -> bool {
        let ifindex = match event {
            // all of them
            Event::NetconfChanged { ifindex: -1, .. } => return !self.placed.is_empty(),
            Event::NetconfChanged { ifindex, .. } => ifindex.cast_unsigned(),
            Event::LinkChanged(link) => link.ifindex,
            Event::LinkGone { ifindex } => *ifindex,
            _ => return false,
        };
        let mut placed = self.placed.iter();
        placed.any(|(port, routed)| [*port, routed.at].contains(&ifindex))
    }

    /// Ports are to be judged.
    pub(super) fn is_held(&self) -> bool {
        self.held
    }

    /// Everything is the kernel's until ports have been judged.
    pub(super) fn invalidate(&mut self) {
        self.held = true;
        if let Some(table) = &self.table {
            table.data.set_valid::<u32>(false);
            table.data.set_valid::<u128>(false);
        }
    }

    /// Ids of its programs.
    pub(super) fn prog_ids(&self) -> Vec<u32> {
        self.table
            .as_ref()
            .map_or_else(Vec::new, |table| table.data.prog_ids())
    }

    /// Of its table.
    pub(super) fn memory(&self) -> MapMemory {
        let table = self.table.as_ref();
        table.map_or_else(MapMemory::new, |table| table.data.memory())
    }

    /// The kernel changed.
    pub(super) fn heard(&mut self, event: &Event) {
        if let Some(table) = &mut self.table {
            table.v4.heard(event, &table.data);
            table.v6.heard(event, &table.data);
        }
    }

    /// A piece of the kernel's routes; never without a table.
    pub(super) async fn loaded(&mut self) -> Loaded {
        match &mut self.table {
            Some(table) => tokio::select! {
                piece = table.v4.loaded() => Loaded::Ipv4(piece),
                piece = table.v6.loaded() => Loaded::Ipv6(piece),
            },
            None => std::future::pending().await,
        }
    }

    /// More is to be brought into the table than a turn has time for.
    pub(super) fn has_work(&self) -> bool {
        let table = self.table.as_ref();
        table.is_some_and(|table| table.v4.has_work() || table.v6.has_work())
    }
}

/// A piece of a family's routes.
#[derive(Debug)]
pub(super) enum Loaded {
    Ipv4(loader::Piece<u32>),
    Ipv6(loader::Piece<u128>),
}
