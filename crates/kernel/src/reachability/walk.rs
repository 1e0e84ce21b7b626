// SPDX-License-Identifier: MIT OR Apache-2.0
//! Follows one kind of packet through the hooks, chains and rules.

use std::collections::HashMap;

use super::evaluate::reason;
use super::packet::{Packet, Stage};
use super::registers::{Field, Interface, Origin, Registers, Truth};
use super::report::{Constraint, Place, Report};
use super::{IfMatch, Ways};
use crate::model::Family;
use crate::nft::*;

/// NF_IP_PRI_CONNTRACK.
const CONNTRACK_PRIORITY: i32 = -200;
/// More than NFT_JUMP_STACK_SIZE.
const DEPTH_LIMIT: usize = 32;
/// Rules followed for one kind of packet. Beyond, the ruleset counts as unsafe.
const RULE_LIMIT: usize = 4_000_000;

/// What may become of a packet in a chain or rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fate {
    /// It may go on: to the next rule, or back to the caller.
    pub continues: bool,
    /// It may leave the chain for the caller's next rule, or the policy.
    pub returns: bool,
    pub accepts: bool,
}

pub(super) const ANYTHING: Fate = Fate {
    continues: true,
    returns: true,
    accepts: true,
};

/// The hooks that a forwarded packet passes, in order: NF_INET_ numbers; ingress is of the inet family only. The second
/// of PREROUTING is the VRF's.
const IP_HOOKS: [(u32, bool); 5] = [(5, false), (0, false), (0, true), (2, false), (4, false)];

/// Follows a packet through every hook that forwarding passes.
pub fn follow(ruleset: &Ruleset, packet: Packet, ways: Ways, report: &mut Report) {
    let mut walker = Walker {
        packet,
        report,
        followed: HashMap::new(),
        rules: 0,
    };
    for ((family, name), table) in &ruleset.tables {
        if matches!(*family, NFPROTO_NETDEV | NFPROTO_BRIDGE) && !table.dormant {
            for (chain, hook) in base_chains(table) {
                walker.base_chain(*family, name, table, chain, hook, false);
            }
        }
    }
    let own = match packet.ip {
        Family::Ipv4 => NFPROTO_IPV4,
        Family::Ipv6 => NFPROTO_IPV6,
    };
    let legacy: Vec<(String, &Table)> = ruleset
        .legacy
        .iter()
        .filter(|table| table.nfproto() == Some(own))
        .filter_map(|table| {
            let name = format!("{} (iptables-legacy)", table.name);
            Some((name, table.content.as_ref()?))
        })
        .collect();
    let hooks = IP_HOOKS.iter().copied();
    for (number, of_vrf) in hooks.filter(|(_, of_vrf)| !of_vrf || ways == Ways::Vrf) {
        let mut chains = Vec::new();
        let of_nft = ruleset.tables.iter();
        let of_nft = of_nft.map(|((family, name), table)| (*family, name, table));
        let of_legacy = legacy.iter().map(|(name, table)| (own, name, *table));
        for (family, name, table) in of_nft.chain(of_legacy) {
            let concerned = family == NFPROTO_INET || (family == own && number != 5);
            if concerned && !table.dormant {
                let here = base_chains(table).filter(|(_, hook)| hook.number == number);
                chains.extend(
                    here.map(|(chain, hook)| (hook.priority, family, name, table, chain, hook)),
                );
            }
        }
        chains.sort_by_key(|(priority, ..)| *priority);
        for (_, family, name, table, chain, hook) in chains {
            // not all pass a VRF
            let certain = hook.devices.is_empty() && !of_vrf;
            let fate = walker.base_chain(family, name, table, chain, hook, of_vrf);
            if !fate.accepts && certain {
                // Dropped for sure: such a flow does not exist.
                return;
            }
        }
    }
}

fn base_chains(table: &Table) -> impl Iterator<Item = (&String, &Hook)> {
    table
        .chains
        .iter()
        .filter_map(|(name, chain)| Some((name, chain.hook.as_ref()?)))
}

pub(super) struct Walker<'a> {
    pub(super) packet: Packet,
    pub(super) report: &'a mut Report,
    pub(super) followed: HashMap<(u8, String, String, Stage), Followed>,
    pub(super) rules: usize,
}

/// A chain that was followed.
pub(super) struct Followed {
    fate: Fate,
    /// The constraints under which something was found in it; one without findings needs no second look.
    constraints: Vec<Constraint>,
}

/// A chain with findings is followed under so many constraints; then once under none.
const CONSTRAINTS_MAX: usize = 64;

/// What does not change within a base chain and what it calls.
#[derive(Clone, Copy)]
pub(super) struct Hooked<'a> {
    pub(super) family: u8,
    pub(super) name: &'a str,
    pub(super) table: &'a Table,
    pub(super) stage: Stage,
    /// Behind source translation.
    pub(super) postrouting: bool,
}

impl Walker<'_> {
    /// Follows a base chain and its policy; `tracked`: conntrack has seen the packet whatever the chain's priority is.
    fn base_chain(
        &mut self,
        family: u8,
        name: &str,
        table: &Table,
        chain: &str,
        hook: &Hook,
        tracked: bool,
    ) -> Fate {
        const PASSES: Fate = Fate {
            continues: false,
            returns: false,
            accepts: true,
        };
        // Only the first packet of a connection sees NAT chains, an untracked one sees none (`nf_nat_inet_fn`).
        if hook.kind == "nat" {
            return PASSES;
        }
        let frame = matches!(family, NFPROTO_NETDEV | NFPROTO_BRIDGE) || hook.number == 5;
        let stage = match hook.number {
            _ if frame => Stage::Frame,
            _ if tracked => Stage::AfterConntrack,
            0 if hook.priority < CONNTRACK_PRIORITY => Stage::BeforeConntrack,
            0 if hook.priority == CONNTRACK_PRIORITY => Stage::AtConntrack,
            _ => Stage::AfterConntrack,
        };
        let devices: Vec<IfMatch> = hook.devices.iter().map(|device| literal(device)).collect();
        let mut constraint = Constraint {
            of_device: !devices.is_empty(),
            ..Constraint::default()
        };
        if family == NFPROTO_NETDEV && hook.number == 1 {
            constraint.oif = devices;
        } else {
            constraint.iif = devices;
        }
        let hooked = Hooked {
            family,
            name,
            table,
            stage,
            postrouting: hook.number == 4,
        };
        let mut fate = self.chain(hooked, chain, &constraint, 0);
        fate.accepts |= fate.returns && !hook.drops;
        fate
    }

    /// Follows a chain. `returns` tells whether its end or a return may be reached.
    fn chain(&mut self, at: Hooked<'_>, name: &str, constraint: &Constraint, depth: usize) -> Fate {
        let key = (at.family, at.name.to_owned(), name.to_owned(), at.stage);
        let mut constraint = constraint;
        let none = Constraint::default();
        if let Some(followed) = self.followed.get(&key) {
            let known = &followed.constraints;
            if known.len() >= CONSTRAINTS_MAX {
                constraint = &none;
            }
            if known.is_empty() || known.contains(constraint) {
                // What is in it has been reported, and is in the caller too.
                self.report.added += u64::from(!known.is_empty());
                return followed.fate;
            }
        }
        let added = self.report.added;
        let place = Place {
            family: family_name(at.family),
            table: at.name,
            chain: name,
            rule_index: 0,
            handle: 0,
        };
        let Some(chain) = at.table.chains.get(name).filter(|_| depth < DEPTH_LIMIT) else {
            self.find(
                place,
                constraint,
                "jump",
                "leads to a chain that cannot be followed",
            );
            return ANYTHING;
        };
        let mut total = Fate::default();
        let mut open = true;
        for (rule_index, rule) in chain.rules.iter().enumerate() {
            self.rules += 1;
            let place = Place {
                rule_index,
                handle: rule.handle,
                ..place
            };
            if self.rules > RULE_LIMIT {
                self.find(place, &none, "ruleset", "is too large to be analysed");
                return ANYTHING;
            }
            let fate = self.rule(at, place, rule, constraint.clone(), depth);
            total.accepts |= fate.accepts;
            total.returns |= fate.returns;
            if !fate.continues {
                open = false;
                break;
            }
        }
        total.returns |= open;
        let found = self.report.added != added;
        let followed = self.followed.entry(key).or_insert(Followed {
            fate: total,
            constraints: Vec::new(),
        });
        if found {
            followed.constraints.push(constraint.clone());
        }
        total
    }

    pub(super) fn find(
        &mut self,
        place: Place<'_>,
        constraint: &Constraint,
        expression: &str,
        reason: &str,
    ) {
        self.report.add(
            place,
            self.packet,
            constraint,
            false,
            expression.to_owned(),
            reason.to_owned(),
        );
    }

    pub(super) fn mark(&mut self, place: Place<'_>, constraint: &Constraint, expression: &str) {
        let reason = "sets what no frame shows".to_owned();
        self.report.add(
            place,
            self.packet,
            constraint,
            true,
            expression.to_owned(),
            reason,
        );
    }

    fn rule(
        &mut self,
        at: Hooked<'_>,
        place: Place<'_>,
        rule: &Rule,
        constraint: Constraint,
        depth: usize,
    ) -> Fate {
        let mut run = Run {
            at,
            packet: self.packet,
            place,
            constraint,
            registers: Registers::new(),
            truth: Truth::Yes,
            accepts: false,
        };
        for expression in &rule.expressions {
            match self.expression(&mut run, expression, depth) {
                Step::On(truth) => run.truth = run.truth.min(truth),
                Step::End(fate) => {
                    let fate = fate.or_next(run.truth);
                    return Fate {
                        accepts: fate.accepts || run.accepts,
                        ..fate
                    };
                }
            }
            if run.truth == Truth::No {
                break;
            }
        }
        Fate {
            continues: true,
            returns: false,
            accepts: run.accepts,
        }
    }

    pub(super) fn verdict(
        &mut self,
        run: &Run<'_>,
        verdict: &Verdict,
        constraint: &Constraint,
        depth: usize,
    ) -> Fate {
        match verdict {
            Verdict::Accept => Fate {
                accepts: true,
                ..Fate::default()
            },
            Verdict::Drop => Fate::default(),
            Verdict::Continue | Verdict::Break => Fate {
                continues: true,
                ..Fate::default()
            },
            Verdict::Return => Fate {
                returns: true,
                ..Fate::default()
            },
            Verdict::Jump(chain) => {
                let inner = self.chain(run.at, chain, constraint, depth + 1);
                Fate {
                    continues: inner.returns,
                    returns: false,
                    accepts: inner.accepts,
                }
            }
            Verdict::Goto(chain) => {
                let inner = self.chain(run.at, chain, constraint, depth + 1);
                Fate {
                    continues: false,
                    ..inner
                }
            }
            Verdict::Other(_) => {
                self.find(run.place, constraint, "queue", reason("queue"));
                ANYTHING
            }
        }
    }
}

pub(super) enum Step {
    /// The rule goes on with this truth.
    On(Truth),
    /// The rule has a verdict.
    End(Fate),
}

impl Fate {
    /// The fate of a rule whose conditions hold with `truth`.
    pub(super) fn or_next(self, truth: Truth) -> Fate {
        Fate {
            continues: self.continues || truth != Truth::Yes,
            ..self
        }
    }
}

/// A rule being evaluated.
pub(super) struct Run<'a> {
    pub(super) at: Hooked<'a>,
    pub(super) packet: Packet,
    pub(super) place: Place<'a>,
    pub(super) constraint: Constraint,
    pub(super) registers: Registers,
    pub(super) truth: Truth,
    /// An expression that is not understood may have accepted the packet.
    pub(super) accepts: bool,
}

impl Run<'_> {
    /// Narrows the interfaces, if the register tells of one and every literal is understood.
    pub(super) fn constrain(&mut self, register: Register, literals: &[Option<IfMatch>]) {
        let literals = literals.iter().cloned().collect::<Option<Vec<_>>>();
        if let Some((interface, literals)) = self.registers.interface(register).zip(literals) {
            self.constraint.narrow_interface(interface, literals);
        }
    }

    /// Narrows what a register was loaded from to values; `None` if they are not understood.
    pub(super) fn confine(&mut self, register: Register, values: Option<Vec<Values>>) {
        if let (Some(Origin::Field { field, bits }), Some(values)) =
            (self.registers.origin(register), values)
        {
            self.confine_field(field, bits, &values);
        }
    }

    pub(super) fn confine_field(&mut self, field: Field, bits: u8, values: &[Values]) {
        let packet = self.packet;
        let len = packet.field_len(field);
        let ranges: Option<Vec<_>> = values.iter().map(|v| v.range(len, bits)).collect();
        if let Some(ranges) = ranges {
            self.constraint.narrow_field(packet.ip, field, &ranges);
        }
    }
}

/// Values of the first bytes of a field, from one to another.
#[derive(Clone, Debug)]
pub(super) struct Values {
    pub from: Vec<u8>,
    pub to: Vec<u8>,
}

impl Values {
    /// All values of a field that begin so, right-aligned; only its first `bits` were looked at.
    fn range(&self, len: usize, bits: u8) -> Option<(u128, u128)> {
        let number = |bytes: &[u8], fill: u8| {
            let bytes = bytes.iter().copied().chain(std::iter::repeat(fill));
            bytes
                .take(len)
                .fold(0u128, |sum, byte| sum << 8 | u128::from(byte))
        };
        let free = (len * 8).checked_sub(bits.into())?;
        let rest = u128::MAX.checked_shr(128 - free as u32).unwrap_or_default();
        Some((number(&self.from, 0) & !rest, number(&self.to, 0xff) | rest))
    }
}

/// A device name as the kernel lists it.
pub(super) fn literal(device: &str) -> IfMatch {
    match device.strip_suffix('*') {
        Some(prefix) => IfMatch::Prefix(prefix.to_owned()),
        None => IfMatch::Name(device.to_owned()),
    }
}

/// What a register that tells of an interface was compared with. Names without terminating NUL are prefixes.
pub(super) fn literal_of(
    interface: Option<Interface>,
    data: &[u8],
    padded: bool,
) -> Option<IfMatch> {
    let interface = interface?;
    if !interface.name {
        return crate::nla::u32_at(data, 0)
            .filter(|_| data.len() == 4)
            .map(IfMatch::Index);
    }
    let name = crate::nla::text(data);
    if data.contains(&0) || padded {
        Some(IfMatch::Name(name))
    } else {
        Some(IfMatch::Prefix(name))
    }
}
