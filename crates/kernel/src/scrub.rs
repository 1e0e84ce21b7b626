// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules that drop by sets of addresses, and that every packet of a port must meet before anything else that it would
//! change, or be changed by: what they drop may be dropped ahead of the kernel.
//!
//! Looked at are the ingress of devices and PREROUTING ahead of conntrack. All that a packet would have met before such
//! a rule is followed; what is not known counts as something that must see it.

mod facts;
mod part;
mod pattern;
mod transparent;

use std::collections::BTreeSet;

use crate::model::Family;
use crate::nft::*;
use crate::reachability::{PortRange, SetName};
use facts::{Facts, own};
use pattern::Pattern;
use transparent::{Effects, Walk};

pub use part::{Part, Side};

/// NF_IP_PRI_CONNTRACK.
const CONNTRACK_PRIORITY: i32 = -200;
/// NF_INET_INGRESS.
const INET_INGRESS: u32 = 5;

/// Where a rule is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RulePlace {
    /// NFPROTO_ number of its table.
    pub family: u8,
    /// Its table.
    pub table: String,
    /// Its chain.
    pub chain: String,
    /// Index in its chain, from 0.
    pub index: usize,
    /// Handle, as `nft -a` shows it.
    pub handle: u64,
}

impl std::fmt::Display for RulePlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            family,
            table,
            chain,
            index,
            handle,
        } = self;
        let family = family_name(*family);
        write!(
            f,
            "{family} {table} {chain}, rule {} (handle {handle})",
            index + 1
        )
    }
}

/// A rule by which a port's packets are dropped before anything else happens to them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DropRule {
    /// Where it is.
    pub place: RulePlace,
    /// The set that it asks.
    pub set: SetName,
    /// Handles of its table and its set: others of the same name have others.
    pub identity: (u64, u64),
    /// The IP version of its packets.
    pub ip: Family,
    /// Which address.
    pub side: Side,
    /// What the set's keys are made of.
    pub parts: Vec<Part>,
    /// Elements are ranges: pairs of a beginning and an end.
    pub intervals: bool,
    /// IP protocols; none: any.
    pub protos: Vec<u8>,
    /// Destination ports; none: any.
    pub dports: Vec<PortRange>,
    /// It counts what it drops.
    pub counts: bool,
}

/// A rule that drops by a set, and why the kernel keeps it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeptRule {
    /// Where it is.
    pub place: RulePlace,
    /// The set.
    pub set: String,
    /// Why.
    pub reason: String,
}

/// What a port's packets meet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// What may be dropped ahead of the kernel.
    pub rules: Vec<DropRule>,
    /// What may not.
    pub kept: Vec<KeptRule>,
}

/// A base chain that a packet passes.
struct Passed<'a> {
    family: u8,
    name: &'a str,
    table: &'a Table,
    chain: &'a str,
    hook: &'a Hook,
    legacy: bool,
}

/// What a ruleset drops of the packets that come in at a port, an Ethernet device of its own, for its own MAC address.
pub fn find(ruleset: &Ruleset, ifindex: u32, name: &str) -> Found {
    let mut found = Found::default();
    for ip in [Family::Ipv4, Family::Ipv6] {
        let facts = Facts { ip, ifindex, name };
        look(ruleset, &facts, &mut found);
    }
    let mut taken: BTreeSet<RulePlace> = BTreeSet::new();
    taken.extend(found.rules.iter().map(|rule| rule.place.clone()));
    elsewhere(ruleset, &mut found);
    found.kept.retain(|kept| !taken.contains(&kept.place));
    found.kept.sort();
    found.kept.dedup_by(|one, next| one.place == next.place);
    found
}

/// The base chains in the order in which a packet passes them; of equal priority in any.
fn passed<'a>(ruleset: &'a Ruleset, facts: &Facts<'_>) -> [Vec<Passed<'a>>; 2] {
    let mut stages = [Vec::new(), Vec::new()];
    let of_nft = ruleset.tables.iter().filter(|(_, table)| !table.dormant);
    let of_nft = of_nft.map(|((family, name), table)| (*family, name.as_str(), table, false));
    let of_legacy = ruleset.legacy.iter().filter_map(|table| {
        let family = table.nfproto()?;
        Some((family, table.name.as_str(), table.content.as_ref()?, true))
    });
    for (family, name, table, legacy) in of_nft.chain(of_legacy) {
        for (chain, content) in &table.chains {
            let Some(hook) = &content.hook else { continue };
            let stage = match (family, hook.number) {
                (NFPROTO_NETDEV, 0) | (NFPROTO_INET, INET_INGRESS) => 0,
                (NFPROTO_INET, 0) => 1,
                (family, 0) if family == own(facts.ip) => 1,
                _ => continue,
            };
            if !hook.devices.is_empty() && !facts.is_among(&hook.devices) {
                continue;
            }
            stages[stage].push(Passed {
                family,
                name,
                table,
                chain,
                hook,
                legacy,
            });
        }
    }
    stages
}

fn look(ruleset: &Ruleset, facts: &Facts<'_>, found: &mut Found) {
    let stages = passed(ruleset, facts);
    let effects = |passed: &Passed<'_>| -> Option<String> {
        let mut walk = Walk::new(passed.table, passed.family, facts);
        let effects = walk.chain(passed.chain);
        let by = format!(
            "chain {} of table {} {}",
            passed.chain,
            family_name(passed.family),
            passed.name
        );
        effects
            .sees
            .map(|what| format!("{by} comes before it, and {what}"))
    };
    let mut before = unreadable(ruleset, facts);
    let offloads = |table: &Table| {
        let devices = table.flowtables.values();
        devices
            .flatten()
            .any(|device| facts.is_among(std::slice::from_ref(device)))
    };
    if ruleset.tables.values().any(offloads) {
        before.get_or_insert("a flow table of the kernel may forward packets before".into());
    }
    let tracked = ruleset.tracks(facts.ip);
    for (at, chains) in stages.iter().enumerate() {
        for here in chains.iter().filter(|here| !here.legacy) {
            let earlier = chains.iter().filter(|other| {
                !std::ptr::eq(*other, here) && other.hook.priority <= here.hook.priority
            });
            let mut blocked = before.clone();
            if here.hook.kind != "filter" {
                blocked.get_or_insert(format!("chains of type {} see few packets", here.hook.kind));
            }
            if at == 1 && tracked && here.hook.priority >= CONNTRACK_PRIORITY {
                blocked.get_or_insert(format!(
                    "connection tracking sees its packets before: the chain's priority is {}, and would have to be below {CONNTRACK_PRIORITY}",
                    here.hook.priority
                ));
            }
            if blocked.is_none() {
                blocked = earlier.filter_map(&effects).next();
            }
            rules(here, facts, blocked, found);
        }
        if before.is_none() {
            before = chains.iter().filter_map(&effects).next();
        }
    }
}

/// A table whose rules cannot be read may do anything.
fn unreadable(ruleset: &Ruleset, facts: &Facts<'_>) -> Option<String> {
    let mut legacy = ruleset.legacy.iter().filter(|table| table.matters());
    let table = legacy.find(|t| t.content.is_none() && t.nfproto() == Some(own(facts.ip)))?;
    Some(format!(
        "the rules of iptables-legacy's table {} cannot be read",
        table.name
    ))
}

/// The rules of one base chain; `blocked`: why none of them may be taken.
fn rules(here: &Passed<'_>, facts: &Facts<'_>, mut blocked: Option<String>, found: &mut Found) {
    let Some(chain) = here.table.chains.get(here.chain) else {
        return;
    };
    for (index, rule) in chain.rules.iter().enumerate() {
        let place = RulePlace {
            family: here.family,
            table: here.name.to_owned(),
            chain: here.chain.to_owned(),
            index,
            handle: rule.handle,
        };
        let kept = |set: String, reason: String| KeptRule {
            place: place.clone(),
            set,
            reason,
        };
        match pattern::read(rule, here.table, here.family, facts) {
            Pattern::None => {}
            Pattern::Kept { set, reason } => found.kept.push(kept(set, reason)),
            Pattern::Drops(drops) => match &blocked {
                Some(reason) => found.kept.push(kept(drops.set.to_owned(), reason.clone())),
                None => found.rules.push(DropRule {
                    set: (here.family, here.name.to_owned(), drops.set.to_owned()),
                    identity: (here.table.handle, drops.handle),
                    ip: facts.ip,
                    side: drops.side,
                    parts: drops.parts,
                    intervals: drops.intervals,
                    protos: drops.protos,
                    dports: drops.dports,
                    counts: drops.counts,
                    place: place.clone(),
                }),
            },
        }
        if blocked.is_none() {
            let mut walk = Walk::new(here.table, here.family, facts);
            let Effects { sees, leaves } = walk.rule(rule);
            let first = sees
                .or_else(|| leaves.then(|| "may let packets pass that are in the set".to_owned()));
            blocked = first.map(|what| format!("rule {} comes before it, and {what}", index + 1));
        }
    }
}

/// Rules that drop by sets where nobody looks.
fn elsewhere(ruleset: &Ruleset, found: &mut Found) {
    for ((family, name), table) in ruleset.tables.iter().filter(|(_, table)| !table.dormant) {
        for (chain, content) in &table.chains {
            for (index, rule) in content.rules.iter().enumerate() {
                let Some(set) = pattern::drops_by_set(rule, table) else {
                    continue;
                };
                let place = RulePlace {
                    family: *family,
                    table: name.clone(),
                    chain: chain.clone(),
                    index,
                    handle: rule.handle,
                };
                if found.kept.iter().any(|kept| kept.place == place) {
                    continue;
                }
                found.kept.push(KeptRule {
                    reason: why_not_here(*family, content.hook.as_ref()),
                    set: set.to_owned(),
                    place,
                });
            }
        }
    }
}

fn why_not_here(family: u8, hook: Option<&Hook>) -> String {
    let Some(hook) = hook else {
        return "it is in a chain that other rules lead to".into();
    };
    match (family, hook.number) {
        (NFPROTO_BRIDGE, _) => "it is about bridged frames".into(),
        (NFPROTO_NETDEV, 0) | (NFPROTO_INET, INET_INGRESS | 0) | (_, 0) => {
            "it concerns no port that XDP could drop at".into()
        }
        (_, 1 | 2) => {
            "input and forward come behind connection tracking and routing, which may answer: \
                       only ingress, and prerouting below priority -200, can be taken over"
                .into()
        }
        _ => "it is about packets that leave".into(),
    }
}
