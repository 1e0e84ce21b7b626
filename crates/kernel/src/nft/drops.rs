// SPDX-License-Identifier: MIT OR Apache-2.0
//! Base chains that may drop packets.

use std::collections::BTreeSet;
use std::fmt;

use super::{
    Expression, NFPROTO_BRIDGE, NFPROTO_INET, NFPROTO_IPV4, NFPROTO_IPV6, NFPROTO_NETDEV, Ruleset,
    Table, Verdict, family_name,
};

/// Netfilter hooks: `enum nf_inet_hooks`, `enum nf_dev_hooks`.
const PRE_ROUTING: u32 = 0;
const LOCAL_IN: u32 = 1;
const FORWARD: u32 = 2;
const POST_ROUTING: u32 = 4;
const INET_INGRESS: u32 = 5;
const NETDEV_INGRESS: u32 = 0;
const NETDEV_EGRESS: u32 = 1;

/// Where on its way through the router a packet is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropPlace {
    /// Before its route was looked up.
    Came,
    /// On its way to a socket of the router.
    ToRouter,
    /// On its way to another device.
    Forwarded,
    /// At the device where it leaves.
    Leaving,
}

/// A base chain whose policy is drop, or that leads to a rule that drops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropChain {
    /// NFPROTO_ number of its table.
    pub family: u8,
    /// Its table.
    pub table: String,
    /// Its name.
    pub chain: String,
    /// Number of its hook (NF_INET_, NF_NETDEV_, NF_BR_).
    pub hook: u32,
    /// It is of the legacy iptables.
    pub legacy: bool,
}

impl DropChain {
    /// True if a packet of this family can meet it there.
    pub fn meets(&self, ipv4: bool, place: DropPlace) -> bool {
        let own = if ipv4 { NFPROTO_IPV4 } else { NFPROTO_IPV6 };
        let at = self.hook;
        match self.family {
            NFPROTO_NETDEV => match place {
                DropPlace::Came => at == NETDEV_INGRESS,
                DropPlace::Leaving => at == NETDEV_EGRESS,
                DropPlace::ToRouter | DropPlace::Forwarded => false,
            },
            // of a bridge the packet comes up from, or goes down to
            NFPROTO_BRIDGE => matches!(place, DropPlace::Came | DropPlace::Leaving),
            family if family == own || family == NFPROTO_INET => match place {
                DropPlace::Came => at == PRE_ROUTING || at == INET_INGRESS,
                DropPlace::ToRouter => at == LOCAL_IN,
                DropPlace::Forwarded => at == FORWARD,
                DropPlace::Leaving => at == POST_ROUTING,
            },
            _ => false,
        }
    }
}

impl fmt::Display for DropChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = family_name(self.family);
        let (tool, table) = match (self.legacy, self.family) {
            (true, NFPROTO_IPV6) => ("ip6tables", self.table.clone()),
            (true, _) => ("iptables", self.table.clone()),
            (false, _) => ("nftables", format!("{family} {}", self.table)),
        };
        write!(f, "{tool}: table {table}, chain {}", self.chain)
    }
}

impl Ruleset {
    /// All base chains that may drop.
    pub fn drop_chains(&self) -> Vec<DropChain> {
        let of_nft = self.tables.iter().filter(|(_, table)| !table.dormant);
        let of_nft = of_nft.map(|((family, name), table)| (*family, name, table, false));
        let of_legacy = self.legacy.iter().filter_map(|table| {
            let content = table.content.as_ref()?;
            Some((table.nfproto()?, &table.name, content, true))
        });
        let mut chains = Vec::new();
        for (family, name, table, legacy) in of_nft.chain(of_legacy) {
            for (chain, content) in &table.chains {
                let Some(hook) = &content.hook else { continue };
                if hook.drops || leads_to_drop(table, chain) {
                    chains.push(DropChain {
                        family,
                        table: name.clone(),
                        chain: chain.clone(),
                        hook: hook.number,
                        legacy,
                    });
                }
            }
        }
        chains
    }
}

/// True if some rule of the chain, or of those that it leads to, drops.
fn leads_to_drop(table: &Table, chain: &str) -> bool {
    let (mut seen, mut next) = (BTreeSet::new(), vec![chain]);
    while let Some(name) = next.pop() {
        let Some(chain) = table.chains.get(name).filter(|_| seen.insert(name)) else {
            continue;
        };
        for expression in chain.rules.iter().flat_map(|rule| &rule.expressions) {
            let drops = match expression {
                Expression::Reject => true,
                Expression::Target { name, .. } => matches!(name.as_str(), "DROP" | "REJECT"),
                Expression::Verdict(verdict) => follow(verdict, &mut next),
                Expression::Lookup { set, .. } => {
                    let elements = table.sets.get(set).and_then(|set| set.elements.as_ref());
                    let verdicts = elements.into_iter().flatten();
                    let mut verdicts = verdicts.filter_map(|element| element.verdict.as_ref());
                    verdicts.any(|verdict| follow(verdict, &mut next))
                }
                _ => false,
            };
            if drops {
                return true;
            }
        }
    }
    false
}

/// True of a verdict that drops; one that leads on adds its chain.
fn follow<'a>(verdict: &'a Verdict, next: &mut Vec<&'a str>) -> bool {
    if let Verdict::Jump(chain) | Verdict::Goto(chain) = verdict {
        next.push(chain);
    }
    *verdict == Verdict::Drop
}

#[cfg(test)]
mod tests {
    use super::super::{Chain, Element, Hook, LegacyTable, Rule, Set};
    use super::*;

    fn chain(number: Option<(u32, bool)>, expressions: Vec<Expression>) -> Chain {
        let hook = number.map(|(number, drops)| Hook {
            kind: "filter".into(),
            number,
            drops,
            ..Hook::default()
        });
        let rules = vec![Rule {
            handle: 1,
            expressions,
        }];
        Chain { hook, rules }
    }

    fn table(chains: Vec<(&str, Chain)>) -> Table {
        let chains = chains.into_iter().map(|(name, c)| (name.to_owned(), c));
        Table {
            chains: chains.collect(),
            ..Table::default()
        }
    }

    fn words(ruleset: &Ruleset, ipv4: bool, place: DropPlace) -> Vec<String> {
        let chains = ruleset.drop_chains().into_iter();
        let met = chains.filter(|chain| chain.meets(ipv4, place));
        met.map(|chain| chain.to_string()).collect()
    }

    #[test]
    fn policies_rules_jumps_and_maps() {
        let jump = |to: &str| vec![Expression::Verdict(Verdict::Jump(to.into()))];
        let accept = || vec![Expression::Verdict(Verdict::Accept)];
        let mut filter = table(vec![
            ("policy", chain(Some((FORWARD, true)), accept())),
            ("accepts", chain(Some((FORWARD, false)), accept())),
            ("jumps", chain(Some((FORWARD, false)), jump("deep"))),
            // in a circle, which the kernel refuses, and the search survives
            ("circle", chain(Some((PRE_ROUTING, false)), jump("circle"))),
            ("deep", chain(None, vec![Expression::Reject])),
            (
                "maps",
                chain(
                    Some((LOCAL_IN, false)),
                    vec![Expression::Lookup {
                        set: "verdicts".into(),
                        sreg: 0,
                        dreg: Some(0),
                        negated: false,
                    }],
                ),
            ),
        ]);
        let element = Element {
            verdict: Some(Verdict::Drop),
            ..Element::default()
        };
        let verdicts = Set {
            elements: Some(vec![element]),
            ..Set::default()
        };
        filter.sets.insert("verdicts".into(), verdicts);
        let mut ruleset = Ruleset::default();
        let name = (NFPROTO_INET, "f".to_owned());
        ruleset.tables.insert(name.clone(), filter);
        let forward = [
            "nftables: table inet f, chain jumps",
            "nftables: table inet f, chain policy",
        ];
        for ipv4 in [true, false] {
            assert_eq!(words(&ruleset, ipv4, DropPlace::Forwarded), forward);
            let to_router = words(&ruleset, ipv4, DropPlace::ToRouter);
            assert_eq!(to_router, ["nftables: table inet f, chain maps"]);
            assert!(words(&ruleset, ipv4, DropPlace::Came).is_empty());
        }
        ruleset.tables.get_mut(&name).unwrap().dormant = true;
        assert!(ruleset.drop_chains().is_empty());
    }

    #[test]
    fn other_families_and_tools() {
        let drop = || vec![Expression::Verdict(Verdict::Drop)];
        let mut ruleset = Ruleset::default();
        for (family, hook) in [
            (NFPROTO_NETDEV, NETDEV_INGRESS),
            (NFPROTO_BRIDGE, FORWARD),
            (NFPROTO_IPV6, POST_ROUTING),
        ] {
            let content = table(vec![("c", chain(Some((hook, false)), drop()))]);
            ruleset.tables.insert((family, "t".into()), content);
        }
        ruleset.legacy.push(LegacyTable {
            family: "ip".into(),
            name: "filter".into(),
            rules: Some(1),
            digest: None,
            content: Some(table(vec![(
                "FORWARD",
                chain(Some((FORWARD, false)), drop()),
            )])),
        });
        let forward = words(&ruleset, true, DropPlace::Forwarded);
        assert_eq!(forward, ["iptables: table filter, chain FORWARD"]);
        assert!(words(&ruleset, false, DropPlace::Forwarded).is_empty());
        let came = words(&ruleset, true, DropPlace::Came);
        let frames = [
            "nftables: table netdev t, chain c",
            "nftables: table bridge t, chain c",
        ];
        assert_eq!(came, frames);
        let leaving = words(&ruleset, false, DropPlace::Leaving);
        assert_eq!(leaving.len(), 2, "{leaving:?}");
    }
}
