// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scheduler of an engine's output: the kernel's qdiscs at its TAP taken over.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use freeway_lab::Lab;
use freeway_testkit::engine::{Engine, take_ports};
use freeway_testkit::*;
use serde_json::Value;

/// Octets a second.
const RATE: u64 = 1_000_000;
const PAYLOAD: usize = 1200;
/// Of a frame with that payload, as the kernel and the engine count it.
const FRAME: u64 = 14 + 20 + 8 + PAYLOAD as u64;
const OTHER: &str = "198.51.100.2:5001";

fn class_of(router: &Router, name: &str) -> Option<Value> {
    let status = router.status();
    let classes = status["engine"]["classes"].as_array()?;
    let mut classes = classes.iter();
    classes.find(|class| class["class"] == name).cloned()
}

#[track_caller]
fn until_class(router: &Router, ends: &(UdpSocket, UdpSocket), server: &str, words: &str) {
    path::until_path(router, ends, address(server), "engine");
    until(words, Duration::from_secs(20), || {
        let explained = path::explain(router, ends, CLIENT, server);
        explained["notes"].to_string().contains(words).then_some(())
    });
}

/// Sends much more than the rate for a while; octets of frames that arrived, and the time from the first one sent to the
/// last one that arrived.
fn flood(ends: &(UdpSocket, UdpSocket), server: SocketAddr) -> (u64, Duration) {
    let begun = Instant::now();
    let (mut arrived, mut last) = (0, begun);
    let mut room = [0; 2048];
    ends.1.set_nonblocking(true).unwrap();
    let mut receive = || {
        while let Ok((len, _)) = ends.1.recv_from(&mut room) {
            assert_eq!(len, PAYLOAD);
            arrived += FRAME;
            last = Instant::now();
        }
    };
    while begun.elapsed() < Duration::from_secs(2) {
        // some times the rate, and no more than the TAP and its thread take
        for _ in 0..4 {
            let _ = ends.0.send_to(&[7; PAYLOAD], server);
        }
        receive();
        std::thread::sleep(Duration::from_millis(1));
    }
    // what waits in the queue
    let end = Moment::now() + Duration::from_secs(3);
    while Moment::now() < end {
        receive();
        std::thread::sleep(Duration::from_millis(10));
    }
    ends.1.set_nonblocking(false).unwrap();
    (arrived, last - begun)
}

fn lab() -> (Lab, Engine, Router) {
    let lab = build("nat");
    let config = take_ports(&lab);
    let engine = Engine::start(&lab, &config);
    let router = Engine::daemon(lab.router(), "", &["lan0", "wan0"]);
    (lab, engine, router)
}

#[test]
fn htb_at_the_tap_is_the_engines() {
    let Some(_machine) = machine() else { return };
    let (lab, engine, router) = lab();
    let tool = |line: &str| lab.router().tool(line).unwrap();
    let ends = patient(udp_ends(&lab));
    path::until_path(&router, &ends, address(SERVER), "engine");
    tool("tc qdisc add dev wan0 root handle 1: htb default 20");
    tool("tc class add dev wan0 parent 1: classid 1:1 htb rate 8mbit burst 10k cburst 10k");
    tool("tc class add dev wan0 parent 1:1 classid 1:10 htb rate 2mbit ceil 8mbit prio 0");
    tool("tc class add dev wan0 parent 1:1 classid 1:20 htb rate 6mbit ceil 8mbit prio 1");
    until_class(
        &router,
        &ends,
        SERVER,
        "class 1:20 of htb on wan0, in the engine",
    );

    // the rate is the engine's: its frames pass the kernel's htb by
    let (arrived, took) = flood(&ends, address(SERVER));
    let most = RATE as f64 * took.as_secs_f64() + 3.0 * 10_240.0 + 4.0 * FRAME as f64;
    assert!(arrived as f64 <= most, "{arrived} octets in {took:?}");
    let class = until("the class's counts", Duration::from_secs(10), || {
        class_of(&router, "1:20").filter(|class| class["packets"].as_u64() > Some(200))
    });
    let left = class["bytes"].as_u64().unwrap();
    assert!(
        left >= arrived / 2,
        "{left} of {arrived} octets left by {class:#}"
    );
    assert!(
        class["delay_p99_below_ns"].as_u64() > Some(1_000_000),
        "{class:#}"
    );
    assert_eq!(class["kind"], "htb");

    // a class by what nft says
    tool("nft add table inet qos");
    tool("nft add chain inet qos forward { type filter hook forward priority -150 ; }");
    tool("nft add rule inet qos forward udp dport 5001 meta priority set 1:10");
    // of the kernel's own frames, too, which come out of the TAP without priority and mark
    tool("nft add rule inet qos forward icmp type echo-request meta priority set 1:10");
    let pings = "ping -c 5 -i 0.2 -s 100 198.51.100.2";
    lab.client().tool(pings).unwrap();
    let class = until("echoes in 1:10", Duration::from_secs(10), || {
        class_of(&router, "1:10").filter(|class| class["packets"].as_u64() >= Some(5))
    });
    assert_eq!(class["bytes"], 5 * (14 + 20 + 8 + 100), "{class:#}");
    let other = patient((
        udp(lab.client(), address("192.0.2.2:40001")),
        udp(lab.server(), address(OTHER)),
    ));
    let from = other.0.local_addr().unwrap().to_string();
    path::until_path(&router, &other, address(OTHER), "engine");
    until("class 1:10", Duration::from_secs(20), || {
        let explained = path::explain(&router, &other, &from, OTHER);
        let notes = explained["notes"].to_string();
        notes.contains("class 1:10 of htb on wan0").then_some(())
    });

    // another rate: flows leave, and come back to the new one
    tool("tc class change dev wan0 parent 1:1 classid 1:20 htb rate 5mbit ceil 7mbit prio 1");
    until_class(
        &router,
        &ends,
        SERVER,
        "class 1:20 of htb on wan0, in the engine",
    );

    // what the engine has not stays in tc, by name
    tool(
        "tc filter add dev wan0 parent 1: protocol ip prio 5 u32 match ip dport 9 0xffff flowid 1:10",
    );
    path::until_path(&router, &ends, address(SERVER), "tc");
    let status = router.status();
    let ports = status["ports"].as_array().unwrap();
    let wan0 = ports.iter().find(|port| port["name"] == "wan0").unwrap();
    let reasons = wan0["reasons"].to_string();
    assert!(
        reasons.contains("does not classify by u32 filters"),
        "{wan0:#}"
    );
    tool("tc filter del dev wan0 parent 1: prio 5");
    until_class(
        &router,
        &ends,
        SERVER,
        "class 1:20 of htb on wan0, in the engine",
    );
    tool("tc qdisc del dev wan0 root");
    path::until_path(&router, &ends, address(SERVER), "engine");
    until("no classes", Duration::from_secs(20), || {
        path::send(&ends, address(SERVER), 1);
        class_of(&router, "1:20").is_none().then_some(())
    });
    router.stop();
    engine.stop();
}

#[test]
fn a_schedule_of_the_configuration_needs_no_qdisc() {
    let Some(_machine) = machine() else { return };
    let lab = build("nat");
    let config = take_ports(&lab)
        + "[engine.port.wan0.schedule]\nrate_kbit = 8000\ndefault = \"rest\"\n\
           [engine.port.wan0.schedule.class.voice]\npriority = 0\ndscp = [46]\n\
           [engine.port.wan0.schedule.class.rest]\nqueue = 50\n";
    let engine = Engine::start(&lab, &config);
    let router = Engine::daemon(lab.router(), &config, &["lan0", "wan0"]);
    let ends = patient(udp_ends(&lab));
    until_class(
        &router,
        &ends,
        SERVER,
        "class rest of the schedule on wan0, in the engine",
    );
    let (arrived, took) = flood(&ends, address(SERVER));
    let most = RATE as f64 * took.as_secs_f64() + 8.0 * FRAME as f64;
    assert!(arrived as f64 <= most, "{arrived} octets in {took:?}");
    // the kernel's own frames have a class by their DSCP
    let before = class_of(&router, "voice").unwrap()["packets"].as_u64();
    lab.client()
        .tool("ping -c 5 -i 0.2 -Q 0xb8 198.51.100.2")
        .unwrap();
    let class = until("echoes in voice", Duration::from_secs(10), || {
        class_of(&router, "voice").filter(|class| class["packets"].as_u64() >= Some(5))
    });
    assert_eq!(before, Some(0), "{class:#}");
    // a qdisc beside it: who would be in charge?
    let tool = |line: &str| lab.router().tool(line).unwrap();
    tool("tc qdisc replace dev wan0 root tbf rate 1gbit burst 1mb latency 50ms");
    path::until_path(&router, &ends, address(SERVER), "tc");
    tool("tc qdisc del dev wan0 root");
    path::until_path(&router, &ends, address(SERVER), "engine");
    router.stop();
    engine.stop();
}
