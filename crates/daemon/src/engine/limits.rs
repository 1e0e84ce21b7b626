// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[[scrub.limit]]`: what sources may send, at which ports, and who sends more.

mod answer;
mod follow;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Instant;

use freeway_abi::{FW_RATELIMITS, fw_ratelimit_count};
use freeway_datapath::{MapMemory, RateLimiter};

use crate::config::SourceLimit;

/// Sources that are remembered.
const SOURCES_MAX: usize = 1000;

/// A limit in the data plane.
#[derive(Clone, Debug)]
struct Place {
    limit: SourceLimit,
    /// In the configuration, from 0 on.
    number: usize,
    /// Ports where it is in force.
    ports: BTreeSet<u32>,
    /// At ports that are gone.
    before: fw_ratelimit_count,
}

/// What a source has sent too much.
#[derive(Clone, Copy, Debug, Default)]
struct Excess {
    /// By its bucket, when it was last looked at.
    seen: u32,
    packets: u64,
    per_s: u64,
}

/// What is known of limits.
pub(super) struct Limits {
    /// None: there is nothing to limit.
    limiter: Option<RateLimiter>,
    /// By their number in the data plane; `None`: free.
    places: Vec<Option<Place>>,
    /// Of limits that are gone.
    gone: fw_ratelimit_count,
    /// Where a limit is not in force, by its number in the configuration and the port, and why.
    kept: BTreeMap<(usize, String), String>,
    /// Packets by place and port when they were last looked at, and their rate.
    rates: BTreeMap<(u32, u32), (u64, u64)>,
    /// By place and address of the prefix.
    sources: BTreeMap<(u32, IpAddr), Excess>,
    looked: Instant,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            limiter: None,
            places: vec![None; FW_RATELIMITS as usize],
            gone: fw_ratelimit_count::default(),
            kept: BTreeMap::new(),
            rates: BTreeMap::new(),
            sources: BTreeMap::new(),
            looked: Instant::now(),
        }
    }
}

fn sum(total: &mut fw_ratelimit_count, count: fw_ratelimit_count) {
    total.dropped += count.dropped;
    total.bytes += count.bytes;
    total.forgotten += count.forgotten;
}

impl Limits {
    /// Ids of the programs.
    pub(super) fn prog_ids(&self) -> Vec<u32> {
        let limiter = self.limiter.as_ref();
        limiter.map_or_else(Vec::new, RateLimiter::prog_ids)
    }

    /// Of its buckets.
    pub(super) fn memory(&self) -> MapMemory {
        let limiter = self.limiter.as_ref();
        limiter.map_or_else(MapMemory::new, RateLimiter::memory)
    }

    /// Those in force, by their places.
    fn taken(&self) -> impl Iterator<Item = (u32, &Place)> {
        let all = (0u32..).zip(&self.places);
        all.filter_map(|(at, place)| Some((at, place.as_ref()?)))
    }

    fn ports(&self) -> Vec<u32> {
        let limiter = self.limiter.iter();
        limiter.flat_map(RateLimiter::ports).collect()
    }

    fn counted_at(&self, at: u32, port: u32) -> fw_ratelimit_count {
        let limiter = self.limiter.as_ref();
        limiter.map_or_else(Default::default, |limiter| limiter.count(port, at))
    }

    /// What was counted in a place, at whatever port.
    fn counted(&self, at: u32) -> fw_ratelimit_count {
        let place = self.places.get(at as usize).and_then(Option::as_ref);
        let mut total = place.map_or_else(Default::default, |place| place.before);
        for port in self.ports() {
            sum(&mut total, self.counted_at(at, port));
        }
        total
    }

    /// Of all limits that ever were.
    fn total(&self) -> fw_ratelimit_count {
        let mut total = self.gone;
        for (at, _) in self.taken() {
            sum(&mut total, self.counted(at));
        }
        total
    }
}
