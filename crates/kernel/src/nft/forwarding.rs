// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a forwarded IPv4 packet may meet in the firewall, whatever it does.

use super::{Chain, NFPROTO_INET, NFPROTO_IPV4, NFPROTO_NETDEV, Ruleset, Table, family_name};

/// NF_INET_LOCAL_IN and NF_INET_LOCAL_OUT: packets of the router itself.
const LOCAL: [u32; 2] = [1, 3];

impl Ruleset {
    /// The first chain or flow table that could treat two packets to one destination differently, in words; `None`: only
    /// the destination decides.
    #[must_use]
    pub fn meets_forwarded(&self) -> Option<String> {
        let own = self.tables.iter().filter(|(_, table)| !table.dormant);
        let own = own.filter(|((family, _), _)| {
            matches!(*family, NFPROTO_IPV4 | NFPROTO_INET | NFPROTO_NETDEV)
        });
        let mut own = own.filter_map(|((family, name), table)| {
            let what = acting(*family, table)?;
            Some(format!("{what} of table {} {name}", family_name(*family)))
        });
        let legacy = self.legacy.iter();
        let mut legacy = legacy.filter(|table| table.nfproto() == Some(NFPROTO_IPV4));
        own.next().or_else(|| {
            legacy.find_map(|table| {
                let what = match &table.content {
                    Some(content) => acting(NFPROTO_IPV4, content)?,
                    None => "some rule".to_owned(),
                };
                Some(format!("{what} of the legacy iptables' {}", table.name))
            })
        })
    }
}

fn acting(family: u8, table: &Table) -> Option<String> {
    let acts = |chain: &Chain| {
        let hook = chain.hook.as_ref()?;
        let local = family != NFPROTO_NETDEV && LOCAL.contains(&hook.number);
        (!local && (hook.drops || hook.kind == "nat" || !chain.rules.is_empty())).then_some(())
    };
    let chain = table.chains.iter().find(|(_, chain)| acts(chain).is_some());
    let chain = chain.map(|(name, _)| format!("chain {name}"));
    chain.or_else(|| {
        let flowtable = table.flowtables.keys().next()?;
        Some(format!("flow table {flowtable}"))
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Hook, LegacyTable, Rule};
    use super::*;

    fn with(family: u8, hook: u32, rules: usize, drops: bool) -> Ruleset {
        let hook = Hook {
            kind: "filter".into(),
            number: hook,
            drops,
            ..Hook::default()
        };
        let chain = Chain {
            hook: Some(hook),
            rules: vec![Rule::default(); rules],
        };
        let table = Table {
            chains: [("c".into(), chain)].into(),
            ..Table::default()
        };
        Ruleset {
            tables: [((family, "t".into()), table)].into(),
            ..Ruleset::default()
        }
    }

    #[test]
    fn what_only_the_router_meets_is_nothing() {
        for hook in LOCAL {
            assert_eq!(with(NFPROTO_INET, hook, 1, true).meets_forwarded(), None);
        }
        assert_eq!(with(10, 2, 1, true).meets_forwarded(), None);
        assert_eq!(with(NFPROTO_IPV4, 2, 0, false).meets_forwarded(), None);
    }

    #[test]
    fn a_rule_or_a_policy_on_the_way_is_named() {
        for hook in [0, 2, 4, 5] {
            let words = with(NFPROTO_INET, hook, 1, false).meets_forwarded();
            assert_eq!(words.as_deref(), Some("chain c of table inet t"));
        }
        assert!(with(NFPROTO_IPV4, 2, 0, true).meets_forwarded().is_some());
        // of devices the numbers are others
        for hook in [0, 1] {
            assert!(
                with(NFPROTO_NETDEV, hook, 1, false)
                    .meets_forwarded()
                    .is_some()
            );
        }
        let mut dormant = with(NFPROTO_INET, 2, 1, false);
        dormant
            .tables
            .values_mut()
            .for_each(|table| table.dormant = true);
        assert_eq!(dormant.meets_forwarded(), None);
    }

    #[test]
    fn a_legacy_table_that_cannot_be_read_counts() {
        let table = LegacyTable {
            family: "ip".into(),
            name: "mangle".into(),
            rules: None,
            digest: None,
            content: None,
        };
        let ruleset = Ruleset {
            legacy: vec![table],
            ..Ruleset::default()
        };
        let words = ruleset.meets_forwarded().unwrap();
        assert!(words.contains("mangle"), "{words}");
    }
}
