// SPDX-License-Identifier: MIT OR Apache-2.0
//! From the elements of sets to the data plane's table.

use freeway_abi::{FW_SCRUB_CLASS_FIRST, FW_SCRUB_CLASSES};

use super::Scrub;
use super::sets::{Item, earlier, is_over};

impl Scrub {
    /// Brings what changed into the table. An address of several sets is dropped by any, until the first end of
    /// these comes: then the kernel has it until the next look.
    pub(super) fn place(&mut self, items: &[Item], now_tick: u32) {
        for item in items {
            let (mut slots, mut until_tick) = (0u64, 0);
            for set in self.sets.values() {
                if let Some(until) = set.until(item).filter(|until| !is_over(*until, now_tick)) {
                    slots |= 1 << set.slot;
                    until_tick = earlier(until_tick, until);
                }
            }
            let class = match slots {
                0 => None,
                slots => self.class(slots),
            };
            let Some(scrubber) = &mut self.scrubber else {
                return;
            };
            let done = match (item, class) {
                (Item::Key(key), Some(class)) => {
                    self.crowded |= !scrubber.set(key, class, until_tick);
                    Ok(())
                }
                (Item::Key(key), None) => {
                    scrubber.remove(key);
                    Ok(())
                }
                (Item::Net(addr, len), Some(class)) => {
                    scrubber.set_net(*addr, *len, class, until_tick)
                }
                (Item::Net(addr, len), None) => scrubber.remove_net(*addr, *len),
            };
            if let Err(error) = done {
                tracing::warn!("the table of what is dropped: {error}");
            }
        }
    }

    /// The class of an address that is in these sets; `None`: there are too many, and it is the kernel's.
    fn class(&mut self, slots: u64) -> Option<u32> {
        if let Some(class) = self.classes.get(&slots) {
            return Some(*class);
        }
        let class = FW_SCRUB_CLASS_FIRST + self.classes.len() as u32;
        if class >= FW_SCRUB_CLASSES {
            return None;
        }
        self.classes.insert(slots, class);
        let rules = self.rules_of(slots);
        self.scrubber.as_ref()?.set_class(class, rules);
        Some(class)
    }

    /// Numbers of the rules that ask one of these sets, as bits.
    fn rules_of(&self, slots: u64) -> u64 {
        let mut bits = 0;
        for (number, taken) in self.numbers.iter().enumerate() {
            let set = taken
                .as_ref()
                .and_then(|taken| self.sets.get(&taken.rule.set));
            if set.is_some_and(|set| slots >> set.slot & 1 != 0) {
                bits |= 1 << number;
            }
        }
        bits
    }

    /// Rules have come or gone.
    pub(super) fn write_classes(&self) {
        let Some(scrubber) = &self.scrubber else {
            return;
        };
        for (slots, class) in &self.classes {
            scrubber.set_class(*class, self.rules_of(*slots));
        }
        let kinds = self.sets.values().map(|set| set.shape.kind());
        let kinds = kinds.filter(|kind| *kind != 0);
        scrubber.set_pairs(kinds.fold(0, |bits, kind| bits | 1 << kind));
    }

    /// A set's addresses leave the table, all at once: meanwhile nothing is dropped.
    pub(super) fn empty(&mut self, set: &freeway_kernel::reachability::SetName, now_tick: u32) {
        let valid = self
            .scrubber
            .as_ref()
            .is_some_and(|scrubber| scrubber.valid());
        self.invalidate();
        let alone = self
            .sets
            .iter()
            .all(|(name, other)| name == set || other.len() == 0);
        let gone = self.sets.get_mut(set).map(super::sets::Mirrored::clear);
        match &mut self.scrubber {
            Some(scrubber) if alone => {
                if let Err(error) = scrubber.clear() {
                    tracing::warn!("the table of what is dropped: {error}");
                }
            }
            _ => self.place(&gone.unwrap_or_default(), now_tick),
        }
        if let Some(scrubber) = &self.scrubber {
            scrubber.set_valid(valid);
        }
    }
}
