// SPDX-License-Identifier: MIT OR Apache-2.0
//! Routes: all of them while they are few, a digest when they are many.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::model::{Event, Route};

/// The routes of the kernel.
#[derive(Clone, Debug, PartialEq)]
pub enum Routes {
    /// Each route.
    Kept {
        /// The routes.
        routes: BTreeSet<Route>,
        /// More than so many are not kept.
        limit: usize,
    },
    /// Too many to keep.
    Digest {
        /// How many a dump found.
        count: usize,
        /// Sum of the hashes of those that a dump found, independent of their order.
        sum: u64,
    },
}

impl Default for Routes {
    fn default() -> Self {
        Routes::with_limit(usize::MAX)
    }
}

fn hash(route: &Route) -> u64 {
    let mut hasher = DefaultHasher::new();
    route.hash(&mut hasher);
    hasher.finish()
}

/// Identity of a route for NLM_F_REPLACE.
fn replaces(a: &Route, b: &Route) -> bool {
    a.family == b.family
        && a.table == b.table
        && a.dst == b.dst
        && a.src == b.src
        && a.tos == b.tos
        && a.priority == b.priority
}

/// Removes the routes of the same identity. They are neighbours in the order of [`Route`], whose first fields are
/// the identity.
fn drop_rivals(routes: &mut BTreeSet<Route>, route: &Route, which: impl Fn(&Route) -> bool) {
    let first = Route {
        kind: 0,
        protocol: 0,
        scope: 0,
        prefsrc: None,
        nexthop_id: None,
        mtu: None,
        hops: Vec::new(),
        special: false,
        ..route.clone()
    };
    let rivals = routes.range(first..).take_while(|old| replaces(old, route));
    let rivals: Vec<Route> = rivals.filter(|old| which(old)).cloned().collect();
    for rival in rivals {
        routes.remove(&rival);
    }
}

impl Routes {
    /// None yet; at most `limit` will be kept.
    pub fn with_limit(limit: usize) -> Self {
        Routes::Kept {
            routes: BTreeSet::new(),
            limit,
        }
    }

    /// Adds a route of a dump.
    pub fn collect(&mut self, route: Route) {
        match self {
            Routes::Digest { count, sum } => {
                *count += 1;
                *sum = sum.wrapping_add(hash(&route));
            }
            Routes::Kept { routes, limit } => {
                routes.insert(route);
                if routes.len() > *limit {
                    let sum = routes
                        .iter()
                        .fold(0u64, |sum, route| sum.wrapping_add(hash(route)));
                    *self = Routes::Digest {
                        count: routes.len(),
                        sum,
                    };
                }
            }
        }
    }

    /// Adds or replaces a route that an event told of; false if it was there already, and no less than all of it is known.
    pub fn insert(&mut self, route: Route, replace: bool) -> bool {
        let Routes::Kept { routes, limit } = self else {
            return true;
        };
        if routes.contains(&route) {
            return route.special;
        }
        if replace {
            drop_rivals(routes, &route, |_| true);
        }
        routes.insert(route);
        if routes.len() > *limit {
            *self = Routes::Digest { count: 0, sum: 0 };
        }
        true
    }

    /// Removes a route that an event told of.
    pub fn remove(&mut self, route: &Route) {
        if let Routes::Kept { routes, .. } = self
            && !routes.remove(route)
        {
            drop_rivals(routes, route, |old| old.hops == route.hops);
        }
    }

    /// Appends the events that lead from `self` to `new`.
    pub fn difference(&self, new: &Routes, events: &mut Vec<Event>) {
        match (self, new) {
            (Routes::Kept { routes: old, .. }, Routes::Kept { routes: new, .. }) => {
                events.extend(old.difference(new).cloned().map(Event::RouteGone));
                let news = new.difference(old).cloned();
                events.extend(news.map(|route| Event::RouteChanged(route, false)));
            }
            (old, new) if old == new => {}
            _ => events.push(Event::RoutesUnknown),
        }
    }
}
