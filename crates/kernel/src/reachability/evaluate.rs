// SPDX-License-Identifier: MIT OR Apache-2.0
//! Evaluates the expressions of a rule, but for lookups.

use super::packet::Reading;
use super::registers::{Bits, Origin, Truth};
use super::run::{Fate, Run, Step, Values, literal_of};
use super::walk::Walker;
use super::words::reason;
use super::xtables::{self, Meaning};
use crate::nft::*;

impl Walker<'_> {
    /// Evaluates an expression for the packet.
    pub(super) fn expression(
        &mut self,
        run: &mut Run<'_>,
        expression: &Expression,
        depth: usize,
    ) -> Step {
        let (packet, stage) = (self.packet, run.at.stage);
        match expression {
            Expression::Load { dreg, data } => {
                run.registers.store(*dreg, &Bits::constant(data), None);
                Step::On(Truth::Yes)
            }
            Expression::Verdict(verdict) => {
                let constraint = run.constraint.clone();
                Step::End(self.verdict(run, verdict, &constraint, depth))
            }
            Expression::Cmp { sreg, op, data } => {
                let bits = run.registers.load(*sreg, data.len());
                let truth = self.decide(run, &bits, bits.compare(*op, data), "cmp");
                if *op == CmpOp::Eq && truth != Truth::No {
                    run.constrain(
                        *sreg,
                        &[literal_of(run.registers.interface(*sreg), data, false)],
                    );
                }
                if truth != Truth::No {
                    let (low, high) = (vec![0; data.len()], vec![0xff; data.len()]);
                    let data = || data.clone();
                    let values = match op {
                        CmpOp::Eq => Some((data(), data())),
                        // One more or less does no harm.
                        CmpOp::Lt | CmpOp::Le => Some((low, data())),
                        CmpOp::Gt | CmpOp::Ge => Some((data(), high)),
                        CmpOp::Ne => None,
                    };
                    run.confine(*sreg, values.map(|(from, to)| vec![Values { from, to }]));
                }
                Step::On(truth)
            }
            Expression::Range {
                sreg,
                negated,
                from,
                to,
            } => {
                let bits = run.registers.load(*sreg, from.len());
                let inside = bits.within(from, to);
                let truth = if *negated { inside.not() } else { inside };
                let truth = self.decide(run, &bits, truth, "range");
                if truth != Truth::No && !negated {
                    let (from, to) = (from.clone(), to.clone());
                    run.confine(*sreg, Some(vec![Values { from, to }]));
                }
                Step::On(truth)
            }
            Expression::Bitwise {
                sreg,
                dreg,
                len,
                mask,
                xor,
            } => {
                let bits = run.registers.load(*sreg, *len as usize).masked(mask, xor);
                let origin = match (run.registers.origin(*sreg), prefix_len(mask, xor)) {
                    (Some(Origin::Field { field, bits }), Some(len)) => Some(Origin::Field {
                        field,
                        bits: bits.min(len),
                    }),
                    _ => None,
                };
                run.registers.store(*dreg, &bits, origin);
                Step::On(Truth::Yes)
            }
            Expression::BitwiseOther {
                sreg,
                other,
                dreg,
                len,
            } => {
                let len = *len as usize;
                let mut bits = run.registers.load(*sreg, len);
                if let Some(other) = other {
                    bits.varies.extend(run.registers.load(*other, len).varies);
                }
                run.registers.store(*dreg, &bits.mixed(), None);
                Step::On(Truth::Yes)
            }
            Expression::Byteorder {
                sreg,
                dreg,
                len,
                size,
            } => {
                let bits = run
                    .registers
                    .load(*sreg, *len as usize)
                    .swapped(*size as usize);
                run.registers.store(*dreg, &bits, None);
                Step::On(Truth::Yes)
            }
            Expression::Lookup {
                set,
                sreg,
                dreg,
                negated,
            } => self.lookup(run, set, *sreg, *dreg, *negated, depth),
            Expression::Payload {
                dreg,
                base,
                offset,
                len,
            } => self.read(run, *dreg, packet.payload(*base, *offset, *len, stage)),
            Expression::Meta { dreg, key } => self.read(run, *dreg, packet.meta(*key, stage)),
            Expression::Ct { dreg, key, .. } => self.read(run, *dreg, packet.ct(*key, stage)),
            Expression::Rt { dreg, key } => self.read(run, *dreg, packet.rt(*key)),
            Expression::Exthdr { dreg, op, present } => {
                self.read(run, *dreg, packet.exthdr(*op, *present))
            }
            // A function of addresses, mark, interfaces and routes.
            Expression::Fib { dreg } => {
                run.registers.store(*dreg, &Bits::unknown(16), None);
                Step::On(Truth::Yes)
            }
            Expression::MetaSet { key: 2 | 3 } | Expression::CtSet { key: 3 | 13 } => {
                let name = match expression {
                    Expression::MetaSet { key: 2 } => "meta priority set",
                    Expression::MetaSet { .. } => "meta mark set",
                    Expression::CtSet { key: 3 } => "ct mark set",
                    _ => "ct label set",
                };
                self.mark(run.place, &run.constraint, name);
                Step::On(Truth::Yes)
            }
            // Zone and event mask: of new connections.
            Expression::CtSet { key: 17 | 18 } => Step::On(Truth::Yes),
            Expression::PayloadSet {
                sreg,
                base,
                offset,
                len,
            } if packet.may_write(
                *base,
                *offset,
                &run.registers.load(*sreg, (*len).min(64) as usize),
            ) =>
            {
                Step::On(Truth::Yes)
            }
            Expression::Objref { kind, name, map } => {
                let sets = &run.at.table.sets;
                let by_map = map
                    .as_ref()
                    .and_then(|map| sets.get(map))
                    .map(|set| set.object_type);
                self.object(run, kind.or(by_map), name)
            }
            Expression::Match {
                name,
                revision,
                info,
            } => {
                for (field, ports) in xtables::ports(name, *revision, info) {
                    let value = |port: u16| port.to_be_bytes().to_vec();
                    let values = ports.into_iter().map(|(from, to)| Values {
                        from: value(from),
                        to: value(to),
                    });
                    run.confine_field(field, 16, &values.collect::<Vec<_>>());
                }
                let meaning = xtables::matching(name, *revision, info, packet, stage);
                self.xtables(run, &expression.name(), meaning)
            }
            Expression::Target { name, info, .. } => {
                self.xtables(run, &expression.name(), xtables::target(name, info))
            }
            Expression::Reject => Step::End(Fate::default()),
            Expression::Named(name) if matches!(name.as_str(), "counter" | "last" | "notrack") => {
                Step::On(Truth::Yes)
            }
            Expression::MetaSet { .. } | Expression::CtSet { .. } => {
                self.find(
                    run.place,
                    &run.constraint,
                    &expression.name(),
                    "sets what no frame shows",
                );
                Step::On(Truth::Yes)
            }
            Expression::PayloadSet { .. } | Expression::ExthdrSet { .. } => {
                self.find(
                    run.place,
                    &run.constraint,
                    &expression.name(),
                    "changes the packet",
                );
                Step::On(Truth::Maybe)
            }
            Expression::Dynset { .. } | Expression::Named(_) | Expression::Malformed(_) => {
                let name = expression.name();
                self.find(run.place, &run.constraint, &name, reason(&name));
                // Whatever verdict it may give.
                run.accepts = true;
                Step::On(Truth::Maybe)
            }
        }
    }

    pub(super) fn read(&mut self, run: &mut Run<'_>, dreg: Register, reading: Reading) -> Step {
        match reading {
            Reading::Value(bits, origin) => {
                run.registers.store(dreg, &bits, origin);
                Step::On(Truth::Yes)
            }
            Reading::Break => Step::On(Truth::No),
            Reading::Varies(what) => {
                self.find(
                    run.place,
                    &run.constraint,
                    what,
                    "differs between packets of a flow",
                );
                run.registers.store(dreg, &Bits::unknown(16), None);
                Step::On(Truth::Maybe)
            }
        }
    }

    /// A decision on bits that vary within a flow is a finding, unless the known bits decide it.
    pub(super) fn decide(
        &mut self,
        run: &Run<'_>,
        bits: &Bits,
        truth: Truth,
        expression: &str,
    ) -> Truth {
        if truth == Truth::Maybe && bits.vary() {
            let reason = "compares header bits that differ between packets of a flow";
            self.find(run.place, &run.constraint, expression, reason);
        }
        truth
    }

    pub(super) fn xtables(&mut self, run: &mut Run<'_>, name: &str, meaning: Meaning) -> Step {
        match meaning {
            Meaning::Condition(truth) => Step::On(truth),
            Meaning::Nothing => Step::On(Truth::Yes),
            Meaning::Drops => Step::End(Fate::default()),
            Meaning::Marks => {
                self.mark(run.place, &run.constraint, name);
                Step::On(Truth::Yes)
            }
            Meaning::PerPacket(reason) => {
                self.find(run.place, &run.constraint, name, reason);
                Step::On(Truth::Maybe)
            }
        }
    }

    pub(super) fn object(&mut self, run: &Run<'_>, kind: Option<u32>, name: &str) -> Step {
        let what = match kind {
            // counter, ct helper, ct timeout, ct expectation: the latter three act on new connections.
            Some(1 | 3 | 7 | 9) => return Step::On(Truth::Yes),
            Some(2) => "quota",
            Some(4) => "limit",
            Some(5) => "connlimit",
            Some(8) => "secmark",
            Some(10) => "synproxy",
            _ => "object",
        };
        self.find(
            run.place,
            &run.constraint,
            &format!("{what} {name}"),
            reason(what),
        );
        Step::On(Truth::Maybe)
    }
}

/// The length of a mask that is a prefix and changes nothing else.
fn prefix_len(mask: &[u8], xor: &[u8]) -> Option<u8> {
    let ones: u32 = mask.iter().map(|byte| byte.count_ones()).sum();
    let whole = ones as usize / 8;
    let leads = mask.iter().enumerate().all(|(at, byte)| match at {
        _ if at < whole => *byte == 0xff,
        _ if at == whole => byte.leading_ones() == ones % 8,
        _ => *byte == 0,
    });
    (leads && xor.iter().all(|byte| *byte == 0)).then_some(ones as u8)
}
