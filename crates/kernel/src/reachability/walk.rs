// SPDX-License-Identifier: MIT OR Apache-2.0
//! Follows one kind of packet through the hooks, chains and rules.

use std::collections::HashMap;

use super::IfMatch;
use super::evaluate::reason;
use super::packet::{Packet, Stage};
use super::registers::{Interface, Registers, Truth};
use super::report::{Constraint, Place, Report};
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

/// The hooks that a forwarded packet passes, in order: NF_INET_ numbers; ingress is of the inet family only.
const IP_HOOKS: [u32; 4] = [5, 0, 2, 4];

/// Follows a packet through every hook that forwarding passes.
pub fn follow(ruleset: &Ruleset, packet: Packet, report: &mut Report) {
    let mut walker = Walker {
        packet,
        report,
        followed: HashMap::new(),
        rules: 0,
    };
    for ((family, name), table) in &ruleset.tables {
        if matches!(*family, NFPROTO_NETDEV | NFPROTO_BRIDGE) && !table.dormant {
            for (chain, hook) in base_chains(table) {
                walker.base_chain(*family, name, table, chain, hook);
            }
        }
    }
    let own = match packet.ip {
        Family::Ipv4 => NFPROTO_IPV4,
        Family::Ipv6 => NFPROTO_IPV6,
    };
    for number in IP_HOOKS {
        let mut chains = Vec::new();
        for ((family, name), table) in &ruleset.tables {
            let concerned = *family == NFPROTO_INET || (*family == own && number != 5);
            if concerned && !table.dormant {
                let here = base_chains(table).filter(|(_, hook)| hook.number == number);
                chains.extend(
                    here.map(|(chain, hook)| (hook.priority, *family, name, table, chain, hook)),
                );
            }
        }
        chains.sort_by_key(|(priority, ..)| *priority);
        for (_, family, name, table, chain, hook) in chains {
            let certain = hook.devices.is_empty();
            if !walker.base_chain(family, name, table, chain, hook).accepts && certain {
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
    pub(super) followed: HashMap<(u8, String, String, Stage, Constraint), Fate>,
    pub(super) rules: usize,
}

/// What does not change within a base chain and what it calls.
#[derive(Clone, Copy)]
pub(super) struct Hooked<'a> {
    pub(super) family: u8,
    pub(super) name: &'a str,
    pub(super) table: &'a Table,
    pub(super) stage: Stage,
}

impl Walker<'_> {
    /// Follows a base chain and its policy.
    fn base_chain(
        &mut self,
        family: u8,
        name: &str,
        table: &Table,
        chain: &str,
        hook: &Hook,
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
            0 if hook.priority < CONNTRACK_PRIORITY => Stage::BeforeConntrack,
            0 if hook.priority == CONNTRACK_PRIORITY => Stage::AtConntrack,
            _ => Stage::AfterConntrack,
        };
        let devices: Vec<IfMatch> = hook.devices.iter().map(|device| literal(device)).collect();
        let mut constraint = Constraint::default();
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
        };
        let mut fate = self.chain(hooked, chain, &constraint, 0);
        fate.accepts |= fate.returns && !hook.drops;
        fate
    }

    /// Follows a chain. `returns` tells whether its end or a return may be reached.
    fn chain(&mut self, at: Hooked<'_>, name: &str, constraint: &Constraint, depth: usize) -> Fate {
        let key = (
            at.family,
            at.name.to_owned(),
            name.to_owned(),
            at.stage,
            constraint.clone(),
        );
        if let Some(fate) = self.followed.get(&key) {
            return *fate;
        }
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
                self.find(place, constraint, "ruleset", "is too large to be analysed");
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
        self.followed.insert(key, total);
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
        let interface = self.registers.interface(register);
        if let Some(literals) = literals.iter().cloned().collect::<Option<Vec<_>>>() {
            self.constraint.narrow(interface, literals);
        }
    }
}

impl Constraint {
    /// The innermost condition stands for all: it is true of at least the packets that reach it.
    pub(super) fn narrow(&mut self, interface: Option<Interface>, mut literals: Vec<IfMatch>) {
        literals.sort();
        match interface {
            Some(Interface { input: true, .. }) => self.iif = literals,
            Some(Interface { input: false, .. }) => self.oif = literals,
            None => {}
        }
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
