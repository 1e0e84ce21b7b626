// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes that candidates on their way may not know of: a narrow change takes the flows that are there back to the
//! kernel, but begins no epoch, and what was seen ahead of it must not be learned after it. And what was seen after it may
//! differ because of it, not because the kernel is of two minds.

use std::collections::VecDeque;

use freeway_abi::fw_candidate;
use freeway_kernel::Affected;
use freeway_kernel::model::{Prefix, Tuple};

use crate::ends::receiver;
use crate::key::FlowKey;

/// Changes are known for so long: a busy daemon looks at candidates late.
const KNOWN_S: u32 = 10;
/// More changes than these within that time are not told apart.
const CHANGES_MAX: usize = 4096;

/// What changed.
#[derive(Clone, Debug)]
pub(crate) enum Matter {
    /// Routes or addresses.
    Prefix(Prefix),
    /// A port.
    Port(u32),
    /// Who has an address at a port; the one who had it.
    Neighbour(u32, [u8; 6]),
    /// Elements of sets.
    Elements(Affected),
    /// Anything.
    All,
}

impl Matter {
    fn concerns(&self, exit: Exit, key: &FlowKey, out: &Tuple) -> bool {
        let (port_out, receiver) = exit;
        let ends = [&key.tuple, out];
        match self {
            Matter::Prefix(prefix) => ends
                .iter()
                .any(|t| prefix.contains(t.src) || prefix.contains(t.dst)),
            Matter::Port(port) => [key.port, port_out].contains(port),
            Matter::Neighbour(port, mac) => port_out == *port && receiver == *mac,
            Matter::Elements(affected) => ends.iter().any(|tuple| affected.hits(tuple)),
            Matter::All => true,
        }
    }
}

/// The port where frames leave, and who receives them there.
pub(crate) type Exit = (u32, [u8; 6]);

/// The changes of the last seconds, in order.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    changes: VecDeque<(u32, Matter)>,
}

impl Recent {
    /// Notes one.
    pub fn add(&mut self, matter: Matter, hz: u32, now_tick: u32) {
        if self.changes.len() >= CHANGES_MAX {
            self.changes.clear();
            return self.changes.push_back((now_tick, Matter::All));
        }
        self.age(hz, now_tick);
        self.changes.push_back((now_tick, matter));
    }

    /// Forgets old ones. To be called now and then: ticks wrap, and in the end they would seem to be later than anything.
    pub fn age(&mut self, hz: u32, now_tick: u32) {
        while let Some((tick, _)) = self.changes.front()
            && now_tick.wrapping_sub(*tick) > KNOWN_S * hz
        {
            self.changes.pop_front();
        }
    }

    /// True if what a candidate shows may have changed since it was seen; of an old one that is not known any more.
    pub fn concerns(
        &self,
        c: &fw_candidate,
        key: &FlowKey,
        out: &Tuple,
        hz: u32,
        now_tick: u32,
    ) -> bool {
        let seen_tick = c.ev.tick;
        let since = |tick: u32| tick.wrapping_sub(seen_tick).cast_signed() >= 0;
        let changes = self.changes.iter().rev();
        let mut later = changes.take_while(|(tick, _)| since(*tick));
        let exit = (c.port_out, receiver(c));
        now_tick.wrapping_sub(seen_tick).cast_signed() > (KNOWN_S * hz).cast_signed()
            || later.any(|(_, matter)| matter.concerns(exit, key, out))
    }

    /// True if a change of the last second may be why a flow that left like this leaves otherwise now.
    pub fn explains(&self, left: Exit, key: &FlowKey, out: &Tuple, hz: u32, now_tick: u32) -> bool {
        let changes = self.changes.iter().rev();
        let mut lately = changes.take_while(|(tick, _)| now_tick.wrapping_sub(*tick) <= hz);
        lately.any(|(_, matter)| matter.concerns(left, key, out))
    }
}

#[cfg(test)]
mod tests {
    use freeway_abi::fw_event;

    use super::*;

    const HZ: u32 = 250;

    #[test]
    fn changes_of_weeks_ago_are_forgotten() {
        let tuple = Tuple {
            src: [192, 0, 2, 2].into(),
            dst: [198, 51, 100, 2].into(),
            proto: 17,
            sport: 1,
            dport: 2,
        };
        let key = FlowKey { tuple, port: 1 };
        let seen = |tick| fw_candidate {
            ev: fw_event {
                tick,
                ..fw_event::default()
            },
            ..fw_candidate::default()
        };
        let mut recent = Recent::default();
        let first = u32::MAX - 7;
        recent.add(Matter::All, HZ, first);
        let concerns = |recent: &Recent, tick| recent.concerns(&seen(tick), &key, &tuple, HZ, tick);
        assert!(concerns(&recent, first));
        assert!(!concerns(&recent, first.wrapping_add(20)));
        // so late that it would seem to be ahead
        let weeks = first.wrapping_add(1 << 31).wrapping_add(1000);
        assert!(concerns(&recent, weeks));
        recent.age(HZ, first.wrapping_add(KNOWN_S * HZ));
        assert!(concerns(&recent, first));
        recent.age(HZ, first.wrapping_add(KNOWN_S * HZ + 1));
        assert!(!concerns(&recent, weeks));
    }
}
