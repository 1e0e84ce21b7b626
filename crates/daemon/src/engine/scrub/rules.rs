// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which rules have which numbers in the data plane.

use std::collections::{BTreeMap, BTreeSet};

use freeway_abi::{fw_scrub_count, fw_scrub_here, fw_scrub_rule};
use freeway_kernel::scrub::{DropRule, Side};

use super::sets::{Mirrored, Shape};
use super::{Number, Scrub};

/// Sets that the data plane can tell apart.
const SETS_MAX: u32 = 64;

fn sum(total: &mut fw_scrub_count, count: fw_scrub_count) {
    total.dropped += count.dropped;
    total.bytes += count.bytes;
    total.passed += count.passed;
}

impl Scrub {
    /// What was counted at a port for a number, at all ports without one.
    pub(super) fn counted(&self, number: u32, port: Option<u32>) -> fw_scrub_count {
        let mut total = fw_scrub_count::default();
        if let Some(scrubber) = &self.scrubber {
            for at in scrubber
                .ports()
                .filter(|at| port.is_none_or(|port| port == *at))
            {
                sum(&mut total, scrubber.count(at, number));
            }
        }
        total
    }

    /// Of all rules that ever were.
    pub(super) fn total(&self) -> fw_scrub_count {
        let mut total = self.gone;
        for number in 0..self.numbers.len() as u32 {
            sum(&mut total, self.counted(number, None));
        }
        total
    }

    /// A port's programs are about to leave.
    pub(super) fn keep_counts(&mut self, port: u32) {
        for number in 0..self.numbers.len() as u32 {
            let count = self.counted(number, Some(port));
            sum(&mut self.gone, count);
        }
    }

    /// Numbers for the rules, which keep those that they have; returns the rules for which there is none. Nothing may be
    /// valid meanwhile.
    pub(super) fn number(
        &mut self,
        wanted: &BTreeMap<DropRule, BTreeSet<u32>>,
        now_tick: u32,
    ) -> Vec<DropRule> {
        for number in 0..self.numbers.len() {
            let gone = |taken: &Number| !wanted.contains_key(&taken.rule);
            if self.numbers[number].as_ref().is_some_and(gone) {
                let count = self.counted(number as u32, None);
                sum(&mut self.gone, count);
                self.numbers[number] = None;
                if let Some(scrubber) = &mut self.scrubber {
                    scrubber.clear_counts(number as u32);
                }
            }
        }
        let mut without = Vec::new();
        for (rule, ports) in wanted {
            let any = [0];
            let protos = match &rule.protos[..] {
                [] => &any[..],
                protos => protos,
            };
            for proto in protos {
                if !self.number_one(rule, *proto, ports, now_tick) {
                    without.push(rule.clone());
                }
            }
        }
        without
    }

    fn number_one(
        &mut self,
        rule: &DropRule,
        proto: u8,
        ports: &BTreeSet<u32>,
        now_tick: u32,
    ) -> bool {
        let known = self.numbers.iter_mut().flatten();
        let mut known = known.filter(|taken| taken.rule == *rule && taken.proto == proto);
        if let Some(known) = known.next() {
            known.ports.clone_from(ports);
            return true;
        }
        let Some(free) = self.numbers.iter().position(Option::is_none) else {
            return false;
        };
        let mut record = fw_scrub_rule {
            // the first packet goes through the kernel
            due_tick: now_tick,
            proto,
            ..fw_scrub_rule::default()
        };
        for (at, (first, last)) in rule.dports.iter().enumerate() {
            if at >= record.dport_first.len() {
                return false;
            }
            record.dport_first[at] = *first;
            record.dport_last[at] = *last;
            record.dports += 1;
        }
        if let Some(scrubber) = &mut self.scrubber {
            scrubber.set_rule(free as u32, record);
        }
        self.numbers[free] = Some(Number {
            rule: rule.clone(),
            proto,
            ports: ports.clone(),
        });
        true
    }

    /// What a port's program is to do.
    pub(super) fn here(&self, port: u32, mac: [u8; 6]) -> fw_scrub_here {
        let mut here = fw_scrub_here {
            mac,
            ..fw_scrub_here::default()
        };
        for (number, taken) in self.numbers.iter().enumerate() {
            let Some(taken) = taken.as_ref().filter(|taken| taken.ports.contains(&port)) else {
                continue;
            };
            match taken.rule.side {
                Side::Source => here.by_source |= 1 << number,
                Side::Destination => here.by_destination |= 1 << number,
            }
        }
        here
    }

    /// The sets that the rules ask are mirrored, and no others; begins to read new ones. Returns the rules whose sets
    /// cannot be.
    pub(super) fn choose_sets<'a>(
        &mut self,
        rules: impl Iterator<Item = &'a DropRule>,
        now_tick: u32,
    ) -> Vec<(DropRule, String)> {
        let mut wanted = BTreeMap::new();
        let mut without = Vec::new();
        for rule in rules {
            let found = wanted
                .entry(rule.set.clone())
                .or_insert_with(|| (rule.identity, Shape::of(rule)));
            if found.1 != Shape::of(rule) {
                let why = "another rule asks its set in another way".to_owned();
                without.push((rule.clone(), why));
            }
        }
        let stays = |name: &_, set: &Mirrored| {
            wanted
                .get(name)
                .is_some_and(|(identity, shape)| *identity == set.identity && *shape == set.shape)
        };
        let gone: Vec<_> = self
            .sets
            .iter()
            .filter(|(name, set)| !stays(name, set))
            .map(|(name, _)| name.clone())
            .collect();
        for name in gone {
            self.empty(&name, now_tick);
            self.sets.remove(&name);
        }
        for (name, (identity, shape)) in wanted {
            if self.sets.contains_key(&name) {
                continue;
            }
            let taken: BTreeSet<u32> = self.sets.values().map(|set| set.slot).collect();
            let Some(slot) = (0..SETS_MAX).find(|slot| !taken.contains(slot)) else {
                continue;
            };
            let mut set = Mirrored::new(identity, shape, slot);
            set.begin(self.loader.load(&name));
            self.sets.insert(name, set);
        }
        without
    }
}
