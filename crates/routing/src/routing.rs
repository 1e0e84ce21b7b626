// SPDX-License-Identifier: MIT OR Apache-2.0
//! The whole: what is told, and what is asked.

use std::collections::BTreeMap;

use freeway_kernel::model::{Addr, Event, Link, Neigh, Source};
use freeway_prefix::Prefix;

use crate::answer::{Answer, Changes, Counts};
use crate::change::{Change, Kind};
use crate::doubt::Doubts;
use crate::fib::{Fib, Mode, Place};
use crate::hops::{Hops, LEAF_UNICAST};
use crate::ip::Ip;
use crate::lead::{View, reserved};
use crate::load::Load;
use crate::reach::{Exit, LinkState, Reach};
use crate::refused::Refused;
use crate::route::{Told, Way};
use crate::sweep::Sweep;
use crate::table::Table;
use crate::term::Term;

/// The kernel's routes of one family, and what XDP is to do by them.
#[derive(Clone, Debug)]
pub struct Routing<A: Ip> {
    fib: Fib<A>,
    doubts: Doubts<A>,
    reach: Reach<A>,
    table: Table<A>,
    hops: Hops<A>,
    load: Option<Load<A>>,
    refused: Refused<A>,
    /// The addresses that are told as this machine's are others since they were taken.
    own_changed: bool,
    /// What went since the last call of [`Routing::changes`]. Events of routes come by another socket: what is heard of a
    /// route now may be from before.
    sweeps: Vec<Sweep<A>>,
}

impl<A: Ip> Default for Routing<A> {
    fn default() -> Self {
        Self::new()
    }
}

/// The parts that decide, beside those that change by it.
macro_rules! view {
    ($routing:ident) => {
        View {
            fib: &$routing.fib,
            doubts: &$routing.doubts,
            reach: &$routing.reach,
        }
    };
}

impl<A: Ip> Routing<A> {
    /// Nothing is known.
    #[must_use]
    pub fn new() -> Self {
        let mut routing = Self {
            fib: Fib::default(),
            doubts: Doubts::of_all(),
            reach: Reach::default(),
            table: Table::default(),
            hops: Hops::default(),
            load: None,
            refused: Refused::default(),
            own_changed: true,
            sweeps: Vec::new(),
        };
        for prefix in reserved() {
            routing.settle(prefix);
        }
        routing
    }

    /// All routes are about to be read. What was known stays in force until [`Routing::end_load`], but for what is doubted.
    ///
    /// Every event that waited must have been heard before. The kernel tells of a link's or an address's going
    /// first and deletes routes then, under one lock (RTNL): the caller has asked it for something that needs this lock, such
    /// as one link (RTM_GETLINK), since the last event, and only then asks for the routes. Events that come while they are read are
    /// told as ever.
    pub fn begin_load(&mut self) {
        self.sweeps.clear();
        self.doubts.begin();
        self.load = Some(Load::default());
    }

    /// Routes that were read.
    pub fn load(&mut self, routes: impl IntoIterator<Item = Told<A>>) {
        if let Some(load) = &mut self.load {
            routes.into_iter().for_each(|route| load.add(&route));
        }
    }

    /// All were read; `whole` is false if some may be missing (NLM_F_DUMP_INTR, an error): nothing is taken over then.
    pub fn end_load(&mut self, whole: bool) {
        let Some(mut load) = self.load.take() else {
            return;
        };
        if !whole {
            self.doubts.stale();
            return;
        }
        if !self.doubts.settle() {
            return;
        }
        self.refused = std::mem::take(&mut load.refused);
        self.own_changed = true;
        let (fib, unclear) = load.finish();
        self.fib = fib;
        for prefix in unclear {
            self.doubts.doubt(prefix);
        }
        self.doubt_lost();
        self.settle_all();
    }

    /// True: the kernel may have other routes than those that are known. The caller reads them all again, unless it does so now.
    #[must_use]
    pub fn wants_load(&self) -> bool {
        self.doubts.wants_load()
    }

    /// True if the table may be used: all routes were read, and no event was lost since.
    #[must_use]
    pub fn ready(&self) -> bool {
        self.doubts.is_sure()
    }

    /// The kernel changed. Every event of the mirror may be told, and those of routes, nexthop objects, links, addresses,
    /// neighbours and overruns must be. An overrun of neighbours does nothing here: what was lost must be told at once
    /// ([`Mirror::resync`](freeway_kernel::mirror::Mirror::resync)). At first, links, addresses and neighbours that are there are told as if they were new.
    pub fn event(&mut self, event: &Event) {
        match event {
            Event::RouteChanged(route, replaced) => {
                let kind = if *replaced { Kind::Replaced } else { Kind::New };
                self.route(kind, Told::of(route));
            }
            Event::RouteGone(route) => self.route(Kind::Gone, Told::of(route)),
            Event::NexthopChanged { id } => self.sweep(Sweep::Object(*id)),
            Event::LinkChanged(link) => self.link(link),
            Event::LinkGone { ifindex } => {
                self.reach.remove_link(*ifindex);
                self.hops.changed_link(*ifindex);
                self.sweep(Sweep::Link(*ifindex));
            }
            Event::AddrChanged(addr) => {
                self.reach.add_address(addr);
                self.own_changed = true;
            }
            Event::AddrGone(addr) => self.address_gone(addr),
            Event::NeighChanged(neigh) => self.neighbour(neigh, true),
            Event::NeighGone(neigh) => self.neighbour(neigh, false),
            Event::RoutesUnknown
            | Event::Overrun {
                source: Source::Route | Source::Link,
            } => self.doubts.doubt_all(),
            _ => {}
        }
    }

    /// Where packets may leave, by interface index. Other links are the kernel's.
    pub fn set_ports(&mut self, ports: &BTreeMap<u32, Exit>) {
        for port in self.reach.set_ports(ports) {
            self.hops.changed_link(port);
        }
    }

    /// The kernel did something else with an address than the table says. The prefix that decided is the kernel's until all
    /// routes have been read twice; it is returned, unless it was the kernel's already. Of the two only the first is asked for by
    /// [`Routing::wants_load`], so that what goes wrong again and again does not have routes read all the time.
    pub fn withdraw(&mut self, address: A) -> Option<Prefix<A>> {
        let (prefix, entry) = self.table.longest(address)?;
        if entry.leaf <= LEAF_UNICAST {
            return None;
        }
        self.doubts.withdraw(prefix);
        self.settle_around(prefix);
        Some(prefix)
    }

    /// What changed since the last call, which must be in force by now. Of a new one, hops come first, then prefixes.
    ///
    /// To be called when all events of one [`Mirror::read`](freeway_kernel::mirror::Mirror::read) have been told, not between them.
    pub fn changes(&mut self) -> Changes<A> {
        self.sweeps.clear();
        self.table.settle_crowded(view!(self), &mut self.hops);
        Changes {
            hops: self.hops.changes(&self.reach),
            prefixes: self.table.changes(),
        }
    }

    /// What the table says of an address; `None`: nothing, there is no route.
    #[must_use]
    pub fn lookup(&self, address: A) -> Option<Answer<A>> {
        let (prefix, entry) = self.table.longest(address)?;
        let longest =
            |place: Place| Some((place, self.fib.table(place).longest(address, A::LENGTH)?));
        let route = Place::ALL.into_iter().find_map(longest);
        let route = route.map(|(place, (prefix, cell))| {
            let way = cell.choice().ok().map(|term| self.fib.way(term));
            (place.table(), prefix, way)
        });
        Some(Answer {
            prefix,
            leaf: entry.leaf,
            why: entry.why,
            hop: self.hops.hop(entry.leaf, &self.reach),
            route,
        })
    }

    /// How many there are.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let (prefixes, kept) = self.table.counts();
        Counts {
            routes: self.fib.routes(),
            prefixes,
            hops: self.hops.len(),
            withdrawn: self.doubts.withdrawn(),
            kept,
        }
    }

    /// As [`Routing::own_addresses`], if they are others than the last time.
    pub fn take_own_addresses(&mut self) -> Option<Vec<A>> {
        let changed = std::mem::take(&mut self.own_changed);
        changed.then(|| self.own_addresses())
    }

    /// Addresses from which the kernel may take no packets, in order: this machine's, and all that its local table has.
    #[must_use]
    pub fn own_addresses(&self) -> Vec<A> {
        let local = self.fib.table(Place::Local).iter();
        let local = local.filter(|(prefix, _)| prefix.is_host());
        let mut all = self.reach.addresses();
        all.extend(local.map(|(prefix, _)| prefix.first()));
        all.sort_unstable();
        all.dedup();
        all
    }

    /// A network from which the kernel takes no packets, if it looks sources up where nothing filters them. `looked_up`: it
    /// is known to (`fib_has_custom_local_routes`); otherwise it does if somebody has added a route of type local.
    #[must_use]
    pub fn refused(&self, looked_up: bool) -> Option<Prefix<A>> {
        self.refused.first(looked_up)
    }

    fn route(&mut self, kind: Kind, route: Option<Told<A>>) {
        let Some(route) = route else { return };
        let Some(place) = Place::of::<A>(route.table) else {
            return;
        };
        self.own_changed |= place == Place::Local;
        let replaced = kind == Kind::Replaced && self.refused.has(&route.prefix);
        if replaced || kind == Kind::Gone && Refused::is(place, &route) {
            // there may be another one, with another metric
            self.doubts.stale();
        } else if self.refused.hear(place, &route)
            && let Some(load) = &mut self.load
        {
            load.refused.hear(place, &route);
        }
        let change = Change { kind, route };
        let clear = self.fib.apply(place, &change, Mode::Now);
        let term = Term::of(&route);
        let mut sweeps = self.sweeps.iter();
        let swept = kind != Kind::Gone && sweeps.any(|sweep| sweep.meets(&term));
        if !clear || swept {
            self.doubts.doubt(route.prefix);
        }
        if let Some(load) = &mut self.load {
            let known = self.doubts.is_sure() && !self.doubts.is_doubted(route.prefix);
            let alone = known && kind != Kind::Gone && self.fib.is_alone(place, &route);
            load.hear(place, change, alone);
        }
        match place {
            Place::Local => self.settle_within(route.prefix),
            Place::Main | Place::Default => self.settle_around(route.prefix),
        }
    }

    fn link(&mut self, link: &Link) {
        let ifindex = link.ifindex;
        let (before, now) = self.reach.set_link(link);
        self.hops.changed_link(ifindex);
        // what joins a VRF loses its routes (NETDEV_CHANGEUPPER)
        let moved = before.is_some_and(|before| before.master != now.master);
        let fell = |is: fn(&LinkState) -> bool| !is(&now) && before.as_ref().is_none_or(is);
        if moved || fell(|link| link.up) {
            self.sweep(Sweep::Link(ifindex));
            return;
        }
        // Without a carrier, nexthop objects go with their routes. It may be back before anybody hears.
        let flickered = before.is_some_and(|before| before.carrier_ups != now.carrier_ups);
        if flickered || fell(|link| link.alive) {
            self.sweep(Sweep::Objects(ifindex));
        }
    }

    fn address_gone(&mut self, addr: &Addr) {
        let Some((address, bare)) = self.reach.remove_address(addr) else {
            return;
        };
        self.own_changed = true;
        self.sweep(Sweep::Source(address));
        // with its last address an interface loses all its routes (fib_disable_ip)
        if bare {
            self.sweep(Sweep::Link(addr.ifindex));
        }
    }

    fn neighbour(&mut self, neigh: &Neigh, there: bool) {
        if let Some(address) = self.reach.set_neighbour(neigh, there) {
            self.hops.changed_neighbour(neigh.ifindex, address);
            self.settle(Prefix::host(address));
        }
    }

    /// Doubts what was read although it cannot be there.
    fn doubt_lost(&mut self) {
        let reach = self.reach.clone();
        self.mark(|term| is_lost(&reach, term));
    }

    /// Doubts all routes that may have gone with it, from now on.
    fn sweep(&mut self, sweep: Sweep<A>) {
        if !self.refused.is_empty() {
            self.doubts.stale();
        }
        self.sweeps.push(sweep);
        for prefix in self.mark(|term| sweep.meets(term)) {
            self.settle_around(prefix);
        }
    }

    /// Those of the local table are the kernel's as they are.
    fn mark(&mut self, which: impl Fn(&Term<A>) -> bool) -> Vec<Prefix<A>> {
        let Some(marks) = self.fib.terms().select(which) else {
            return Vec::new();
        };
        let tables = [Place::Main, Place::Default].map(|place| self.fib.table(place));
        let cells = tables.into_iter().flat_map(|table| table.iter());
        let marked = cells.filter(|(_, cell)| {
            let mut aliases = cell.aliases().iter();
            aliases.any(|alias| marks[alias.term as usize])
        });
        let marked: Vec<Prefix<A>> = marked.map(|(prefix, _)| prefix).collect();
        for prefix in &marked {
            self.doubts.doubt(*prefix);
        }
        marked
    }

    fn settle(&mut self, prefix: Prefix<A>) {
        self.table.settle(prefix, view!(self), &mut self.hops);
    }

    /// A prefix of main or default, and what may depend on it: neighbours, and what default has there.
    fn settle_around(&mut self, prefix: Prefix<A>) {
        self.settle(prefix);
        let neighbours = self.reach.neighbours(prefix.first(), prefix.last());
        let mut inner: Vec<Prefix<A>> = neighbours.map(Prefix::host).collect();
        let default = self.fib.table(Place::Default);
        inner.extend(default.within(prefix).map(|(prefix, _)| prefix));
        inner.into_iter().for_each(|prefix| self.settle(prefix));
    }

    /// A prefix of the local table, and all within it.
    fn settle_within(&mut self, prefix: Prefix<A>) {
        self.settle_around(prefix);
        let main = self.fib.table(Place::Main).within(prefix);
        let inner: Vec<Prefix<A>> = main.map(|(prefix, _)| prefix).collect();
        inner.into_iter().for_each(|prefix| self.settle(prefix));
    }

    fn settle_all(&mut self) {
        let tables = Place::ALL.map(|place| self.fib.table(place).iter());
        let routes = tables.into_iter().flatten().map(|(prefix, _)| prefix);
        let mut prefixes: Vec<Prefix<A>> = routes.collect();
        let neighbours = self.reach.neighbours(A::ENDS.0, A::ENDS.1);
        prefixes.extend(neighbours.map(Prefix::host));
        prefixes.extend(self.doubts.prefixes().chain(reserved()));
        // all are runs in order
        prefixes.sort();
        prefixes.dedup();
        self.table
            .settle_all(&prefixes, view!(self), &mut self.hops);
    }
}

/// True of a route that the kernel cannot have as its link is.
fn is_lost<A: Ip>(reach: &Reach<A>, term: &Term<A>) -> bool {
    // of several ways out, others may be left
    let Way::Via { oif, .. } = term.way else {
        return false;
    };
    let link = reach.link(oif);
    link.is_some_and(|link| !link.up || !link.alive && term.nexthop_id != 0)
}
