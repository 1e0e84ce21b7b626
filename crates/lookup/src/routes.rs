// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables to measure with: the Internet's, as far as it is known here, or one that looks like it.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, BufRead};

use freeway_prefix::{NextHop, Prefix4};

use crate::random::Random;

/// Next hops, of which each origin has one.
pub const NEXT_HOPS: u32 = 500;
/// The longest prefix that is accepted on the Internet.
const LONGEST: u8 = 24;
/// Prefixes of each length from /8 on in a thousand of a full table, about as BGP reports have it.
const OF_A_THOUSAND: [u32; 17] = [1, 1, 1, 1, 1, 1, 1, 2, 14, 8, 14, 26, 45, 53, 118, 106, 607];

/// IPv4 prefixes and the numbers of their next hops, 1 to [`NEXT_HOPS`].
pub type Routes = BTreeMap<Prefix4, NextHop>;

/// Of lines `first,last,origin,...`, addresses as numbers: the prefixes of up to /24 that make up each range. What is
/// shorter than a /24 is left out.
pub fn of_ranges(text: impl BufRead) -> io::Result<Routes> {
    let mut routes = Routes::new();
    for line in text.lines() {
        let line = line?;
        let mut fields = line.split(',').map(|field| field.parse::<u32>());
        let (Some(Ok(first)), Some(Ok(last)), Some(Ok(origin))) =
            (fields.next(), fields.next(), fields.next())
        else {
            let message = format!("no range of addresses and its origin: {line}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        };
        cover(&mut routes, first, last, of_origin(origin));
    }
    Ok(routes)
}

fn of_origin(origin: u32) -> NextHop {
    (Random::new(origin.into()).below(NEXT_HOPS) + 1) as NextHop
}

fn cover(routes: &mut Routes, first: u32, last: u32, next_hop: NextHop) {
    let (mut slot, end) = (
        first.div_ceil(256),
        (last >> 8) + u32::from(last % 256 == 255),
    );
    while slot < end {
        let aligned = slot.trailing_zeros().min(24);
        let fits = (end - slot).ilog2();
        let bits = aligned.min(fits);
        routes
            .extend(Prefix4::new(slot << 8, LONGEST - bits as u8).map(|prefix| (prefix, next_hop)));
        slot += 1 << bits;
    }
}

/// Prefixes by the lengths of a full table, anywhere; neighbours share an origin as often as not.
#[must_use]
pub fn synthetic(count: usize) -> Routes {
    let mut random = Random::new(4);
    let mut routes = Routes::new();
    let mut near = 0;
    while routes.len() < count {
        let mut at = random.below(OF_A_THOUSAND.iter().sum());
        let length = OF_A_THOUSAND
            .iter()
            .position(|of| match at.checked_sub(*of) {
                Some(rest) => {
                    at = rest;
                    false
                }
                None => true,
            });
        let length = 8 + length.unwrap_or(16) as u8;
        // half of them within a /16 of the one before
        let address = match random.below(2) {
            0 => near & 0xffff_0000 | random.below(1 << 16),
            _ => random.below(223 << 24) + (1 << 24),
        };
        near = address;
        let next_hop = of_origin(address >> 18 ^ random.below(2));
        routes.extend(Prefix4::new(address, length).map(|prefix| (prefix, next_hop)));
    }
    routes
}

/// So many of them: others are left out at random, or more specific ones are added, four of five with the next hop of the
/// prefix that they are cut from.
#[must_use]
pub fn resized(mut routes: Routes, count: usize) -> Routes {
    let mut random = Random::new(5);
    let mut all: Vec<(Prefix4, NextHop)> = routes.iter().map(|(p, n)| (*p, *n)).collect();
    if all.len() > count {
        for at in 0..count {
            let other = at + random.below((all.len() - at) as u32) as usize;
            all.swap(at, other);
        }
        return all.into_iter().take(count).collect();
    }
    all.retain(|(prefix, _)| prefix.length() < LONGEST);
    let mut tried = 0;
    while routes.len() < count && !all.is_empty() && tried < 100 * count {
        tried += 1;
        let (from, next_hop) = all[random.below(all.len() as u32) as usize];
        let more = u32::from(LONGEST - from.length());
        // most are a /24
        let length = match random.below(2) {
            0 => LONGEST,
            _ => from.length() + 1 + random.below(more) as u8,
        };
        let address = from.first() | random.word() & (from.last() - from.first());
        let next_hop = match random.below(5) {
            0 => (random.below(NEXT_HOPS) + 1) as NextHop,
            _ => next_hop,
        };
        if let Some(prefix) = Prefix4::new(address, length) {
            routes.entry(prefix).or_insert(next_hop);
        }
    }
    routes
}

/// Random addresses of random prefixes.
#[must_use]
pub fn addresses(routes: &Routes, count: usize) -> Vec<u32> {
    let prefixes: Vec<Prefix4> = routes.keys().copied().collect();
    let mut random = Random::new(6);
    let addresses = (0..count).map(|_| {
        let prefix = prefixes[random.below(prefixes.len() as u32) as usize];
        prefix.first() | random.word() & (prefix.last() - prefix.first())
    });
    addresses.collect()
}

/// Next hops that are in use.
#[must_use]
pub fn next_hops(routes: &Routes) -> usize {
    routes.values().collect::<HashSet<_>>().len()
}
