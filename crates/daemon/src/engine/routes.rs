// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prefix paths: packets without a flow leave by the kernel's routes, at ports where nothing else decides.

mod answer;
mod follow;
mod judge;
mod loader;

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use freeway_datapath::RouteTable;
use freeway_kernel::model::Event;
use freeway_prefix::{NextHop, Prefix4};
use freeway_routing::{Hop, Routing};

use self::loader::Loader;

/// Prefixes that one turn brings into the table: more are brought piece by piece, and nothing is valid until all are.
const PREFIXES_PER_TURN: usize = 16_384;

/// A prefix that is withdrawn is tried again once all routes were read, and were read once more so much later.
const WITHDRAWN: Duration = Duration::from_secs(60);

/// What is known of prefix paths.
#[derive(Default)]
pub(super) struct Routes {
    /// None: no port has them.
    table: Option<Table>,
    /// Why no port has.
    reason: Option<String>,
    ports_kept: BTreeMap<String, String>,
    /// What forwarded packets meet in the firewall, as it was last read.
    rules: Option<String>,
    /// The kernel changed a packet that nothing was to change: until the ruleset is another one.
    doubted: Option<String>,
    /// Why there can be no table.
    failed: Option<String>,
    strayed: u64,
}

/// The table, and what it is made of.
struct Table {
    routing: Routing,
    data: RouteTable,
    loader: Loader,
    /// Next hops by leaf.
    neighbours: BTreeMap<NextHop, u32>,
    /// Not yet in the data plane.
    hops: BTreeMap<NextHop, Option<Hop>>,
    prefixes: VecDeque<(Prefix4, Option<NextHop>)>,
    /// The data plane has no room for all prefixes.
    full: bool,
    /// When a prefix was last withdrawn, if all routes were not read since.
    withdrawn: Option<Instant>,
}

impl Routes {
    /// The ruleset was read: what forwarded packets meet in it.
    pub(super) fn set_rules(&mut self, rules: Option<String>) {
        self.rules = rules;
        self.doubted = None;
    }

    /// Everything is the kernel's, for now.
    pub(super) fn invalidate(&self) {
        if let Some(table) = &self.table {
            table.data.set_valid(false);
        }
    }

    /// Ids of its programs.
    pub(super) fn prog_ids(&self) -> Vec<u32> {
        self.table
            .as_ref()
            .map_or_else(Vec::new, |table| table.data.prog_ids())
    }

    /// The kernel changed.
    pub(super) fn heard(&mut self, event: &Event) {
        if let Some(table) = &mut self.table {
            table.routing.event(event);
            if !table.routing.ready() {
                table.data.set_valid(false);
            }
        }
    }

    /// A piece of the kernel's routes; never without a table.
    pub(super) async fn loaded(&mut self) -> Loaded {
        match &mut self.table {
            Some(table) => table.loader.next().await,
            None => std::future::pending().await,
        }
    }

    /// More is to be brought into the table than a turn has time for.
    pub(super) fn has_work(&self) -> bool {
        self.table
            .as_ref()
            .is_some_and(|table| !table.prefixes.is_empty())
    }
}

pub(super) use loader::Loaded;
