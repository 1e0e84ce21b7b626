// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prefix paths of the engine: what comes in at its ports without a flow leaves by the kernel's routes, ahead of the kernel,
//! which confirms them at the TAPs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../paths/strangers.rs"]
mod strangers;
#[path = "../paths/strangers6.rs"]
mod strangers6;
#[path = "../paths/tags.rs"]
mod tags;

use std::borrow::Borrow;
use std::process::{Command, Stdio};
use std::time::Duration;

use freeway_lab::Lab;
use freeway_testkit::engine::{Engine, TOLD, take_ports};
use freeway_testkit::*;
use strangers::*;

/// After so long nothing more leaves: the engine is a thread among others.
const QUIET: Duration = Duration::from_millis(500);
/// One that is held up for long drops what the kernel would have had.
const TRIES: usize = 5;
const ENDS: [&str; 2] = ["lan0", "wan0"];

/// A daemon, and the engine whose ports are the router's.
struct Site {
    router: Router,
    _engine: Engine,
}

impl Borrow<Router> for Site {
    fn borrow(&self) -> &Router {
        &self.router
    }
}

fn engine_at(lab: &Lab) -> Engine {
    // a burst of frames is longer than the devices' rings are by default
    Engine::start_keeping(lab, || {
        take_ports(lab).replace(",iface=", ",framecnt=4096,iface=")
    })
}

impl Site {
    fn start(lab: &Lab) -> Self {
        let engine = engine_at(lab);
        Self {
            router: Engine::daemon(lab.router(), ON, &ENDS),
            _engine: engine,
        }
    }
}

/// What it has told of it, which it does once a second.
fn by_engine(router: &Router) -> u64 {
    router.status()["engine"]["counts"]["routed"]
        .as_u64()
        .unwrap()
}

/// tc forwards at TAPs, too: it is not tc that does.
#[test]
fn what_has_no_flow_is_forwarded_ahead_of_the_kernel() {
    let Some(_machine) = machine() else { return };
    let lab = build("routed");
    ip(&lab, "route add 203.0.113.0/24 via 198.51.100.2");
    let site = Site::start(&lab);
    let router = &site.router;
    wait(router, "prefix paths", active);
    let frames = strangers(500);
    confirm(&lab, router, &frames);
    until("most of them forwarded by the engine", PATIENCE, || {
        let (before, all_before) = (by_engine(router), routed(router));
        left(&lab, &frames);
        std::thread::sleep(TOLD);
        let (fast, all) = (by_engine(router) - before, routed(router) - all_before);
        println!("{fast} by the engine, of {all} without a flow");
        // it says so later than the counters do
        (fast > 400 && all >= fast).then_some(())
    });
    let routes = router.json(&["routes"]);
    assert_eq!(routes["contradicted"], 0, "{routes}");
    let hops = routes["next_hops"].as_array().unwrap();
    assert!(hops.iter().any(|hop| hop["path"] == "engine"), "{routes}");
    let answer = &router.json(&["routes", "203.0.113.9"])["answer"];
    assert_eq!(answer["path"], "engine", "{answer}");
    // the kernel is asked by few of them
    let asked = || router.json(&["routes"])["asked"].as_u64().unwrap();
    let before = asked();
    let mut sent = 0;
    until("packets that ask", PATIENCE, || {
        left(&lab, &frames);
        sent += frames.len() as u64;
        (asked() > before).then_some(())
    });
    let times = asked() - before;
    println!("asked {times} times by {sent} packets");
    assert!(times * 10 < sent, "{times} of {sent}");
}

#[test]
fn packets_leave_by_the_engine_as_the_kernel_sends_them() {
    leave_as_the_kernel_sends_them(Site::start);
}

#[test]
fn packets_of_ipv6_leave_by_the_engine_as_the_kernel_sends_them() {
    strangers6::leave_as_the_kernel_sends_them(Site::start);
}

#[test]
fn a_change_of_the_kernel_is_one_in_the_engine() {
    changes_are_followed(Site::start);
}

#[test]
fn a_change_of_ipv6_is_one_in_the_engine() {
    strangers6::changes_are_followed(Site::start);
}

#[test]
fn sources_and_ttls_are_judged_in_the_engine_as_the_kernel_judges_them() {
    sources_and_ttls_are_judged(Site::start);
}

#[test]
fn what_the_kernel_sends_otherwise_waits_in_the_engine_at_once() {
    contradictions_end_next_hops(Site::start);
}

/// Its device goes on receiving.
#[test]
fn a_tap_that_is_down_hands_in_nothing() {
    let Some(_machine) = machine() else { return };
    let lab = build("routed");
    ip(&lab, "route add 203.0.113.0/24 via 198.51.100.2");
    let site = Site::start(&lab);
    // or nothing would lead back to the sources
    set_rp_filter(&lab, 0);
    let router = &site.router;
    let frames = strangers(200);
    for _ in 0..2 {
        wait(router, "prefix paths", active);
        confirm(&lab, router, &frames);
        ip(&lab, "link set lan0 down");
        // its next hop stays confirmed for a while
        router.wait_in_step();
        let again = |routes: &serde_json::Value| {
            let ipv4 = &routes["ipv4"];
            ipv4["active"] == true && ipv4["loading"] == false
        };
        wait(router, "the routes that were left", again);
        assert_eq!(left(&lab, &frames).len(), 0);
        ip(&lab, "link set lan0 up");
    }
}

/// What a scheduler is to see has flows, in the class that the kernel gives it; the table goes and comes.
#[test]
fn what_a_scheduler_sees_has_flows() {
    let Some(_machine) = machine() else { return };
    let lab = build("routed");
    ip(&lab, "route add 203.0.113.0/24 via 198.51.100.2");
    let site = Site::start(&lab);
    let router = &site.router;
    let frames = strangers(20);
    let by_routes = |what: &str| {
        wait(router, what, active);
        confirm(&lab, router, &frames);
        until(what, PATIENCE, || {
            let answer = &router.json(&["routes", "203.0.113.9"])["answer"];
            left(&lab, &frames);
            (answer["path"] == "engine").then_some(())
        });
    };
    by_routes("prefix paths");
    let tool = |line: &str| drop(lab.router().tool(line).unwrap());
    tool("tc qdisc replace dev wan0 root tbf rate 1gbit burst 1mb latency 50ms");
    until("flows of the engine's", PATIENCE, || {
        let all = left(&lab, &frames).values().sum::<usize>() == frames.len();
        let flows = router.flows("proto udp state active");
        let by_engine = flows.iter().filter(|flow| flow["path"] == "engine");
        (all && by_engine.count() == frames.len()).then_some(())
    });
    tool("tc qdisc del dev wan0 root");
    by_routes("no scheduler");
    let nft = |text: &str| drop(lab.router().tool_with_input("nft -f -", text).unwrap());
    nft("table ip g {\nchain c {\ntype filter hook input priority 0\nct state invalid drop\n}\n}");
    wait_for_reason(router, "ipv4", "connections are tracked");
    until("all by the kernel", PATIENCE, || {
        let all = left(&lab, &frames).values().sum::<usize>() == frames.len();
        all.then_some(())
    });
    nft("delete table ip g");
    by_routes("another table");
    assert_eq!(router.json(&["routes"])["contradicted"], 0);
}

/// Nothing but the packets themselves asks: of few, one of the first does.
#[test]
fn a_packet_now_and_then_confirms_a_next_hop() {
    let Some(_machine) = machine() else { return };
    let lab = build("routed");
    ip(&lab, "route add 203.0.113.0/24 via 198.51.100.2");
    let site = Site::start(&lab);
    let router = &site.router;
    let frames = strangers(10);
    let confirmed = || {
        let routes = router.json(&["routes"]);
        let hops = routes["next_hops"].as_array().unwrap();
        let mut hops = hops.iter().filter(|hop| hop["neighbour"] == "198.51.100.2");
        hops.any(|hop| hop["state"] == "confirmed")
    };
    until("a next hop that few packets confirm", PATIENCE, || {
        assert!(router.run(&["off"]).status.success());
        assert!(router.run(&["on"]).status.success());
        wait(router, "prefix paths", active);
        // a daemon that is held up is an end of its own
        let packets = frames.iter().position(|frame| {
            left(&lab, std::slice::from_ref(frame));
            confirmed()
        });
        println!("confirmed after {packets:?} packets");
        packets.filter(|packets| *packets < 3)
    });
}

/// Each VLAN at a TAP is a port of its own; the engine takes tags off and puts them on.
#[test]
fn vlans_leave_by_the_engine_with_their_tags() {
    let Some(_machine) = machine() else { return };
    let lab = build("routed");
    let _engine = engine_at(&lab);
    if !tags::add_vlans(&lab) {
        return;
    }
    let router = &Engine::daemon_for(lab.router(), ON, &tags::PORTS, &ENDS);
    tags::wait_ports(router, &tags::PORTS);
    let before = by_engine(router);
    tags::leave_with_their_tags(&lab, router, "engine");
    std::thread::sleep(TOLD);
    let fast = by_engine(router) - before;
    println!("{fast} by the engine");
    // who looks at the TAP sees what comes in with a tag
    let mut tcpdump = Command::new("tcpdump");
    tcpdump.args(["-i", "lan0", "-w", "/dev/null", "-c", "100000"]);
    let mut tcpdump = lab.router().spawn(tcpdump.stderr(Stdio::null())).unwrap();
    let of_vlan = tags::frames(true, true);
    until("a TAP that is looked at", PATIENCE, || {
        let before = by_engine(router);
        let all = left(&lab, &of_vlan).values().sum::<usize>() == of_vlan.len();
        std::thread::sleep(TOLD);
        (all && by_engine(router) == before).then_some(())
    });
    tcpdump.kill().unwrap();
    tcpdump.wait().unwrap();
    // of four kinds each at least half went by prefixes
    assert!(
        fast > 4 * u64::from(tags::FRAMES) / 2,
        "{fast} by the engine"
    );
}
