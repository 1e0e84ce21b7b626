// SPDX-License-Identifier: MIT OR Apache-2.0
//! What many routes share, kept once.

use std::collections::HashMap;

use crate::ip::Ip;
use crate::route::{Told, Way};

/// All of a route but where it is and its rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Term<A> {
    pub way: Way<A>,
    pub prefsrc: A,
    pub nexthop_id: u32,
    pub rest: u32,
}

impl<A: Ip> Term<A> {
    pub fn of(route: &Told<A>) -> Self {
        Self {
            way: route.way,
            prefsrc: route.prefsrc,
            nexthop_id: route.nexthop_id,
            rest: route.rest,
        }
    }
}

/// Numbers of terms, each with how many routes have it.
#[derive(Clone, Debug)]
pub struct Terms<A> {
    list: Vec<(Term<A>, u32)>,
    numbers: HashMap<Term<A>, u32>,
    free: Vec<u32>,
}

impl<A> Default for Terms<A> {
    fn default() -> Self {
        Self {
            list: Vec::new(),
            numbers: HashMap::new(),
            free: Vec::new(),
        }
    }
}

impl<A: Ip> Terms<A> {
    /// The number of a term, if any route has it.
    pub fn find(&self, term: &Term<A>) -> Option<u32> {
        self.numbers.get(term).copied()
    }

    /// One more route has it.
    pub fn take(&mut self, term: Term<A>) -> u32 {
        let number = match self.numbers.get(&term) {
            Some(&number) => number,
            None => {
                let number = self.free.pop().unwrap_or(self.list.len() as u32);
                match self.list.get_mut(number as usize) {
                    Some(place) => *place = (term, 0),
                    None => self.list.push((term, 0)),
                }
                self.numbers.insert(term, number);
                number
            }
        };
        self.list[number as usize].1 += 1;
        number
    }

    /// One route fewer has it.
    pub fn give(&mut self, number: u32) {
        let (term, users) = &mut self.list[number as usize];
        *users -= 1;
        if *users == 0 {
            self.numbers.remove(term);
            self.free.push(number);
        }
    }

    pub fn get(&self, number: u32) -> &Term<A> {
        &self.list[number as usize].0
    }

    /// Of each number, whether routes have it and `which` holds; `None` if it holds of none.
    pub fn select(&self, which: impl Fn(&Term<A>) -> bool) -> Option<Vec<bool>> {
        let list = self.list.iter();
        let marks: Vec<bool> = list
            .map(|(term, users)| *users > 0 && which(term))
            .collect();
        marks.contains(&true).then_some(marks)
    }
}
