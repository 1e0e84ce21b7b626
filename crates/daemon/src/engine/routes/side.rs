// SPDX-License-Identifier: MIT OR Apache-2.0
//! A family's routes: as the kernel has them, and what of them the data plane does not have yet.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use freeway_abi::{FW_HOP_ELSEWHERE, FW_HOP_ENGINE, FW_HOP_FLOWS, FW_HOP_TC, FW_ST_ACTIVE, fw_hop};
use freeway_cmm::Tag;
use freeway_datapath::RouteTable;
use freeway_kernel::model::Event;
use freeway_prefix::{NextHop, Prefix};
use freeway_routing::{Counts, EngineExit, Exit, Hop, Routing};

use super::super::ports::ETH_P_8021Q;
use super::family::Sided;
use super::loader::{Loader, Piece};
use crate::DaemonError;

/// Prefixes that one turn brings into the table: more are brought piece by piece, and nothing is valid until all are.
const PREFIXES_PER_TURN: usize = 16_384;

/// A prefix that is withdrawn is tried again once all routes were read, and were read once more so much later.
const WITHDRAWN: Duration = Duration::from_secs(60);

/// A family's routes. Leaves are the family's own.
pub struct Side<A: Sided> {
    routing: Routing<A>,
    loader: Loader<A>,
    /// Next hops by leaf.
    neighbours: BTreeMap<NextHop, A>,
    /// Not yet in the data plane.
    hops: BTreeMap<NextHop, Option<Hop<A>>>,
    prefixes: VecDeque<(Prefix<A>, Option<NextHop>)>,
    /// The data plane has no room for all prefixes.
    full: bool,
    /// When a prefix was last withdrawn, if all routes were not read since.
    withdrawn: Option<Instant>,
}

impl<A: Sided> Side<A> {
    /// Nothing is there yet; the kernel's routes are being read.
    pub fn start(there: &[Event]) -> Result<Self, DaemonError> {
        let mut side = Self {
            routing: Routing::new(),
            loader: Loader::start()?,
            neighbours: BTreeMap::new(),
            hops: BTreeMap::new(),
            prefixes: VecDeque::new(),
            full: false,
            withdrawn: None,
        };
        let there = there.iter();
        for event in there.filter(|event| !matches!(event, Event::RouteChanged(..))) {
            side.routing.event(event);
        }
        side.routing.begin_load();
        side.loader.load();
        Ok(side)
    }

    pub fn routing(&self) -> &Routing<A> {
        &self.routing
    }

    /// As [`Routing::take_own_addresses`].
    pub fn own_addresses(&mut self) -> Option<Vec<A>> {
        self.routing.take_own_addresses()
    }

    pub fn counts(&self) -> Counts {
        self.routing.counts()
    }

    pub fn set_ports(&mut self, exits: &BTreeMap<u32, Exit>) {
        self.routing.set_ports(exits);
    }

    /// The kernel's routes are being read, or brought into the table.
    pub fn is_loading(&self) -> bool {
        self.loader.busy || self.has_work()
    }

    pub fn has_work(&self) -> bool {
        !self.prefixes.is_empty()
    }

    /// The neighbour behind a leaf.
    pub fn neighbour(&self, leaf: NextHop) -> Option<A> {
        self.neighbours.get(&leaf).copied()
    }

    /// The kernel changed.
    pub fn heard(&mut self, event: &Event, data: &RouteTable) {
        self.routing.event(event);
        if !self.routing.ready() {
            data.set_valid::<A>(false);
        }
    }

    /// A piece of the kernel's routes.
    pub async fn loaded(&mut self) -> Piece<A> {
        self.loader.next().await
    }

    /// True if that was the last one.
    pub fn load(&mut self, piece: Piece<A>) -> bool {
        match piece {
            Piece::Routes(routes) => {
                self.routing.load(routes);
                false
            }
            Piece::End(whole) => {
                self.loader.busy = false;
                self.routing.end_load(whole);
                let counts = self.routing.counts();
                tracing::debug!(family = A::NAME, whole, ?counts, "the routes were read");
                true
            }
        }
    }

    /// Has all routes read again where that is wanted.
    pub fn look(&mut self) {
        let withdrawn = self.withdrawn.is_some_and(|at| at.elapsed() >= WITHDRAWN);
        if (self.routing.wants_load() || withdrawn) && !self.loader.busy {
            self.withdrawn = self.withdrawn.filter(|_| !withdrawn);
            self.routing.begin_load();
            self.loader.load();
        }
    }

    /// The kernel did something else with an address. The prefix that is its own from now on, unless it was.
    pub fn withdraw(&mut self, address: A) -> Option<Prefix<A>> {
        let prefix = self.routing.withdraw(address)?;
        self.withdrawn = Some(Instant::now());
        Some(prefix)
    }

    /// Takes what changed.
    pub fn follow(&mut self) {
        let changes = self.routing.changes();
        for (leaf, hop) in changes.hops {
            if let Some(hop) = &hop {
                self.neighbours.insert(leaf, hop.gateway);
            }
            self.hops.insert(leaf, hop);
        }
        self.prefixes.extend(changes.prefixes);
    }

    /// Brings a piece of it into the data plane, and has it be used if all of it is there and it `may`. `slots`: where
    /// devices may be redirected to.
    pub fn carry(&mut self, data: &mut RouteTable, slots: impl Fn(u32) -> Option<u32>, may: bool) {
        self.hops.retain(|leaf, hop| {
            let owner = hop.as_ref().map_or(0, A::owner);
            let record = hop.as_ref();
            let record = record.and_then(|hop| Some(record_of(hop, slots(hop.oif)?)));
            // the leaf rests, or all records do: later
            !data.set_hop(A::leaf(*leaf), owner, record)
        });
        let more = self.prefixes.len() > PREFIXES_PER_TURN;
        let count = self.prefixes.len().min(PREFIXES_PER_TURN);
        if more {
            data.set_valid::<A>(false);
        }
        // one that is full has room again once what was replaced has rested
        if count > 0 || self.full {
            let changes = self.prefixes.drain(..count);
            let changes = changes.map(|(prefix, leaf)| (prefix, leaf.map(A::leaf)));
            let full = data.set_prefixes(changes).is_err();
            if full != self.full {
                match full {
                    true => tracing::warn!(
                        "no room for all prefixes of {}: they are the kernel's for now",
                        A::NAME
                    ),
                    false => {
                        tracing::info!("there is room for all prefixes of {} again", A::NAME);
                    }
                }
                self.full = full;
            }
        }
        let known = may && self.routing.ready();
        data.set_valid::<A>(known && self.prefixes.is_empty() && !self.full);
    }
}

fn record_of<A: Sided>(hop: &Hop<A>, devmap_slot: u32) -> fw_hop {
    let mut record = fw_hop {
        port: hop.oif,
        len_max: hop.len_max,
        devmap_slot,
        tc: hop.in_tc.into(),
        engine: match hop.engine {
            EngineExit::Elsewhere => FW_HOP_ELSEWHERE,
            EngineExit::Routes => FW_HOP_ENGINE,
            EngineExit::Flows => FW_HOP_FLOWS,
        },
        status: match hop.in_xdp {
            true => FW_ST_ACTIVE,
            false => FW_HOP_TC,
        },
        ..fw_hop::default()
    };
    if hop.vlan != 0 {
        record.tag = Tag {
            protocol: ETH_P_8021Q,
            vlan: hop.vlan,
        }
        .record();
    }
    record.l2[..6].copy_from_slice(&hop.dst_mac);
    record.l2[6..12].copy_from_slice(&hop.src_mac);
    record.l2[12..].copy_from_slice(&A::ETHERTYPE);
    record
}
