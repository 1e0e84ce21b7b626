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
use std::time::{Duration, Instant};

use freeway_lab::Lab;
use freeway_testkit::engine::{Engine, take_ports};
use freeway_testkit::*;
use strangers::*;

/// The engine tells what it has forwarded once a second.
const TOLD: Duration = Duration::from_millis(2500);

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

impl Site {
    /// Takes the ports of a lab's router, whose routes and neighbours stay.
    fn start(lab: &Lab) -> Self {
        let tool = |line: &str| lab.router().tool(line).unwrap();
        let mut kept = Vec::new();
        for family in ["-4", "-6"] {
            let routes = tool(&format!("ip {family} route show table main"));
            let ours = routes
                .lines()
                .filter(|route| !route.contains("proto kernel"));
            kept.extend(ours.map(|route| format!("ip {family} route replace {route}")));
        }
        let neighbours = tool("ip neigh show nud permanent");
        let neighbours = neighbours
            .lines()
            .map(|neighbour| neighbour.replace("PERMANENT", "nud permanent"));
        let extra = tool("ip -o address show dev lan0");
        let extra = extra.lines().filter(|line| line.contains("/32"));
        let extra = extra.map(|line| line.split_whitespace().nth(3).unwrap().to_owned());
        let extra: Vec<_> = extra
            .map(|address| format!("ip address add {address} dev lan0"))
            .collect();
        let neighbours: Vec<_> = neighbours
            .map(|neighbour| format!("ip neigh replace {neighbour}"))
            .collect();
        // a burst of frames is longer than the devices' rings are by default
        let config = take_ports(lab).replace(",iface=", ",framecnt=4096,iface=");
        let engine = Engine::start(lab, &config);
        for line in extra.iter().chain(&neighbours).chain(&kept) {
            tool(line);
        }
        let router = Engine::daemon(lab.router(), ON, &["lan0", "wan0"]);
        Self {
            router,
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
    // the kernel is asked, and not more often than each second
    let asked = |routes: &serde_json::Value| routes["asked"].as_u64().unwrap();
    let before = asked(&router.json(&["routes"]));
    let begun = Instant::now();
    for _ in 0..5 {
        left(&lab, &frames);
    }
    let seconds = begun.elapsed().as_secs() + 1;
    let times = asked(&router.json(&["routes"])) - before;
    println!("asked {times} times in {seconds} s");
    // of the next hop, and of its block of addresses
    assert!(times <= 4 * seconds, "{times} in {seconds} s");
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

/// Each VLAN at a TAP is a port of its own; the engine takes tags off and puts them on.
#[test]
fn vlans_leave_by_the_engine_with_their_tags() {
    let Some(_machine) = machine() else { return };
    let lab = build("routed");
    let site = Site::start(&lab);
    if !tags::add_vlans(&lab) {
        return;
    }
    let router = &site.router;
    tags::wait_ports(router, &tags::PORTS);
    let before = by_engine(router);
    tags::leave_with_their_tags(&lab, router, "engine");
    std::thread::sleep(TOLD);
    let fast = by_engine(router) - before;
    println!("{fast} by the engine");
    // of four kinds each at least half went by prefixes
    assert!(
        fast > 4 * u64::from(tags::FRAMES) / 2,
        "{fast} by the engine"
    );
}
