// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the table is to say of a prefix.

use freeway_prefix::Prefix;

use crate::alias::Cell;
use crate::answer::Why;
use crate::doubt::Doubts;
use crate::fib::{Fib, Place};
use crate::hops::Target;
use crate::ip::Ip;
use crate::reach::Reach;
use crate::route::Way;

/// Where a prefix leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lead<A> {
    /// To the kernel.
    Kernel(Why),
    /// To the kernel, by a unicast route.
    Unicast(Why),
    /// There.
    To(Target<A>),
}

/// Prefixes that are the kernel's whatever the routes are.
pub fn reserved<A: Ip>() -> impl Iterator<Item = Prefix<A>> {
    let all = A::RESERVED.iter();
    all.filter_map(|(address, length)| Prefix::new(*address, *length))
}

fn is_within<A: Ip>(inner: Prefix<A>, outer: Prefix<A>) -> bool {
    outer.first() <= inner.first() && inner.last() <= outer.last()
}

/// What is known.
#[derive(Clone, Copy)]
pub struct View<'a, A: Ip> {
    pub fib: &'a Fib<A>,
    pub doubts: &'a Doubts<A>,
    pub reach: &'a Reach<A>,
}

impl<A: Ip> View<'_, A> {
    /// `None`: the prefix is to be as the one around it, and the table does without it.
    pub fn lead(&self, prefix: Prefix<A>) -> Option<Lead<A>> {
        self.lead_of(prefix, self.fib.table(Place::Main).get(prefix))
    }

    /// The same of prefixes in order, each in one step.
    pub fn leads(
        &self,
        prefixes: &[Prefix<A>],
    ) -> impl Iterator<Item = (Prefix<A>, Option<Lead<A>>)> {
        let mut main = self.fib.table(Place::Main).iter().peekable();
        prefixes.iter().map(move |prefix| {
            while main.next_if(|(at, _)| at < prefix).is_some() {}
            let cell = main.next_if(|(at, _)| at == prefix);
            (*prefix, self.lead_of(*prefix, cell.map(|(_, cell)| cell)))
        })
    }

    /// With what main has there.
    fn lead_of(&self, prefix: Prefix<A>, in_main: Option<&Cell>) -> Option<Lead<A>> {
        if self.doubts.is_withdrawn(prefix) {
            return Some(Lead::Kernel(Why::Withdrawn));
        }
        if self.doubts.is_doubted(prefix) {
            return Some(Lead::Kernel(Why::Doubted));
        }
        if let Some(outer) = reserved().find(|outer| is_within(prefix, *outer)) {
            return (outer == prefix).then_some(Lead::Kernel(Why::Reserved));
        }
        // A kernel that never had a policy rule has both tables in one, where the longer prefix of main wins within a
        // local one (fib_trie_unmerge). Nobody can tell.
        let local = self.fib.table(Place::Local);
        if local.covers(prefix) {
            return local.get(prefix).map(|_| Lead::Kernel(Why::Local));
        }
        if let Some(cell) = in_main {
            return Some(self.of_cell(prefix, cell));
        }
        let default = self.fib.table(Place::Default);
        if let Some(cell) = default.get(prefix)
            && !self.fib.table(Place::Main).covers(prefix)
        {
            return Some(self.of_cell(prefix, cell));
        }
        self.of_host(prefix)
    }

    fn of_cell(&self, prefix: Prefix<A>, cell: &Cell) -> Lead<A> {
        match cell.choice() {
            Err(why) => Lead::Kernel(why),
            Ok(term) => match self.fib.way(term) {
                Way::Kernel => Lead::Kernel(Why::Kind),
                Way::Unicast { .. } => Lead::Unicast(Why::Special),
                Way::Via { oif, gateway, mtu } if gateway == A::default() => self
                    .neighbour(prefix, oif, mtu)
                    .map_or(Lead::Unicast(Why::OnLink), Lead::To),
                Way::Via { oif, gateway, mtu } => Lead::To(Target { oif, gateway, mtu }),
            },
        }
    }

    /// A neighbour at a link whose route has its address.
    fn of_host(&self, prefix: Prefix<A>) -> Option<Lead<A>> {
        let address = prefix.first();
        if !prefix.is_host() || self.reach.neighbours(address, address).next().is_none() {
            return None;
        }
        let [main, default] = [Place::Main, Place::Default]
            .map(|place| self.fib.table(place).longest(address, A::LENGTH));
        let (outer, cell) = main.or(default)?;
        if self.doubts.is_withdrawn(outer) || self.doubts.is_doubted(outer) {
            return None;
        }
        match self.fib.way(cell.choice().ok()?) {
            Way::Via { oif, gateway, mtu } if gateway == A::default() => {
                self.neighbour(prefix, oif, mtu).map(Lead::To)
            }
            _ => None,
        }
    }

    fn neighbour(&self, prefix: Prefix<A>, oif: u32, mtu: u16) -> Option<Target<A>> {
        let gateway = prefix.first();
        self.reach
            .neighbour(gateway, oif)
            .filter(|_| prefix.is_host())?;
        Some(Target { oif, gateway, mtu })
    }
}
