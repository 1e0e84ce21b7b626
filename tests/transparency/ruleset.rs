// SPDX-License-Identifier: MIT OR Apache-2.0
//! The routers' nftables rulesets: what a setup needs, and random rules, of which some must see every packet.

use std::fmt::Write;

use crate::setup::{
    FORWARD_HOST, FORWARD_PORT, HAIRPIN_HOST, HAIRPIN_PORT, INBOUND_PORT, NOTRACK_PORTS, Nat,
    POLICY_HOST, PORT_RANGE, Setup, Tracking, Uplinks, lan, uplink,
};
use freeway_testkit::random::Random;

/// What a rule means for the fast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A function of what the fast path guards: flows have to be fast.
    Safe,
    /// It must see every packet.
    EveryPacket,
    /// It sets a mark or a priority.
    Mark,
    /// Freeway may know it or not.
    Open,
}

use Effect::{EveryPacket, Mark, Open, Safe};

/// Where a chain is hooked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hook {
    Raw,
    Prerouting,
    Forward,
    Postrouting,
}

impl Hook {
    const ALL: [(Hook, &'static str); 4] = [
        (Hook::Raw, "prerouting priority -300"),
        (Hook::Prerouting, "prerouting priority -150"),
        (Hook::Forward, "forward priority -10"),
        (Hook::Postrouting, "postrouting priority -150"),
    ];
}

/// A rule of the catalogue and the chain in which it stands.
#[derive(Clone, Debug)]
pub struct Rule {
    hook: Hook,
    entry: &'static Entry,
}

#[derive(Debug)]
struct Entry {
    text: &'static str,
    effect: Effect,
    /// Sets and chains that it uses.
    needs: &'static str,
    forward_only: bool,
}

const fn entry(text: &'static str, effect: Effect) -> Entry {
    Entry {
        text,
        effect,
        needs: "",
        forward_only: false,
    }
}

/// One that changes packets is in the forward chain, so that what comes first does not depend on it.
const fn forward(text: &'static str, effect: Effect) -> Entry {
    Entry {
        forward_only: true,
        ..entry(text, effect)
    }
}

const fn with(text: &'static str, effect: Effect, needs: &'static str) -> Entry {
    Entry {
        needs,
        forward_only: true,
        ..entry(text, effect)
    }
}

static CATALOGUE: &[Entry] = &[
    entry("counter", Safe),
    entry("meta l4proto udp counter", Safe),
    entry("ip saddr 192.0.2.0/24 counter", Safe),
    entry("tcp dport { 30000, 30001, 30005 } counter", Safe),
    forward("tcp dport 30003 drop", Safe),
    forward("udp sport 30006 drop", Safe),
    entry("iifname \"lan0\" counter", Safe),
    forward(
        "oifname vmap { \"wan0\" : accept, \"lan0\" : accept }",
        Safe,
    ),
    forward("iifname \"lan0\" oifname \"wan1\" counter accept", Safe),
    entry("ip dscp ef counter", Safe),
    forward("ip dscp 46 drop", Safe),
    forward("ip6 dscp 10 drop", Safe),
    entry("ip ttl < 60 counter", Safe),
    forward("ip ttl 57 drop", Safe),
    forward("ip6 hoplimit 57 drop", Safe),
    forward("ip dscp set af21", Safe),
    forward("ip6 dscp set cs3", Safe),
    forward("iifname \"lan0\" ip dscp set cs1", Safe),
    forward("ip protocol udp ip dscp set 0", Safe),
    entry("ip protocol tcp counter", Safe),
    entry("fib daddr type unicast counter", Safe),
    entry("meta mark 0 counter", Safe),
    forward("ct state established counter", Safe),
    forward("ct direction original counter", Safe),
    forward("ct status assured counter", Safe),
    forward("ct mark 0x1 drop", Safe),
    forward("ct status dnat counter accept", Safe),
    with(
        "ip saddr @hosts accept",
        Safe,
        "set hosts { type ipv4_addr; flags interval; elements = { 192.0.2.8-192.0.2.12, 198.18.0.2 } }",
    ),
    with(
        "ip6 saddr @hosts6 counter",
        Safe,
        "set hosts6 { type ipv6_addr; elements = { 2001:db8:1::b, 2001:db8:8::2 } }",
    ),
    with(
        "meta l4proto . th dport @services counter",
        Safe,
        "set services { type inet_proto . inet_service; elements = { udp . 30002, tcp . 30004 } }",
    ),
    with(
        "jump further",
        Safe,
        "chain further { tcp dport 30004 drop; counter; }",
    ),
    // What must see every packet; most drop some, so that it shows.
    forward("meta length > 900 drop", EveryPacket),
    forward("ip length 200-400 drop", EveryPacket),
    forward("ip6 length > 700 drop", EveryPacket),
    forward("udp length > 500 drop", EveryPacket),
    forward("udp checksum 0 drop", EveryPacket),
    forward("tcp flags & (psh) == psh drop", EveryPacket),
    forward("tcp flags & (urg | ecn) != 0 drop", EveryPacket),
    forward("tcp option timestamp exists drop", EveryPacket),
    forward("tcp sequence & 1 == 1 drop", EveryPacket),
    forward("tcp urgptr 7 drop", EveryPacket),
    forward("ip ecn ce drop", EveryPacket),
    forward("ip6 ecn ce drop", EveryPacket),
    forward("ip id 0-20000 drop", EveryPacket),
    forward("ip frag-off & 0x4000 == 0 drop", EveryPacket),
    forward("ip6 flowlabel 1 drop", Safe),
    forward("@th,64,8 > 127 drop", EveryPacket),
    forward("quota over 30000 bytes drop", EveryPacket),
    forward("numgen inc mod 5 == 0 drop", EveryPacket),
    forward("ct original packets > 20 drop", EveryPacket),
    forward("ct bytes > 20000 drop", EveryPacket),
    forward(
        "limit rate 1000000/second burst 1000000 packets counter",
        EveryPacket,
    ),
    forward(
        "udp dport 30002 limit rate 1000000/second burst 1000000 packets counter",
        EveryPacket,
    ),
    with(
        "update @seen { ip saddr counter }",
        EveryPacket,
        "set seen { type ipv4_addr; flags dynamic; timeout 1m; }",
    ),
    with(
        "ip saddr . th dport @met drop; add @met { ip saddr . th sport }",
        EveryPacket,
        "set met { type ipv4_addr . inet_service; flags dynamic; size 65535; timeout 1m; }",
    ),
    // These change packets.
    forward("ip ecn set ect0", EveryPacket),
    forward("udp checksum set 0", EveryPacket),
    forward("tcp option maxseg size set 1200", EveryPacket),
    forward("ip id set 7", EveryPacket),
    forward("ip ttl set 33", Open),
    forward("ip6 hoplimit set 33", Open),
    forward("tcp dport 30001 drop", Safe),
    forward("meta pkttype host counter", Open),
    forward("rt ip nexthop 198.51.100.2 counter", Open),
    forward("ct expiration > 1s counter", Open),
    forward("meta hour \"00:00\"-\"23:59\" counter", Open),
    entry("meta mark set 0x7", Mark),
    forward("ct mark set 0x9", Mark),
    forward("meta priority set 1:10", Mark),
    forward("ip saddr 192.0.2.11 meta mark set 0x3", Mark),
];

/// Most of them treat all packets of some port alike.
static BY_PORT: &[Entry] = &[
    forward("iifname \"wan1\" tcp dport 30001 drop", Safe),
    forward("iifname { \"wan0\", \"wan1\" } counter", Safe),
    forward("iifname \"lan0\" accept", Safe),
    forward("iifname != \"lan0\" udp dport 30002 counter accept", Safe),
    forward(
        "iifname vmap { \"lan0\" : continue, \"wan0\" : accept, \"wan2\" : drop }",
        Safe,
    ),
    forward("oifname \"wan0\" accept", Safe),
    forward("tcp dport { 30000, 30003 } accept", Safe),
    forward("meta mark 0x5 return", Safe),
    entry("iifname \"wan0\" counter", Safe),
    entry("ip saddr 192.0.2.0/24 accept", Safe),
    entry("fib daddr type unicast accept", Safe),
];

impl Rule {
    pub fn effect(&self) -> Effect {
        self.entry.effect
    }

    /// It counts packets of more than one direction, so that their order matters.
    pub fn counts(&self) -> bool {
        let counts = ["quota", "numgen", "@met", "ct bytes", "ct original packets"];
        counts.iter().any(|word| self.entry.text.contains(word))
    }

    /// It writes DSCP, and an IPv4 checksum of 0xffff where others write 0x0000 (`nft_payload_csum_l3`).
    pub fn writes_dscp(&self) -> bool {
        self.entry.text.contains("ip dscp set")
    }

    pub fn needs_conntrack(&self) -> bool {
        self.entry.text.contains("ct ")
    }
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}: {}", self.hook, self.entry.text)
    }
}

/// Rules for a setup; in most there are none that must see every packet.
pub fn random(setup: &Setup, rng: &mut Random) -> Vec<Rule> {
    let severe = rng.permille(200);
    let count = rng.of(&[0, 0, 1, 2, 3, 5]);
    let mut rules: Vec<Rule> = Vec::new();
    while rules.len() < count {
        let entry = &CATALOGUE[rng.below(CATALOGUE.len())];
        if entry.effect != Safe && !severe {
            continue;
        }
        if entry.text.contains("ct ") && setup.tracking == Tracking::None && !rng.permille(100) {
            continue;
        }
        // The connection's next packet leaves elsewhere, so masquerade ends the connection (`nf_nat_oif_changed`), and
        // what follows has ports at random.
        let by_mark = setup.uplinks == Uplinks::Connmark && setup.nat == Nat::Masquerade;
        if by_mark && entry.text.starts_with("ct mark set") {
            continue;
        }
        let hook = match entry.forward_only {
            true => Hook::Forward,
            false => rng.of(&[
                Hook::Raw,
                Hook::Prerouting,
                Hook::Forward,
                Hook::Postrouting,
            ]),
        };
        if rules.iter().any(|rule| std::ptr::eq(rule.entry, entry)) {
            continue;
        }
        rules.push(Rule { hook, entry });
    }
    rules
}

/// Rules for a setup in which nothing has conntrack look on: of ports, and any of others.
pub fn routed(others: Vec<Rule>, rng: &mut Random) -> Vec<Rule> {
    let mut rules = Vec::new();
    for entry in BY_PORT {
        let hook = match entry.forward_only {
            true => Hook::Forward,
            false => rng.of(&Hook::ALL).0,
        };
        if rng.permille(130) {
            rules.push(Rule { hook, entry });
        }
    }
    if rng.permille(200) {
        let others = others.into_iter().filter(|rule| !rule.needs_conntrack());
        rules.extend(others);
    }
    rules
}

/// The whole of it, for `nft -f -`; it replaces what is there.
pub fn text(setup: &Setup) -> String {
    let mut text = String::from("flush ruleset\n");
    extra(setup, &mut text);
    filter(setup, &mut text);
    steer(setup, &mut text);
    nat(setup, &mut text);
    text
}

fn extra(setup: &Setup, text: &mut String) {
    if setup.rules.is_empty() {
        return;
    }
    text.push_str("table inet extra {\n");
    for rule in &setup.rules {
        let _ = writeln!(text, "\t{}", rule.entry.needs);
    }
    for (hook, at) in Hook::ALL {
        let mut rules = setup
            .rules
            .iter()
            .filter(|rule| rule.hook == hook)
            .peekable();
        if rules.peek().is_none() {
            continue;
        }
        let _ = writeln!(text, "\tchain {hook:?} {{\n\t\ttype filter hook {at};");
        if setup.early && hook == Hook::Forward && setup.tracked() {
            text.push_str("\t\tct state established accept\n");
        }
        for rule in rules {
            let _ = writeln!(text, "\t\t{}", rule.entry.text);
        }
        text.push_str("\t}\n");
    }
    text.push_str("}\n");
}

fn filter(setup: &Setup, text: &mut String) {
    let (first, last) = NOTRACK_PORTS;
    match setup.tracking {
        Tracking::None => {}
        Tracking::Tracked | Tracking::Notrack => {
            text.push_str("table inet filter {\n");
            if setup.tracking == Tracking::Notrack {
                let _ = writeln!(
                    text,
                    "\tchain raw {{\n\t\ttype filter hook prerouting priority raw;\n\
                     \t\tmeta l4proto {{ tcp, udp }} th dport {first}-{last} notrack\n\
                     \t\tmeta l4proto {{ tcp, udp }} th sport {first}-{last} notrack\n\t}}"
                );
            }
            text.push_str(
                "\tchain forward {\n\t\ttype filter hook forward priority filter;\n\
                 \t\tct state established,related,new,untracked accept\n\t}\n}\n",
            );
        }
        Tracking::Stateful => {
            let _ = writeln!(
                text,
                "table inet filter {{\n\tchain forward {{\n\
                 \t\ttype filter hook forward priority filter; policy drop;\n\
                 \t\tct state established,related accept\n\
                 \t\tct state invalid drop\n\
                 \t\tiifname \"lan0\" ct state new accept\n\
                 \t\tct status dnat accept\n\
                 \t\tmeta l4proto {{ tcp, udp }} th dport {INBOUND_PORT}-{} ct state new accept\n\t}}\n}}",
                INBOUND_PORT + PORT_RANGE
            );
        }
    }
}

fn family(setup: &Setup) -> &'static str {
    if setup.v6 { "ip6" } else { "ip" }
}

/// What chooses the uplink by a mark.
fn steer(setup: &Setup, text: &mut String) {
    let family = family(setup);
    let host = lan(setup.v6, POLICY_HOST);
    let rules = match setup.uplinks {
        Uplinks::Mark => format!("\t\t{family} saddr {host} meta mark set 0x1\n"),
        Uplinks::Connmark => format!(
            "\t\tct mark != 0x0 meta mark set ct mark\n\
             \t\tct state new {family} saddr {host} ct mark set 0x1 meta mark set 0x1\n"
        ),
        _ => return,
    };
    let _ = writeln!(
        text,
        "table inet steer {{\n\tchain prerouting {{\n\t\ttype filter hook prerouting priority mangle;\n{rules}\t}}\n}}"
    );
}

fn nat(setup: &Setup, text: &mut String) {
    let family = family(setup);
    let mut sources = String::new();
    for port in [1, 2] {
        let name = format!("wan{}", port - 1);
        let _ = match setup.nat {
            Nat::None => Ok(()),
            Nat::Masquerade => writeln!(sources, "\t\toifname \"{name}\" masquerade"),
            Nat::Snat => {
                let address = uplink(setup.v6, port, 1);
                writeln!(sources, "\t\toifname \"{name}\" snat to {address}")
            }
        };
    }
    if setup.hairpin {
        let network = if setup.v6 {
            "2001:db8:1::/64"
        } else {
            "192.0.2.0/24"
        };
        let _ = writeln!(
            sources,
            "\t\toifname \"lan0\" {family} saddr {network} {family} daddr {network} masquerade"
        );
    }
    let mut targets = String::new();
    let mut forward = |on: bool, first: u16, host: u8| {
        let outside = uplink(setup.v6, 1, 1);
        let inside = match lan(setup.v6, host) {
            address if setup.v6 => format!("[{address}]"),
            address => address.to_string(),
        };
        for proto in ["udp", "tcp"].iter().filter(|_| on) {
            let _ = writeln!(
                targets,
                "\t\t{family} daddr {outside} {proto} dport {first}-{} dnat to {inside}:80",
                first + PORT_RANGE
            );
        }
    };
    forward(setup.forwards, FORWARD_PORT, FORWARD_HOST);
    forward(setup.hairpin, HAIRPIN_PORT, HAIRPIN_HOST);
    if !sources.is_empty() {
        let _ = writeln!(
            text,
            "table {family} nat {{\n\tchain postrouting {{\n\t\ttype nat hook postrouting priority srcnat;\n{sources}\t}}\n}}"
        );
    }
    if !targets.is_empty() {
        let _ = writeln!(
            text,
            "table {family} nat {{\n\tchain prerouting {{\n\t\ttype nat hook prerouting priority dstnat;\n{targets}\t}}\n}}"
        );
    }
}
