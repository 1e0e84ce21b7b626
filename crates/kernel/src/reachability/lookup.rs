// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lookups in sets, maps and verdict maps.

use super::elements::key_ranges;
use super::finding::IfMatch;
use super::registers::{Bits, Interface, Origin, Truth};
use super::run::{ANYTHING, Fate, Run, Step, Values, literal_of};
use super::uses;
use super::walk::Walker;
use super::words::reason;
use crate::nft::*;

impl Walker<'_> {
    pub(super) fn lookup(
        &mut self,
        run: &mut Run<'_>,
        name: &str,
        sreg: Register,
        dreg: Option<Register>,
        negated: bool,
        depth: usize,
    ) -> Step {
        let Some(set) = run.at.table.sets.get(name) else {
            self.find(
                run.place,
                &run.constraint,
                "lookup",
                "looks into a set that is not known",
            );
            return Step::On(Truth::Maybe);
        };
        self.check_set(run, name, set);
        if set.flags & SET_ANONYMOUS == 0 {
            let verdicts = dreg == Some(Register::MAX);
            uses::note(&mut self.report.uses, run, name, set, sreg, verdicts);
        }
        let bits = run.registers.load(sreg, set.key_len as usize);
        let interface = run
            .registers
            .interface(sreg)
            .filter(|_| set.flags & SET_CONCAT == 0);
        let verdicts = dreg == Some(Register::MAX);
        let truth = match &set.elements {
            Some(elements) => contains(set, elements, &bits),
            None => Truth::Maybe,
        };
        let truth = self.decide(
            run,
            &bits,
            if negated { truth.not() } else { truth },
            "lookup",
        );
        if truth == Truth::No {
            return Step::On(Truth::No);
        }
        if truth == Truth::Yes && dreg.is_some() {
            // It is in the map, but which value it has may depend on varying bits.
            self.decide(run, &bits, Truth::Maybe, "lookup");
        }
        if verdicts {
            return self.verdict_map(run, set, &bits, sreg, truth, depth);
        }
        if let (Some(elements), None, false) = (&set.elements, dreg, negated) {
            let literals: Vec<_> = elements
                .iter()
                .map(|element| element_literal(set, element, interface))
                .collect();
            run.constrain(sreg, &literals);
            confine_to_set(run, set, elements, sreg);
        }
        if let Some(dreg) = dreg {
            run.registers.store(dreg, &Bits::unknown(16), None);
        }
        Step::On(truth)
    }

    /// A set that packets change, or whose elements count packets, must see them all.
    pub(super) fn check_set(&mut self, run: &Run<'_>, name: &str, set: &Set) {
        if set.flags & SET_EVAL != 0 {
            let what = format!("lookup {name}");
            self.find(
                run.place,
                &run.constraint,
                &what,
                "looks into a set that packets change",
            );
        }
        let of_elements = set
            .elements
            .iter()
            .flatten()
            .flat_map(|element| &element.expressions);
        let stateful = set.expressions.iter().chain(of_elements);
        if let Some(name) = stateful
            .into_iter()
            .find(|name| !matches!(name.as_str(), "counter" | "last"))
        {
            self.find(
                run.place,
                &run.constraint,
                &format!("set element {name}"),
                reason(name),
            );
        }
    }

    /// Gives the verdict of each element that may match.
    pub(super) fn verdict_map(
        &mut self,
        run: &mut Run<'_>,
        set: &Set,
        bits: &Bits,
        sreg: Register,
        truth: Truth,
        depth: usize,
    ) -> Step {
        let Some(elements) = &set.elements else {
            self.find(
                run.place,
                &run.constraint,
                "vmap",
                "has too many elements to be analysed",
            );
            return Step::End(ANYTHING);
        };
        let exact = |element: &&Element| {
            !element.catch_all && element_match(set, element, bits) == Truth::Yes
        };
        let certain = elements.iter().find(exact);
        let candidates: Vec<&Element> = match certain {
            Some(element) => vec![element],
            None => elements
                .iter()
                .filter(|element| {
                    element.catch_all || element_match(set, element, bits) != Truth::No
                })
                .collect(),
        };
        let mut total = Fate::default();
        for element in candidates {
            let Some(verdict) = &element.verdict else {
                continue;
            };
            let before = run.constraint.clone();
            let interface = run.registers.interface(sreg);
            run.constrain(sreg, &[element_literal(set, element, interface)]);
            if !element.catch_all && set.flags & SET_INTERVAL == 0 {
                confine_to_set(run, set, std::slice::from_ref(element), sreg);
            }
            let constraint = std::mem::replace(&mut run.constraint, before);
            let fate = self.verdict(run, verdict, &constraint, depth);
            total.continues |= fate.continues;
            total.returns |= fate.returns;
            total.accepts |= fate.accepts;
        }
        // Without a matching element the rule ends and the next one follows.
        Step::End(total.or_next(truth))
    }
}

/// Narrows the fields that a key is made of to those of the elements.
fn confine_to_set(run: &mut Run<'_>, set: &Set, elements: &[Element], sreg: Register) {
    if elements.iter().any(|element| element.catch_all) {
        return;
    }
    let ranges: Vec<Values> = key_ranges(set, elements);
    if ranges.is_empty() {
        return;
    }
    // The parts of a concatenated key begin at registers of their own, four bytes each.
    let slots = set.key_len.div_ceil(4);
    for slot in 0..slots {
        let Some(Origin::Field { field, .. }) = run.registers.origin(sreg + slot) else {
            continue;
        };
        let at = slot as usize * 4;
        let len = run.packet.field_len(field);
        let part = |bytes: &[u8]| -> Option<Vec<u8>> {
            Some(bytes.get(at..(at + len).min(bytes.len()))?.to_vec())
        };
        let values: Option<Vec<Values>> = ranges
            .iter()
            .map(|range| {
                Some(Values {
                    from: part(&range.from)?,
                    to: part(&range.to)?,
                })
            })
            .collect();
        run.confine(sreg + slot, values);
    }
}

fn element_literal(set: &Set, element: &Element, interface: Option<Interface>) -> Option<IfMatch> {
    let plain = set.flags & (SET_INTERVAL | SET_CONCAT) == 0 && !element.catch_all;
    literal_of(interface.filter(|_| plain), &element.key, true)
}

/// May an element match the key?
fn element_match(set: &Set, element: &Element, bits: &Bits) -> Truth {
    if element.interval_end || element.key.is_empty() {
        return Truth::No;
    }
    match &element.key_end {
        Some(end) if set.flags & SET_CONCAT == 0 => bits.within(&element.key, end),
        Some(_) => Truth::Maybe,
        None if set.flags & SET_INTERVAL != 0 => Truth::Maybe,
        None => bits.equals(&element.key),
    }
}

/// Is the key in the set?
pub(super) fn contains(set: &Set, elements: &[Element], bits: &Bits) -> Truth {
    let best = elements
        .iter()
        .filter(|element| !element.catch_all)
        .map(|element| element_match(set, element, bits))
        .max()
        .unwrap_or(Truth::No);
    if elements.iter().any(|element| element.catch_all) {
        Truth::Yes
    } else {
        best
    }
}
