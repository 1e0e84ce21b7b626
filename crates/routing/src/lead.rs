// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the table is to say of a prefix.

use freeway_prefix::Prefix4;

use crate::alias::Cell;
use crate::answer::Why;
use crate::doubt::Doubts;
use crate::fib::{Fib, Place};
use crate::hops::Target;
use crate::reach::Reach;
use crate::route::Way;

/// Where a prefix leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lead {
    /// To the kernel.
    Kernel(Why),
    /// To the kernel, by a unicast route.
    Unicast(Why),
    /// There.
    To(Target),
}

/// Addresses that `ip_route_input_slow()` treats apart, as first address and length.
const RESERVED: [(u32, u8); 4] = [
    (0, 8),
    (0x7f00_0000, 8),
    (0xe000_0000, 4),
    (0xffff_ffff, 32),
];

/// Prefixes that are the kernel's whatever the routes are.
pub fn reserved() -> impl Iterator<Item = Prefix4> {
    let all = RESERVED.into_iter();
    all.filter_map(|(address, length)| Prefix4::new(address, length))
}

fn is_within(inner: Prefix4, outer: Prefix4) -> bool {
    outer.first() <= inner.first() && inner.last() <= outer.last()
}

/// What is known.
#[derive(Clone, Copy)]
pub struct View<'a> {
    pub fib: &'a Fib,
    pub doubts: &'a Doubts,
    pub reach: &'a Reach,
}

impl View<'_> {
    /// `None`: the prefix is to be as the one around it, and the table does without it.
    pub fn lead(&self, prefix: Prefix4) -> Option<Lead> {
        self.lead_of(prefix, self.fib.table(Place::Main).get(prefix))
    }

    /// The same of prefixes in order, each in one step.
    pub fn leads(&self, prefixes: &[Prefix4]) -> impl Iterator<Item = (Prefix4, Option<Lead>)> {
        let mut main = self.fib.table(Place::Main).iter().peekable();
        prefixes.iter().map(move |prefix| {
            while main.next_if(|(at, _)| at < prefix).is_some() {}
            let cell = main.next_if(|(at, _)| at == prefix);
            (*prefix, self.lead_of(*prefix, cell.map(|(_, cell)| cell)))
        })
    }

    /// With what main has there.
    fn lead_of(&self, prefix: Prefix4, in_main: Option<&Cell>) -> Option<Lead> {
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

    fn of_cell(&self, prefix: Prefix4, cell: &Cell) -> Lead {
        match cell.choice() {
            Err(why) => Lead::Kernel(why),
            Ok(term) => match self.fib.way(term) {
                Way::Kernel => Lead::Kernel(Why::Kind),
                Way::Unicast { .. } => Lead::Unicast(Why::Special),
                Way::Via {
                    oif,
                    gateway: 0,
                    mtu,
                } => self
                    .neighbour(prefix, oif, mtu)
                    .map_or(Lead::Unicast(Why::OnLink), Lead::To),
                Way::Via { oif, gateway, mtu } => Lead::To(Target { oif, gateway, mtu }),
            },
        }
    }

    /// A neighbour at a link whose route has its address.
    fn of_host(&self, prefix: Prefix4) -> Option<Lead> {
        let address = prefix.first();
        if prefix.length() != 32 || self.reach.neighbours(address, address).next().is_none() {
            return None;
        }
        let [main, default] =
            [Place::Main, Place::Default].map(|place| self.fib.table(place).longest(address, 32));
        let (outer, cell) = main.or(default)?;
        if self.doubts.is_withdrawn(outer) || self.doubts.is_doubted(outer) {
            return None;
        }
        match self.fib.way(cell.choice().ok()?) {
            Way::Via {
                oif,
                gateway: 0,
                mtu,
            } => self.neighbour(prefix, oif, mtu).map(Lead::To),
            _ => None,
        }
    }

    fn neighbour(&self, prefix: Prefix4, oif: u32, mtu: u16) -> Option<Target> {
        let gateway = prefix.first();
        self.reach
            .neighbour(gateway, oif)
            .filter(|_| prefix.length() == 32)?;
        Some(Target { oif, gateway, mtu })
    }
}
