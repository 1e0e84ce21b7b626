// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prefix paths as the data plane has them (`dataplane/route.h`): the table of prefixes, next hops, and a program for each
//! port, of XDP or of tc.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use freeway_abi::{
    FW_GOLDEN, FW_HOPS, FW_LEAVES, FW_LEAVES6, FW_OWN_BITS, FW_ROUTE_BLOCKS,
    FW_ROUTE_ENTRANCE_STEP, FW_ROUTE_ENTRANCES, FW_ROUTE_VLANS, FW_ROUTES_IPV4, FW_ROUTES_IPV6,
    Pod, fw_config, fw_hop, fw_route_config, fw_route_count, fw_route_entrance, fw_route_here,
    fw_routes,
};
use freeway_prefix::{Family, NextHop, Prefix, Table};
use libbpf_rs::{MapHandle, Object};

use crate::DatapathError;
use crate::ahead::{Ahead, lead_to};
use crate::grace::Grace;
use crate::load::{
    MapByName, MapMemory, get, handles, is_shared, load, memory, possible_cpus, prepare,
};
use crate::packed::{Packed, packed};
use crate::shared::Shared;

static ROUTE: Packed = packed!("route");
static ROUTE_TC: Packed = packed!("route_tc");

const NEXT: &str = "fw_route_next";
const PREFIXES4: &str = ".bss.prefixes4";
const PREFIXES6: &str = ".bss.prefixes6";
const ROUTES: &str = ".data.routes";
const COUNTS: &str = ".data.counts";
const HERE: &str = ".data.here";
const HOPS: &str = ".data.hops";
const ENTRANCES: &str = ".data.entrances";
/// A record that no leaf leads to is used again later than any token of it lives.
const REST: Duration = Duration::from_secs(2);

/// There is no room for the prefixes; nothing is in force.
pub use freeway_prefix::Full as TableFull;

/// A family in the data plane.
pub trait RoutedFamily: Family {
    /// Its bit in `fw_routes.valid` and `fw_route_here.families`.
    const BIT: u32;
    /// The number of its first leaf. What is below the first one of a next hop is the same for all.
    const FIRST_LEAF: NextHop;

    #[doc(hidden)]
    fn prefixes(table: &RouteTable) -> &Prefixes<Self>;

    #[doc(hidden)]
    fn prefixes_mut(table: &mut RouteTable) -> &mut Prefixes<Self>;

    /// The data plane's leaf of a family's.
    #[must_use]
    fn leaf(leaf: NextHop) -> NextHop {
        match u32::from(leaf) < freeway_abi::FW_LEAF_FIRST {
            true => leaf,
            false => leaf + Self::FIRST_LEAF,
        }
    }
}

impl RoutedFamily for u32 {
    const BIT: u32 = FW_ROUTES_IPV4;
    const FIRST_LEAF: NextHop = 0;

    fn prefixes(table: &RouteTable) -> &Prefixes<u32> {
        &table.prefixes4
    }

    fn prefixes_mut(table: &mut RouteTable) -> &mut Prefixes<u32> {
        &mut table.prefixes4
    }
}

impl RoutedFamily for u128 {
    const BIT: u32 = FW_ROUTES_IPV6;
    const FIRST_LEAF: NextHop = FW_LEAVES6 as NextHop;

    fn prefixes(table: &RouteTable) -> &Prefixes<u128> {
        &table.prefixes6
    }

    fn prefixes_mut(table: &mut RouteTable) -> &mut Prefixes<u128> {
        &mut table.prefixes6
    }
}

/// The prefixes of a family.
pub struct Prefixes<A: Family> {
    /// Of the memory that is mapped.
    table: Table<A>,
    _memory: Shared<fw_route_count>,
    grace: Grace,
}

impl<A: Family> Prefixes<A> {
    fn map(maps: &MapByName, name: &'static str) -> Result<Self, DatapathError> {
        // elements of any size will do: the table knows what is there
        let elements = size_of::<A::Memory>() / size_of::<fw_route_count>();
        let memory = Shared::<fw_route_count>::map(get(maps, name)?, name, elements as u32)?;
        // SAFETY: the map was just made, and so is zero; pages are aligned; the mapping lives as long as the table, and
        // programs only read.
        let table = unsafe { Table::at(memory.base().cast()) };
        let grace = Grace::start().map_err(|source| DatapathError::Mmap { map: name, source })?;
        Ok(Self {
            table,
            _memory: memory,
            grace,
        })
    }

    fn set(
        &mut self,
        changes: impl IntoIterator<Item = (Prefix<A>, Option<NextHop>)>,
    ) -> Result<usize, TableFull> {
        for (prefix, leaf) in changes {
            self.table.set(prefix, leaf);
        }
        self.table.release(self.grace.passed());
        let done = self.table.commit();
        self.grace.ask(self.table.commits());
        done
    }
}

/// Where packets come in that leave by prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteHook {
    /// Native XDP, ahead of [`Hook::Xdp`](crate::Hook::Xdp).
    Xdp,
    /// tc ingress at a port without XDP, ahead of [`Hook::IngressAlone`](crate::Hook::IngressAlone).
    Tc,
}

impl RouteHook {
    /// Both.
    pub const ALL: [RouteHook; 2] = [RouteHook::Xdp, RouteHook::Tc];

    fn object(self) -> (&'static str, Packed) {
        match self {
            RouteHook::Xdp => ("route", ROUTE),
            RouteHook::Tc => ("route_tc", ROUTE_TC),
        }
    }

    fn program(self) -> &'static str {
        match self {
            RouteHook::Xdp => "freeway_route",
            RouteHook::Tc => "freeway_route_tc",
        }
    }
}

/// What is known at a port: of itself (0), and of VLANs above it.
pub type RoutedHere = BTreeMap<u16, fw_route_here>;

/// The same as a program sees it.
struct Heres {
    shared: Shared<fw_route_here>,
    written: BTreeSet<u16>,
}

impl Heres {
    /// What is not there any more has no prefix paths first.
    fn write(&mut self, heres: &RoutedHere) {
        let gone = self.written.iter().filter(|vlan| !heres.contains_key(vlan));
        for vlan in gone {
            self.shared
                .write(u32::from(*vlan), fw_route_here::default());
        }
        self.written = heres.keys().copied().collect();
        for (vlan, here) in heres {
            self.shared.write(u32::from(*vlan), *here);
        }
    }
}

/// What the engine is to know at its ports: by device and VLAN, 0 is the device itself.
pub type RoutedByEngine = BTreeMap<(u32, u16), fw_route_here>;

/// Devices and VLANs of the engine for which there is no room.
pub type Unplaced = Vec<(u32, u16)>;

/// The same as the engine sees it.
struct Entrances {
    shared: Shared<fw_route_entrance>,
}

impl Entrances {
    fn is_free(&self, place: u32) -> bool {
        self.shared.read(place).base == 0
    }

    /// The engine may look at any time: what it finds meanwhile it does not go by.
    fn put(&self, (base, vlan): (u32, u16), here: fw_route_here) {
        let vlan = u32::from(vlan);
        let home = base.wrapping_add(FW_ROUTE_ENTRANCE_STEP * vlan);
        let places = 0..FW_ROUTE_ENTRANCES;
        let mut places = places.map(|step| home.wrapping_add(step) % FW_ROUTE_ENTRANCES);
        let Some(place) = places.find(|place| self.is_free(*place)) else {
            return;
        };
        let entrance = fw_route_entrance {
            base,
            vlan,
            here,
            ..fw_route_entrance::default()
        };
        self.shared.write(place, entrance);
    }

    fn set(&self, heres: &RoutedByEngine) -> Unplaced {
        for place in 0..FW_ROUTE_ENTRANCES {
            if !self.is_free(place) {
                self.shared.write(place, fw_route_entrance::default());
            }
        }
        // half of the places at most, so that a search is short and ends
        let room = FW_ROUTE_ENTRANCES as usize / 2;
        let mut all = heres.clone();
        for (base, _) in heres.keys() {
            // frames with a tag are looked at where their device is known
            all.entry((*base, 0)).or_default();
        }
        for (key, here) in all.iter().take(room) {
            self.put(*key, *here);
        }
        all.into_keys().skip(room).collect()
    }
}

/// Sizes of a table's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteSizes {
    /// Next hops - 1.
    pub hop_mask: u32,
    /// Counters - 1: `FW_LEAVES` of each CPU, then of each worker of an engine's, if there are so many.
    pub count_mask: u32,
    /// CPUs that there may be.
    pub cpus: u32,
}

/// The tables, and the programs that look into them.
pub struct RouteTable {
    prefixes4: Prefixes<u32>,
    prefixes6: Prefixes<u128>,
    shared: Shared<fw_routes>,
    hops: Shared<fw_hop>,
    counts: Shared<fw_route_count>,
    count_mask: u32,
    entrances: Entrances,
    /// Records by leaf; 0: none.
    records: Vec<u32>,
    /// Whose each leaf is, and since when it leads nowhere.
    owners: Vec<(u64, Option<Instant>)>,
    free: Vec<u32>,
    resting: VecDeque<(Instant, u32)>,
    maps: MapByName,
    config: fw_config,
    _first: Object,
    /// By [`RouteHook`].
    ahead: [Ahead<Heres>; 2],
}

fn load_route(
    hook: RouteHook,
    config: &fw_config,
    count_mask: u32,
    maps: &MapByName,
) -> Result<Object, DatapathError> {
    let own = fw_route_config { count_mask, pad: 0 };
    let (object, bytes) = hook.object();
    load(object, bytes, |name, map| {
        match name {
            ".rodata.route" => return map.set_initial_value(own.as_bytes()),
            COUNTS => {
                map.set_value_size((count_mask + 1) * size_of::<fw_route_count>() as u32)?;
            }
            _ => prepare(config, name, map)?,
        }
        match maps.get(name).filter(|_| is_shared(config, name)) {
            Some(shared) => map.reuse_fd(shared.as_fd()),
            None => Ok(()),
        }
    })
}

impl RouteTable {
    /// With counters for so many workers of an engine's.
    pub(crate) fn load(
        config: &fw_config,
        control: &MapByName,
        workers: u32,
    ) -> Result<Self, DatapathError> {
        let counting = possible_cpus() + workers;
        let count_mask = counting.next_power_of_two() * FW_LEAVES - 1;
        let first = load_route(RouteHook::Xdp, config, count_mask, control)?;
        let mut maps = handles(&first)?;
        // of others than XDP's
        for (name, map) in control {
            if !maps.contains_key(name) {
                let map = MapHandle::try_from(map);
                let map = map.map_err(|source| DatapathError::Map {
                    map: "handle",
                    source,
                })?;
                maps.insert(name.clone(), map);
            }
        }
        // each port's own
        maps.remove(HERE);
        maps.remove(NEXT);
        let prefixes4 = Prefixes::map(&maps, PREFIXES4)?;
        let prefixes6 = Prefixes::map(&maps, PREFIXES6)?;
        Ok(Self {
            prefixes4,
            prefixes6,
            shared: Shared::map(get(&maps, ROUTES)?, ROUTES, 1)?,
            hops: Shared::map(get(&maps, HOPS)?, HOPS, config.hop_mask + 1)?,
            counts: Shared::map(get(&maps, COUNTS)?, COUNTS, count_mask + 1)?,
            count_mask,
            entrances: Entrances {
                shared: Shared::map(get(&maps, ENTRANCES)?, ENTRANCES, FW_ROUTE_ENTRANCES)?,
            },
            records: vec![0; FW_LEAVES as usize],
            owners: vec![(0, None); FW_LEAVES as usize],
            free: (1..FW_HOPS).rev().collect(),
            resting: VecDeque::new(),
            maps,
            config: *config,
            _first: first,
            ahead: RouteHook::ALL.map(|hook| Ahead::new(hook.object().0, hook.program())),
        })
    }

    /// The program for a port, which from now on goes by what is known there: in tc of the port itself alone. It is made when
    /// it is first asked for. `next`: the fast path's, of the same place.
    pub fn at(
        &mut self,
        hook: RouteHook,
        ifindex: u32,
        heres: &RoutedHere,
        next: BorrowedFd<'_>,
    ) -> Result<&OwnedFd, DatapathError> {
        let ahead = &mut self.ahead[hook as usize];
        let elements = match hook {
            RouteHook::Xdp => FW_ROUTE_VLANS,
            RouteHook::Tc => 1,
        };
        let (prog, own) = ahead.at(ifindex, || {
            let object = load_route(hook, &self.config, self.count_mask, &self.maps)?;
            let own = handles(&object)?;
            lead_to(get(&own, NEXT)?, NEXT, next)?;
            let shared = Shared::map(get(&own, HERE)?, HERE, elements)?;
            let written = BTreeSet::new();
            Ok((object, Heres { shared, written }))
        })?;
        own.write(heres);
        Ok(prog)
    }

    /// What the engine is to know at its ports, while nothing is valid.
    pub fn set_engine(&mut self, heres: &RoutedByEngine) -> Unplaced {
        self.changed();
        let unplaced = self.entrances.set(heres);
        self.changed();
        unplaced
    }

    /// What was in use is about to be used anew: whoever looks things up without RCU finds out.
    fn changed(&self) {
        let at = std::mem::offset_of!(fw_routes, seq);
        if let Some(seq) = self.shared.atomic(0, at) {
            seq.fetch_add(1, Ordering::AcqRel);
        }
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    /// Descriptors of what the engine needs to forward by prefixes: prefixes of IPv4 and IPv6, what is the same at all ports,
    /// next hops, what is known at its ports, counters.
    pub fn handover(&self) -> Result<[BorrowedFd<'_>; 6], DatapathError> {
        let fd = |name| get(&self.maps, name).map(AsFd::as_fd);
        Ok([
            fd(PREFIXES4)?,
            fd(PREFIXES6)?,
            fd(ROUTES)?,
            fd(HOPS)?,
            fd(ENTRANCES)?,
            fd(COUNTS)?,
        ])
    }

    /// What of its sizes is not the same everywhere.
    #[must_use]
    pub fn sizes(&self) -> RouteSizes {
        RouteSizes {
            hop_mask: self.config.hop_mask,
            count_mask: self.count_mask,
            cpus: possible_cpus(),
        }
    }

    /// Nothing leaves by prefixes at a port, even if its program cannot be taken off.
    pub fn silence(&mut self, hook: RouteHook, ifindex: u32) {
        let owns = self.ahead[hook as usize].owns_mut();
        let at_port = owns.filter(|(port, _)| *port == ifindex);
        at_port.for_each(|(_, own)| own.write(&RoutedHere::new()));
    }

    /// Programs stay at those ports alone that are `kept`.
    pub fn retain(&mut self, kept: impl Fn(RouteHook, u32) -> bool) {
        for (hook, ahead) in RouteHook::ALL.into_iter().zip(&mut self.ahead) {
            let gone: Vec<u32> = ahead.ports().filter(|port| !kept(hook, *port)).collect();
            for ifindex in gone {
                ahead.leave(ifindex);
            }
        }
    }

    /// Of its maps, but for counters of single ports.
    #[must_use]
    pub fn memory(&self) -> MapMemory {
        memory(&self.maps)
    }

    /// Ids of its programs.
    #[must_use]
    pub fn prog_ids(&self) -> Vec<u32> {
        let ids = self.ahead.iter().flat_map(Ahead::prog_ids);
        ids.collect()
    }

    /// Nothing of a family is forwarded by prefixes unless it is true.
    pub fn set_valid<A: RoutedFamily>(&self, valid: bool) {
        let at = std::mem::offset_of!(fw_routes, valid);
        if let Some(word) = self.shared.atomic(0, at) {
            match valid {
                true => word.fetch_or(A::BIT, Ordering::AcqRel),
                false => word.fetch_and(!A::BIT, Ordering::AcqRel),
            };
        }
    }

    /// What it is now.
    #[must_use]
    pub fn valid<A: RoutedFamily>(&self) -> bool {
        let at = std::mem::offset_of!(fw_routes, valid);
        let valid = self.shared.atomic(0, at);
        valid.is_some_and(|valid| valid.load(Ordering::Acquire) & A::BIT != 0)
    }

    /// The router's own addresses of IPv4: the kernel refuses packets that claim to come from there.
    pub fn set_own(&self, addresses: impl IntoIterator<Item = Ipv4Addr>) {
        let mut bits = [0u32; (1 << FW_OWN_BITS) / 32];
        for address in addresses {
            let addr_be = u32::from_ne_bytes(address.octets());
            let bit = addr_be.wrapping_mul(FW_GOLDEN) >> (32 - FW_OWN_BITS);
            bits[bit as usize / 32] |= 1 << (bit % 32);
        }
        let own = std::mem::offset_of!(fw_routes, own);
        for (at, word) in bits.into_iter().enumerate() {
            self.shared.store(0, own + 4 * at, word);
        }
    }

    /// Where a leaf leads: confirmation and times are the data plane's. `None`: to the kernel. `owner` tells next
    /// hops apart: a leaf that was another's rests, for a lookup of before may still be under way. False: it rests, or all
    /// records do, and it is the kernel's until this is tried again.
    pub fn set_hop(&mut self, leaf: NextHop, owner: u64, hop: Option<fw_hop>) -> bool {
        let at = usize::from(leaf);
        let (Some(before), Some((owned_by, ended))) =
            (self.records.get(at).copied(), self.owners.get(at).copied())
        else {
            return false;
        };
        let rests = ended.is_some_and(|since| since.elapsed() < REST);
        let others = hop.is_some() && owned_by != owner && (before != 0 || rests);
        let record = hop.filter(|_| !others).and_then(|hop| {
            let record = self.record()?;
            let hop = fw_hop {
                epoch: 0,
                leaf: leaf.into(),
                ..hop
            };
            self.hops.write(record, hop);
            Some(record)
        });
        let at = std::mem::offset_of!(fw_routes, record) + 4 * usize::from(leaf);
        std::sync::atomic::fence(Ordering::Release);
        self.shared.store(0, at, record.unwrap_or(0));
        self.records[usize::from(leaf)] = record.unwrap_or(0);
        if before != 0 {
            self.changed();
        }
        self.owners[usize::from(leaf)] = match record {
            Some(_) => (owner, None),
            None if before != 0 => (owned_by, Some(Instant::now())),
            None => (owned_by, ended),
        };
        if before != 0 {
            self.hops
                .store(before, std::mem::offset_of!(fw_hop, status), 0);
            self.resting.push_back((Instant::now(), before));
        }
        hop.is_none() || record.is_some()
    }

    fn record(&mut self) -> Option<u32> {
        while let Some((since, record)) = self.resting.front().copied()
            && since.elapsed() >= REST
        {
            self.resting.pop_front();
            self.free.push(record);
        }
        self.free.pop()
    }

    /// What a leaf's record says now.
    #[must_use]
    pub fn hop(&self, leaf: NextHop) -> Option<fw_hop> {
        let record = self.records.get(usize::from(leaf)).copied()?;
        (record != 0).then(|| self.hops.read(record))
    }

    /// The leaf of a record, if it still is that leaf's.
    #[must_use]
    pub fn leaf_of(&self, record: u32) -> Option<NextHop> {
        let leaf = self.hops.read(record).leaf as NextHop;
        (record != 0 && self.records.get(usize::from(leaf)) == Some(&record)).then_some(leaf)
    }

    /// As if the kernel had just sent a packet by it in an epoch: for tests.
    #[doc(hidden)]
    pub fn confirm(&self, leaf: NextHop, epoch: u32, due_tick: u32) {
        let record = self.records.get(usize::from(leaf)).copied().unwrap_or(0);
        let fields = [
            (std::mem::offset_of!(fw_hop, due_tick), due_tick),
            (std::mem::offset_of!(fw_hop, misses), 0),
            (std::mem::offset_of!(fw_hop, epoch), epoch),
        ];
        for (at, value) in fields {
            self.hops.store(record, at, value);
        }
        self.put_off(due_tick);
    }

    /// As if the kernel had just been asked for all addresses: for tests.
    #[doc(hidden)]
    pub fn put_off(&self, due_tick: u32) {
        let due = std::mem::offset_of!(fw_routes, due_tick);
        for block in 0..FW_ROUTE_BLOCKS as usize {
            self.shared.store(0, due + 4 * block, due_tick);
        }
    }

    /// A leaf's packets wait until the kernel has sent one of them again.
    pub fn doubt_hop(&self, leaf: NextHop) {
        if let Some(record) = self.records.get(usize::from(leaf)).filter(|at| **at != 0) {
            self.hops
                .store(*record, std::mem::offset_of!(fw_hop, epoch), 0);
        }
    }

    /// Has prefixes changed, all at once; leaves are the data plane's. On failure nothing of the family is valid any more.
    pub fn set_prefixes<A: RoutedFamily>(
        &mut self,
        changes: impl IntoIterator<Item = (Prefix<A>, Option<NextHop>)>,
    ) -> Result<(), TableFull> {
        let done = A::prefixes_mut(self).set(changes);
        if done != Ok(0) {
            self.changed();
        }
        let done = done.map(drop);
        if done.is_err() {
            self.set_valid::<A>(false);
        }
        done
    }

    /// The leaf that an address leads to.
    #[must_use]
    pub fn lookup<A: RoutedFamily>(&self, address: A) -> NextHop {
        A::prefixes(self).table.lookup(address)
    }

    /// Prefixes in the table of a family, and bytes that lookups read.
    #[must_use]
    pub fn size<A: RoutedFamily>(&self) -> (usize, usize) {
        let table = &A::prefixes(self).table;
        (table.prefixes(), table.bytes())
    }

    /// What left by a leaf.
    #[must_use]
    pub fn count(&self, leaf: NextHop) -> fw_route_count {
        let mut sum = fw_route_count::default();
        for at in (u32::from(leaf)..=self.count_mask).step_by(FW_LEAVES as usize) {
            let of_cpu = self.counts.read(at);
            sum.packets += of_cpu.packets;
            sum.bytes += of_cpu.bytes;
        }
        sum
    }
}
