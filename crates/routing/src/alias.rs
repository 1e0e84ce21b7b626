// SPDX-License-Identifier: MIT OR Apache-2.0
//! The routes of one prefix in one table.

use crate::answer::Why;

/// A route without its prefix and table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alias {
    pub priority: u32,
    /// A number of [`crate::term::Terms`].
    pub term: u32,
    /// As [`crate::Told::only`].
    pub only: u8,
}

impl Alias {
    /// The kernel tells only one of both apart from others by NLM_F_REPLACE.
    pub fn rivals(&self, other: &Alias) -> bool {
        (self.only, self.priority) == (other.only, other.priority)
    }
}

/// All routes of a prefix; nearly always one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// One.
    One(Alias),
    /// None, two or more, in no order.
    #[expect(
        clippy::box_collection,
        reason = "so a cell is no larger than one route"
    )]
    More(Box<Vec<Alias>>),
}

impl Cell {
    pub fn aliases(&self) -> &[Alias] {
        match self {
            Cell::One(alias) => std::slice::from_ref(alias),
            Cell::More(aliases) => aliases,
        }
    }

    pub fn contains(&self, alias: &Alias) -> bool {
        self.aliases().contains(alias)
    }

    /// How many it cannot be told from by the kernel's words for one.
    pub fn rivals(&self, alias: &Alias) -> usize {
        let rivals = self.aliases().iter().filter(|other| other.rivals(alias));
        rivals.count()
    }

    pub fn push(&mut self, alias: Alias) {
        match self {
            Cell::One(first) => *self = Cell::More(Box::new(vec![*first, alias])),
            Cell::More(aliases) => aliases.push(alias),
        }
    }

    /// Takes out all of which `which` holds.
    pub fn take(&mut self, which: impl Fn(&Alias) -> bool) -> Vec<Alias> {
        let (gone, mut left): (Vec<Alias>, Vec<Alias>) =
            self.aliases().iter().partition(|a| which(a));
        *self = match left.as_slice() {
            [only] => Cell::One(*only),
            _ => Cell::More(Box::new(std::mem::take(&mut left))),
        };
        gone
    }

    /// The term of the route that every packet takes. Which one that is may depend on the packet's TOS or source, or on the
    /// order in which equal ones were made.
    pub fn choice(&self) -> Result<u32, Why> {
        let aliases = self.aliases();
        if aliases.iter().any(|alias| alias.only != 0) {
            return Err(Why::Some);
        }
        let lowest = aliases.iter().map(|alias| alias.priority).min();
        let mut first = aliases.iter().filter(|a| Some(a.priority) == lowest);
        match (first.next(), first.next()) {
            (Some(only), None) => Ok(only.term),
            _ => Err(Why::Equals),
        }
    }
}
