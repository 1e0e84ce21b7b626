// SPDX-License-Identifier: MIT OR Apache-2.0
//! Routes as they are read.

use freeway_prefix::Prefix;

use crate::alias::Alias;
use crate::change::Change;
use crate::fib::{Fib, Mode, Place};
use crate::ip::Ip;
use crate::refused::Refused;
use crate::route::Told;
use crate::term::{Term, Terms};

/// What was read so far, and what was heard meanwhile.
#[derive(Clone, Debug)]
pub struct Load<A: Ip> {
    staged: Vec<(Place, Prefix<A>, Alias)>,
    terms: Terms<A>,
    heard: Vec<(Place, Change<A>, bool)>,
    pub refused: Refused<A>,
}

impl<A: Ip> Default for Load<A> {
    fn default() -> Self {
        Self {
            staged: Vec::new(),
            terms: Terms::default(),
            heard: Vec::new(),
            refused: Refused::default(),
        }
    }
}

impl<A: Ip> Load<A> {
    pub fn add(&mut self, route: &Told<A>) {
        let Some(place) = Place::of::<A>(route.table) else {
            return;
        };
        self.refused.hear(place, route);
        let alias = Alias {
            priority: route.priority,
            term: self.terms.take(Term::of(route)),
            only: route.only,
        };
        self.staged.push((place, route.prefix, alias));
    }

    /// A change, and whether its route was known to be the only one of its rank then.
    pub fn hear(&mut self, place: Place, change: Change<A>, alone: bool) {
        self.heard.push((place, change, alone));
    }

    /// What the kernel has now, and the prefixes of which that is not clear.
    pub fn finish(self) -> (Fib<A>, Vec<Prefix<A>>) {
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
