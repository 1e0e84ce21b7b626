// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prefix paths with real packets: what has no flow leaves by the kernel's routes, as the kernel would send it, and as its
//! routes change.
//!
//!   client --- lan0 router wan0 --- server, and what there are neighbours
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod changes;
mod frr;
mod in_tc;
mod routes6;
mod strangers;
mod strangers6;
mod tags;
mod unsaid;
mod vlans;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::time::Duration;

use freeway_lab::frame::MAC_CLIENT;
use freeway_lab::{Injector, Lab};
use freeway_testkit::random::Random;
use freeway_testkit::*;
use serde_json::Value;

use strangers::*;

/// After so long nothing more leaves.
const QUIET: Duration = Duration::from_millis(150);
/// Nobody is held up between sender and receiver.
const TRIES: usize = 1;

fn in_xdp(lab: &Lab) -> Router {
    Router::start_with(lab, ON)
}

/// Sends frames while the kernel does all, and by prefix paths: each arrives as often, or it is returned. How many went by
/// prefixes.
fn compare(lab: &Lab, router: &Router, family: &str, frames: &[Vec<u8>]) -> Result<u64, Vec<u8>> {
    let in_step = |routes: &Value| active_in(family, routes);
    wait(router, "in step", in_step);
    // on the link nobody answers, and the kernel gives up after seconds: of these nothing arrives either way
    assert!(router.run(&["off"]).status.success());
    let by_kernel = left(lab, frames);
    assert!(router.run(&["on"]).status.success());
    wait(router, "in step", in_step);
    left(lab, frames);
    let before = routed(router);
    let by_routes = left(lab, frames);
    let either = by_kernel.keys().chain(by_routes.keys());
    let mut either = either.filter(|frame| by_kernel.get(*frame) != by_routes.get(*frame));
    match either.next() {
        Some(frame) => Err(frame.clone()),
        None => Ok(routed(router) - before),
    }
}

#[test]
fn prefix_paths_make_room_for_a_capture() {
    let Some(_machine) = machine() else { return };
    let lab = build("routed");
    let router = Router::start_with(&lab, ON);
    let to_server = |n: u16| packet(client(), Ipv4Addr::new(198, 51, 100, 2), n);
    let frames: Vec<_> = (0..200).map(to_server).collect();
    wait(&router, "prefix paths", active);
    confirm(&lab, &router, &frames);
    assert_eq!(router.flows("").len(), 0);

    // the same conversation from now on: a flow, once there is no prefix path
    let folder = tempfile::tempdir().unwrap();
    let taken = folder.path().join("taken.pcapng");
    let mut command = freeway();
    command.args(["capture", "--json", "-i", "lan0", "-c", "3", "-w"]);
    command.arg(&taken).stdout(Stdio::piped());
    let mut capture = lab.router().spawn(&mut command).unwrap();
    until("it has captured", PATIENCE, || {
        left(&lab, &frames[..4]);
        capture.try_wait().unwrap()
    });
    let said: Value = serde_json::from_reader(capture.stdout.take().unwrap()).unwrap();
    assert_eq!(said["packets"], 3, "{said}");
    wait(&router, "prefix paths again", active);
    confirm(&lab, &router, &frames);
}

#[test]
fn links_that_come_and_go_elsewhere_do_not_interrupt_prefix_paths() {
    let Some(_machine) = machine() else { return };
    let lab = build("routed");
    ip(&lab, "route add 203.0.113.0/24 via 198.51.100.2");
    let router = Router::start_with(&lab, ON);
    wait(&router, "prefix paths", active);
    let frames = strangers(50);
    confirm(&lab, &router, &frames);
    let injector = Injector::open(lab.client_port()).unwrap();
    let events = || {
        router.json(&["stats"])["netlink"]["events"]
            .as_u64()
            .unwrap()
    };
    until("most packets by prefixes", PATIENCE, || {
        let (routed_before, events_before) = (routed(&router), events());
        let mut sent = 0;
        std::thread::scope(|threads| {
            let links = threads.spawn(|| {
                for number in 0..20 {
                    ip(&lab, &format!("tuntap add other{number} mode tap"));
                    ip(&lab, &format!("tuntap del other{number} mode tap"));
                }
            });
            while !links.is_finished() {
                injector.send_all(&frames, Duration::ZERO).unwrap();
                sent += frames.len() as u64;
                std::thread::sleep(Duration::from_millis(1));
            }
            links.join().unwrap();
        });
        std::thread::sleep(QUIET);
        let (routed, events) = (routed(&router) - routed_before, events() - events_before);
        println!("{routed} of {sent} packets, {events} events");
        assert!(events >= 40, "{events} events");
        (routed > sent / 2).then_some(())
    });
}

#[test]
fn packets_without_flows_leave_as_the_kernel_sends_them() {
    leave_as_the_kernel_sends_them(in_xdp);
}

#[test]
fn a_change_of_the_kernel_is_one_here() {
    changes_are_followed(in_xdp);
}

#[test]
fn what_may_decide_otherwise_keeps_ports_from_it() {
    let Some(_machine) = machine() else { return };
    let lab = build("routed");
    ip(&lab, "route add 203.0.113.0/24 via 198.51.100.2");
    let router = Router::start_with(&lab, ON);
    wait(&router, "prefix paths", active);
    let frames = strangers(200);
    confirm(&lab, &router, &frames);
    let tool = |line: &str| drop(lab.router().tool(line).unwrap());
    let nft = |text: &str| drop(lab.router().tool_with_input("nft -f -", text).unwrap());
    let none = |why: &str| {
        let routes = wait_for_reason(&router, "ipv4", why);
        println!("{why}: {}", routes["ports_kept"]);
    };
    let again = |what: &str| {
        wait(&router, what, active);
        confirm(&lab, &router, &frames);
    };
    tool("ip rule add from 192.0.2.9 blackhole");
    none("routing rule");
    assert_eq!(left(&lab, &frames).values().sum::<usize>(), frames.len());
    tool("ip rule del from 192.0.2.9 blackhole");
    again("without the rule");
    nft("table ip f {\nchain c {\ntype filter hook forward priority 0\nudp sport 1001 drop\n}\n}");
    none("chain c of table ip f");
    assert_eq!(
        left(&lab, &frames).values().sum::<usize>(),
        frames.len() - 1
    );
    nft("delete table ip f");
    again("without the chain");
    // what the router alone meets does not count
    nft("table ip f {\nchain c {\ntype filter hook input priority 0\nudp dport 9 drop\n}\n}");
    again("with rules of input");
    nft("table ip g {\nchain c {\ntype filter hook input priority 0\nct state invalid drop\n}\n}");
    none("connections are tracked");
    nft("delete table ip g");
    again("without conntrack");
    tool("sysctl -qw net.ipv4.conf.all.accept_redirects=1");
    none("accept_redirects");
    tool("sysctl -qw net.ipv4.conf.all.accept_redirects=0");
    again("without redirects");
    // who looks at what leaves sees it
    let mut tcpdump = Command::new("tcpdump");
    tcpdump.args(["-i", "wan0", "-w", "/dev/null", "-c", "100000"]);
    let mut tcpdump = lab.router().spawn(tcpdump.stderr(Stdio::null())).unwrap();
    until("a port that is looked at", PATIENCE, || {
        let answer = &router.json(&["routes", "203.0.113.9"])["answer"];
        (answer["fast"] == false).then_some(())
    });
    let before = routed(&router);
    left(&lab, &frames);
    assert_eq!(routed(&router), before);
    tcpdump.kill().unwrap();
    tcpdump.wait().unwrap();
    again("without who looks");
    tool("sysctl -qw net.ipv4.conf.lan0.forwarding=0");
    none("does not forward");
    assert_eq!(left(&lab, &frames).values().sum::<usize>(), 0);
    tool("sysctl -qw net.ipv4.conf.lan0.forwarding=1");
    router.stop();
    let router = Router::start_with(&lab, &format!("{ON}udp_one_way = false\n"));
    wait_for_reason(&router, "ipv4", "udp_one_way");
}

/// True once these ports and no others have prefix paths, and the family is one of theirs.
fn active_at(routes: &Value, family: &str, ports: &[&str]) -> bool {
    let of_family = &routes[family];
    of_family["active"] == true
        && of_family["loading"] == false
        && routes["ports"] == serde_json::json!(ports)
}

/// What is kept, of whatever family, and why.
fn kept_at(routes: &Value, port: &str) -> String {
    let kept = routes["ports_kept"].as_array().unwrap().iter();
    let mut of_port = kept.filter(|kept| kept["port"] == port);
    let reason = of_port.next().map(|kept| kept["reason"].as_str().unwrap());
    reason.unwrap_or_default().to_owned()
}

#[test]
fn rules_that_let_all_of_a_port_pass_are_in_nobodys_way() {
    let Some(_machine) = machine() else { return };
    let lab = build("routed");
    ip(&lab, "route add 203.0.113.0/24 via 198.51.100.2");
    let router = Router::start_with(&lab, ON);
    wait(&router, "prefix paths", active);
    let frames = strangers(300);
    let nft = |text: &str| {
        let text = format!("flush ruleset\n{text}");
        lab.router().tool_with_input("nft -f -", &text).unwrap();
    };
    let everything = |what: &str| {
        let by_routes = left(&lab, &frames);
        assert_eq!(by_routes.values().sum::<usize>(), frames.len(), "{what}");
    };
    // others' rules, and rules that say the same either way
    nft("table inet f {
        chain raw { type filter hook prerouting priority raw; iifname \"wan0\" log\n}
        chain forward {
            type filter hook forward priority 0; policy drop
            iifname \"wan0\" udp dport 9 drop
            udp sport 1001 accept
            iifname \"lan0\" accept
            iifname \"wan0\" counter accept
        }
    }");
    let at_lan = |routes: &Value| active_at(routes, "ipv4", &["lan0"]);
    let routes = wait(&router, "rules of others", at_lan);
    let why = kept_at(&routes, "wan0");
    assert!(
        why.contains("chain raw of table inet f") && why.contains("has log"),
        "{why}"
    );
    confirm(&lab, &router, &frames);
    everything("rules of others");
    // to where there is a port that is not asked for
    nft("table ip f {
        chain forward { type filter hook forward priority 0; policy drop; oifname \"wan0\" accept\n}
    }");
    let none = wait_for_reason(
        &router,
        "ipv4",
        "the policy of chain forward of table ip f drops",
    );
    println!("{}", none["ports_kept"]);
    everything("an output");
    // conntrack has none of a port's packets, and all of the others'
    let stateful = |raw: &str| {
        format!(
            "table inet f {{
            chain raw {{ type filter hook prerouting priority raw; {raw}\n}}
            chain forward {{
                type filter hook forward priority 0; policy drop
                ct state established,related accept
                ct state invalid drop
                ct state untracked,new accept
            }}
        }}"
        )
    };
    nft(&stateful("iifname \"lan0\" notrack"));
    let routes = wait(&router, "a port that is not tracked", at_lan);
    let why = kept_at(&routes, "wan0");
    assert!(why.contains("connections are tracked"), "{why}");
    confirm(&lab, &router, &frames);
    everything("a port that is not tracked");
    nft(&stateful("iifname \"lan0\" udp dport 9 notrack"));
    wait_for_reason(&router, "ipv4", "connections are tracked");
    everything("a port that is tracked");
    let before = routed(&router);
    assert!(
        before >= frames.len() as u64,
        "what has left is still told: {before}"
    );
    everything("a port that is tracked");
    assert_eq!(routed(&router), before);
    // a rule that drops one of them is the kernel's at once
    nft(&stateful("iifname \"lan0\" notrack"));
    wait(&router, "a port that is not tracked", at_lan);
    confirm(&lab, &router, &frames);
    let add = "insert rule inet f forward udp sport 1001 drop";
    lab.router().tool_with_input("nft -f -", add).unwrap();
    wait_for_reason(&router, "ipv4", "drops packets");
    assert_eq!(
        left(&lab, &frames).values().sum::<usize>(),
        frames.len() - 1
    );
    nft("");
    wait(&router, "no rules", active);
    confirm(&lab, &router, &frames);
    assert_eq!(router.json(&["routes"])["contradicted"], 0);
}

#[test]
fn sources_and_ttls_are_judged_as_the_kernel_judges_them() {
    sources_and_ttls_are_judged(in_xdp);
}

#[test]
fn what_the_kernel_sends_otherwise_waits_at_once() {
    contradictions_end_next_hops(in_xdp);
}

/// Tables that change at random, and packets to their ends: each leaves where the kernel alone sends it.
#[test]
fn random_tables_route_as_the_kernel_does() {
    let Some(_machine) = machine() else { return };
    let lab = build("routed");
    for last in 10..18 {
        neighbour(&lab, last);
    }
    let router = Router::start_with(&lab, ON);
    wait(&router, "prefix paths", active);
    let mut random = Random(0x5eed);
    let rounds = if long() { 60 } else { 4 };
    let mut there: BTreeMap<String, ()> = BTreeMap::new();
    let mut number = 0u16;
    let mut fast = 0;
    let mut all = 0;
    for round in 0..rounds {
        let mut batch = String::new();
        for _ in 0..60 {
            let len = 12 + random.below(21) as u32;
            let address =
                (0x0a00_0000 | random.draw() as u32 & 0x000f_ffff) >> (32 - len) << (32 - len);
            let prefix = format!("{}/{len}", Ipv4Addr::from(address));
            let hop = 10 + random.below(8);
            let way = match random.below(12) {
                0 => "blackhole".to_owned(),
                1 => "unreachable".to_owned(),
                _ => String::new(),
            };
            let via = match (way.is_empty(), random.below(10)) {
                (false, _) => String::new(),
                (true, 0) => "dev wan0".to_owned(),
                (true, 1) => format!("nexthop via 198.51.100.{hop} nexthop via 198.51.100.10"),
                (true, 2) => format!("via 198.51.100.{hop} mtu 60"),
                (true, _) => format!("via 198.51.100.{hop}"),
            };
            if there.contains_key(&prefix) && random.below(3) == 0 {
                batch += &format!("route del {prefix}\n");
                there.remove(&prefix);
            } else {
                batch += &format!("route replace {way} {prefix} {via}\n");
                there.insert(prefix, ());
            }
        }
        lab.router().tool_with_input("ip -batch -", &batch).unwrap();
        let mut frames = Vec::new();
        for prefix in there.keys() {
            let (address, len) = prefix.split_once('/').unwrap();
            let first = u32::from(address.parse::<Ipv4Addr>().unwrap());
            let last = first | u32::MAX.checked_shr(len.parse().unwrap()).unwrap_or(0);
            for address in [first, last, first.wrapping_sub(1), last.wrapping_add(1)] {
                number = number.wrapping_add(1);
                frames.push(packet(client(), address.into(), number));
            }
        }
        all += frames.len() as u64;
        match compare(&lab, &router, "ipv4", &frames) {
            Ok(by_prefixes) => fast += by_prefixes,
            Err(frame) => {
                let to = Ipv4Addr::new(frame[30], frame[31], frame[32], frame[33]);
                let known = &router.json(&["routes", &to.to_string()])["answer"];
                panic!("round {round}: {frame:02x?}: {known}");
            }
        }
    }
    println!("{fast} of {all} by prefixes");
    assert!(fast * 10 > all, "{fast} of {all}");
}
