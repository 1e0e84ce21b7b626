// SPDX-License-Identifier: MIT OR Apache-2.0
//! Real rulesets, and whether they treat all packets alike that a port hands in.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{attempt, in_namespace, nft, run};
use freeway_kernel::model::Family;
use freeway_kernel::nft::{Ruleset, legacy_tables};
use freeway_kernel::reachability::{Passage, passage};

/// Whose packets are followed, and its index, which is that of the loopback.
const PORT: &str = "lan0";
const INDEX: u32 = 1;

fn judged(ruleset: &str, ip: Family) -> Passage {
    nft(ruleset);
    passage(&Ruleset::read().unwrap(), ip, INDEX, PORT, None)
}

#[track_caller]
fn alike(ruleset: &str) {
    for ip in [Family::Ipv4, Family::Ipv6] {
        assert_eq!(judged(ruleset, ip).obstacle, None, "{ruleset}");
    }
}

/// Named by both IP versions.
#[track_caller]
fn kept(ruleset: &str, words: &str) {
    for ip in [Family::Ipv4, Family::Ipv6] {
        kept_of(ip, ruleset, words);
    }
}

#[track_caller]
fn kept_of(ip: Family, ruleset: &str, words: &str) {
    let obstacle = judged(ruleset, ip).obstacle;
    let obstacle = obstacle.unwrap_or_else(|| panic!("nothing in the way: {ruleset}"));
    assert!(obstacle.contains(words), "{obstacle}: {ruleset}");
}

fn forward(policy: &str, rules: &str) -> String {
    format!(
        "table inet t {{ chain forward {{ type filter hook forward priority 0; policy {policy};\n{rules}\n}} }}"
    )
}

fn accepts(rules: &str) -> String {
    forward("accept", rules)
}

fn drops(rules: &str) -> String {
    forward("drop", rules)
}

#[test]
fn rules_of_other_ports_are_in_nobodys_way() {
    in_namespace(|| {
        alike("");
        for rule in [
            "iifname \"wan0\" drop",
            "iifname wan* counter drop",
            "iifname { wan0, wan1 } log drop",
            "iifname != \"lan0\" limit rate 1/second drop",
            "iif != 1 ip daddr 192.0.2.1 drop",
            "iifname vmap { wan0 : drop, wan1 : drop }",
            "iifname vmap { lan0 : accept, wan1 : drop }",
            "meta iifname . oifname { wan0 . lan0 } accept",
        ] {
            alike(&accepts(rule));
        }
        alike(
            "table inet t { chain other { counter drop; } chain forward { type filter hook forward priority 0; iifname wan0 jump other; } }",
        );
        // what the router alone meets, and what nobody meets
        for hook in ["input", "output"] {
            alike(&format!(
                "table inet t {{ chain c {{ type filter hook {hook} priority 0; policy drop; counter; }} }}"
            ));
        }
        alike("table inet t { chain c { drop; } }");
    });
}

#[test]
fn what_accepts_either_way_is_in_nobodys_way() {
    in_namespace(|| {
        for rules in [
            "tcp dport 22 accept\nip saddr 192.0.2.0/24 accept",
            "oifname wan0 accept",
            "udp dport vmap { 53 : accept, 123 : continue }",
            "meta mark 7 return",
            "iifname lan0 accept\ndrop",
            "iifname vmap { lan0 : accept }\ndrop",
            "fib saddr oif exists accept",
            "meta length > 100 accept",
        ] {
            alike(&accepts(rules));
        }
        alike(&drops("iifname lan0 accept"));
        alike(&drops("iif 1 accept\nlimit rate 1/second accept"));
        alike(&drops("meta protocol { ip, ip6 } accept"));
        alike(&drops("meta nfproto vmap { ipv4 : accept, ipv6 : accept }"));
        alike(
            "table inet t { chain of_lan { accept; } chain forward { type filter hook forward priority 0; policy drop; iifname lan0 goto of_lan; } }",
        );
        // of a set whose elements come and go either verdict is the same
        alike(
            "table inet t { set s { type ipv4_addr; } chain forward { type filter hook forward priority 0; ip saddr @s accept; } }",
        );
    });
}

#[test]
fn what_may_treat_packets_differently_is_named() {
    in_namespace(|| {
        for (rule, words) in [
            ("tcp dport 22 drop", "drops packets"),
            ("iifname lan0 drop", "drops packets"),
            ("iifname lan* drop", "drops packets"),
            ("iifname { wan0, lan0 } drop", "drops packets"),
            // a wildcard in a set
            ("iifname { \"lan*\", wan0 } drop", "drops packets"),
            ("iif 1 drop", "drops packets"),
            ("iifname != \"wan0\" drop", "drops packets"),
            ("oifname wan0 drop", "drops packets"),
            ("meta mark 7 drop", "drops packets"),
            ("iifname vmap { lan0 : drop }", "drops packets"),
            ("udp dport vmap { 53 : accept, 54 : drop }", "drops packets"),
            ("meta nfproto { ipv4, ipv6 } drop", "drops packets"),
            ("iifname lan0 udp dport 7 reject", "rejects packets"),
            ("counter", "counts packets"),
            ("udp dport 7 counter accept", "counts packets"),
            // it counts before it is asked whose packet it is
            ("counter iifname wan0 drop", "counts packets"),
            ("log", "log"),
            ("limit rate 1/second accept", "limit"),
            ("meta mark set 7", "meta set"),
            ("ip dscp set cs1", "payload set"),
        ] {
            let ruleset = accepts(rule);
            if rule.starts_with("ip ") {
                kept_of(Family::Ipv4, &ruleset, words);
            } else {
                kept(&ruleset, words);
            }
        }
        let words = judged(&accepts("accept\ndrop\n"), Family::Ipv4).obstacle;
        assert_eq!(words, None);
        let words = judged(&accepts("tcp dport 22 drop"), Family::Ipv4).obstacle;
        let words = words.unwrap();
        assert!(
            words.starts_with("a rule of chain forward of table inet t (handle "),
            "{words}"
        );
        for rules in [
            "",
            "iifname wan0 accept",
            "oifname wan0 accept",
            "tcp dport 22 accept",
        ] {
            kept(
                &drops(rules),
                "the policy of chain forward of table inet t drops",
            );
        }
        kept(
            "table inet t { chain c { tcp dport 7 return; accept; } chain forward { type filter hook forward priority 0; policy drop; jump c; } }",
            "the policy",
        );
        kept_of(
            Family::Ipv4,
            "table inet t { set s { type ipv4_addr; flags dynamic; timeout 1m; } chain forward { type filter hook forward priority 0; add @s { ip saddr }; } }",
            "dynset",
        );
        kept(
            "table inet t { map m { type ifname : verdict;\n}\n chain forward { type filter hook forward priority 0; iifname vmap @m; } }",
            "a map that may change",
        );
        kept(
            "table inet t { counter n { } chain forward { type filter hook forward priority 0; counter name n; } }",
            "counts packets",
        );
        // the input port is not known there
        kept(
            "table inet t { chain c { type filter hook postrouting priority 0; iifname wan0 drop; } }",
            "drops packets",
        );
    });
}

/// A family's rules are no other's.
#[test]
fn families_are_judged_apart() {
    in_namespace(|| {
        for (family, name, other) in [
            (Family::Ipv4, "ip", Family::Ipv6),
            (Family::Ipv6, "ip6", Family::Ipv4),
        ] {
            for hook in ["prerouting", "forward", "postrouting"] {
                let ruleset = format!(
                    "table {name} t {{ chain c {{ type filter hook {hook} priority 0; udp dport 7 drop; }} }}"
                );
                kept_of(family, &ruleset, "chain c of table");
                assert_eq!(judged(&ruleset, other).obstacle, None);
            }
        }
        kept_of(Family::Ipv6, &accepts("meta nfproto ipv6 drop"), "drops");
        assert_eq!(
            judged(&accepts("meta nfproto ipv6 drop"), Family::Ipv4).obstacle,
            None
        );
        assert_eq!(
            judged(&accepts("meta protocol ip6 drop"), Family::Ipv4).obstacle,
            None
        );
    });
}

#[test]
fn chains_of_devices_are_their_ports() {
    in_namespace(|| {
        run("ip link add lan0 type veth peer name wan0");
        let at = |hook: &str, device: &str| {
            format!(
                "table netdev t {{ chain c {{ type filter hook {hook} device {device} priority 0; udp dport 7 drop; }} }}"
            )
        };
        kept(&at("ingress", "lan0"), "drops packets");
        alike(&at("ingress", "wan0"));
        // of what a VLAN's frames pass below, nothing but that there are rules
        let above = |ruleset: &str, below: &str| {
            nft(ruleset);
            let ruleset = Ruleset::read().unwrap();
            passage(&ruleset, Family::Ipv4, INDEX, "vlan7", Some(below)).obstacle
        };
        let why = above(&at("ingress", "lan0"), "lan0").unwrap();
        assert!(why.contains("looks at its frames at lan0"), "{why}");
        assert_eq!(above(&at("ingress", "lan0"), "wan0"), None);
        let inet = at("ingress", "lan0").replace("netdev", "inet");
        kept(&inet, "drops packets");
        // whose packets leave there is not asked
        for device in ["lan0", "wan0"] {
            kept(&at("egress", device), "looks at what leaves");
        }
    });
}

#[test]
fn what_conntrack_is_kept_from_has_no_state() {
    const RAW: &str = "chain raw { type filter hook prerouting priority raw;";
    in_namespace(|| {
        let stateful = "chain f { type filter hook forward priority 0; policy drop; ct state established,related accept; ct state untracked accept; }";
        let of = |raw: &str| format!("table inet t {{ {RAW} {raw} }} {stateful} }}");
        for raw in [
            "notrack;",
            "iifname lan0 notrack;",
            "iifname lan0 notrack; accept;",
            "udp dport 53 notrack; notrack;",
        ] {
            let passage = judged(&of(raw), Family::Ipv4);
            assert!(
                passage.untracked && passage.obstacle.is_none(),
                "{raw} {passage:?}"
            );
        }
        for raw in [
            "",
            "iifname wan0 notrack;",
            "udp dport 53 notrack;",
            "udp dport 53 accept; notrack;",
            "udp dport 53 return; notrack;",
            "meta l4proto vmap { tcp : return, udp : continue }; notrack;",
        ] {
            let passage = judged(&of(raw), Family::Ipv4);
            assert!(!passage.untracked, "{raw} {passage:?}");
        }
        // too late: connections have been looked up
        let late = of("notrack;").replace("priority raw", "priority mangle");
        assert!(!judged(&late, Family::Ipv4).untracked);
        // the other family's
        let raw4 =
            "table ip t { chain raw { type filter hook prerouting priority raw; notrack; } }";
        assert!(judged(raw4, Family::Ipv4).untracked);
        assert!(!judged(raw4, Family::Ipv6).untracked);
        // what it is dropped for is no state of its
        let invalid = |state: &str| {
            format!(
                "table inet t {{ {RAW} notrack; }} chain f {{ type filter hook forward priority 0; {state} drop; }} }}"
            )
        };
        alike(&invalid("ct state invalid"));
        alike(&invalid("ct state new"));
        alike(&invalid("ct mark 7"));
        kept(&invalid("ct state untracked"), "drops packets");
        kept(&invalid("ct state != established"), "drops packets");
        // NAT is of connections
        let nat = "chain n { type nat hook postrouting priority srcnat; masquerade; }";
        alike(&format!("table inet t {{ {RAW} notrack; }} {nat} }}"));
        kept(&format!("table inet t {{ {nat} }}"), "translates addresses");
    });
}

#[test]
fn too_many_rules_are_not_followed() {
    in_namespace(|| {
        // each jumps to the next one twice
        let chains: String = (0..14)
            .rev()
            .map(|n| match n {
                13 => "chain c13 { udp dport 7 accept; }\n".to_owned(),
                _ => format!("chain c{n} {{ jump c{}; jump c{}; }}\n", n + 1, n + 1),
            })
            .collect();
        let ruleset = format!(
            "table inet t {{ {chains} chain f {{ type filter hook forward priority 0; jump c0; }} }}"
        );
        kept(&ruleset, "too large");
    });
}

#[test]
fn legacy_rules_count_what_reaches_them() {
    in_namespace(|| {
        if !attempt("iptables-legacy -A FORWARD -i wan0 -j DROP").0 {
            eprintln!("skipped: no legacy iptables");
            return;
        }
        let judged = |ip| {
            let ruleset = Ruleset {
                legacy: legacy_tables(),
                ..Ruleset::default()
            };
            passage(&ruleset, ip, INDEX, PORT, None).obstacle
        };
        // policies count, too, but nobody asks them
        assert_eq!(judged(Family::Ipv4), None);
        run("iptables-legacy -A FORWARD -o wan0 -j ACCEPT");
        let words = judged(Family::Ipv4).unwrap();
        assert!(
            words.contains("FORWARD of the legacy iptables' filter counts"),
            "{words}"
        );
        assert_eq!(judged(Family::Ipv6), None);
        run("iptables-legacy -F FORWARD");
        run("iptables-legacy -P FORWARD DROP");
        assert!(judged(Family::Ipv4).is_some());
    });
}
