// SPDX-License-Identifier: MIT OR Apache-2.0
//! Real rulesets, loaded by nft: which rules may be dropped by ahead of the kernel, and why the others may not.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::collections::BTreeSet;

use common::{feed, in_namespace, nft, run};
use freeway_kernel::model::Family;
use freeway_kernel::nft::{Ruleset, read_elements};
use freeway_kernel::scrub::{Found, Part, Side, find};

/// `lo` is in every namespace.
const PORT: (u32, &str) = (1, "lo");

fn found(ruleset: &str) -> Found {
    nft(ruleset);
    find(&Ruleset::read().unwrap(), PORT.0, PORT.1)
}

/// A chain ahead of conntrack with a set of either family.
fn raw(rules: &str) -> String {
    chain("type filter hook prerouting priority raw", rules)
}

fn chain(hook: &str, rules: &str) -> String {
    format!(
        "table inet t {{
            set four {{ type ipv4_addr; flags timeout; }}
            set six {{ type ipv6_addr; }}
            set nets {{ type ipv4_addr; flags interval; }}
            set pairs {{ type ipv4_addr . inet_service; }}
            set protos {{ type ipv4_addr . inet_proto . inet_service; }}
            set changed {{ type ipv4_addr; flags dynamic,timeout; timeout 1m; size 100; }}
            set white {{ type ipv4_addr; }}
            map ports {{ type ipv4_addr : inet_service; }}
            chain other {{ }}
            chain logs {{ log }}
            chain c {{ {hook}; policy accept;
                {rules}
            }}
        }}"
    )
}

#[track_caller]
fn taken(ruleset: &str, wanted: usize) -> Found {
    let found = found(ruleset);
    assert_eq!(found.rules.len(), wanted, "{ruleset}\n{found:#?}");
    assert!(found.kept.is_empty(), "{ruleset}\n{found:#?}");
    found
}

#[track_caller]
fn kept(ruleset: &str, words: &str) {
    let found = found(ruleset);
    assert!(found.rules.is_empty(), "{ruleset}\n{found:#?}");
    let mut all = found.kept.iter();
    assert!(all.any(|k| k.reason.contains(words)), "{words}: {found:#?}");
}

#[test]
fn plain_rules_are_taken() {
    in_namespace(|| {
        let found = taken(&raw("ip saddr @four drop\nip6 saddr @six counter drop"), 2);
        let [four, six] = &found.rules[..] else {
            panic!()
        };
        assert_eq!((four.ip, four.side), (Family::Ipv4, Side::Source));
        assert_eq!((six.ip, six.counts), (Family::Ipv6, true));
        assert_eq!(four.set.2, "four");
        assert!(!four.counts && four.protos.is_empty());
        let found = taken(&raw("ip daddr @nets drop"), 1);
        assert!(found.rules[0].intervals);
        assert_eq!(found.rules[0].side, Side::Destination);
        // with conditions
        let rules = "meta l4proto { tcp, udp } ip saddr @four drop\n\
                     tcp dport 22 ip saddr @four drop\n\
                     tcp dport { 80, 443 } ip saddr @four drop\n\
                     udp dport { 5060-5061, 53 } ip saddr @four drop\n\
                     iif lo ip saddr @four drop\n\
                     iifname \"l*\" ip saddr @four drop";
        let found = taken(&raw(rules), 6);
        let all = |at: usize| {
            (
                found.rules[at].protos.clone(),
                found.rules[at].dports.clone(),
            )
        };
        assert_eq!(all(1), (vec![6], vec![(22, 22)]));
        let protos: BTreeSet<u8> = all(0).0.into_iter().collect();
        assert_eq!(protos, [6, 17].into());
        let ports: BTreeSet<_> = all(2).1.into_iter().collect();
        assert_eq!(ports, [(80, 80), (443, 443)].into());
        let ports: BTreeSet<_> = all(3).1.into_iter().collect();
        assert_eq!(ports, [(5060, 5061), (53, 53)].into());
        let rules = "ip saddr . tcp dport @pairs drop\n\
                     ip saddr . meta l4proto . th dport @protos drop";
        let found = taken(&raw(rules), 2);
        assert_eq!(found.rules[0].parts, [Part::Addr, Part::Dport]);
        assert_eq!(found.rules[0].protos, [6]);
        assert_eq!(found.rules[1].parts, [Part::Addr, Part::Proto, Part::Dport]);
    });
}

#[test]
fn what_comes_before_decides() {
    in_namespace(|| {
        let drop = "ip saddr @four drop";
        for silent in [
            "ip saddr 192.0.2.1 drop",
            "ip saddr 192.0.2.0/24 counter",
            "iifname \"wan0\" accept",
            "meta mark set 5",
            "udp dport 53 notrack",
            "jump other",
            "ip saddr @white jump other",
            "ip6 saddr @six accept",
            "ip6 saddr fe80::1 log",
        ] {
            taken(&raw(&format!("{silent}\n{drop}")), 1);
        }
        for (rule, words) in [
            (
                "ip saddr @white accept",
                "rule 1 comes before it, and may let packets pass",
            ),
            ("iif lo accept", "may let packets pass"),
            ("tcp dport 22 accept", "may let packets pass"),
            ("ip saddr 192.0.2.1 return", "may let packets pass"),
            ("ip saddr @white goto other", "may let packets pass"),
            (
                "ip saddr vmap { 192.0.2.1 : accept }",
                "may let packets pass",
            ),
            ("log", "its log must see packets"),
            ("limit rate 5/second log", "its limit must see packets"),
            ("jump logs", "its log must see packets"),
            ("ip saddr @changed counter", "packets change"),
            ("add @changed { ip saddr }", "its dynset must see packets"),
            ("ip ttl set 3", "its payload set must see packets"),
            ("ip saddr @white reject", "its reject must see packets"),
        ] {
            kept(&raw(&format!("{rule}\n{drop}")), words);
        }
        // another chain ahead of it: what it accepts goes on, what it does counts
        let chain = |rule: &str, priority: &str| {
            format!(
                "{}\ntable inet u {{ chain a {{ type filter hook prerouting priority {priority}; {rule}\n}} }}",
                raw(drop)
            )
        };
        taken(&chain("ip saddr 192.0.2.0/24 accept", "-310"), 1);
        taken(&chain("log", "-200"), 1);
        kept(
            &chain("log", "-310"),
            "chain a of table inet u comes before it, and its log",
        );
        // the same priority: in whatever order
        kept(
            &chain("log", "raw"),
            "chain a of table inet u comes before it",
        );
        kept(
            &chain("ip saddr 192.0.2.0/24 limit rate 5/second drop", "-301"),
            "its limit",
        );
        let device = |rule: &str| {
            format!(
                "{}\ntable netdev n {{ chain a {{ type filter hook ingress device lo priority 0; {rule}\n}} }}",
                raw(drop)
            )
        };
        taken(&device("ip saddr 192.0.2.0/24 accept"), 1);
        kept(
            &device("ip saddr 192.0.2.0/24 log"),
            "chain a of table netdev n",
        );
    });
}

/// The kernel says nothing of packets that change it, unless the set was told so when it was made.
#[test]
fn a_set_that_a_later_rule_changes_is_the_kernels() {
    in_namespace(|| {
        let drop = "ip saddr @four drop";
        for change in ["add", "update", "delete"] {
            taken(&raw(drop), 1);
            run("nft add chain inet t forward { type filter hook forward priority 0 ; }");
            run(&format!(
                "nft add rule inet t forward {change} @four {{ ip daddr }}"
            ));
            let found = find(&Ruleset::read().unwrap(), PORT.0, PORT.1);
            assert!(found.rules.is_empty(), "{change}: {found:#?}");
            let why = &found.kept[0];
            assert!(
                format!("{why:?}").contains("packets change"),
                "{change}: {why:?}"
            );
        }
    });
}

#[test]
fn the_rule_itself_decides() {
    in_namespace(|| {
        for (rule, words) in [
            ("ip saddr @four log drop", "its log must see packets"),
            (
                "ip saddr @four limit rate 5/second drop",
                "its limit must see packets",
            ),
            ("ip saddr != @four drop", "drops what is not in the set"),
            ("ip saddr @changed drop", "packets change"),
            (
                "ip ttl 5 ip saddr @four drop",
                "not one of addresses, protocol and ports",
            ),
            (
                "ct state new ip saddr @four drop",
                "not one of addresses, protocol and ports",
            ),
            ("ip saddr @four ip daddr @white drop", "more than one set"),
            (
                "tcp dport { 1,3,5,7,9,11,13,15,17 } ip saddr @four drop",
                "8 ranges of ports",
            ),
        ] {
            kept(&raw(rule), words);
        }
        // other verdicts are no drops, and another port is not concerned
        taken(&raw("ip saddr @four accept\nip saddr @white reject"), 0);
        kept(
            &raw("iifname \"wan0\" ip saddr @four drop"),
            "concerns no port",
        );
    });
}

#[test]
fn the_hook_decides() {
    in_namespace(|| {
        let drop = "ip saddr @four drop";
        let at = |hook: &str| chain(&format!("type filter hook {hook}"), drop);
        // nothing here has connections tracked
        taken(&at("prerouting priority mangle"), 1);
        taken(&at("ingress device lo priority 0"), 1);
        let nat =
            "table ip nat { chain p { type nat hook postrouting priority 100; masquerade\n} }";
        let tracked = |hook: &str| format!("{}\n{nat}", at(hook));
        kept(
            &tracked("prerouting priority mangle"),
            "connection tracking sees its packets",
        );
        taken(&tracked("prerouting priority raw"), 1);
        taken(&tracked("ingress device lo priority 0"), 1);
        for hook in ["input priority -10", "forward priority -10"] {
            kept(&at(hook), "input and forward come behind");
        }
        kept(&at("output priority 0"), "packets that leave");
        let other = "table inet t {
            set four { type ipv4_addr; }
            chain b { ip saddr @four drop
            }
            chain c { type filter hook prerouting priority raw; jump b
            }
        }";
        kept(other, "other rules lead to");
        let netdev = "table netdev t {
            set four { type ipv4_addr; }
            set six { type ipv6_addr; }
            chain c { type filter hook ingress device lo priority 0;
                ip saddr @four counter drop
                ip6 saddr @six drop
            }
        }";
        taken(netdev, 2);
        let dormant = netdev.replace("table netdev t {", "table netdev t { flags dormant;");
        taken(&dormant, 0);
    });
}

#[test]
fn elements_and_their_times() {
    in_namespace(|| {
        found(&raw("ip saddr @four drop"));
        feed(
            "nft -f -",
            "add element inet t four { 192.0.2.1 timeout 1h, 192.0.2.2 }",
        );
        let mut elements = Vec::new();
        let whole = read_elements((1, "t", "four"), |_, piece| elements.extend(piece)).unwrap();
        assert!(whole);
        elements.sort_by_key(|element| element.key.clone());
        let times: Vec<_> = elements.iter().map(|element| element.expires_ms).collect();
        assert!(
            matches!(times[..], [Some(3_000_000..=3_600_000), None]),
            "{times:?}"
        );
    });
}
