// SPDX-License-Identifier: MIT OR Apache-2.0
//! Follows one kind of packet through the hooks, chains and rules.

use std::collections::HashMap;

use super::IfMatch;
use super::packet::{Packet, Reading, Stage};
use super::registers::{Bits, Interface, Registers, Truth};
use super::report::{Constraint, Place, Report};
use super::xtables::{self, Meaning};
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
struct Fate {
    /// It may go on: to the next rule, or back to the caller.
    continues: bool,
    /// It may leave the chain for the caller's next rule, or the policy.
    returns: bool,
    accepts: bool,
}

const ANYTHING: Fate = Fate {
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

struct Walker<'a> {
    packet: Packet,
    report: &'a mut Report,
    followed: HashMap<(u8, String, String, Stage, Constraint), Fate>,
    rules: usize,
}

/// What does not change within a base chain and what it calls.
#[derive(Clone, Copy)]
struct Hooked<'a> {
    family: u8,
    name: &'a str,
    table: &'a Table,
    stage: Stage,
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

    fn find(&mut self, place: Place<'_>, constraint: &Constraint, expression: &str, reason: &str) {
        self.report.add(
            place,
            self.packet,
            constraint,
            false,
            expression.to_owned(),
            reason.to_owned(),
        );
    }

    fn mark(&mut self, place: Place<'_>, constraint: &Constraint, expression: &str) {
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

    /// Evaluates an expression for the packet.
    fn expression(&mut self, run: &mut Run<'_>, expression: &Expression, depth: usize) -> Step {
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
                Step::On(self.decide(run, &bits, truth, "range"))
            }
            Expression::Bitwise {
                sreg,
                dreg,
                len,
                mask,
                xor,
            } => {
                let bits = run.registers.load(*sreg, *len as usize).masked(mask, xor);
                run.registers.store(*dreg, &bits, None);
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
            Expression::PayloadSet { base, offset, len }
                if packet.may_write(*base, *offset, *len) =>
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
                let meaning = xtables::matching(name, *revision, info, packet, stage);
                self.xtables(run, &expression.name(), meaning)
            }
            Expression::Target { name, .. } => {
                self.xtables(run, &expression.name(), xtables::target(name))
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
            Expression::Named(name) | Expression::Malformed(name) => {
                self.find(run.place, &run.constraint, name, reason(name));
                // Whatever verdict it may give.
                run.accepts = true;
                Step::On(Truth::Maybe)
            }
        }
    }

    fn read(&mut self, run: &mut Run<'_>, dreg: Register, reading: Reading) -> Step {
        match reading {
            Reading::Value(bits, interface) => {
                run.registers.store(dreg, &bits, interface);
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
    fn decide(&mut self, run: &Run<'_>, bits: &Bits, truth: Truth, expression: &str) -> Truth {
        if truth == Truth::Maybe && bits.vary() {
            let reason = "compares header bits that differ between packets of a flow";
            self.find(run.place, &run.constraint, expression, reason);
        }
        truth
    }

    fn xtables(&mut self, run: &mut Run<'_>, name: &str, meaning: Meaning) -> Step {
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

    fn object(&mut self, run: &Run<'_>, kind: Option<u32>, name: &str) -> Step {
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

    fn lookup(
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
            return self.verdict_map(run, set, &bits, interface, truth, depth);
        }
        if let (Some(elements), None, false) = (&set.elements, dreg, negated) {
            let literals: Vec<_> = elements
                .iter()
                .map(|element| element_literal(set, element, interface))
                .collect();
            run.constrain(sreg, &literals);
        }
        if let Some(dreg) = dreg {
            run.registers.store(dreg, &Bits::unknown(16), None);
        }
        Step::On(truth)
    }

    /// A set that packets change, or whose elements count packets, must see them all.
    fn check_set(&mut self, run: &Run<'_>, name: &str, set: &Set) {
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
    fn verdict_map(
        &mut self,
        run: &mut Run<'_>,
        set: &Set,
        bits: &Bits,
        interface: Option<Interface>,
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
            let mut constraint = run.constraint.clone();
            if let Some(literal) = element_literal(set, element, interface) {
                constraint.narrow(interface, vec![literal]);
            }
            let fate = self.verdict(run, verdict, &constraint, depth);
            total.continues |= fate.continues;
            total.returns |= fate.returns;
            total.accepts |= fate.accepts;
        }
        // Without a matching element the rule ends and the next one follows.
        Step::End(total.or_next(truth))
    }

    fn verdict(
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

enum Step {
    /// The rule goes on with this truth.
    On(Truth),
    /// The rule has a verdict.
    End(Fate),
}

impl Fate {
    /// The fate of a rule whose conditions hold with `truth`.
    fn or_next(self, truth: Truth) -> Fate {
        Fate {
            continues: self.continues || truth != Truth::Yes,
            ..self
        }
    }
}

/// A rule being evaluated.
struct Run<'a> {
    at: Hooked<'a>,
    place: Place<'a>,
    constraint: Constraint,
    registers: Registers,
    truth: Truth,
    /// An expression that is not understood may have accepted the packet.
    accepts: bool,
}

impl Run<'_> {
    /// Narrows the interfaces, if the register tells of one and every literal is understood.
    fn constrain(&mut self, register: Register, literals: &[Option<IfMatch>]) {
        let interface = self.registers.interface(register);
        if let Some(literals) = literals.iter().cloned().collect::<Option<Vec<_>>>() {
            self.constraint.narrow(interface, literals);
        }
    }
}

impl Constraint {
    /// The innermost condition stands for all: it is true of at least the packets that reach it.
    fn narrow(&mut self, interface: Option<Interface>, mut literals: Vec<IfMatch>) {
        literals.sort();
        match interface {
            Some(Interface { input: true, .. }) => self.iif = literals,
            Some(Interface { input: false, .. }) => self.oif = literals,
            None => {}
        }
    }
}

/// A device name as the kernel lists it.
fn literal(device: &str) -> IfMatch {
    match device.strip_suffix('*') {
        Some(prefix) => IfMatch::Prefix(prefix.to_owned()),
        None => IfMatch::Name(device.to_owned()),
    }
}

/// What a register that tells of an interface was compared with. Names without terminating NUL are prefixes.
fn literal_of(interface: Option<Interface>, data: &[u8], padded: bool) -> Option<IfMatch> {
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
fn contains(set: &Set, elements: &[Element], bits: &Bits) -> Truth {
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

/// Why an expression must see every packet, in words.
fn reason(name: &str) -> &'static str {
    match name {
        "limit" => "matches at a rate, so it must count every packet",
        "quota" => "counts the bytes of every packet",
        "log" => "reports packets",
        "queue" => "hands packets to user space",
        "numgen" => "picks packets at random or in turn",
        "dynset" => "changes a set by packets",
        "connlimit" => "depends on the number of other connections",
        "hash" => "spreads packets by a hash",
        "socket" | "tproxy" => "looks for a local socket",
        "synproxy" => "answers and rewrites TCP packets itself",
        "dup" | "fwd" => "copies or diverts packets",
        "flow_offload" => "hands the flow to the kernel's own flow table",
        "secmark" => "sets what no frame shows",
        _ => "is not known to depend on the flow alone",
    }
}
