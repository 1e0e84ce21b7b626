// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets without flows: how they are sent, what leaves, and what is to be so wherever they leave by prefixes.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use freeway_lab::frame::{MAC_CLIENT, MAC_LAN, sum16};
use freeway_lab::{Capture, Injector, Lab};
use freeway_testkit::*;
use nix::sys::signal::Signal;
use serde_json::Value;

/// A loaded machine may take its time.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub const ON: &str = "[policy]\nroutes = true\n";

/// What leaves: the neighbour's MAC address, and the rest as it is.
pub type Left = BTreeMap<Vec<u8>, usize>;

/// A packet that is like no other.
pub fn packet(src: Ipv4Addr, dst: Ipv4Addr, number: u16) -> Vec<u8> {
    with_ttl(src, dst, number, 64)
}

pub fn with_ttl(src: Ipv4Addr, dst: Ipv4Addr, number: u16, ttl: u8) -> Vec<u8> {
    let mut l4 = vec![0u8; 26];
    l4[0..2].copy_from_slice(&number.to_be_bytes());
    l4[2..4].copy_from_slice(&7000u16.to_be_bytes());
    l4[4..6].copy_from_slice(&26u16.to_be_bytes());
    let mut ip = vec![0x45, 0];
    for word in [20 + l4.len() as u16, number, 0x4000] {
        ip.extend(word.to_be_bytes());
    }
    ip.extend([ttl, 17, 0, 0]);
    ip.extend(src.octets());
    ip.extend(dst.octets());
    let sum = !sum16(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    [&MAC_LAN[..], &MAC_CLIENT, &[8, 0], &ip, &l4].concat()
}

pub fn client() -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, 2)
}

/// Packets from many ports to many addresses of a prefix, each a conversation of its own.
pub fn strangers(count: u16) -> Vec<Vec<u8>> {
    let dst = |n: u16| Ipv4Addr::new(203, 0, 113, (n % 250) as u8);
    (0..count)
        .map(|n| packet(client(), dst(n), 1000 + n))
        .collect()
}

/// Sends frames; what arrived at the server's port.
pub fn left(lab: &Lab, frames: &[Vec<u8>]) -> Left {
    let mut capture = Capture::open(lab.server_port()).unwrap();
    let injector = Injector::open(lab.client_port()).unwrap();
    injector.send_all(frames, Duration::ZERO).unwrap();
    // to port 7000, behind whatever headers
    let ours = |frame: &[u8]| {
        // with a tag or without
        let tagged = frame.get(12..14) == Some(&[0x81, 0]) && frame.len() > 16;
        let frame = match tagged {
            true => &[&frame[..12], &frame[16..]].concat(),
            false => frame,
        };
        let is_ip4 = frame.len() > 38 && frame[12..14] == [8, 0] && frame[23] == 17;
        let port = frame
            .get(frame.len().wrapping_sub(24)..)
            .and_then(|udp| udp.get(..2));
        is_ip4 && frame[36..38] == [0x1b, 0x58]
            || frame.get(12..14) == Some(&[0x86, 0xdd]) && port == Some(&[0x1b, 0x58])
    };
    let there = capture.drain(crate::QUIET, ours).unwrap();
    assert_eq!(capture.dropped().unwrap(), 0);
    let mut left = Left::new();
    for frame in there {
        *left.entry(frame.bytes).or_default() += 1;
    }
    left
}

/// Destination MAC addresses of what left.
pub fn stations(left: &Left) -> BTreeMap<[u8; 6], usize> {
    let mut stations = BTreeMap::new();
    for (frame, count) in left {
        *stations.entry(frame[..6].try_into().unwrap()).or_default() += count;
    }
    stations
}

pub fn ip(lab: &Lab, arguments: &str) {
    lab.router().tool(&format!("ip {arguments}")).unwrap();
}

pub fn set_rp_filter(lab: &Lab, value: u32) {
    for name in ["lan0", "all"] {
        let path = format!("net/ipv4/conf/{name}/rp_filter");
        lab.router().sysctl(&path, &value.to_string()).unwrap();
    }
}

#[track_caller]
pub fn wait(router: &Router, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    until(what, PATIENCE, || {
        let routes = router.json(&["routes"]);
        wanted(&routes).then_some(routes)
    })
}

pub fn active(routes: &Value) -> bool {
    active_in("ipv4", routes)
}

pub fn active_in(family: &str, routes: &Value) -> bool {
    let of_family = &routes[family];
    of_family["active"] == true
        && of_family["loading"] == false
        && routes["ports"].as_array().unwrap().len() == 2
}

pub fn routed(router: &Router) -> u64 {
    router.json(&["routes"])["routed"]["packets"]
        .as_u64()
        .unwrap()
}

/// Sends until the next hop of these packets is confirmed.
pub fn confirm(lab: &Lab, router: &Router, frames: &[Vec<u8>]) {
    until("a confirmed next hop", PATIENCE, || {
        let before = routed(router);
        left(lab, frames);
        (routed(router) > before).then_some(())
    });
}

/// Sends until all of it arrives at one station, or nothing anywhere: an event is on its way for some time.
#[track_caller]
pub fn all_to(lab: &Lab, frames: &[Vec<u8>], what: &str, wanted: Option<[u8; 6]>) {
    until(what, PATIENCE, || {
        let there = stations(&left(lab, frames));
        let only = there.keys().all(|mac| Some(*mac) == wanted);
        let count: usize = there.values().sum();
        let wanted = if wanted.is_some() { frames.len() } else { 0 };
        (only && count == wanted).then_some(())
    });
}

pub fn station(last: u8) -> [u8; 6] {
    [2, 0, 0, 0, 9, last]
}

/// A neighbour at the server's wire, which is nobody.
pub fn neighbour(lab: &Lab, last: u8) {
    ip(
        lab,
        &format!(
            "neigh replace 198.51.100.{last} lladdr 02:00:00:00:09:{last:02x} nud permanent dev wan0"
        ),
    );
}

/// Sends frames: nothing leaves but what the kernel has sent, and at the last try all of that does.
fn leaves_as(lab: &Lab, frames: &[Vec<u8>], by_kernel: &Left, tried: usize) -> bool {
    let by_routes = left(lab, frames);
    // or left twice
    let mut there = by_routes.iter();
    let strange = there.find(|(frame, count)| by_kernel.get(*frame) < Some(*count));
    assert!(strange.is_none(), "{strange:02x?}");
    let mut kept = by_kernel.iter();
    let other = kept.find(|(frame, count)| by_routes.get(*frame) != Some(*count));
    assert!(other.is_none() || tried < crate::TRIES, "{other:02x?}");
    other.is_none()
}

/// By prefixes what leaves is what the kernel has sent, and more than `least` of it leaves so.
pub fn most_leave_as(router: &Router, lab: &Lab, frames: &[Vec<u8>], by_kernel: &Left, least: u64) {
    let most = |tried: usize| {
        let before = routed(router);
        let same = leaves_as(lab, frames, by_kernel, tried);
        let fast = routed(router) - before;
        println!("{fast} of {} by prefixes", frames.len());
        // one that stands still for long has the kernel take over
        assert!(fast > least || tried < crate::TRIES, "{fast}");
        same && fast > least
    };
    assert!((1..=crate::TRIES).any(most));
}

pub fn leave_as_the_kernel_sends_them<R: Borrow<Router>>(start: impl Fn(&Lab) -> R) {
    let Some(_machine) = machine() else { return };
    let lab = build("routed");
    ip(&lab, "route add 203.0.113.0/24 via 198.51.100.2");
    let frames = strangers(2000);
    let by_kernel = left(&lab, &frames);
    assert_eq!(by_kernel.values().sum::<usize>(), frames.len());
    let started = start(&lab);
    let router = started.borrow();
    wait(router, "prefix paths", active);
    confirm(&lab, router, &frames[..20]);
    most_leave_as(router, &lab, &frames, &by_kernel, 1000);
    let routes = router.json(&["routes"]);
    assert_eq!(routes["contradicted"], 0, "{routes}");
    let status = router.status();
    assert!(
        status["ports"]
            .as_array()
            .unwrap()
            .iter()
            .all(|port| port["routes"] == true)
    );
    // what is on the link has a neighbour of its own
    let near: Vec<_> = (0..500)
        .map(|n| packet(client(), Ipv4Addr::new(198, 51, 100, 2), 1000 + n))
        .collect();
    confirm(&lab, router, &near);
    let answer = &router.json(&["routes", "203.0.113.9"])["answer"];
    assert_eq!(answer["prefix"], "203.0.113.0/24", "{answer}");
    assert_eq!(
        (&answer["fast"], &answer["agrees"]),
        (&true.into(), &true.into()),
        "{answer}"
    );
    assert_eq!(answer["neighbour"], "198.51.100.2", "{answer}");
    let udp = [
        "explain",
        "udp",
        "192.0.2.2:1000",
        "203.0.113.9:7000",
        "--watch",
        "0",
    ];
    let explain = router.json(&udp);
    assert_eq!(explain["verdict"], "fast", "{explain}");
    assert!(
        explain["summary"]
            .as_str()
            .unwrap()
            .contains("203.0.113.0/24"),
        "{explain}"
    );
}

pub fn changes_are_followed<R: Borrow<Router>>(start: impl Fn(&Lab) -> R) {
    let Some(_machine) = machine() else { return };
    let lab = build("routed");
    for last in 10..13 {
        neighbour(&lab, last);
    }
    ip(&lab, "route add 203.0.113.0/24 via 198.51.100.10");
    let started = start(&lab);
    let router = started.borrow();
    wait(router, "prefix paths", active);
    let frames = strangers(200);
    let all_to = |what: &str, wanted| all_to(&lab, &frames, what, wanted);
    all_to("the first", Some(station(10)));
    confirm(&lab, router, &frames);
    let fast = |what: &str| {
        let before = routed(router);
        confirm(&lab, router, &frames);
        assert!(routed(router) > before, "{what}");
    };
    ip(&lab, "route replace 203.0.113.0/24 via 198.51.100.11");
    all_to("another gateway", Some(station(11)));
    fast("another gateway");
    ip(&lab, "route add 203.0.113.0/25 via 198.51.100.12");
    ip(&lab, "route add 203.0.113.128/25 via 198.51.100.12");
    all_to("more specific routes", Some(station(12)));
    fast("more specific routes");
    ip(
        &lab,
        "neigh replace 198.51.100.12 lladdr 02:00:00:00:09:63 nud permanent dev wan0",
    );
    all_to("another station", Some(station(0x63)));
    fast("another station");
    ip(&lab, "route replace blackhole 203.0.113.0/25");
    ip(&lab, "route replace blackhole 203.0.113.128/25");
    all_to("nowhere", None);
    ip(&lab, "route del 203.0.113.0/25");
    ip(&lab, "route del 203.0.113.128/25");
    all_to("the shorter one again", Some(station(11)));
    fast("the shorter one again");
    ip(&lab, "route add 203.0.113.0/24 via 198.51.100.10 tos 0x10");
    all_to("a TOS beside it", Some(station(11)));
    let answer = &router.json(&["routes", "203.0.113.9"])["answer"];
    assert!(
        answer["reason"].as_str().unwrap().contains("TOS"),
        "{answer}"
    );
    ip(&lab, "route del 203.0.113.0/24 tos 0x10");
    fast("without TOS");
    // the kernel deletes routes of a port that goes down, and does not tell
    ip(&lab, "link set wan0 down");
    ip(&lab, "link set wan0 up");
    all_to("no route", None);
    for last in 10..12 {
        neighbour(&lab, last);
    }
    ip(&lab, "route add 203.0.113.0/24 via 198.51.100.11");
    all_to("a route again", Some(station(11)));
    fast("a route again");
    let routes = router.json(&["routes"]);
    println!("{routes}");
}

pub fn sources_and_ttls_are_judged<R: Borrow<Router>>(start: impl Fn(&Lab) -> R) {
    let Some(_machine) = machine() else { return };
    let lab = build("routed");
    ip(&lab, "route add 203.0.113.0/24 via 198.51.100.2");
    ip(&lab, "route add 10.0.0.0/8 via 198.51.100.2");
    ip(&lab, "route add blackhole 10.9.0.0/16");
    ip(&lab, "address add 192.0.2.77/32 dev lan0");
    let started = start(&lab);
    let router = started.borrow();
    wait(router, "prefix paths", active);
    let dst = Ipv4Addr::new(203, 0, 113, 5);
    let mut frames = Vec::new();
    for (n, src) in [
        [192, 0, 2, 2],
        [192, 0, 2, 200],
        [192, 0, 2, 255],
        [192, 0, 2, 1],
        [192, 0, 2, 77],
        [198, 51, 100, 1],
        [198, 51, 100, 2],
        [10, 1, 1, 1],
        [10, 9, 1, 1],
        [172, 16, 1, 1],
        [0, 0, 0, 0],
        [0, 1, 2, 3],
        [127, 0, 0, 1],
        [224, 1, 1, 1],
        [240, 1, 1, 1],
        [255, 255, 255, 255],
    ]
    .into_iter()
    .enumerate()
    {
        frames.push(packet(src.into(), dst, 2000 + n as u16));
    }
    for (n, ttl) in [0, 1, 2, 255].into_iter().enumerate() {
        frames.push(with_ttl(client(), dst, 3000 + n as u16, ttl));
    }
    for (n, dst) in [
        [0, 0, 0, 1],
        [127, 1, 1, 1],
        [224, 1, 1, 1],
        [255, 255, 255, 255],
        [192, 0, 2, 255],
        [198, 51, 100, 255],
        [192, 0, 2, 1],
        [10, 9, 1, 1],
        [172, 16, 1, 1],
    ]
    .into_iter()
    .enumerate()
    {
        frames.push(packet(client(), dst.into(), 4000 + n as u16));
    }
    for rp_filter in [0, 2, 1] {
        set_rp_filter(&lab, rp_filter);
        assert!(router.run(&["off"]).status.success());
        let by_kernel = left(&lab, &frames);
        assert!(router.run(&["on"]).status.success());
        wait(router, "prefix paths", active);
        let plain = strangers(50);
        confirm(&lab, router, &plain);
        let before = routed(router);
        for _ in 0..5 {
            let same = |tried| leaves_as(&lab, &frames, &by_kernel, tried);
            assert!((1..=crate::TRIES).any(same), "rp_filter {rp_filter}");
        }
        let fast = routed(router) - before;
        println!(
            "rp_filter {rp_filter}: {} left, {fast} of five times by prefixes",
            by_kernel.len()
        );
        assert!(fast > 0);
    }
}

/// Waits until no port has prefix paths of a family, or some port has none, for a reason; what is said then.
#[track_caller]
pub fn wait_for_reason(router: &Router, family: &str, why: &str) -> Value {
    wait(router, why, |routes| {
        let reason = routes[family]["reason"].as_str().unwrap_or_default();
        let kept = routes["ports_kept"].as_array().unwrap();
        let at_a_port = |port: &Value| port["reason"].as_str().unwrap().contains(why);
        reason.contains(why) || kept.iter().any(at_a_port)
    })
}

/// A next hop that the kernel no longer uses waits, even if nobody was told: the frames themselves say so.
pub fn contradictions_end_next_hops<R: Borrow<Router>>(start: impl Fn(&Lab) -> R) {
    let Some(_machine) = machine() else { return };
    let lab = build("routed");
    for last in 10..12 {
        neighbour(&lab, last);
    }
    ip(&lab, "route add 203.0.113.0/24 via 198.51.100.10");
    let started = start(&lab);
    let router = started.borrow();
    wait(router, "prefix paths", active);
    let frames = strangers(20);
    let contradicted = || router.stats().reason("route_contradicted");
    // a daemon that stands still for too long is an end of its own: then it is tried again
    until("a contradiction", PATIENCE, || {
        for last in [11, 10] {
            confirm(&lab, router, &frames);
            let before = contradicted();
            router.signal(Signal::SIGSTOP);
            ip(
                &lab,
                &format!("route replace 203.0.113.0/24 via 198.51.100.{last}"),
            );
            let by_new = |_| {
                stations(&left(&lab, &frames))
                    .keys()
                    .all(|mac| *mac == station(last))
            };
            let turned = (0..10).any(by_new);
            let still = stations(&left(&lab, &frames));
            router.signal(Signal::SIGCONT);
            router.wait_in_step();
            assert!(
                turned && still.keys().all(|mac| *mac == station(last)),
                "{still:?}"
            );
            if contradicted() > before {
                return Some(());
            }
        }
        None
    });
    // the daemon goes by the event: nothing is withdrawn
    confirm(&lab, router, &frames);
    assert_eq!(router.json(&["routes"])["ipv4"]["withdrawn"], 0);
}
