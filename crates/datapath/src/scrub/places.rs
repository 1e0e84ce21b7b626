// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses of IPv6, and concatenations of either version: an array with open addressing.

use std::mem::offset_of;
use std::net::IpAddr;

use freeway_abi::{
    FW_SCRUB_CLASS_FIRST, FW_SCRUB_FREE, FW_SCRUB_LEFT, FW_SCRUB_LINES6, FW_SCRUB_PAIR_IP4,
    FW_SCRUB_PAIR_SHIFT, FW_SCRUB_WAYS6, fw_scrub_config, fw_scrub6, words_of,
};

use super::key::ScrubKey;
use crate::DatapathError;
use crate::load::{MapByName, get};
use crate::shared::Shared;

/// Where the table is.
pub(super) const TABLE6: &str = ".data.scrub6";
const CLASS_AT: usize = offset_of!(fw_scrub6, class);
const UNTIL_AT: usize = offset_of!(fw_scrub6, until_tick);

fn is(entry: &fw_scrub6, key: &ScrubKey) -> bool {
    entry.addr_be == words_of(key.addr) && entry.pair == key.pair
}

fn key_of(entry: &fw_scrub6) -> ScrubKey {
    let addr = match entry.pair >> FW_SCRUB_PAIR_SHIFT & FW_SCRUB_PAIR_IP4 {
        0 => {
            let mut bytes = [0; 16];
            for (to, word) in bytes.chunks_exact_mut(4).zip(entry.addr_be) {
                to.copy_from_slice(&word.to_ne_bytes());
            }
            IpAddr::V6(bytes.into())
        }
        _ => IpAddr::V4(entry.addr_be[0].to_ne_bytes().into()),
    };
    ScrubKey {
        addr,
        pair: entry.pair,
    }
}

fn sum(key: &ScrubKey, config: &fw_scrub_config) -> u64 {
    let word = |at: usize| {
        let words = words_of(key.addr);
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

/// The table, and how many of its places are in use.
pub(super) struct Table6 {
    places: Shared<fw_scrub6>,
    config: fw_scrub_config,
    used: u32,
}

impl Table6 {
    pub fn map(maps: &MapByName, config: &fw_scrub_config) -> Result<Self, DatapathError> {
        Ok(Self {
            places: Shared::map(get(maps, TABLE6)?, TABLE6, config.mask6 + 1)?,
            config: *config,
            used: 0,
        })
    }

    pub fn used(&self) -> u32 {
        self.used
    }

    /// The places in which an address may be, in order.
    fn way(&self, key: &ScrubKey) -> impl Iterator<Item = u32> + use<> {
        let (mask, home) = (
            self.config.mask6,
            sum(key, &self.config) >> self.config.shift6,
        );
        let home = (home as u32).wrapping_mul(FW_SCRUB_WAYS6);
        (0..FW_SCRUB_LINES6 * FW_SCRUB_WAYS6).map(move |step| home.wrapping_add(step) & mask)
    }

    fn find(&self, key: &ScrubKey) -> Option<u32> {
        for place in self.way(key) {
            let entry = self.places.read(place);
            match entry.class {
                FW_SCRUB_FREE => return None,
                FW_SCRUB_LEFT => {}
                _ if is(&entry, key) => return Some(place),
                _ => {}
            }
        }
        None
    }

    /// Its class, and until when.
    pub fn get(&self, key: &ScrubKey) -> Option<(u32, u32)> {
        let entry = self.places.read(self.find(key)?);
        Some((entry.class, entry.until_tick))
    }

    /// False: there is no place for it.
    pub fn set(&mut self, key: &ScrubKey, class: u32, until_tick: u32) -> bool {
        if let Some(place) = self.find(key) {
            self.places.store(place, UNTIL_AT, until_tick);
            self.places.store(place, CLASS_AT, class);
            return true;
        }
        let vacant = |place: &u32| self.places.read(*place).class < FW_SCRUB_CLASS_FIRST;
        let Some(place) = self.way(key).find(vacant) else {
            return false;
        };
        let entry = fw_scrub6 {
            addr_be: words_of(key.addr),
            pair: key.pair,
            until_tick,
            ..fw_scrub6::default()
        };
        // whoever reads meanwhile finds that somebody has left
        self.places.store(place, CLASS_AT, FW_SCRUB_LEFT);
        self.places.write_below(place, entry, CLASS_AT);
        self.places.store(place, CLASS_AT, class);
        self.used += 1;
        true
    }

    pub fn remove(&mut self, key: &ScrubKey) {
        if let Some(place) = self.find(key) {
            self.places.store(place, CLASS_AT, FW_SCRUB_LEFT);
            self.used -= 1;
        }
    }

    fn entries(&self) -> impl Iterator<Item = fw_scrub6> + '_ {
        let all = (0..=self.config.mask6).map(|place| self.places.read(place));
        all.filter(|entry| entry.class >= FW_SCRUB_CLASS_FIRST)
    }

    /// All, with class and end.
    pub fn all(&self) -> impl Iterator<Item = (ScrubKey, u32, u32)> + '_ {
        self.entries()
            .map(|entry| (key_of(&entry), entry.class, entry.until_tick))
    }

    /// What was dropped of each, by sample.
    pub fn hits(&self) -> impl Iterator<Item = (ScrubKey, u32)> + '_ {
        self.entries().map(|entry| (key_of(&entry), entry.hits))
    }

    pub fn clear(&mut self) {
        for place in 0..=self.config.mask6 {
            if self.places.read(place).class != FW_SCRUB_FREE {
                self.places.store(place, CLASS_AT, FW_SCRUB_FREE);
            }
        }
        self.used = 0;
    }
}
