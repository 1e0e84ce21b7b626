// SPDX-License-Identifier: MIT OR Apache-2.0
//! Networks from which the kernel takes no packets, if it looks sources up (`__fib_validate_source()`).

use std::collections::BTreeMap;

use freeway_prefix::Prefix;

use crate::fib::Place;
use crate::ip::Ip;
use crate::route::{Told, Way};

/// Such networks, and whether somebody added a route of type local there: then the kernel does look sources up. Single
/// addresses of the local table are not among them. What has gone stays until all routes were read again.
#[derive(Clone, Debug)]
pub struct Refused<A: Ip>(BTreeMap<Prefix<A>, bool>);

impl<A: Ip> Default for Refused<A> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<A: Ip> Refused<A> {
    /// There is a route. False: it is none of these.
    pub fn hear(&mut self, place: Place, route: &Told<A>) -> bool {
        let is = Self::is(place, route);
        if is {
            *self.0.entry(route.prefix).or_default() |= route.added_local;
        }
        is
    }

    /// True of a route that matters here.
    pub fn is(place: Place, route: &Told<A>) -> bool {
        let reserved = A::RESERVED.iter();
        let mut reserved = reserved.filter_map(|(first, length)| Prefix::new(*first, *length));
        match place {
            Place::Local => {
                let forwards = route.way != Way::Kernel;
                !forwards
                    && !route.prefix.is_host()
                    && reserved.all(|prefix| prefix != route.prefix)
            }
            Place::Main | Place::Default => route.added_local,
        }
    }

    pub fn has(&self, prefix: &Prefix<A>) -> bool {
        self.0.contains_key(prefix)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One of them, if sources are looked up: the kernel is known to do so, or will from now on.
    pub fn first(&self, looked_up: bool) -> Option<Prefix<A>> {
        let added = self.0.values().any(|added| *added);
        let mut prefixes = self.0.keys();
        prefixes.next().filter(|_| looked_up || added).copied()
    }
}
