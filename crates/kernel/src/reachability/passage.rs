// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the ruleset treats all packets alike that come in at a port and are forwarded.
//!
//! What is known of them is the port and the IP version; what compares anything else may turn out either way. They are treated
//! alike if none can be dropped or changed, and nothing counts them or remembers them, whichever way each comparison turns
//! out. Whatever is not known to do nothing is in the way.

use super::lookup::contains;
use super::registers::{Bits, Registers, Truth};
use super::run::{Fate, Step};
use crate::model::Family;
use crate::nft::*;

/// NF_IP_PRI_CONNTRACK.
const CONNTRACK_PRIORITY: i32 = -200;
const DEPTH_LIMIT: usize = 32;
/// Rules and elements of verdict maps that are followed for a port, each as often as it is reached.
const RULE_LIMIT: usize = 10_000;
/// NF_INET_ numbers of what forwarded packets pass behind their device.
const IP_HOOKS: [u32; 3] = [0, 2, POSTROUTING];
const POSTROUTING: u32 = 4;
const NETDEV_INGRESS: u32 = 0;
const STATE_UNTRACKED: u32 = 64;
/// Of a register: the verdict (`Expression::Lookup`).
const VERDICT: Register = Register::MAX;

/// How what a port hands in passes the ruleset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passage {
    /// Conntrack is told to let all of it pass, as far as that was looked at.
    pub untracked: bool,
    /// The first that could treat two packets differently, in words.
    pub obstacle: Option<String>,
}

/// Follows all packets of an IP version that come in at a port and leave at another. `below`: the device where they come in
/// first, with a tag of the port's VLAN.
pub fn passage(
    ruleset: &Ruleset,
    ip: Family,
    ifindex: u32,
    port: &str,
    below: Option<&str>,
) -> Passage {
    let mut walker = Walker {
        ip,
        ifindex,
        port,
        below,
        untracked: false,
        rules: 0,
    };
    let obstacle = walker.ruleset(ruleset).err();
    Passage {
        untracked: walker.untracked,
        obstacle,
    }
}

struct Walker<'a> {
    ip: Family,
    ifindex: u32,
    port: &'a str,
    below: Option<&'a str>,
    untracked: bool,
    rules: usize,
}

/// A base chain, and all that is called from it.
#[derive(Clone, Copy)]
struct Base<'a> {
    family: u8,
    name: &'a str,
    table: &'a Table,
    /// Of the legacy iptables, each of whose rules counts.
    legacy: bool,
    hook: &'a Hook,
    /// It is a device's.
    frames: bool,
}

impl Base<'_> {
    /// Of a chain of its table.
    fn words(&self, chain: &str) -> String {
        match self.legacy {
            true => format!("chain {chain} of the legacy iptables' {}", self.name),
            false => format!(
                "chain {chain} of table {} {}",
                family_name(self.family),
                self.name
            ),
        }
    }

    /// `notrack` has conntrack let a packet pass.
    fn precedes_conntrack(&self) -> bool {
        !self.frames && self.hook.number == 0 && self.hook.priority < CONNTRACK_PRIORITY
    }

    /// Behind it there is no input port.
    fn knows_port(&self) -> bool {
        self.frames || self.hook.number != POSTROUTING
    }
}

/// A rule while it is followed.
struct Run<'a> {
    base: Base<'a>,
    chain: &'a str,
    rule: &'a Rule,
    /// It is the policy of a legacy chain.
    policy: bool,
    /// Each packet of the port reaches it.
    all: bool,
    registers: Registers,
    truth: Truth,
}

impl Run<'_> {
    fn obstacle(&self, what: &str) -> String {
        let words = self.base.words(self.chain);
        match self.rule.handle {
            0 => format!("a rule of {words} {what}"),
            handle => format!("a rule of {words} (handle {handle}) {what}"),
        }
    }

    fn store(&mut self, register: Register, bits: &Bits, truth: Truth) -> Step {
        self.registers.store(register, bits, None);
        Step::On(truth)
    }

    /// What may be anything, or not be there.
    fn store_unknown(&mut self, register: Register, len: u32) -> Step {
        self.store(register, &Bits::unknown(len.min(64) as usize), Truth::Maybe)
    }
}

const COUNTS: &str = "counts packets";

impl<'a> Walker<'a> {
    fn ruleset(&mut self, ruleset: &'a Ruleset) -> Result<(), String> {
        let own = match self.ip {
            Family::Ipv4 => NFPROTO_IPV4,
            Family::Ipv6 => NFPROTO_IPV6,
        };
        let mut bases = Vec::new();
        for ((family, name), table) in ruleset.tables.iter().filter(|(_, table)| !table.dormant) {
            if *family == own || matches!(*family, NFPROTO_INET | NFPROTO_NETDEV) {
                let words = || format!("of table {} {name}", family_name(*family));
                if let Some(flowtable) = table.flowtables.keys().next() {
                    let words = words();
                    return Err(format!("flow table {flowtable} {words} forwards by itself"));
                }
                bases.extend(bases_of(*family, name, table, false));
            }
        }
        for legacy in ruleset
            .legacy
            .iter()
            .filter(|table| table.nfproto() == Some(own))
        {
            let name = &legacy.name;
            match &legacy.content {
                Some(table) => bases.extend(bases_of(own, name, table, true)),
                None => return Err(format!("the legacy iptables' {name} cannot be read")),
            }
        }
        bases.sort_by_key(|(_, base)| base.hook.priority);
        for (chain, base) in bases.iter().filter(|(_, base)| base.frames) {
            self.of_device(*base, chain)?;
        }
        for number in IP_HOOKS {
            let here = |(_, base): &&(&str, Base<'a>)| !base.frames && base.hook.number == number;
            for (chain, base) in bases.iter().filter(here) {
                // an untracked packet passes them by (nf_nat_inet_fn())
                match base.hook.kind == "nat" {
                    true if self.untracked => {}
                    true => return Err(format!("{} translates addresses", base.words(chain))),
                    false => self.base_chain(*base, chain)?,
                }
            }
        }
        Ok(())
    }

    fn of_device(&mut self, base: Base<'a>, chain: &'a str) -> Result<(), String> {
        let content = base.table.chains.get(chain);
        let does_something = base.hook.drops || content.is_none_or(|chain| !chain.rules.is_empty());
        let ingress = base.family == NFPROTO_INET || base.hook.number == NETDEV_INGRESS;
        if ingress {
            let devices = &base.hook.devices;
            let sees = |port: &str| {
                let named = |device: &String| match device.strip_suffix('*') {
                    Some(prefix) => port.starts_with(prefix),
                    None => device == port,
                };
                devices.is_empty() || devices.iter().any(named)
            };
            // what it says of frames with a tag is not followed
            if let Some(below) = self.below.filter(|below| sees(below) && does_something) {
                return Err(format!(
                    "{} looks at its frames at {below}",
                    base.words(chain)
                ));
            }
            return match sees(self.port) {
                true => self.base_chain(base, chain),
                false => Ok(()),
            };
        }
        match does_something {
            true => Err(format!("{} looks at what leaves", base.words(chain))),
            false => Ok(()),
        }
    }

    fn base_chain(&mut self, base: Base<'a>, chain: &'a str) -> Result<(), String> {
        let fate = self.chain(base, chain, true, 0)?;
        match fate.returns && base.hook.drops {
            true => Err(format!("the policy of {} drops", base.words(chain))),
            false => Ok(()),
        }
    }

    /// `returns`: its end may be reached, or a return.
    fn chain(
        &mut self,
        base: Base<'a>,
        name: &'a str,
        mut all: bool,
        depth: usize,
    ) -> Result<Fate, String> {
        let chain = base.table.chains.get(name);
        let Some(chain) = chain.filter(|_| depth < DEPTH_LIMIT) else {
            return Err(format!("{} cannot be followed", base.words(name)));
        };
        let mut total = Fate::default();
        for (index, rule) in chain.rules.iter().enumerate() {
            self.rules += 1;
            if self.rules > RULE_LIMIT {
                return Err("the ruleset is too large to be followed".into());
            }
            let last = index + 1 == chain.rules.len();
            let accepts = [Expression::Verdict(Verdict::Accept)];
            let run = Run {
                base,
                chain: name,
                rule,
                policy: base.legacy && last && chain.hook.is_some() && rule.expressions == accepts,
                all,
                registers: Registers::new(),
                truth: Truth::Yes,
            };
            let fate = self.rule(run, depth)?;
            total.accepts |= fate.accepts;
            total.returns |= fate.returns;
            all &= !fate.accepts && !fate.returns;
            if !fate.continues {
                return Ok(total);
            }
        }
        total.returns = true;
        Ok(total)
    }

    fn rule(&mut self, mut run: Run<'a>, depth: usize) -> Result<Fate, String> {
        for expression in &run.rule.expressions {
            match self.expression(&mut run, expression, depth)? {
                Step::On(truth) => run.truth = run.truth.min(truth),
                Step::End(fate) => return Ok(fate.or_next(run.truth)),
            }
            if run.truth == Truth::No {
                break;
            }
        }
        if run.base.legacy && run.truth != Truth::No {
            return Err(run.obstacle(COUNTS));
        }
        Ok(Fate::CONTINUE)
    }

    fn expression(
        &mut self,
        run: &mut Run<'a>,
        expression: &'a Expression,
        depth: usize,
    ) -> Result<Step, String> {
        let load = |run: &Run<'_>, register, len: usize| run.registers.load(register, len);
        Ok(match expression {
            Expression::Load { dreg, data } => run.store(*dreg, &Bits::constant(data), Truth::Yes),
            Expression::Cmp { sreg, op, data } => {
                Step::On(load(run, *sreg, data.len()).compare(*op, data))
            }
            Expression::Range {
                sreg,
                negated,
                from,
                to,
            } => {
                let inside = load(run, *sreg, from.len()).within(from, to);
                Step::On(if *negated { inside.not() } else { inside })
            }
            Expression::Bitwise {
                sreg,
                dreg,
                len,
                mask,
                xor,
            } => {
                let bits = load(run, *sreg, *len as usize).masked(mask, xor);
                run.store(*dreg, &bits, Truth::Yes)
            }
            Expression::BitwiseOther { dreg, len, .. }
            | Expression::Byteorder { dreg, len, .. } => run.store_unknown(*dreg, *len),
            Expression::Payload { dreg, len, .. } => run.store_unknown(*dreg, *len),
            Expression::Rt { dreg, .. }
            | Expression::Fib { dreg }
            | Expression::Exthdr { dreg, .. } => run.store_unknown(*dreg, 16),
            Expression::Meta { dreg, key } => match self.meta(run.base, *key) {
                Some(bytes) => run.store(*dreg, &Bits::constant(&bytes), Truth::Yes),
                None => run.store_unknown(*dreg, 16),
            },
            // nft_ct_get_eval(): of an untracked packet there is the state, and nothing else
            Expression::Ct { dreg, key: 0, .. } if self.untracked => {
                let state = Bits::constant(&STATE_UNTRACKED.to_ne_bytes());
                run.store(*dreg, &state, Truth::Yes)
            }
            Expression::Ct { .. } if self.untracked => Step::On(Truth::No),
            Expression::Ct { dreg, .. } => run.store_unknown(*dreg, 16),
            Expression::Lookup {
                set,
                sreg,
                dreg,
                negated,
            } => self.lookup(run, set, *sreg, *dreg, *negated, depth)?,
            Expression::Verdict(_) if run.base.legacy && !run.policy => {
                return Err(run.obstacle(COUNTS));
            }
            Expression::Verdict(verdict) => Step::End(self.verdict(run, verdict, depth)?),
            Expression::Named(name) if name == "notrack" => {
                let surely = run.all && run.truth == Truth::Yes;
                self.untracked |= surely && run.base.precedes_conntrack();
                Step::On(Truth::Yes)
            }
            Expression::Named(name) if name == "counter" => return Err(run.obstacle(COUNTS)),
            // NFT_OBJECT_COUNTER
            Expression::Objref { kind: Some(1), .. } => return Err(run.obstacle(COUNTS)),
            Expression::Reject => return Err(run.obstacle("rejects packets")),
            _ => return Err(run.obstacle(&format!("has {}", expression.name()))),
        })
    }

    /// What is known of the packets' surroundings (`nft_meta_get_eval()`).
    fn meta(&self, base: Base<'_>, key: u32) -> Option<Vec<u8>> {
        let (nfproto, ethertype) = match self.ip {
            Family::Ipv4 => (NFPROTO_IPV4, 0x0800u16),
            Family::Ipv6 => (NFPROTO_IPV6, 0x86dd),
        };
        match key {
            1 if !base.frames => Some(ethertype.to_be_bytes().to_vec()),
            4 if base.knows_port() => Some(self.ifindex.to_ne_bytes().to_vec()),
            6 if base.knows_port() => {
                let mut name = self.port.as_bytes().to_vec();
                name.resize(16, 0);
                Some(name)
            }
            15 if !base.frames => Some(vec![nfproto]),
            _ => None,
        }
    }

    fn verdict(
        &mut self,
        run: &Run<'a>,
        verdict: &'a Verdict,
        depth: usize,
    ) -> Result<Fate, String> {
        let mut into = |chain: &'a str| {
            let all = run.all && run.truth == Truth::Yes;
            self.chain(run.base, chain, all, depth + 1)
        };
        Ok(match verdict {
            Verdict::Accept => Fate::ACCEPT,
            Verdict::Drop => return Err(run.obstacle("drops packets")),
            Verdict::Continue | Verdict::Break => Fate::CONTINUE,
            Verdict::Return => Fate::RETURN,
            Verdict::Jump(chain) => into(chain)?.jumped(),
            Verdict::Goto(chain) => into(chain)?,
            Verdict::Other(_) => return Err(run.obstacle("hands packets to a program")),
        })
    }

    fn lookup(
        &mut self,
        run: &mut Run<'a>,
        name: &str,
        sreg: Register,
        dreg: Option<Register>,
        negated: bool,
        depth: usize,
    ) -> Result<Step, String> {
        let Some(set) = run.base.table.sets.get(name) else {
            return Err(run.obstacle("looks into a set that is not known"));
        };
        let elements = set.elements.iter().flatten();
        let mut stateful = elements.flat_map(|element| &element.expressions);
        if set.flags & SET_EVAL != 0 || !set.expressions.is_empty() || stateful.next().is_some() {
            return Err(run.obstacle("looks into a set that packets change"));
        }
        // that of another may change without the ruleset
        let elements = set.elements.as_ref();
        let elements = elements.filter(|_| set.flags & SET_ANONYMOUS != 0);
        let bits = run.registers.load(sreg, set.key_len as usize);
        let truth = elements.map_or(Truth::Maybe, |elements| contains(set, elements, &bits));
        let truth = if negated { truth.not() } else { truth };
        match dreg {
            _ if truth == Truth::No => Ok(Step::On(Truth::No)),
            None => Ok(Step::On(truth)),
            Some(VERDICT) => match elements {
                Some(elements) => self.verdict_map(run, set, elements, &bits, truth, depth),
                None => Err(run.obstacle("decides by a map that may change")),
            },
            Some(dreg) => Ok(run.store_unknown(dreg, 16)),
        }
    }

    /// The verdict of each element that may match.
    fn verdict_map(
        &mut self,
        run: &Run<'a>,
        set: &Set,
        elements: &'a [Element],
        bits: &Bits,
        truth: Truth,
        depth: usize,
    ) -> Result<Step, String> {
        let is = |element: &Element| match element.catch_all {
            true => Truth::Maybe,
            false => contains(set, std::slice::from_ref(element), bits),
        };
        let exact = elements.iter().find(|element| is(element) == Truth::Yes);
        let mut total = Fate::default();
        self.rules += elements.len();
        for element in elements {
            let other = exact.is_some_and(|exact| !std::ptr::eq(exact, element));
            let Some(verdict) = &element.verdict else {
                continue;
            };
            if other || is(element) == Truth::No {
                continue;
            }
            // which of them it is, is known of one alone
            let run = Run {
                all: run.all && exact.is_some(),
                registers: Registers::new(),
                ..*run
            };
            let fate = self.verdict(&run, verdict, depth)?;
            total.continues |= fate.continues;
            total.returns |= fate.returns;
            total.accepts |= fate.accepts;
        }
        Ok(Step::End(total.or_next(truth)))
    }
}

fn bases_of<'a>(
    family: u8,
    name: &'a str,
    table: &'a Table,
    legacy: bool,
) -> impl Iterator<Item = (&'a str, Base<'a>)> {
    table.chains.iter().filter_map(move |(chain, content)| {
        let hook = content.hook.as_ref()?;
        let base = Base {
            family,
            name,
            table,
            legacy,
            hook,
            frames: family == NFPROTO_NETDEV || (family == NFPROTO_INET && hook.number == 5),
        };
        Some((chain.as_str(), base))
    })
}
