// SPDX-License-Identifier: MIT OR Apache-2.0
//! What XDP drops ahead of the kernel: addresses by which rules of the firewall drop (`dataplane/scrub.h`).
//!
//! The tables are global data of one object for each port; they share them. An address that has no place is the
//! kernel's, which drops it itself.

mod key;
mod lines;
mod places;

use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};

use freeway_abi::{
    FW_SCRUB_NETS4, FW_SCRUB_NETS6, FW_SCRUB_RULES, FW_SCRUB_SIDES4, FW_SCRUB_WAYS4,
    FW_SCRUB_WAYS6, Pod, fw_scrub, fw_scrub_class, fw_scrub_config, fw_scrub_count, fw_scrub_here,
    fw_scrub_net, fw_scrub_net4, fw_scrub_net6, fw_scrub_rule, fw_scrub_side4, fw_scrub4,
    fw_scrub6, words_of,
};
use libbpf_rs::{MapCore, MapFlags, Object};

use crate::DatapathError;
use crate::ahead::{Ahead, lead_to};
use crate::load::{MapByName, MapMemory, get, handles, load, memory, possible_cpus, random};
use crate::packed::{Packed, packed};
use crate::shared::Shared;

pub use self::key::ScrubKey;
use self::lines::{SIDES4, TABLE4, Table4};
use self::places::{TABLE6, Table6};

static SCRUB: Packed = packed!("scrub");

const NAME: &str = "scrub";
const NETS4: &str = "fw_scrub_nets4";
const NETS6: &str = "fw_scrub_nets6";
const NEXT: &str = "fw_scrub_next";
/// What each port has of its own.
const HERE: [&str; 2] = [".data.here", ".data.counts"];
/// Places of the table of IPv6 for each address that it is to hold, at least.
const PLACES: u32 = 2;
/// Addresses of IPv4 that a line is for. With as many of a million one in forty is in a line behind its own, and few
/// have no place; with a line's seven ways full of them one in twelve and one in a hundred.
const PER_LINE: f64 = FW_SCRUB_WAYS4 as f64 * 0.6;
const ADDRESSES_MIN: u32 = 1 << 10;
/// The most places that a table has: 512 MiB of IPv6.
const PLACES_MAX: u32 = 1 << 24;

/// At one port.
struct Here {
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
    table4: Table4,
    table6: Table6,
    /// Rules without conditions.
    plain: u64,
    ahead: Ahead<Here>,
    nets: [usize; 2],
}

/// Lines for so many addresses of IPv4.
fn lines(addresses: u32) -> u32 {
    let wanted = addresses.clamp(ADDRESSES_MIN, PLACES_MAX);
    let lines = (f64::from(wanted) / PER_LINE).ceil() as u32;
    lines.next_power_of_two()
}

/// Places for so many of IPv6.
fn places(addresses: u32) -> u32 {
    let wanted = addresses.max(ADDRESSES_MIN).saturating_mul(PLACES);
    wanted.min(PLACES_MAX).next_power_of_two()
}

fn class_of(rules: u64, plain: u64) -> fw_scrub_class {
    let first = rules.trailing_zeros() % u64::BITS;
    fw_scrub_class {
        rules,
        plain: rules & plain & 1 << first,
        first,
        ..fw_scrub_class::default()
    }
}

fn load_scrub(config: &fw_scrub_config, maps: &MapByName) -> Result<Object, DatapathError> {
    load(NAME, SCRUB, |name, map| {
        let bytes = |count: u32, of: usize| count * of as u32;
        let lines = lines::lines(config);
        match name {
            ".rodata.scrub" => return map.set_initial_value(config.as_bytes()),
            TABLE4 => map.set_value_size(bytes(lines, size_of::<fw_scrub4>()))?,
            SIDES4 => {
                let sides = lines * FW_SCRUB_SIDES4;
                map.set_value_size(bytes(sides, size_of::<fw_scrub_side4>()))?;
            }
            TABLE6 => map.set_value_size(bytes(config.mask6 + 1, size_of::<fw_scrub6>()))?,
            ".data.counts" => {
                let counts = config.count_mask + 1;
                map.set_value_size(bytes(counts, size_of::<fw_scrub_count>()))?;
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
        let places6 = places(room[1]);
        let cpus = possible_cpus().next_power_of_two();
        let config = fw_scrub_config {
            hz,
            shift4: u64::BITS - lines(room[0]).ilog2(),
            mask6: places6 - 1,
            shift6: 64 - (places6 / FW_SCRUB_WAYS6).ilog2(),
            pad: 0,
            count_mask: cpus * FW_SCRUB_RULES - 1,
            hash_key: std::array::from_fn(|_| random() | 1),
        };
        let first = load_scrub(&config, control)?;
        let maps = handles(&first)?;
        lead_to(get(&maps, NEXT)?, NEXT, next.as_fd())?;
        Ok(Self {
            shared: Shared::map(get(&maps, ".data.scrub")?, ".data.scrub", 1)?,
            table4: Table4::map(&maps, &config)?,
            table6: Table6::map(&maps, &config)?,
            maps,
            _first: first,
            config,
            plain: 0,
            ahead: Ahead::new(NAME, "freeway_scrub"),
            nets: [0; 2],
        })
    }

    /// Addresses of IPv4 in the table, and of IPv6 and concatenations.
    #[must_use]
    pub fn used(&self) -> [u32; 2] {
        [self.table4.used(), self.table6.used()]
    }

    /// As many as there is room for without crowding.
    #[must_use]
    pub fn room(&self) -> [u32; 2] {
        [
            (f64::from(lines::homes(&self.config)) * PER_LINE) as u32,
            (self.config.mask6 + 1) / PLACES,
        ]
    }

    /// The program for a port, and what of it is the port's. It is made when it is first asked for.
    pub fn at(&mut self, ifindex: u32, here: fw_scrub_here) -> Result<&OwnedFd, DatapathError> {
        let (prog, own) = self.ahead.at(ifindex, || {
            let object = load_scrub(&self.config, &self.maps)?;
            let maps = handles(&object)?;
            let own = Here {
                here: Shared::map(get(&maps, HERE[0])?, HERE[0], 1)?,
                counts: Shared::map(get(&maps, HERE[1])?, HERE[1], self.config.count_mask + 1)?,
                before: vec![fw_scrub_count::default(); FW_SCRUB_RULES as usize],
            };
            Ok((object, own))
        })?;
        own.here.write(0, here);
        Ok(prog)
    }

    /// The program is no longer at the port.
    pub fn leave(&mut self, ifindex: u32) {
        self.ahead.leave(ifindex);
    }

    /// True of a port that has a program.
    #[must_use]
    pub fn has(&self, ifindex: u32) -> bool {
        self.ahead.get(ifindex).is_some()
    }

    /// Ports that have a program.
    pub fn ports(&self) -> impl Iterator<Item = u32> + '_ {
        self.ahead.ports()
    }

    /// Of its maps, but for counters of single ports.
    #[must_use]
    pub fn memory(&self) -> MapMemory {
        memory(&self.maps)
    }

    /// Ids of its programs.
    #[must_use]
    pub fn prog_ids(&self) -> Vec<u32> {
        self.ahead.prog_ids()
    }

    /// Of a rule at a port, since the last call that took the place of the port's program.
    #[must_use]
    pub fn count(&self, ifindex: u32, rule: u32) -> fw_scrub_count {
        let Some(here) = self.ahead.own(ifindex) else {
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
        for (_, here) in self.ahead.owns_mut() {
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
    pub fn set_rule(&mut self, number: u32, rule: fw_scrub_rule) {
        let bit = 1u64.checked_shl(number).unwrap_or(0);
        self.plain &= !bit;
        if rule.proto == 0 && rule.dports == 0 {
            self.plain |= bit;
        }
        self.change(|all| {
            if let Some(place) = all.rule.get_mut(number as usize) {
                *place = rule;
            }
            for class in &mut all.class {
                *class = class_of(class.rules, self.plain);
            }
        });
    }

    /// Which rules drop the addresses of a class.
    pub fn set_class(&self, number: u32, rules: u64) {
        let at =
            std::mem::offset_of!(fw_scrub, class) + number as usize * size_of::<fw_scrub_class>();
        let class = class_of(rules, self.plain);
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
            (IpAddr::V4(_), 0) => self.table4.set(key.addr, class, until_tick),
            _ => self.table6.set(key, class, until_tick),
        }
    }

    /// It is the kernel's.
    pub fn remove(&mut self, key: &ScrubKey) {
        match (key.addr, key.pair) {
            (IpAddr::V4(_), 0) => self.table4.remove(key.addr),
            _ => self.table6.remove(key),
        }
    }

    fn net_key(addr: IpAddr, len: u8) -> (usize, &'static str, Vec<u8>) {
        let (len, addr_be) = (u32::from(len), words_of(addr));
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
        more.plain = self.plain;
        for (key, class, until_tick) in self.table4.all().chain(self.table6.all()) {
            more.set(&key, class, until_tick);
        }
        Ok(more)
    }

    /// What was counted at a port before, under another program there.
    pub fn carry_counts(&mut self, from: &Scrubber) {
        for (ifindex, here) in self.ahead.owns_mut() {
            for (rule, count) in here.before.iter_mut().enumerate() {
                *count = from.count(ifindex, rule as u32);
            }
        }
    }

    /// The addresses of which most was dropped, by sample.
    #[must_use]
    pub fn top(&self, count: usize) -> Vec<(ScrubKey, u64)> {
        let all = self.table4.hits().chain(self.table6.hits());
        let mut hits: Vec<_> = all
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
        match (key.addr, key.pair) {
            (IpAddr::V4(_), 0) => self.table4.get(key.addr),
            _ => self.table6.get(key),
        }
    }
}
