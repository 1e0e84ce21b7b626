// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses of IPv4: an array of cache lines, each with the addresses whose home it is and that had a place in it.
//!
//! A reader compares the address before and after it reads what stands beside it, and a way is nobody's while it changes
//! hands: what is read is one address's, or nothing.

use std::mem::offset_of;
use std::net::IpAddr;

use freeway_abi::{
    FW_SCRUB_CLASSES, FW_SCRUB_FREE, FW_SCRUB_LINES4, FW_SCRUB_MORE_SHIFT, FW_SCRUB_SIDES4,
    FW_SCRUB_TAG_SHIFT, FW_SCRUB_WAYS4, fw_scrub_config, fw_scrub_side4, fw_scrub4, words_of,
};

use super::key::ScrubKey;
use crate::DatapathError;
use crate::load::{MapByName, get};
use crate::shared::Shared;

/// Where the table is, and what is seldom asked.
pub(super) const TABLE4: &str = ".data.scrub4";
pub(super) const SIDES4: &str = ".data.sides4";
const TAGS_AT: usize = offset_of!(fw_scrub4, tags);
const META_AT: usize = offset_of!(fw_scrub4, meta);
const ADDR_AT: usize = offset_of!(fw_scrub4, addr_be);
const UNTIL_AT: usize = offset_of!(fw_scrub_side4, until_tick);
const HITS_AT: usize = offset_of!(fw_scrub_side4, hits);
/// Ticks of which a line tells no more than that they are the last.
const UNIT: u32 = FW_SCRUB_CLASSES;

/// A place: a line, and a way of it.
#[derive(Clone, Copy)]
struct Place {
    line: u32,
    way: u32,
}

impl Place {
    fn side(self) -> u32 {
        self.line * FW_SCRUB_SIDES4 + self.way
    }
}

/// Lines that are some address's home.
pub(super) fn homes(config: &fw_scrub_config) -> u32 {
    1 << (u64::BITS - config.shift4)
}

/// With those behind the last home, and one more: the verifier takes the number of a way for one of eight.
pub(super) fn lines(config: &fw_scrub_config) -> u32 {
    homes(config) + FW_SCRUB_LINES4
}

/// The table, and how many of its places are in use.
pub(super) struct Table4 {
    lines: Shared<fw_scrub4>,
    sides: Shared<fw_scrub_side4>,
    config: fw_scrub_config,
    used: u32,
}

impl Table4 {
    pub fn map(maps: &MapByName, config: &fw_scrub_config) -> Result<Self, DatapathError> {
        let lines = lines(config);
        Ok(Self {
            lines: Shared::map(get(maps, TABLE4)?, TABLE4, lines)?,
            sides: Shared::map(get(maps, SIDES4)?, SIDES4, lines * FW_SCRUB_SIDES4)?,
            config: *config,
            used: 0,
        })
    }

    pub fn used(&self) -> u32 {
        self.used
    }

    fn sum(&self, addr_be: u32) -> u64 {
        let sum = u64::from(addr_be).wrapping_mul(self.config.hash_key[0]);
        (sum ^ sum >> 32).wrapping_mul(self.config.hash_key[1])
    }

    /// The lines in which an address may be, in order.
    fn way(&self, addr_be: u32) -> impl Iterator<Item = u32> + use<> {
        let home = self.sum(addr_be) >> self.config.shift4;
        (0..FW_SCRUB_LINES4).map(move |step| home as u32 + step)
    }

    fn find_be(&self, addr_be: u32) -> Option<Place> {
        for line in self.way(addr_be) {
            let here = self.lines.read(line);
            let mut ways = (0u32..).zip(here.addr_be.iter().zip(here.meta));
            let is = |(_, (addr, meta)): &(u32, (&u32, u32))| **addr == addr_be && *meta != 0;
            if let Some((way, _)) = ways.find(is) {
                return Some(Place { line, way });
            }
            if here.tags >> FW_SCRUB_MORE_SHIFT == 0 {
                return None;
            }
        }
        None
    }

    fn store_meta(&self, place: Place, meta: u32) {
        self.lines
            .store(place.line, META_AT + 4 * place.way as usize, meta);
    }

    /// One of a line's tags, or what is in place of the last. Readers find the others as they are.
    fn store_tag(&self, line: u32, at: u32, tag: u8) {
        let tags = self.lines.read(line).tags;
        let tags = tags & !(0xff << at) | u64::from(tag) << at;
        let high = at / 32;
        let word = if cfg!(target_endian = "little") {
            high
        } else {
            1 - high
        };
        self.lines.store(
            line,
            TAGS_AT + 4 * word as usize,
            (tags >> (32 * high)) as u32,
        );
    }

    /// Class and end as a line has them: never later than it is.
    fn meta(class: u32, until_tick: u32) -> (u32, u32) {
        let until_tick = match until_tick {
            0 => 0,
            // a line would have it for good
            1..UNIT => u32::MAX,
            until_tick => until_tick,
        };
        (until_tick & !(UNIT - 1) | class, until_tick)
    }

    /// Its class, and until when.
    pub fn get(&self, addr: IpAddr) -> Option<(u32, u32)> {
        let place = self.find_be(words_of(addr)[0])?;
        let meta = *self.lines.read(place.line).meta.get(place.way as usize)?;
        let until_tick = self.sides.read(place.side()).until_tick;
        Some((meta & (UNIT - 1), until_tick))
    }

    /// False: there is no place for it.
    pub fn set(&mut self, addr: IpAddr, class: u32, until_tick: u32) -> bool {
        let addr_be = words_of(addr)[0];
        let (meta, until_tick) = Self::meta(class, until_tick);
        if let Some(place) = self.find_be(addr_be) {
            // whoever reads meanwhile finds nobody
            self.store_meta(place, FW_SCRUB_FREE);
            self.sides.store(place.side(), UNTIL_AT, until_tick);
            self.store_meta(place, meta);
            return true;
        }
        let vacant = |line: u32| {
            let metas = self.lines.read(line).meta;
            let way = metas.iter().position(|meta| *meta == FW_SCRUB_FREE)? as u32;
            Some(Place { line, way })
        };
        let Some(place) = self.way(addr_be).find_map(vacant) else {
            return false;
        };
        for line in self.way(addr_be).take_while(|line| *line != place.line) {
            self.store_tag(line, FW_SCRUB_MORE_SHIFT, 1);
        }
        let tag = (self.sum(addr_be) >> FW_SCRUB_TAG_SHIFT) as u8;
        self.lines
            .store(place.line, ADDR_AT + 4 * place.way as usize, addr_be);
        self.store_tag(place.line, 8 * place.way, tag);
        self.sides.store(place.side(), UNTIL_AT, until_tick);
        self.sides.store(place.side(), HITS_AT, 0);
        self.store_meta(place, meta);
        self.used += 1;
        true
    }

    pub fn remove(&mut self, addr: IpAddr) {
        if let Some(place) = self.find_be(words_of(addr)[0]) {
            self.store_meta(place, FW_SCRUB_FREE);
            self.used -= 1;
        }
    }

    fn entries(&self) -> impl Iterator<Item = (ScrubKey, u32, fw_scrub_side4)> + '_ {
        (0..lines(&self.config)).flat_map(move |line| {
            let here = self.lines.read(line);
            (0u32..FW_SCRUB_WAYS4).filter_map(move |way| {
                let meta = *here.meta.get(way as usize)?;
                let addr_be = *here.addr_be.get(way as usize)?;
                let key = ScrubKey {
                    addr: IpAddr::V4(addr_be.to_ne_bytes().into()),
                    pair: 0,
                };
                let side = || self.sides.read(Place { line, way }.side());
                (meta != FW_SCRUB_FREE).then(|| (key, meta & (UNIT - 1), side()))
            })
        })
    }

    /// All, with class and end.
    pub fn all(&self) -> impl Iterator<Item = (ScrubKey, u32, u32)> + '_ {
        self.entries()
            .map(|(key, class, side)| (key, class, side.until_tick))
    }

    /// What was dropped of each, by sample.
    pub fn hits(&self) -> impl Iterator<Item = (ScrubKey, u32)> + '_ {
        self.entries().map(|(key, _, side)| (key, side.hits))
    }

    pub fn clear(&mut self) {
        for line in 0..lines(&self.config) {
            for way in 0..FW_SCRUB_WAYS4 {
                self.store_meta(Place { line, way }, FW_SCRUB_FREE);
            }
            self.store_tag(line, FW_SCRUB_MORE_SHIFT, 0);
        }
        self.used = 0;
    }
}
