// SPDX-License-Identifier: MIT OR Apache-2.0
//! What rules do to packets beside letting them go on or dropping them.

use super::facts::{self, Facts, Registers, Truth};
use crate::nft::*;

/// More than NFT_JUMP_STACK_SIZE.
const DEPTH_MAX: usize = 32;
/// Rules looked at for one chain.
const RULES_MAX: usize = 100_000;

/// What may become of a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Effects {
    /// Something that must see it, in words.
    pub sees: Option<String>,
    /// It may end the base chain without being dropped.
    pub leaves: bool,
}

impl Effects {
    fn add(&mut self, other: Effects) {
        self.leaves |= other.leaves;
        if self.sees.is_none() {
            self.sees = other.sees;
        }
    }
}

/// Follows rules of one table.
pub(super) struct Walk<'a> {
    table: &'a Table,
    family: u8,
    facts: &'a Facts<'a>,
    depth: usize,
    rules: usize,
}

impl<'a> Walk<'a> {
    pub fn new(table: &'a Table, family: u8, facts: &'a Facts<'a>) -> Self {
        Walk {
            table,
            family,
            facts,
            depth: 0,
            rules: 0,
        }
    }

    /// All rules of a chain. A return is the caller's affair: it only skips what comes behind it.
    pub fn chain(&mut self, name: &str) -> Effects {
        let sees = |words: &str| Effects {
            sees: Some(words.to_owned()),
            leaves: true,
        };
        let Some(chain) = self.table.chains.get(name) else {
            return sees("leads to a chain that is not known");
        };
        if self.depth >= DEPTH_MAX {
            return sees("leads too deep to be followed");
        }
        self.depth += 1;
        let mut all = Effects::default();
        for rule in &chain.rules {
            all.add(self.rule(rule));
            if all.sees.is_some() {
                break;
            }
        }
        self.depth -= 1;
        all
    }

    /// One rule.
    pub fn rule(&mut self, rule: &Rule) -> Effects {
        self.rules += 1;
        if self.rules > RULES_MAX {
            return Effects {
                sees: Some("has too many rules to be followed".into()),
                leaves: true,
            };
        }
        let mut registers = Registers::default();
        let mut all = Effects::default();
        for expression in &rule.expressions {
            let truth = match expression {
                Expression::Cmp { sreg, op, data } => {
                    facts::compare(registers.get(*sreg), *op, data)
                }
                Expression::Range { .. } => Truth::Maybe,
                Expression::Lookup {
                    set,
                    sreg,
                    dreg,
                    negated,
                } => match self.lookup(&registers, set, *sreg, *dreg, *negated) {
                    Ok((truth, effects)) => {
                        all.add(effects);
                        truth
                    }
                    Err(words) => {
                        all.add(seen(words));
                        return all;
                    }
                },
                Expression::Verdict(verdict) => {
                    all.add(self.verdict(verdict));
                    return all;
                }
                other if self.facts.load(self.family, &mut registers, other) => Truth::Yes,
                other if is_silent(other) => Truth::Yes,
                other => {
                    all.add(seen(format!("its {} must see packets", other.name())));
                    return all;
                }
            };
            if truth == Truth::No {
                return all;
            }
        }
        all
    }

    fn verdict(&mut self, verdict: &Verdict) -> Effects {
        match verdict {
            Verdict::Drop | Verdict::Continue | Verdict::Break => Effects::default(),
            // of a chain that was jumped to it leads back, but then what comes behind it is skipped: as if accepted
            Verdict::Accept | Verdict::Return => Effects {
                sees: None,
                leaves: true,
            },
            Verdict::Jump(chain) => self.chain(chain),
            Verdict::Goto(chain) => Effects {
                leaves: true,
                ..self.chain(chain)
            },
            Verdict::Other(_) => seen("hands packets to user space".into()),
        }
    }

    fn lookup(
        &mut self,
        registers: &Registers,
        name: &str,
        sreg: Register,
        dreg: Option<Register>,
        negated: bool,
    ) -> Result<(Truth, Effects), String> {
        let Some(set) = self.table.sets.get(name) else {
            return Err("looks into a set that is not known".into());
        };
        if let Some(words) = is_changed(set) {
            return Err(words);
        }
        let inside = facts::contains(registers.get(sreg), set);
        let truth = if negated { inside.not() } else { inside };
        let mut effects = Effects::default();
        match dreg {
            None => {}
            // a verdict map
            Some(Register::MAX) => {
                let Some(elements) = &set.elements else {
                    return Err("looks into a map that was not read".into());
                };
                for verdict in elements.iter().filter_map(|e| e.verdict.as_ref()) {
                    effects.add(self.verdict(verdict));
                }
                return Ok((Truth::Maybe, effects));
            }
            Some(_) => return Ok((Truth::Maybe, effects)),
        }
        Ok((truth, effects))
    }
}

fn seen(words: String) -> Effects {
    Effects {
        sees: Some(words),
        leaves: true,
    }
}

/// Of a set that packets change, or whose elements must see them.
pub(super) fn is_changed(set: &Set) -> Option<String> {
    if set.flags & SET_EVAL != 0 {
        return Some("its set is one that packets change (flags dynamic)".into());
    }
    let of_elements = set.elements.iter().flatten();
    let of_elements = of_elements.flat_map(|element| &element.expressions);
    let mut all = set.expressions.iter().chain(of_elements);
    let name = all.find(|name| !is_counter(name))?;
    Some(format!("the {name} of its set's elements must see packets"))
}

/// A statement that only counts.
pub(super) fn is_counter(name: &str) -> bool {
    matches!(name, "counter" | "last")
}

/// What shows in nothing but a packet that goes on, or counts: mark and priority, no connection, counters.
fn is_silent(expression: &Expression) -> bool {
    match expression {
        Expression::MetaSet { key: 2 | 3 } => true,
        // NFT_OBJECT_COUNTER, by name
        Expression::Objref { kind, map, .. } => *kind == Some(1) && map.is_none(),
        Expression::Named(name) => is_counter(name) || name == "notrack",
        _ => false,
    }
}
