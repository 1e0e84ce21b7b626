// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's tables, without their order.

use freeway_prefix::Prefix;

use crate::alias::{Alias, Cell};
use crate::change::{Change, Kind};
use crate::ip::Ip;
use crate::longest::Longest;
use crate::route::{Told, Way};
use crate::term::{Term, Terms};

/// A table that the kernel looks into, in the order in which it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    Local,
    Main,
    Default,
}

impl Place {
    pub const ALL: [Place; 3] = [Place::Local, Place::Main, Place::Default];

    /// That of a table's number. Others need a policy rule to be looked into.
    pub fn of<A: Ip>(table: u32) -> Option<Self> {
        let all = Self::ALL.into_iter();
        let mut looked_into = all.filter(|place| A::HAS_DEFAULT || *place != Place::Default);
        looked_into.find(|place| place.table() == table)
    }

    pub fn table(self) -> u32 {
        match self {
            Place::Local => 255,
            Place::Main => 254,
            Place::Default => 253,
        }
    }
}

/// How a change is to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// As it happens.
    Now,
    /// What was read may have it already, and what came after it. True: afterwards it was the only one of its rank.
    Again(bool),
}

/// Routes by table and prefix.
#[derive(Clone, Debug)]
pub struct Fib<A> {
    tables: [Longest<A, Cell>; 3],
    terms: Terms<A>,
    routes: usize,
}

impl<A> Default for Fib<A> {
    fn default() -> Self {
        Self {
            tables: Default::default(),
            terms: Terms::default(),
            routes: 0,
        }
    }
}

impl<A: Ip> Fib<A> {
    /// Of all routes, of which the same may be there more than once.
    pub fn of(mut staged: Vec<(Place, Prefix<A>, Alias)>, terms: Terms<A>) -> Self {
        staged.sort_by_key(|(place, prefix, _)| (*place, *prefix));
        let mut fib = Self {
            terms,
            ..Self::default()
        };
        for place in Place::ALL {
            let begin = staged.partition_point(|(at, ..)| *at < place);
            let end = staged.partition_point(|(at, ..)| *at <= place);
            let mut cells: Vec<(Prefix<A>, Cell)> = Vec::with_capacity(end - begin);
            for (_, prefix, alias) in &staged[begin..end] {
                match cells.last_mut() {
                    Some((last, cell)) if last == prefix && cell.contains(alias) => {
                        fib.terms.give(alias.term);
                        continue;
                    }
                    Some((last, cell)) if last == prefix => cell.push(*alias),
                    _ => cells.push((*prefix, Cell::One(*alias))),
                }
                fib.routes += 1;
            }
            fib.tables[place as usize] = cells.into_iter().collect();
        }
        fib
    }

    pub fn table(&self, place: Place) -> &Longest<A, Cell> {
        &self.tables[place as usize]
    }

    pub fn terms(&self) -> &Terms<A> {
        &self.terms
    }

    pub fn routes(&self) -> usize {
        self.routes
    }

    /// Where a term leads.
    pub fn way(&self, term: u32) -> Way<A> {
        self.terms.get(term).way
    }

    /// True if the route is the only one of its rank.
    pub fn is_alone(&self, place: Place, route: &Told<A>) -> bool {
        let alias = Alias {
            priority: route.priority,
            term: 0,
            only: route.only,
        };
        let cell = self.table(place).get(route.prefix);
        cell.is_some_and(|cell| cell.rivals(&alias) == 1)
    }

    /// False if it does not say enough, so that it is not known what the kernel has.
    pub fn apply(&mut self, place: Place, change: &Change<A>, mode: Mode) -> bool {
        let Change { kind, route } = change;
        let term = Term::of(route);
        let known = self.terms.find(&term);
        let mut alias = Alias {
            priority: route.priority,
            // of none
            term: known.unwrap_or(u32::MAX),
            only: route.only,
        };
        let cell = self.tables[place as usize].get(route.prefix);
        let there = known.is_some() && cell.is_some_and(|cell| cell.contains(&alias));
        let rivals = cell.map_or(0, |cell| cell.rivals(&alias));
        if *kind == Kind::Gone {
            if there {
                self.take(place, route.prefix, |other| *other == alias);
            }
            // One that it told of in other words may be gone.
            return there || rivals == 0 || mode != Mode::Now;
        }
        let only = mode == Mode::Again(true);
        let sure = *kind == Kind::New || only || rivals < 2;
        let instead = only || *kind == Kind::Replaced && rivals < 2;
        if instead {
            self.take(place, route.prefix, |other| {
                other.rivals(&alias) && *other != alias
            });
        }
        if !there {
            alias.term = self.terms.take(term);
            self.push(place, route.prefix, alias);
        }
        sure
    }

    fn push(&mut self, place: Place, prefix: Prefix<A>, alias: Alias) {
        let table = &mut self.tables[place as usize];
        match table.get_mut(prefix) {
            Some(cell) => cell.push(alias),
            None => {
                table.insert(prefix, Cell::One(alias));
            }
        }
        self.routes += 1;
    }

    fn take(&mut self, place: Place, prefix: Prefix<A>, which: impl Fn(&Alias) -> bool) {
        let table = &mut self.tables[place as usize];
        let Some(cell) = table.get_mut(prefix) else {
            return;
        };
        for alias in cell.take(which) {
            self.terms.give(alias.term);
            self.routes -= 1;
        }
        if cell.aliases().is_empty() {
            table.remove(prefix);
        }
    }
}
