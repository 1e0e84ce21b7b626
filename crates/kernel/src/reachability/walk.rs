// SPDX-License-Identifier: MIT OR Apache-2.0
//! Follows one kind of packet through the hooks, chains and rules.

use std::collections::HashMap;

use super::constraint::{Constraint, Place};
use super::finding::IfMatch;
use super::packet::{Packet, Stage};
use super::registers::{Registers, Truth};
use super::report::Report;
use super::run::{ANYTHING, Fate, Hooked, Run, Step, literal};
use super::words::reason;
use crate::model::Family;
use crate::nft::*;

/// NF_IP_PRI_CONNTRACK.
const CONNTRACK_PRIORITY: i32 = -200;
/// More than NFT_JUMP_STACK_SIZE.
const DEPTH_LIMIT: usize = 32;
/// Rules followed for one kind of packet. Beyond, the ruleset counts as unsafe.
const RULE_LIMIT: usize = 4_000_000;

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
        // Only the first packet of a connection sees NAT chains, an untracked one sees none (`nf_nat_inet_fn`).
        if hook.kind == "nat" {
            return Fate::ACCEPT;
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
            Verdict::Accept => Fate::ACCEPT,
            Verdict::Drop => Fate::default(),
            Verdict::Continue | Verdict::Break => Fate::CONTINUE,
            Verdict::Return => Fate::RETURN,
            Verdict::Jump(chain) => self.chain(run.at, chain, constraint, depth + 1).jumped(),
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

/// The ways that packets may take through the hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ways {
    /// Each hook once.
    Plain,
    /// What comes in at a port of a VRF passes PREROUTING twice, the second time with the VRF as its input and with its
    /// connection (`vrf_rcv_nfhook()` in drivers/net/vrf.c).
    Vrf,
}
