// SPDX-License-Identifier: MIT OR Apache-2.0
//! Real rulesets, loaded by nft and iptables-nft, and what the analysis says of them.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{attempt, feed, in_namespace, nft, run};
use freeway_kernel::model::Family;
use freeway_kernel::nft::Ruleset;
use freeway_kernel::reachability::{
    Analysis, Finding, IfMatch, PacketState, Ways, analyse, analyse_state,
};
use freeway_testkit::Moment;

fn analysed(ruleset: &str) -> Analysis {
    nft(ruleset);
    analyse(&Ruleset::read().unwrap())
}

fn assert_safe(name: &str, ruleset: &str) {
    let analysis = analysed(ruleset);
    assert!(analysis.safe, "{name}: {:#?}", analysis.findings);
}

fn assert_unsafe(name: &str, ruleset: &str, expression: &str) {
    let analysis = analysed(ruleset);
    assert!(!analysis.safe, "{name}: nothing found");
    assert!(
        analysis
            .findings
            .iter()
            .all(|finding| finding.expression.contains(expression)),
        "{name}: {:#?}",
        analysis.findings
    );
}

/// A forward chain with these rules.
fn forward(rules: &str) -> String {
    format!(
        "table inet t {{ chain forward {{ type filter hook forward priority 0; policy drop;\n{rules}\n}} }}"
    )
}

#[test]
fn nothing_is_safe() {
    in_namespace(|| assert_safe("empty", ""));
}

#[test]
fn nat_and_a_stateful_filter_are_safe() {
    in_namespace(|| {
        assert_safe(
            "masquerade and three rules",
            r#"
            table ip nat {
                chain postrouting { type nat hook postrouting priority srcnat; oifname "wan0" masquerade }
                chain prerouting { type nat hook prerouting priority dstnat; iifname "wan0" tcp dport 80 limit rate 5/second dnat to 192.0.2.2 }
            }
            table inet filter {
                chain forward { type filter hook forward priority filter; policy drop;
                    ct state established,related accept
                    ct state invalid drop
                    iifname "lan0" oifname "wan0" accept
                }
            }"#,
        );
    });
}

#[test]
fn position_of_a_limit_decides() {
    in_namespace(|| {
        let before = forward("limit rate 100/second accept\nct state established,related accept");
        assert_unsafe("limit before", &before, "limit");
        let behind = forward("ct state established,related accept\nlimit rate 100/second accept");
        assert_safe("limit behind", &behind);
        let new = forward("ct state new limit rate 100/second accept\nct state established accept");
        assert_safe("limit of new connections", &new);
        let invalid = forward(
            "ct state invalid log drop\nct state vmap { established : accept, related : accept }\nlog",
        );
        assert_safe("log of invalid packets", &invalid);
        let not_new = forward("ct state != new limit rate 100/second accept");
        assert_unsafe("limit of others", &not_new, "limit");
        let analysis = analysed(&before);
        let [finding] = analysis.findings.as_slice() else {
            panic!("{:#?}", analysis.findings)
        };
        assert_eq!(
            (finding.family.as_str(), finding.table.as_str()),
            ("inet", "t")
        );
        assert_eq!((finding.chain.as_str(), finding.rule_index), ("forward", 0));
        assert_eq!(finding.ip, [Family::Ipv4, Family::Ipv6]);
        assert_eq!(finding.protocols, [1, 6, 17, 47, 50, 58]);
        assert!(finding.handle > 0 && finding.reason.contains("rate"));
    });
}

#[test]
fn findings_are_of_the_protocols_that_reach_them() {
    in_namespace(|| {
        let cases: [(&str, &[u8], &str); 6] = [
            ("meta l4proto icmp limit rate 1/second accept", &[1], "ICMP"),
            (
                "icmp type echo-request limit rate 1/second accept",
                &[1],
                "ICMP",
            ),
            (
                "icmpv6 type echo-reply limit rate 1/second accept",
                &[58],
                "ICMPv6",
            ),
            ("esp spi 7 limit rate 1/second accept", &[50], "ESP"),
            ("icmp sequence 7 drop", &[1], "ICMP"),
            ("esp sequence 7 drop", &[50], "ESP"),
        ];
        for (rule, protocols, word) in cases {
            let analysis = analysed(&forward(&format!("{rule}\naccept")));
            let [finding] = analysis.findings.as_slice() else {
                panic!("{rule}: {:#?}", analysis.findings)
            };
            assert_eq!(finding.protocols, protocols, "{rule}");
            let words = finding.to_string();
            assert!(words.contains(word), "{rule}: {words}");
        }
    });
}

#[test]
fn each_per_packet_expression_is_named() {
    in_namespace(|| {
        let cases = [
            ("log accept", "log"),
            ("quota over 10 mbytes drop", "quota"),
            ("meta length > 1000 drop", "meta length"),
            ("ip length > 1000 drop", "cmp"),
            ("ip id 7 drop", "cmp"),
            ("ip ecn ce drop", "cmp"),
            ("ip6 length > 1000 drop", "cmp"),
            ("tcp flags psh drop", "cmp"),
            ("tcp window 0 drop", "cmp"),
            ("@th,160,8 0x17 drop", "cmp"),
            ("udp length > 100 drop", "cmp"),
            ("tcp option maxseg size set 1400", "exthdr set"),
            ("ct bytes > 100000 drop", "ct bytes"),
            ("ct avgpkt > 100 drop", "ct bytes"),
            ("ct count over 20 drop", "connlimit"),
            ("numgen random mod 2 0 drop", "numgen"),
            ("meta random < 100 drop", "meta random"),
            ("meta hour < \"12:00\" drop", "meta time"),
            ("meta cpu 0 drop", "meta cpu"),
            ("jhash ip saddr mod 2 0 drop", "hash"),
            ("ip id set 64", "payload set"),
            ("ip ecn set ect0", "payload set"),
            ("ip6 ecn set 0", "payload set"),
            ("ip ecn set 0 ip dscp set cs1", "payload set"),
        ];
        let mut tried = 0;
        for (rule, expression) in cases {
            let ruleset = forward(&format!("{rule}\naccept"));
            // Kernels may lack the one or the other expression.
            let (loads, _) = try_nft(&ruleset);
            if loads {
                tried += 1;
                assert_unsafe(rule, &ruleset, expression);
            } else {
                eprintln!("not in this kernel: {rule}");
            }
        }
        assert!(tried > 10, "only {tried} could be tried");
        // not nftrace: while any namespace has such a rule, the kernel hashes all packets, and may choose other next hops
        let rule = "meta pkttype set host";
        let ruleset = format!(
            "table ip f {{\nchain pre {{\ntype filter hook prerouting priority 0;\n{rule}\naccept\n}}\n}}"
        );
        assert_unsafe(rule, &ruleset, "meta set");
    });
}

fn try_nft(ruleset: &str) -> (bool, String) {
    let path = std::env::temp_dir().join(format!(
        "freeway-{}-{:?}.nft",
        std::process::id(),
        std::thread::current().id()
    ));
    std::fs::write(&path, common::one_brace_a_line(ruleset)).unwrap();
    let outcome = attempt(&format!("nft -f {}", path.display()));
    std::fs::remove_file(&path).unwrap();
    outcome
}

#[test]
fn functions_of_the_flow_are_safe() {
    in_namespace(|| {
        let rules = [
            "ip saddr 192.0.2.0/24 tcp dport { 80, 443, 8000-8010 } counter accept",
            "ip dscp ef accept",
            "ip6 dscp ef accept",
            "ip dscp set cs1",
            "ip6 dscp set cs1",
            "ip dscp set cs1 ip ttl set 7",
            "ip ttl set 64",
            "ip6 hoplimit set 64",
            "meta secpath exists accept",
            "rt ipsec missing drop",
            "ip ttl < 5 drop",
            "ip frag-off & 0x1fff != 0 drop",
            "ether saddr 02:00:00:00:00:01 drop",
            "meta mark 7 accept",
            "ct mark 7 accept",
            "ct status dnat accept",
            "ct direction reply accept",
            "ct original ip daddr 192.0.2.1 accept",
            "fib daddr type local drop",
            "icmp type echo-request accept",
            "icmp code 1 limit rate 1/second accept",
            "icmp id 7 accept",
            "icmpv6 type echo-reply accept",
            "esp spi 7 accept",
            "ip protocol 51 limit rate 1/second accept",
            "tcp flags syn tcp option maxseg size set 1400",
            "tcp flags & (fin|syn|rst|ack) == syn limit rate 1/second accept",
            "tcp flags & (fin|syn) == (fin|syn) log drop",
            "exthdr frag exists log drop",
            "ct status & seen-reply == 0 log drop",
            "meta skuid 0 log",
            "reject",
        ];
        for rule in rules {
            let ruleset = forward(&format!("{rule}\naccept"));
            match try_nft(&ruleset) {
                (true, _) => assert_safe(rule, &ruleset),
                (false, error) => eprintln!("not in this kernel: {rule}: {error}"),
            }
        }
    });
}

#[test]
fn marks_are_told_apart() {
    in_namespace(|| {
        let analysis = analysed(&forward(
            "meta mark set 7\nct mark set meta mark\nmeta priority set 1:1\naccept",
        ));
        assert!(analysis.safe);
        let names: Vec<&str> = analysis
            .marks
            .iter()
            .map(|mark| mark.expression.as_str())
            .collect();
        assert_eq!(names, ["meta mark set", "ct mark set", "meta priority set"]);
    });
}

#[test]
fn interfaces_narrow_findings() {
    in_namespace(|| {
        let analysis = analysed(&forward(
            "iifname \"guest0\" oifname \"wan*\" limit rate 100/second accept\naccept",
        ));
        assert_eq!(analysis.findings[0].iif, [IfMatch::Name("guest0".into())]);
        assert_eq!(analysis.findings[0].oif, [IfMatch::Prefix("wan".into())]);
        let analysis = analysed(&forward("iifname { \"a\", \"b\" } log\naccept"));
        assert_eq!(
            analysis.findings[0].iif,
            [IfMatch::Name("a".into()), IfMatch::Name("b".into())]
        );
        let analysis = analysed(&forward("iif lo log\naccept"));
        assert_eq!(analysis.findings[0].iif, [IfMatch::Index(1)]);
        let analysis = analysed(&forward("iifname != \"a\" log\naccept"));
        assert!(analysis.findings[0].iif.is_empty());
        let analysis = analysed(
            r#"table inet t {
                chain guest { log }
                chain other { accept }
                chain forward { type filter hook forward priority 0;
                    iifname vmap { "guest0" : jump guest, "lan0" : jump other } }
            }"#,
        );
        assert_eq!(analysis.findings.len(), 1, "{:#?}", analysis.findings);
        assert_eq!(analysis.findings[0].iif, [IfMatch::Name("guest0".into())]);
    });
}

#[test]
fn chains_are_followed() {
    in_namespace(|| {
        let chains = |rules: &str| {
            format!(
                "table inet t {{ chain logs {{ log }}\nchain passes {{ ct state established return\nlog }}
                chain ends {{ ct state established,related accept\ndrop }}
                chain forward {{ type filter hook forward priority 0;\n{rules}\n}} }}"
            )
        };
        assert_unsafe("jump", &chains("jump logs\naccept"), "log");
        assert_unsafe(
            "goto",
            &chains("ip saddr 192.0.2.1 goto logs\naccept"),
            "log",
        );
        assert_safe("return", &chains("jump passes\naccept"));
        assert_safe("terminal call", &chains("jump ends\nlog"));
        assert_unsafe(
            "conditional call",
            &chains("ip saddr 192.0.2.1 jump ends\nlog"),
            "log",
        );
        assert_safe("not called", &chains("accept"));
        assert_safe("dropped", &chains("drop\nlog"));
        // An accept ends one base chain, not the hook.
        let later = "table inet u { chain forward { type filter hook forward priority 10; log } }";
        assert_unsafe("later chain", &(chains("accept") + later), "log");
        assert_safe("later chain of dropped packets", &(chains("drop") + later));
        assert_safe(
            "hooks of local packets",
            "table inet t { chain input { type filter hook input priority 0; log }
             chain output { type filter hook output priority 0; log } }",
        );
    });
}

#[test]
fn state_is_not_known_before_conntrack() {
    in_namespace(|| {
        let raw = |rules: &str| {
            format!(
                "table inet t {{ chain raw {{ type filter hook prerouting priority raw;\n{rules}\n}} }}"
            )
        };
        assert_unsafe("raw", &raw("ct state established accept\nlog"), "log");
        assert_unsafe("raw invalid", &raw("ct state invalid log"), "log");
        assert_safe("notrack", &raw("udp dport 53 notrack"));
    });
}

#[test]
fn what_has_conntrack_hooked_is_known() {
    in_namespace(|| {
        let tracks = |rules: &str| {
            nft(&format!("flush ruleset\n{rules}"));
            let ruleset = Ruleset::read().unwrap();
            [Family::Ipv4, Family::Ipv6].map(|ip| ruleset.tracks(ip))
        };
        assert_eq!(tracks(""), [false; 2]);
        assert_eq!(tracks(&forward("ip dscp set af21\ncounter")), [false; 2]);
        assert_eq!(tracks(&forward("ct mark 7 accept")), [true; 2]);
        let proxy = "table ip t { synproxy s { mss 1460; wscale 7; } }";
        assert_eq!(tracks(proxy), [true, false]);
        let nat = |family: &str| {
            format!(
                "table {family} t {{ chain c {{ type nat hook postrouting priority srcnat; }} }}"
            )
        };
        assert_eq!(tracks(&nat("ip")), [true, false]);
        assert_eq!(tracks(&nat("ip6")), [false, true]);
        assert_eq!(tracks(&nat("inet")), [true; 2]);
        let raw = "table ip t { chain c { type filter hook prerouting priority raw; udp dport 53 notrack\n } }";
        assert_eq!(tracks(raw), [false; 2]);
        assert!(Ruleset::read().unwrap().bypasses_conntrack());
    });
}

#[test]
fn sets_are_judged_by_what_changes_them() {
    in_namespace(|| {
        let with = |set: &str, rule: &str| {
            format!(
                "table inet t {{ set s {{ {set} }}\nchain forward {{ type filter hook forward priority 0;\n{rule}\n}} }}"
            )
        };
        assert_safe(
            "static",
            &with(
                "type ipv4_addr; elements = { 192.0.2.1 };",
                "ip saddr @s drop",
            ),
        );
        assert_safe(
            "timeout",
            &with("type ipv4_addr; flags timeout;", "ip saddr @s drop"),
        );
        run("nft add rule inet t forward update @s { ip daddr }");
        let analysis = analyse(&Ruleset::read().unwrap());
        let looks = |finding: &Finding| finding.expression.contains("lookup s");
        assert!(
            analysis.findings.iter().any(looks),
            "{:#?}",
            analysis.findings
        );
        let meter = with(
            "type ipv4_addr; size 100; flags dynamic;",
            "add @s { ip saddr limit rate 1/second } accept",
        );
        assert_unsafe("meter", &meter, "dynset");
        let dynamic = with(
            "type ipv4_addr; size 100; flags dynamic,timeout;",
            "ip saddr @s drop",
        );
        assert_unsafe("dynamic", &dynamic, "lookup s");
        let limits = with(
            "type ipv4_addr; limit rate 1/second; elements = { 192.0.2.1 };",
            "ip saddr @s accept",
        );
        match try_nft(&limits) {
            (true, _) => assert_unsafe("limit of elements", &limits, "set element limit"),
            (false, error) => eprintln!("not in this kernel: {error}"),
        }
        let counters = with(
            "type ipv4_addr; counter; elements = { 192.0.2.1 };",
            "ip saddr @s accept",
        );
        assert_safe("counters of elements", &counters);
    });
}

#[test]
fn changed_elements_concern_what_they_match() {
    use freeway_kernel::model::Event;
    use freeway_kernel::nft::SetChanges;
    use freeway_kernel::{Affected, Mirror};

    in_namespace(|| {
        nft("table inet t {
            set hosts { type ipv4_addr; elements = { 192.0.2.1 }; }
            set nets { type ipv4_addr; flags interval; }
            set six { type ipv6_addr; flags interval; }
            set ports { type inet_service; }
            set pairs { type inet_service . ipv4_addr; flags interval; }
            set masked { type ipv4_addr; }
            set links { type ifname; }
            set unused { type ipv4_addr; }
            map jumps { type ipv4_addr : verdict; }
            chain logs { log }
            chain forward { type filter hook forward priority 0;
                ip saddr @hosts drop
                ip daddr @nets drop
                ip6 saddr @six drop
                tcp dport @ports drop
                udp dport . ip daddr @pairs drop
                ip saddr & 255.255.255.0 @masked drop
                iifname @links drop
                ip saddr vmap @jumps\naccept }
            chain post { type filter hook postrouting priority 300; ip saddr @hosts drop } }");
        let uses = analyse(&Ruleset::read().unwrap()).uses;
        let used = |set: &str| uses.get(&(1, "t".to_owned(), set.to_owned()));
        let mut mirror = Mirror::open().unwrap();
        let mut change = |line: &str| -> Option<Affected> {
            common::feed("nft -f -", &format!("{line}\n"));
            let mut events = Vec::new();
            mirror.read(&mut events).unwrap();
            let mut found = events.into_iter().filter_map(|event| match event {
                Event::SetElementsChanged { set, changes, .. } => Some((set, changes)),
                _ => None,
            });
            let (set, changes) = found.next().unwrap();
            assert!(found.next().is_none());
            used(&set).unwrap().affected(&changes)
        };
        let addrs = |from: &str, to: &str| (from.parse().unwrap(), to.parse().unwrap());
        let host = change("add element inet t hosts { 192.0.2.7 }").unwrap();
        assert_eq!(host.addrs, [addrs("192.0.2.7", "192.0.2.7")]);
        let host = change("delete element inet t hosts { 192.0.2.1 }").unwrap();
        assert_eq!(host.addrs, [addrs("192.0.2.1", "192.0.2.1")]);
        let nets = change("add element inet t nets { 192.0.2.0/25, 203.0.113.0/24 }").unwrap();
        // The end of an interval counts too.
        assert_eq!(
            nets.addrs,
            [
                addrs("192.0.2.0", "192.0.2.128"),
                addrs("203.0.113.0", "203.0.114.0")
            ]
        );
        let nets = change("add element inet t nets { 224.0.0.0/3 }").unwrap();
        assert_eq!(nets.addrs, [addrs("224.0.0.0", "255.255.255.255")]);
        let nets = change("flush set inet t nets").unwrap();
        assert_eq!(nets.addrs.len(), 3, "{nets:?}");
        let six = change("add element inet t six { 2001:db8::/64 }").unwrap();
        assert_eq!(six.addrs, [addrs("2001:db8::", "2001:db8:0:1::")]);
        let ports = change("add element inet t ports { 22, 80 }").unwrap();
        assert_eq!(
            (ports.addrs.len(), ports.ports),
            (0, vec![(22, 22), (80, 80)])
        );
        let pairs = change("add element inet t pairs { 53 . 192.0.2.0/24 }").unwrap();
        assert_eq!(pairs.addrs, [addrs("192.0.2.0", "192.0.2.255")]);
        assert_eq!(change("add element inet t masked { 192.0.2.0 }"), None);
        assert_eq!(change("add element inet t links { \"lo\" }"), None);
        let jump = change("add element inet t jumps { 192.0.2.9 : goto logs }").unwrap();
        assert_eq!(jump.addrs, [addrs("192.0.2.9", "192.0.2.9")]);
        assert!(used("jumps").unwrap().verdicts && !used("hosts").unwrap().verdicts);
        assert!(used("hosts").unwrap().postrouting && !used("nets").unwrap().postrouting);
        assert!(used("unused").is_none());
        let many = SetChanges {
            truncated: true,
            ..SetChanges::default()
        };
        assert_eq!(used("hosts").unwrap().affected(&many), None);
    });
}

#[test]
fn objects_are_judged_by_kind() {
    in_namespace(|| {
        let with = |object: &str, rule: &str| {
            format!(
                "table inet t {{ {object}\nchain forward {{ type filter hook forward priority 0; {rule} }} }}"
            )
        };
        assert_safe("counter", &with("counter c { }", "counter name c"));
        assert_unsafe(
            "quota",
            &with("quota q { over 10 mbytes }", "quota name q drop"),
            "quota q",
        );
        assert_unsafe(
            "limit",
            &with("limit l { rate 1/second; }", "limit name l accept"),
            "limit l",
        );
    });
}

#[test]
fn devices_of_netdev_chains_are_told() {
    in_namespace(|| {
        common::run("ip link add v0 type veth peer name v1");
        let analysis = analysed(
            "table netdev t { chain in { type filter hook ingress device v0 priority 0; limit rate 1/second drop } }",
        );
        assert_eq!(analysis.findings[0].iif, [IfMatch::Name("v0".into())]);
        let analysis = analysed(
            "table netdev t { chain in { type filter hook ingress device v0 priority 0; ip saddr 192.0.2.1 drop } }",
        );
        assert!(analysis.safe, "{:#?}", analysis.findings);
    });
}

#[test]
fn openwrt_like_ruleset_is_safe() {
    in_namespace(|| {
        assert_safe(
            "fw4",
            r#"
            table inet fw4 {
                chain input { type filter hook input priority filter; policy drop;
                    ct state vmap { established : accept, related : accept }
                    tcp flags & (fin | syn | rst | ack) == syn jump syn_flood }
                chain forward { type filter hook forward priority filter; policy drop;
                    ct state vmap { established : accept, related : accept, invalid : drop } comment "!fw4: Handle forwarded flows"
                    iifname "br-lan" jump forward_lan
                    iifname "wan" jump forward_wan
                    jump handle_reject }
                chain forward_lan { jump accept_to_wan }
                chain forward_wan { icmpv6 type { echo-request, packet-too-big } limit rate 1000/second counter accept
                    jump handle_reject }
                chain accept_to_wan { meta nfproto ipv4 oifname "wan" ct state invalid counter drop
                    oifname "wan" counter accept }
                chain handle_reject { meta l4proto tcp reject with tcp reset
                    reject with icmpx port-unreachable }
                chain syn_flood { limit rate 25/second burst 50 packets return
                    drop }
                chain srcnat { type nat hook postrouting priority srcnat;
                    oifname "wan" meta nfproto ipv4 masquerade }
                chain raw_prerouting { type filter hook prerouting priority raw; }
                chain mangle_forward { type filter hook forward priority mangle;
                    iifname "wan" tcp flags & (fin | syn | rst) == syn tcp option maxseg size set rt mtu
                    oifname "wan" tcp flags syn / fin,syn,rst tcp option maxseg size set rt mtu }
            }"#,
        );
    });
}

const DOCKER: &str = "*nat
:DOCKER - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE
COMMIT
*filter
:FORWARD DROP [0:0]
:DOCKER - [0:0]
:DOCKER-USER - [0:0]
:STAGE-1 - [0:0]
:STAGE-2 - [0:0]
-A FORWARD -j DOCKER-USER
-A FORWARD -j STAGE-1
-A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -o docker0 -j DOCKER
-A FORWARD -i docker0 ! -o docker0 -j ACCEPT
-A FORWARD -i docker0 -o docker0 -j ACCEPT
-A STAGE-1 -i docker0 ! -o docker0 -j STAGE-2
-A STAGE-1 -j RETURN
-A STAGE-2 -o docker0 -j DROP
-A STAGE-2 -j RETURN
-A DOCKER-USER -j RETURN
COMMIT
";

#[test]
fn iptables_nft_rulesets_are_understood() {
    xtables_rulesets_are_understood("iptables-nft-restore");
}

#[test]
fn iptables_legacy_rulesets_are_understood() {
    xtables_rulesets_are_understood("iptables-legacy-restore");
}

fn xtables_rulesets_are_understood(restore: &'static str) {
    in_namespace(move || {
        let load = |text: &str| {
            // One for each: the legacy tables cannot be removed.
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            feed(restore, text);
            analyse(&Ruleset::read().unwrap())
        };
        let analysis = load(DOCKER);
        assert!(analysis.safe, "{:#?}", analysis.findings);
        let filter = |rules: &str| {
            load(&format!(
                "*filter\n:FORWARD ACCEPT [0:0]\n{rules}\nCOMMIT\n"
            ))
        };
        let analysis =
            filter("-A FORWARD -m hashlimit --hashlimit-above 10/sec --hashlimit-name x -j DROP");
        assert!(
            analysis.findings[0].expression.contains("hashlimit"),
            "{:#?}",
            analysis.findings
        );
        let analysis =
            filter("-A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT\n-A FORWARD -j LOG");
        assert!(analysis.safe, "{:#?}", analysis.findings);
        let analysis = filter("-A FORWARD -m conntrack --ctstate NEW -m limit --limit 1/s -j LOG");
        assert!(analysis.safe, "{:#?}", analysis.findings);
        let analysis = filter(
            "-A FORWARD -m state --state INVALID -j LOG\n-A FORWARD -p tcp -m multiport --dports 1,2 -j ACCEPT",
        );
        assert!(analysis.safe, "{:#?}", analysis.findings);
        let analysis =
            filter("-A FORWARD -p tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu");
        assert!(analysis.safe, "{:#?}", analysis.findings);
        let analysis =
            filter("-A FORWARD -i eth+ -m statistic --mode random --probability 0.5 -j DROP");
        let finding = &analysis.findings[0];
        assert!(finding.expression.contains("statistic"), "{finding:#?}");
        assert_eq!(finding.iif, [IfMatch::Prefix("eth".into())]);
        assert_eq!(finding.ip, [Family::Ipv4]);
        let tos = |rule: &str| load(&format!("*mangle\n-A FORWARD -j {rule}\nCOMMIT\n"));
        assert!(tos("DSCP --set-dscp 10").safe);
        assert!(tos("TOS --set-tos 0x20/0xfc").safe);
        assert!(!tos("TOS --set-tos 0x20/0xff").safe);
        assert!(!tos("TOS --xor-tos 0x01").safe);
        let analysis = load(
            "*mangle\n-A FORWARD -j MARK --set-mark 7\n-A FORWARD -j CONNMARK --save-mark\nCOMMIT\n",
        );
        assert!(analysis.safe && analysis.marks.len() == 2, "{analysis:#?}");
        let analysis = filter(
            "-A FORWARD -s 192.0.2.0/24 ! -d 192.0.2.1 -p udp --dport 53 -m limit --limit 1/s -j ACCEPT\n\
         -A FORWARD ! -s 192.0.2.9 -p tcp -m multiport --sports 80,8000:8010 -j NFLOG",
        );
        let [dns, web] = analysis.findings.as_slice() else {
            panic!("{:#?}", analysis.findings)
        };
        assert_eq!(
            dns.src,
            [("192.0.2.0".parse().unwrap(), "192.0.2.255".parse().unwrap())]
        );
        assert_eq!(
            (dns.dst.as_slice(), dns.dport.as_slice()),
            (&[][..], &[(53, 53)][..])
        );
        assert_eq!(
            (dns.protocols.as_slice(), web.protocols.as_slice()),
            (&[17][..], &[6][..])
        );
        assert_eq!(
            (web.src.as_slice(), web.sport.as_slice()),
            (&[][..], &[(80, 80), (8000, 8010)][..])
        );
        // A chain that is called twice, and gone to.
        let analysis = load(
            "*filter\n:FORWARD ACCEPT [0:0]\n:A - [0:0]\n:B - [0:0]\n\
         -A FORWARD -s 192.0.2.1 -j A\n-A FORWARD -s 192.0.2.2 -g A\n\
         -A A -j B\n-A B -m state --state ESTABLISHED -j RETURN\n-A B -j LOG\n\
         -A A -p udp -j LOG\nCOMMIT\n",
        );

        let from: Vec<String> = analysis.findings.iter().map(ToString::to_string).collect();
        assert_eq!(from.len(), 2, "{from:#?}");
        assert!(
            from[0].ends_with("[IPv4, UDP, from 192.0.2.1]"),
            "{from:#?}"
        );
        assert!(
            from[1].ends_with("[IPv4, UDP, from 192.0.2.2]"),
            "{from:#?}"
        );
        assert!(load("*filter\n:FORWARD DROP [0:0]\n-A FORWARD -f -j LOG\nCOMMIT\n").safe);
    });
}

#[test]
fn addresses_and_ports_narrow_findings() {
    in_namespace(|| {
        let cases = [
            ("ip saddr 192.0.2.0/24 log", "IPv4, from 192.0.2.0/24"),
            ("ip daddr 192.0.2.16/28 log", "IPv4, to 192.0.2.16/28"),
            (
                "ip saddr 192.0.2.5-192.0.2.9 log",
                "IPv4, from 192.0.2.5-192.0.2.9",
            ),
            ("ip6 daddr 2001:db8::/33 log", "IPv6, to 2001:db8::/33"),
            ("tcp dport 8000-8010 log", "TCP, to port 8000-8010"),
            (
                "udp sport 53 udp dport { 53, 123 } log",
                "UDP, from port 53, to port 53 or 123",
            ),
            (
                "ip saddr { 192.0.2.1, 192.0.2.9 } log",
                "IPv4, from 192.0.2.1 or 192.0.2.9",
            ),
            (
                "ip saddr . tcp dport { 192.0.2.1 . 80 } log",
                "IPv4, TCP, from 192.0.2.1, to port 80",
            ),
            ("ip saddr != 192.0.2.1 log", "IPv4"),
            ("ip saddr & 0.0.0.255 == 1 log", "IPv4"),
        ];
        for (rule, concerned) in cases {
            let analysis = analysed(&forward(&format!("{rule}\naccept")));
            let [finding] = analysis.findings.as_slice() else {
                panic!("{rule}: {:#?}", analysis.findings)
            };
            let words = finding.to_string();
            assert!(
                words.ends_with(&format!("[{concerned}]")),
                "{rule}: {words}"
            );
        }
        // Nearly: the end of an interval set counts too.
        let analysis = analysed(&forward(
            "ip saddr { 192.0.2.0/25, 198.51.100.7 } log\naccept",
        ));
        let finding = &analysis.findings[0];
        let inside = |ip: &str| {
            let ip: std::net::IpAddr = ip.parse().unwrap();
            finding
                .src
                .iter()
                .any(|(from, to)| (from..=to).contains(&&ip))
        };
        assert!(inside("192.0.2.0") && inside("192.0.2.127") && inside("198.51.100.7"));
        assert!(
            !inside("192.0.2.129") && !inside("198.51.100.6"),
            "{finding:?}"
        );
        // A chain that is called under several conditions is looked at under each.
        let analysis = analysed(
            "table inet t { chain logs { log }
            chain between { jump logs }
            chain forward { type filter hook forward priority 0;
                ip saddr 192.0.2.1 jump logs
                ip saddr 192.0.2.2 jump logs
                ip saddr 192.0.2.2 jump between
                ip saddr 192.0.2.3 jump between\naccept } }",
        );
        let words: Vec<String> = analysis.findings.iter().map(ToString::to_string).collect();
        for last in 1..=3 {
            let from = format!("[IPv4, from 192.0.2.{last}]");
            assert!(words.iter().any(|w| w.ends_with(&from)), "{words:#?}");
        }
    });
}

#[test]
fn new_packets_reach_more() {
    in_namespace(|| {
        nft(&forward(
            "ct state established accept\nct state new limit rate 1/second accept",
        ));
        let ruleset = Ruleset::read().unwrap();
        assert!(analyse(&ruleset).safe);
        assert!(!analyse_state(&ruleset, PacketState::New, Ways::Plain).safe);
        assert!(analyse_state(&ruleset, PacketState::Untracked, Ways::Plain).safe);
    });
}

/// Behind a VRF, PREROUTING is passed again, with the connection that the first time gave.
#[test]
fn ports_of_a_vrf_pass_prerouting_twice() {
    in_namespace(|| {
        let raw = |rules: &str| {
            nft(&format!(
                "table inet t {{ chain early {{ type filter hook prerouting priority raw; {rules} }} }}"
            ));
            let ruleset = Ruleset::read().unwrap();
            nft("flush ruleset");
            [Ways::Plain, Ways::Vrf]
                .map(|ways| analyse_state(&ruleset, PacketState::Established, ways))
        };
        let [plain, vrf] =
            raw("ct state established limit rate 1/second accept\nct state established accept");
        assert!(plain.safe, "{plain:#?}");
        assert!(!vrf.safe, "{vrf:#?}");
        // what the second time drops is of VRFs alone: others reach what lies behind
        let [plain, vrf] = raw("ct state established drop\nlimit rate 1/second accept");
        assert!(!plain.safe && !vrf.safe, "{plain:#?}{vrf:#?}");
        let named = r#"iifname "vrf0" limit rate 1/second accept"#;
        for analysis in raw(named) {
            let iif = [IfMatch::Name("vrf0".into())];
            assert!(!analysis.findings.is_empty());
            assert!(
                analysis.findings.iter().all(|f| f.iif == iif),
                "{analysis:#?}"
            );
        }
    });
}

#[test]
fn large_rulesets_are_quick() {
    in_namespace(|| {
        let mut chains = String::from("table inet t {\n");
        for index in (0..200).rev() {
            let next = if index < 199 {
                format!("jump c{}", index + 1)
            } else {
                String::new()
            };
            // Too deep a call is refused by the kernel: every tenth chain ends the ladder.
            let next = if index % 10 == 9 { String::new() } else { next };
            chains +=
                &format!("chain c{index} {{ ip saddr 192.0.2.{index} accept\n{next}\n{next}\n}}\n");
        }
        chains += "chain forward { type filter hook forward priority 0;\n";
        for index in 0..200 {
            chains += &format!("jump c{index}\n");
        }
        nft(&(chains + "}}"));
        let ruleset = Ruleset::read().unwrap();
        let start = Moment::now();
        assert!(analyse(&ruleset).safe);
        assert!(start.elapsed().as_secs() < 20);
    });
}
