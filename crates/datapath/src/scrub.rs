// SPDX-License-Identifier: MIT OR Apache-2.0
//! What XDP drops ahead of the kernel: addresses by which rules of the firewall drop (`dataplane/scrub.h`).
//!
//! The tables are global data of one object for each port; they share them. An address that has no place is the
//! kernel's, which drops it itself.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use freeway_abi::{
    FW_SCRUB_CLASS_FIRST, FW_SCRUB_FREE, FW_SCRUB_LEFT, FW_SCRUB_LINES, FW_SCRUB_NETS4,
    FW_SCRUB_NETS6, FW_SCRUB_RULES, FW_SCRUB_WAYS4, FW_SCRUB_WAYS6, Pod, fw_scrub, fw_scrub_class,
    fw_scrub_config, fw_scrub_count, fw_scrub_here, fw_scrub_net, fw_scrub_net4, fw_scrub_net6,
    fw_scrub_rule, fw_scrub4, fw_scrub6,
};
use libbpf_rs::{MapCore, MapFlags, Object};

use crate::DatapathError;
use crate::load::{MapByName, get, handles, load, possible_cpus, prog_fd, random};
use crate::shared::Shared;

static SCRUB: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/scrub.o"));

const NAME: &str = "scrub";
const NETS4: &str = "fw_scrub_nets4";
const NETS6: &str = "fw_scrub_nets6";
const NEXT: &str = "fw_scrub_next";
/// What each port has of its own.
const HERE: [&str; 2] = [".data.here", ".data.counts"];
/// Places of a table for each address that it is to hold, at least.
const PLACES: u32 = 2;
const ADDRESSES_MIN: u32 = 1 << 10;
/// The most places that a table has: 512 MiB of IPv6.
const PLACES_MAX: u32 = 1 << 24;

/// An address, alone or with what stands beside it in a concatenation (`fw_scrub6.pair`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScrubKey {
    /// The address.
    pub addr: IpAddr,
    /// 0: nothing.
    pub pair: u32,
}

/// An address's words as they lie in a packet.
fn words(addr: IpAddr) -> [u32; 4] {
    match addr {
        IpAddr::V4(addr) => [u32::from_ne_bytes(addr.octets()), 0, 0, 0],
        IpAddr::V6(addr) => {
            let bytes = addr.octets();
            std::array::from_fn(|at| {
                let word = bytes[4 * at..].first_chunk().copied();
                u32::from_ne_bytes(word.unwrap_or_default())
            })
        }
    }
}

/// A record of either table.
trait Entry: Pod {
    const WAYS: u32;
    fn is(&self, key: &ScrubKey) -> bool;
    fn new(key: &ScrubKey, until_tick: u32) -> Self;
    fn addr(&self) -> ScrubKey;
    fn sum(key: &ScrubKey, config: &fw_scrub_config) -> u64;
    const CLASS_AT: usize;
    const UNTIL_AT: usize;
    fn class(&self) -> u32;
    fn until_tick(&self) -> u32;
    fn hits(&self) -> u32;
}

impl Entry for fw_scrub4 {
    const WAYS: u32 = FW_SCRUB_WAYS4;
    const CLASS_AT: usize = std::mem::offset_of!(fw_scrub4, class);
    const UNTIL_AT: usize = std::mem::offset_of!(fw_scrub4, until_tick);

    fn is(&self, key: &ScrubKey) -> bool {
        self.addr_be == words(key.addr)[0]
    }

    fn new(key: &ScrubKey, until_tick: u32) -> Self {
        Self {
            addr_be: words(key.addr)[0],
            until_tick,
            ..Self::default()
        }
    }

    fn addr(&self) -> ScrubKey {
        ScrubKey {
            addr: IpAddr::V4(self.addr_be.to_ne_bytes().into()),
            pair: 0,
        }
    }

    fn sum(key: &ScrubKey, config: &fw_scrub_config) -> u64 {
        (u64::from(words(key.addr)[0]) + 1).wrapping_mul(config.hash_key[0])
    }

    fn class(&self) -> u32 {
        self.class
    }

    fn until_tick(&self) -> u32 {
        self.until_tick
    }

    fn hits(&self) -> u32 {
        self.hits
    }
}

impl Entry for fw_scrub6 {
    const WAYS: u32 = FW_SCRUB_WAYS6;
    const CLASS_AT: usize = std::mem::offset_of!(fw_scrub6, class);
    const UNTIL_AT: usize = std::mem::offset_of!(fw_scrub6, until_tick);

    fn is(&self, key: &ScrubKey) -> bool {
        self.addr_be == words(key.addr) && self.pair == key.pair
    }

    fn new(key: &ScrubKey, until_tick: u32) -> Self {
        Self {
            addr_be: words(key.addr),
            pair: key.pair,
            until_tick,
            ..Self::default()
        }
    }

    fn addr(&self) -> ScrubKey {
        let ip4 = self.pair >> freeway_abi::FW_SCRUB_PAIR_SHIFT & freeway_abi::FW_SCRUB_PAIR_IP4;
        let addr = match ip4 {
            0 => {
                let mut bytes = [0; 16];
                for (to, word) in bytes.chunks_exact_mut(4).zip(self.addr_be) {
                    to.copy_from_slice(&word.to_ne_bytes());
                }
                IpAddr::V6(bytes.into())
            }
            _ => IpAddr::V4(self.addr_be[0].to_ne_bytes().into()),
        };
        ScrubKey {
            addr,
            pair: self.pair,
        }
    }

    fn sum(key: &ScrubKey, config: &fw_scrub_config) -> u64 {
        let word = |at: usize| {
            let words = words(key.addr);
            let mut bytes = [0; 8];
            bytes[..4].copy_from_slice(&words[at].to_ne_bytes());
            bytes[4..].copy_from_slice(&words[at + 1].to_ne_bytes());
            u64::from_ne_bytes(bytes)
        };
        let pair = u64::from(key.pair);
        let first = (word(0) ^ pair << 32).wrapping_mul(config.hash_key[0]);
        first
            .wrapping_add(word(2).wrapping_mul(config.hash_key[1]))
            .wrapping_add(pair.wrapping_mul(config.hash_key[2]))
    }

    fn class(&self) -> u32 {
        self.class
    }

    fn until_tick(&self) -> u32 {
        self.until_tick
    }

    fn hits(&self) -> u32 {
        self.hits
    }
}

/// A table, and how many of its places are in use.
struct Table<E> {
    places: Shared<E>,
    mask: u32,
    shift: u32,
    used: u32,
}

impl<E: Entry> Table<E> {
    fn map(
        maps: &MapByName,
        name: &'static str,
        mask: u32,
        shift: u32,
    ) -> Result<Self, DatapathError> {
        Ok(Self {
            places: Shared::map(get(maps, name)?, name, mask + 1)?,
            mask,
            shift,
            used: 0,
        })
    }

    /// The places in which an address may be, in order.
    fn way(&self, key: &ScrubKey, config: &fw_scrub_config) -> impl Iterator<Item = u32> + use<E> {
        let (mask, home) = (self.mask, E::sum(key, config) >> self.shift);
        let home = (home as u32).wrapping_mul(E::WAYS);
        (0..FW_SCRUB_LINES * E::WAYS).map(move |step| home.wrapping_add(step) & mask)
    }

    fn find(&self, key: &ScrubKey, config: &fw_scrub_config) -> Option<u32> {
        for place in self.way(key, config) {
            let entry = self.places.read(place);
            match entry.class() {
                FW_SCRUB_FREE => return None,
                FW_SCRUB_LEFT => {}
                _ if entry.is(key) => return Some(place),
                _ => {}
            }
        }
        None
    }

    /// False: there is no place for it.
    fn set(
        &mut self,
        key: &ScrubKey,
        class: u32,
        until_tick: u32,
        config: &fw_scrub_config,
    ) -> bool {
        if let Some(place) = self.find(key, config) {
            self.places.store(place, E::UNTIL_AT, until_tick);
            self.places.store(place, E::CLASS_AT, class);
            return true;
        }
        let vacant = |place: &u32| self.places.read(*place).class() < FW_SCRUB_CLASS_FIRST;
        let Some(place) = self.way(key, config).find(vacant) else {
            return false;
        };
        // whoever reads meanwhile finds that somebody has left
        self.places.store(place, E::CLASS_AT, FW_SCRUB_LEFT);
        self.places
            .write_below(place, E::new(key, until_tick), E::CLASS_AT);
        self.places.store(place, E::CLASS_AT, class);
        self.used += 1;
        true
    }

    fn remove(&mut self, key: &ScrubKey, config: &fw_scrub_config) {
        if let Some(place) = self.find(key, config) {
            self.places.store(place, E::CLASS_AT, FW_SCRUB_LEFT);
            self.used -= 1;
        }
    }

    fn entries(&self) -> impl Iterator<Item = E> + '_ {
        let all = (0..=self.mask).map(|place| self.places.read(place));
        all.filter(|entry| entry.class() >= FW_SCRUB_CLASS_FIRST)
    }

    fn clear(&mut self) {
        for place in 0..=self.mask {
            if self.places.read(place).class() != FW_SCRUB_FREE {
                self.places.store(place, E::CLASS_AT, FW_SCRUB_FREE);
            }
        }
        self.used = 0;
    }
}

/// At one port.
struct Here {
    prog: OwnedFd,
    _object: Object,
    here: Shared<fw_scrub_here>,
    counts: Shared<fw_scrub_count>,
    /// What an earlier program counted here.
    before: Vec<fw_scrub_count>,
}

/// The tables, and the programs that look into them.
pub struct Scrubber {
    maps: MapByName,
    _first: Object,
    config: fw_scrub_config,
    shared: Shared<fw_scrub>,
    table4: Table<fw_scrub4>,
    table6: Table<fw_scrub6>,
    here: BTreeMap<u32, Here>,
    nets: [usize; 2],
}

/// Places for so many addresses.
fn places(addresses: u32) -> u32 {
    let wanted = addresses.max(ADDRESSES_MIN).saturating_mul(PLACES);
    wanted.min(PLACES_MAX).next_power_of_two()
}

fn load_scrub(config: &fw_scrub_config, maps: &MapByName) -> Result<Object, DatapathError> {
    load(NAME, SCRUB, |name, map| {
        let bytes = |count: u32, of: usize| (count + 1) * of as u32;
        match name {
            ".rodata.scrub" => return map.set_initial_value(config.as_bytes()),
            ".data.scrub4" => map.set_value_size(bytes(config.mask4, size_of::<fw_scrub4>()))?,
            ".data.scrub6" => map.set_value_size(bytes(config.mask6, size_of::<fw_scrub6>()))?,
            ".data.counts" => {
                map.set_value_size(bytes(config.count_mask, size_of::<fw_scrub_count>()))?;
            }
            _ => {}
        }
        match maps.get(name).filter(|_| !HERE.contains(&name)) {
            Some(shared) => map.reuse_fd(shared.as_fd()),
            None => Ok(()),
        }
    })
}

impl Scrubber {
    /// With room for so many addresses of IPv4, and of IPv6 and concatenations. `next`: the program behind.
    pub(crate) fn load(
        control: &MapByName,
        next: &OwnedFd,
        hz: u32,
        room: [u32; 2],
    ) -> Result<Self, DatapathError> {
        let [places4, places6] = room.map(places);
        let lines = |places: u32, ways: u32| 64 - (places / ways).ilog2();
        let cpus = possible_cpus().next_power_of_two();
        let config = fw_scrub_config {
            hz,
            mask4: places4 - 1,
            mask6: places6 - 1,
            shift4: lines(places4, FW_SCRUB_WAYS4),
            shift6: lines(places6, FW_SCRUB_WAYS6),
            count_mask: cpus * FW_SCRUB_RULES - 1,
            hash_key: std::array::from_fn(|_| random() | 1),
        };
        let first = load_scrub(&config, control)?;
        let maps = handles(&first)?;
        let fd = next.as_raw_fd().to_ne_bytes();
        let entered = get(&maps, NEXT)?.update(&0u32.to_ne_bytes(), &fd, MapFlags::ANY);
        entered.map_err(|source| DatapathError::Map { map: NEXT, source })?;
        Ok(Self {
            shared: Shared::map(get(&maps, ".data.scrub")?, ".data.scrub", 1)?,
            table4: Table::map(&maps, ".data.scrub4", config.mask4, config.shift4)?,
            table6: Table::map(&maps, ".data.scrub6", config.mask6, config.shift6)?,
            maps,
            _first: first,
            config,
            here: BTreeMap::new(),
            nets: [0; 2],
        })
    }

    /// Addresses of IPv4 in the table, and of IPv6 and concatenations.
    #[must_use]
    pub fn used(&self) -> [u32; 2] {
        [self.table4.used, self.table6.used]
    }

    /// As many as there is room for without crowding.
    #[must_use]
    pub fn room(&self) -> [u32; 2] {
        [
            (self.config.mask4 + 1) / PLACES,
            (self.config.mask6 + 1) / PLACES,
        ]
    }

    /// The program for a port, and what of it is the port's. It is made when it is first asked for.
    pub fn at(&mut self, ifindex: u32, here: fw_scrub_here) -> Result<&OwnedFd, DatapathError> {
        if !self.here.contains_key(&ifindex) {
            let object = load_scrub(&self.config, &self.maps)?;
            let own = handles(&object)?;
            let made = Here {
                prog: prog_fd(&object, NAME, "freeway_scrub")?,
                here: Shared::map(get(&own, HERE[0])?, HERE[0], 1)?,
                counts: Shared::map(get(&own, HERE[1])?, HERE[1], self.config.count_mask + 1)?,
                _object: object,
                before: vec![fw_scrub_count::default(); FW_SCRUB_RULES as usize],
            };
            self.here.insert(ifindex, made);
        }
        let port = self.here.get(&ifindex).ok_or(DatapathError::Missing {
            object: NAME,
            name: "a port",
        })?;
        port.here.write(0, here);
        Ok(&port.prog)
    }

    /// The program is no longer at the port.
    pub fn leave(&mut self, ifindex: u32) {
        self.here.remove(&ifindex);
    }

    /// Ports that have a program.
    pub fn ports(&self) -> impl Iterator<Item = u32> + '_ {
        self.here.keys().copied()
    }

    /// Ids of its programs.
    #[must_use]
    pub fn prog_ids(&self) -> Vec<u32> {
        let progs = self.here.values().map(|here| here.prog.as_fd());
        progs
            .filter_map(|fd| libbpf_rs::Program::id_from_fd(fd).ok())
            .collect()
    }

    /// Of a rule at a port, since the last call that took the place of the port's program.
    #[must_use]
    pub fn count(&self, ifindex: u32, rule: u32) -> fw_scrub_count {
        let Some(here) = self.here.get(&ifindex) else {
            return fw_scrub_count::default();
        };
        let mut sum = here.before.get(rule as usize).copied().unwrap_or_default();
        for at in (rule..=self.config.count_mask).step_by(FW_SCRUB_RULES as usize) {
            let of_cpu = here.counts.read(at);
            sum.dropped += of_cpu.dropped;
            sum.bytes += of_cpu.bytes;
            sum.passed += of_cpu.passed;
        }
        sum
    }

    /// A rule's counters begin anew, at all ports.
    pub fn clear_counts(&mut self, rule: u32) {
        for here in self.here.values_mut() {
            for at in (rule..=self.config.count_mask).step_by(FW_SCRUB_RULES as usize) {
                here.counts.write(at, fw_scrub_count::default());
            }
            if let Some(before) = here.before.get_mut(rule as usize) {
                *before = fw_scrub_count::default();
            }
        }
    }

    /// Nothing is dropped unless it is true.
    pub fn set_valid(&self, valid: bool) {
        let at = std::mem::offset_of!(fw_scrub, valid);
        self.shared.store(0, at, valid.into());
    }

    /// What it is now.
    #[must_use]
    pub fn valid(&self) -> bool {
        let at = std::mem::offset_of!(fw_scrub, valid);
        self.shared
            .atomic(0, at)
            .is_some_and(|valid| valid.load(std::sync::atomic::Ordering::Acquire) != 0)
    }

    fn change(&self, change: impl FnOnce(&mut fw_scrub)) {
        let mut all = self.shared.read(0);
        // due_tick is the data plane's: a packet more goes through the kernel
        change(&mut all);
        self.shared.write(0, all);
    }

    /// What a rule asks beside the address; only while nothing is valid.
    pub fn set_rule(&self, number: u32, rule: fw_scrub_rule) {
        let plain = rule.proto == 0 && rule.dports == 0;
        self.change(|all| {
            if let Some(place) = all.rule.get_mut(number as usize) {
                *place = rule;
                let bit = 1u64 << number;
                all.plain = if plain {
                    all.plain | bit
                } else {
                    all.plain & !bit
                };
            }
        });
    }

    /// Which rules drop the addresses of a class.
    pub fn set_class(&self, number: u32, rules: u64) {
        let at =
            std::mem::offset_of!(fw_scrub, class) + number as usize * size_of::<fw_scrub_class>();
        let class = fw_scrub_class {
            rules,
            first: rules.trailing_zeros() % 64,
            pad: 0,
        };
        for (word, bytes) in class.as_bytes().chunks_exact(4).enumerate() {
            let value = u32::from_ne_bytes(bytes.first_chunk().copied().unwrap_or_default());
            self.shared.store(0, at + 4 * word, value);
        }
    }

    /// Kinds of concatenations that there are, as bits (`fw_scrub.pairs`).
    pub fn set_pairs(&self, kinds: u32) {
        let at = std::mem::offset_of!(fw_scrub, pairs);
        self.shared.store(0, at, kinds);
    }

    /// Drops an address, or changes how. `until_tick` 0: for good. False: there is no place for it, and it is the
    /// kernel's.
    pub fn set(&mut self, key: &ScrubKey, class: u32, until_tick: u32) -> bool {
        match (key.addr, key.pair) {
            (IpAddr::V4(_), 0) => self.table4.set(key, class, until_tick, &self.config),
            _ => self.table6.set(key, class, until_tick, &self.config),
        }
    }

    /// It is the kernel's.
    pub fn remove(&mut self, key: &ScrubKey) {
        match (key.addr, key.pair) {
            (IpAddr::V4(_), 0) => self.table4.remove(key, &self.config),
            _ => self.table6.remove(key, &self.config),
        }
    }

    fn net_key(addr: IpAddr, len: u8) -> (usize, &'static str, Vec<u8>) {
        let (len, addr_be) = (u32::from(len), words(addr));
        match addr {
            IpAddr::V4(_) => {
                let key = fw_scrub_net4 {
                    len,
                    addr_be: addr_be[0],
                };
                (0, NETS4, key.as_bytes().to_vec())
            }
            IpAddr::V6(_) => (1, NETS6, fw_scrub_net6 { len, addr_be }.as_bytes().to_vec()),
        }
    }

    /// The same of a prefix that is not in the table.
    pub fn set_net(
        &mut self,
        addr: IpAddr,
        len: u8,
        class: u32,
        until_tick: u32,
    ) -> Result<(), DatapathError> {
        let (family, map, key) = Self::net_key(addr, len);
        let net = fw_scrub_net {
            until_tick,
            class,
            ..fw_scrub_net::default()
        };
        let known = get(&self.maps, map)?;
        let fresh = known.lookup(&key, MapFlags::ANY).ok().flatten().is_none();
        let entered = known.update(&key, net.as_bytes(), MapFlags::ANY);
        entered.map_err(|source| DatapathError::Map { map, source })?;
        self.nets[family] += usize::from(fresh);
        self.tell_nets();
        Ok(())
    }

    /// The prefix is the kernel's.
    pub fn remove_net(&mut self, addr: IpAddr, len: u8) -> Result<(), DatapathError> {
        let (family, map, key) = Self::net_key(addr, len);
        match get(&self.maps, map)?.delete(&key) {
            Ok(()) => self.nets[family] = self.nets[family].saturating_sub(1),
            Err(error) if error.kind() == libbpf_rs::ErrorKind::NotFound => {}
            Err(source) => return Err(DatapathError::Map { map, source }),
        }
        self.tell_nets();
        Ok(())
    }

    fn tell_nets(&self) {
        let bits = [FW_SCRUB_NETS4, FW_SCRUB_NETS6].into_iter().zip(self.nets);
        let ranges = bits
            .map(|(bit, count)| if count > 0 { bit } else { 0 })
            .sum();
        let at = std::mem::offset_of!(fw_scrub, ranges);
        self.shared.store(0, at, ranges);
    }

    /// Nothing is left of the tables.
    pub fn clear(&mut self) -> Result<(), DatapathError> {
        self.table4.clear();
        self.table6.clear();
        for (family, map) in [NETS4, NETS6].into_iter().enumerate() {
            let nets = get(&self.maps, map)?;
            for key in nets.keys().collect::<Vec<_>>() {
                // gone is gone
                let _ = nets.delete(&key);
            }
            self.nets[family] = 0;
        }
        self.tell_nets();
        Ok(())
    }

    /// A scrubber with more room and the same in it. Ports have to be given its programs.
    pub(crate) fn grown(
        &self,
        control: &MapByName,
        next: &OwnedFd,
        room: [u32; 2],
    ) -> Result<Self, DatapathError> {
        let shared = [".data.scrub", NETS4, NETS6, NEXT];
        let own = self
            .maps
            .iter()
            .filter(|(name, _)| shared.contains(&name.as_str()));
        let mut maps = MapByName::new();
        for (name, map) in own.chain(control.iter().filter(|(n, _)| *n == ".data.control")) {
            let handle = libbpf_rs::MapHandle::try_from(map);
            let handle = handle.map_err(|source| DatapathError::Map {
                map: "handle",
                source,
            })?;
            maps.insert(name.clone(), handle);
        }
        let mut more = Self::load(&maps, next, self.config.hz, room)?;
        more.nets = self.nets;
        for entry in self.table4.entries() {
            more.set(&entry.addr(), entry.class, entry.until_tick);
        }
        for entry in self.table6.entries() {
            more.set(&entry.addr(), entry.class, entry.until_tick);
        }
        Ok(more)
    }

    /// What was counted at a port before, under another program there.
    pub fn carry_counts(&mut self, from: &Scrubber) {
        for (ifindex, here) in &mut self.here {
            for (rule, count) in here.before.iter_mut().enumerate() {
                *count = from.count(*ifindex, rule as u32);
            }
        }
    }

    /// The addresses of which most was dropped, by sample.
    #[must_use]
    pub fn top(&self, count: usize) -> Vec<(ScrubKey, u64)> {
        let of4 = self.table4.entries().map(|e| (e.addr(), e.hits()));
        let of6 = self.table6.entries().map(|e| (e.addr(), e.hits()));
        let mut hits: Vec<_> = of4
            .chain(of6)
            .filter(|(_, hits)| *hits > 0)
            .map(|(key, hits)| (key, u64::from(hits)))
            .collect();
        hits.sort_by_key(|(key, hits)| (std::cmp::Reverse(*hits), *key));
        hits.truncate(count);
        hits
    }

    /// What the table has of an address: its class, and until when.
    #[must_use]
    pub fn get(&self, key: &ScrubKey) -> Option<(u32, u32)> {
        fn of<E: Entry>(
            table: &Table<E>,
            key: &ScrubKey,
            config: &fw_scrub_config,
        ) -> Option<(u32, u32)> {
            let place = table.find(key, config)?;
            let entry = table.places.read(place);
            Some((entry.class(), entry.until_tick()))
        }
        match (key.addr, key.pair) {
            (IpAddr::V4(_), 0) => of(&self.table4, key, &self.config),
            _ => of(&self.table6, key, &self.config),
        }
    }
}
