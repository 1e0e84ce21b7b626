// SPDX-License-Identifier: MIT OR Apache-2.0
//! An output that is the bottleneck: while its ring overflows, packets go through its qdisc, in tc, and afterwards in
//! XDP again. One that keeps up stays in XDP.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use freeway_lab::{Generator, Lab, Load, Proto, SlowPort, Until};
use freeway_testkit::{Router, build, machine, until};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);
const FLOWS: u32 = 8;
const RATE_BIT_S: u64 = 100_000_000;
/// Frames a second: a tenth of what the wire takes, and twice as many.
const PPS: [u64; 2] = [800, 16_000];

const QUEUES: [&str; 2] = ["fq_codel", "pfifo limit 100"];

fn lab() -> Lab {
    let lab = build("routed");
    // a small kernel has the second alone
    let fits = |kind: &str| {
        let line = format!("tc qdisc replace dev wan0 root {kind}");
        lab.router().tool(&line).is_ok()
    };
    let kind = QUEUES.into_iter().find(|kind| fits(kind));
    println!("queued by {}", kind.expect("a qdisc with a queue"));
    lab.poll_by_threads(0, 1).unwrap();
    lab
}

/// The WAN's port, as `status` shows it.
fn wan(router: &Router) -> Value {
    let status = router.status();
    let ports = status["ports"].as_array().unwrap();
    let wan = ports.iter().find(|port| port["name"] == "wan0");
    wan.unwrap().clone()
}

/// Why what leaves there goes elsewhere than XDP.
fn reasons(router: &Router) -> Vec<String> {
    let wan = wan(router);
    let reasons = wan["reasons"].as_array().unwrap();
    let words = reasons
        .iter()
        .map(|reason| reason.as_str().unwrap().to_owned());
    words.collect()
}

fn is_full(router: &Router) -> bool {
    reasons(router)
        .iter()
        .any(|reason| reason.contains("its ring was full"))
}

fn of_path(router: &Router, path: &str) -> usize {
    let flows = router.flows("");
    flows.iter().filter(|flow| flow["path"] == path).count()
}

#[test]
fn a_full_ring_gives_its_packets_to_the_qdisc_for_as_long() {
    let Some(_machine) = machine() else { return };
    let lab = lab();
    let _slow = SlowPort::attach(lab.server_port(), RATE_BIT_S).unwrap();
    let router = Router::start(&lab);
    let spec = lab.flows(Proto::Udp, FLOWS, 1514);
    let generator = Arc::new(Generator::new(lab.client_port(), &spec).unwrap());
    let running = generator
        .start(Load::paced(Until::Stopped, PPS[0]))
        .unwrap();
    until("all are XDP's", PATIENCE, || {
        (of_path(&router, "xdp") == FLOWS as usize).then_some(())
    });
    running.stop().unwrap();
    let running = generator
        .start(Load::paced(Until::Stopped, PPS[1]))
        .unwrap();
    let began = Instant::now();
    until("the ring is full", PATIENCE, || {
        is_full(&router).then_some(())
    });
    println!("full after {:?}: {:?}", began.elapsed(), reasons(&router));
    until("all are tc's", PATIENCE, || {
        (of_path(&router, "tc") == FLOWS as usize).then_some(())
    });
    let queue = || {
        let words = lab.router().tool("tc -s -j qdisc show dev wan0").unwrap();
        let qdiscs: Value = serde_json::from_str(&words).unwrap();
        let all = qdiscs.as_array().unwrap().clone();
        all.into_iter().find(|qdisc| qdisc["root"] == true).unwrap()
    };
    let before = queue()["bytes"].as_u64().unwrap();
    until("the qdisc has them", PATIENCE, || {
        (queue()["bytes"].as_u64().unwrap() > before).then_some(())
    });
    // a driver that stops its queue where its ring is full (veth: 6.18) leaves them there
    let stays = (0..16).filter(|_| {
        thread::sleep(Duration::from_millis(250));
        is_full(&router)
    });
    println!("full at {} of 16 looks; {}", stays.count(), queue());
    running.stop().unwrap();
    let running = generator
        .start(Load::paced(Until::Stopped, PPS[0]))
        .unwrap();
    let began = Instant::now();
    until("all are XDP's again", PATIENCE, || {
        (!is_full(&router) && of_path(&router, "xdp") == FLOWS as usize).then_some(())
    });
    println!("in XDP again after {:?}", began.elapsed());
    running.stop().unwrap();
    let wan = wan(&router);
    assert!(wan["ring_drops"].as_u64().unwrap() >= 16, "{wan}");
    router.stop();
}

#[test]
fn an_output_that_keeps_up_stays_in_xdp() {
    let Some(_machine) = machine() else { return };
    let lab = lab();
    let router = Router::start(&lab);
    let spec = lab.flows(Proto::Udp, FLOWS, 1514);
    let generator = Arc::new(Generator::new(lab.client_port(), &spec).unwrap());
    let running = generator
        .start(Load::paced(Until::Stopped, PPS[0]))
        .unwrap();
    until("all are XDP's", PATIENCE, || {
        (of_path(&router, "xdp") == FLOWS as usize).then_some(())
    });
    // a generator that was kept from the CPU sends what it is late with at once, and a ring has room for 256 frames
    for _ in 0..20 {
        thread::sleep(Duration::from_millis(250));
        let (full, wan) = (is_full(&router), wan(&router));
        let lost = wan["ring_drops"].as_u64().unwrap() >= 16;
        assert!(lost || !full, "{wan}");
    }
    running.stop().unwrap();
    router.stop();
}
