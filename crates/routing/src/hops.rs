// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers of next hops.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeInclusive;

use freeway_prefix::NextHop;

use crate::ip::Ip;
use crate::reach::{EngineExit, Reach};

/// The kernel decides, and may do anything.
pub const LEAF_KERNEL: NextHop = 0;
/// The kernel decides, and its route is a unicast one.
pub const LEAF_UNICAST: NextHop = 1;
/// The greatest number of a next hop.
pub const HOP_MAX: NextHop = 4095;

/// What packets leave with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop<A> {
    /// The interface.
    pub oif: u32,
    /// The neighbour's address.
    pub gateway: A,
    /// The neighbour's MAC address.
    pub dst_mac: [u8; 6],
    /// The interface's.
    pub src_mac: [u8; 6],
    /// The longest packet, without a link layer.
    pub len_max: u16,
    /// As [`Exit::in_xdp`](crate::Exit::in_xdp).
    pub in_xdp: bool,
    /// As [`Exit::in_tc`](crate::Exit::in_tc).
    pub in_tc: bool,
    /// As [`Exit::engine`](crate::Exit::engine).
    pub engine: EngineExit,
    /// As [`Exit::vlan`](crate::Exit::vlan).
    pub vlan: u16,
}

/// Where packets are to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target<A> {
    pub oif: u32,
    /// The neighbour's address.
    pub gateway: A,
    /// Path MTU of the route; 0: none.
    pub mtu: u16,
}

impl<A: Ip> Target<A> {
    /// What is sent now; `None`: nothing can be.
    pub fn hop(&self, reach: &Reach<A>) -> Option<Hop<A>> {
        let link = reach.link(self.oif)?;
        let port = reach.port(self.oif)?;
        let mac = reach.neighbour(self.gateway, self.oif)?;
        if !link.up || !link.carrier {
            return None;
        }
        let len_max = u16::try_from(port.mtu).unwrap_or(u16::MAX);
        Some(Hop {
            oif: self.oif,
            gateway: self.gateway,
            dst_mac: mac.0,
            src_mac: port.mac,
            len_max: match self.mtu {
                0 => len_max,
                mtu => len_max.min(mtu),
            },
            in_xdp: port.in_xdp,
            in_tc: port.in_tc,
            engine: port.engine,
            vlan: port.vlan,
        })
    }
}

#[derive(Clone, Debug)]
struct Slot<A> {
    target: Target<A>,
    /// Prefixes that have it.
    users: u32,
    told: Option<Hop<A>>,
}

/// Targets and their numbers. A number that no prefix has any more is given to another target two calls of
/// [`Hops::changes`] later: until the first one's changes are in force, packets are still sent by it.
#[derive(Clone, Debug)]
pub struct Hops<A> {
    numbers: BTreeMap<Target<A>, NextHop>,
    /// By number.
    slots: Vec<Option<Slot<A>>>,
    free: VecDeque<NextHop>,
    resting: Vec<NextHop>,
    /// What may differ from what was told.
    dirty: BTreeSet<NextHop>,
}

impl<A> Default for Hops<A> {
    fn default() -> Self {
        Self {
            numbers: BTreeMap::new(),
            slots: Vec::new(),
            free: VecDeque::new(),
            resting: Vec::new(),
            dirty: BTreeSet::new(),
        }
    }
}

impl<A: Ip> Hops<A> {
    /// One more prefix has it; `None`: there is no number left.
    pub fn take(&mut self, target: Target<A>) -> Option<NextHop> {
        let number = match self.numbers.get(&target) {
            Some(number) => *number,
            None => self.add(target)?,
        };
        if let Some(slot) = self.slot(number) {
            slot.users += 1;
        }
        Some(number)
    }

    fn add(&mut self, target: Target<A>) -> Option<NextHop> {
        let number = match self.free.pop_front() {
            Some(number) => number,
            None if self.is_full() => return None,
            None => {
                let first = usize::from(LEAF_UNICAST) + 1;
                let next = self.slots.len().max(first);
                self.slots.resize(next + 1, None);
                // at most HOP_MAX
                next as NextHop
            }
        };
        self.numbers.insert(target, number);
        let slot = Slot {
            target,
            users: 0,
            told: None,
        };
        self.slots[usize::from(number)] = Some(slot);
        self.dirty.insert(number);
        Some(number)
    }

    /// One prefix fewer has the number. Those that are no hop's are ignored.
    pub fn give(&mut self, number: NextHop) {
        if let Some(slot) = self.slot(number) {
            slot.users -= 1;
            if slot.users == 0 {
                self.dirty.insert(number);
            }
        }
    }

    /// A link or port changed.
    pub fn changed_link(&mut self, oif: u32) {
        self.changed(target(oif, A::ENDS.0, 0)..=target(oif, A::ENDS.1, u16::MAX));
    }

    /// A neighbour changed.
    pub fn changed_neighbour(&mut self, oif: u32, address: A) {
        self.changed(target(oif, address, 0)..=target(oif, address, u16::MAX));
    }

    fn changed(&mut self, range: RangeInclusive<Target<A>>) {
        let numbers = self.numbers.range(range).map(|(_, number)| *number);
        self.dirty.extend(numbers);
    }

    /// True if a target that had no number may get one now.
    pub fn has_room(&self) -> bool {
        !self.free.is_empty() || !self.is_full()
    }

    fn is_full(&self) -> bool {
        self.slots.len() > usize::from(HOP_MAX)
    }

    fn slot(&mut self, number: NextHop) -> Option<&mut Slot<A>> {
        self.slots.get_mut(usize::from(number))?.as_mut()
    }

    /// What differs from what was told.
    pub fn changes(&mut self, reach: &Reach<A>) -> Vec<(NextHop, Option<Hop<A>>)> {
        let mut changes = Vec::new();
        let mut retired = Vec::new();
        for number in std::mem::take(&mut self.dirty) {
            let Some(slot) = self.slot(number) else {
                continue;
            };
            let unused = slot.users == 0;
            let hop = slot.target.hop(reach).filter(|_| !unused);
            if std::mem::replace(&mut slot.told, hop) != hop {
                changes.push((number, hop));
            }
            if unused {
                let target = slot.target;
                self.numbers.remove(&target);
                self.slots[usize::from(number)] = None;
                retired.push(number);
            }
        }
        let rested = std::mem::replace(&mut self.resting, retired);
        self.free.extend(rested);
        changes
    }

    /// How many prefixes have.
    pub fn len(&self) -> usize {
        let used = self.slots.iter().flatten().filter(|slot| slot.users > 0);
        used.count()
    }

    /// What is sent by a number now.
    pub fn hop(&self, number: NextHop, reach: &Reach<A>) -> Option<Hop<A>> {
        let slot = self.slots.get(usize::from(number))?.as_ref()?;
        slot.target.hop(reach)
    }
}

fn target<A>(oif: u32, gateway: A, mtu: u16) -> Target<A> {
    Target { oif, gateway, mtu }
}
