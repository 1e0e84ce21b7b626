// SPDX-License-Identifier: MIT OR Apache-2.0
//! Routes as they are read.

use freeway_prefix::Prefix4;

use crate::alias::Alias;
use crate::change::Change;
use crate::fib::{Fib, Mode, Place};
use crate::route::Route4;
use crate::term::{Term, Terms};

/// What was read so far, and what was heard meanwhile.
#[derive(Clone, Debug, Default)]
pub struct Load {
    staged: Vec<(Place, Prefix4, Alias)>,
    terms: Terms,
    heard: Vec<(Place, Change, bool)>,
}

impl Load {
    pub fn add(&mut self, route: &Route4) {
        let Some(place) = Place::of(route.table) else {
            return;
        };
        let alias = Alias {
            priority: route.priority,
            term: self.terms.take(Term::of(route)),
            tos: route.tos,
        };
        self.staged.push((place, route.prefix, alias));
    }

    /// A change, and whether its route was known to be the only one of its TOS and priority then.
    pub fn hear(&mut self, place: Place, change: Change, alone: bool) {
        self.heard.push((place, change, alone));
    }

    /// What the kernel has now, and the prefixes of which that is not clear.
    pub fn finish(self) -> (Fib, Vec<Prefix4>) {
        let mut fib = Fib::of(self.staged, self.terms);
        let heard = self.heard.into_iter();
        let unclear = heard.filter(|(place, change, alone)| {
            // it may have been read after the change, or before
            !fib.apply(*place, change, Mode::Again(*alone))
        });
        let unclear = unclear.map(|(_, change, _)| change.route.prefix).collect();
        (fib, unclear)
    }
}
