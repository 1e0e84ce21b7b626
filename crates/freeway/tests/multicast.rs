// SPDX-License-Identifier: MIT OR Apache-2.0
//! Routed multicast: copies exactly as the kernel makes them, to exactly the ports that its multicast routes name.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use common::*;
use freeway_lab::{
    Capture, Family, Fanout, FlowSpec, Generator, Injector, Load, Sink, SinkSpec, Until,
};

const RECEIVERS: usize = 8;
const ALL: [usize; RECEIVERS] = [0, 1, 2, 3, 4, 5, 6, 7];
const WAIT: Duration = Duration::from_secs(2);
const SETTLE: Duration = Duration::from_millis(50);
/// From an event to its effect, with room for a busy machine.
const FOLLOWED: Duration = Duration::from_millis(200);

fn start(fanout: &Fanout) -> Router {
    let interfaces = fanout.interfaces();
    let ports: Vec<&str> = interfaces.iter().map(String::as_str).collect();
    Router::start_in(fanout.router(), &fanout.config_toml(""), freeway(), &ports)
}

/// Sends until packets of the group are fast at so many ports.
#[track_caller]
fn wait_copied(router: &Router, injector: &Injector, flow: &FlowSpec, ports: usize) {
    let filter = format!("proto udp dst {}", flow.far);
    let mut number = 1_000_000;
    until("the group is fast", Duration::from_secs(10), || {
        for _ in 0..4 {
            injector.send(&flow.frame(0, number)).unwrap();
            number += 1;
        }
        let flows = router.flows(&filter);
        let fast = |flow: &serde_json::Value| {
            flow["state"] == "active"
                && flow["packets"].as_u64() > Some(0)
                && flow["ports_out"].as_array().map(Vec::len) == Some(ports)
        };
        (flows.len() == 1 && flows.iter().all(fast)).then_some(())
    });
}

/// Each receiver of these has exactly its own copy, byte for byte, and no other receiver has any.
#[track_caller]
fn check_copies(
    fanout: &Fanout,
    captures: &mut [Capture],
    injector: &Injector,
    flow: &FlowSpec,
    served: &[usize],
    number: u32,
) {
    let ours = |bytes: &[u8]| bytes.starts_with(&flow.mac_destination);
    for capture in captures.iter_mut() {
        capture.drain(Duration::from_millis(1), ours).unwrap();
    }
    injector.send(&flow.frame(0, number)).unwrap();
    for (i, capture) in captures.iter_mut().enumerate() {
        let wanted = usize::from(served.contains(&i));
        let mut got = capture.collect(wanted, WAIT, ours).unwrap();
        if i + 1 == RECEIVERS || wanted == 0 {
            got.extend(capture.drain(SETTLE, ours).unwrap());
        }
        assert_eq!(got.len(), wanted, "{} receiver {i} of {served:?}", flow.far);
        for frame in got {
            let copy = fanout.copy(flow, i).frame(0, number);
            assert_eq!(frame.bytes, copy, "{} receiver {i}", flow.far);
        }
    }
}

#[test]
fn copies_are_the_kernels() {
    let Some(_machine) = machine() else { return };
    let fanout = Fanout::build(RECEIVERS).unwrap();
    let router = start(&fanout);
    let injector = Injector::open(fanout.source()).unwrap();
    let open = |port| Capture::open(port).unwrap();
    let mut captures: Vec<_> = fanout.receivers().iter().map(open).collect();
    for family in [Family::Ipv4, Family::Ipv6] {
        let flow = fanout.flow(family, 200);
        for served in [&ALL[..], &[2], &[0, 3, 7], &ALL[1..]] {
            fanout.serve(&flow, served).unwrap();
            wait_copied(&router, &injector, &flow, served.len());
            let before = router.stats().fast();
            for number in 0..20 {
                check_copies(&fanout, &mut captures, &injector, &flow, served, number);
            }
            let fast = router.stats().fast() - before;
            assert!(fast >= 19, "{fast} of 20 were fast to {served:?}");
        }
    }
    router.stop();
}

#[test]
fn joins_and_leaves_are_followed_under_load() {
    let Some(_machine) = machine() else { return };
    let fanout = Fanout::build(RECEIVERS).unwrap();
    let router = start(&fanout);
    for family in [Family::Ipv4, Family::Ipv6] {
        let flow = fanout.flow(family, 80);
        fanout.serve(&flow, &ALL).unwrap();
        let attach = |port| Sink::attach(port, SinkSpec::thorough(1)).unwrap();
        let sinks: Vec<_> = fanout.receivers().iter().map(attach).collect();
        let last = &sinks[RECEIVERS - 1];
        let generator = Arc::new(Generator::new(fanout.source(), &flow).unwrap());
        let load = Load::paced(Until::Stopped, 5000).ahead();
        let running = generator.start(load).unwrap();
        let fast_from = router.stats().fast();
        for _ in 0..10 {
            // the last one leaves and comes back; the others do not notice
            fanout.serve(&flow, &ALL[..RECEIVERS - 1]).unwrap();
            thread::sleep(FOLLOWED);
            let before = last.counts().unwrap().frames;
            thread::sleep(FOLLOWED);
            let after = last.counts().unwrap().frames;
            assert_eq!(before, after, "{family:?}: served after it has left");
            fanout.serve(&flow, &ALL).unwrap();
            thread::sleep(FOLLOWED);
            assert!(
                last.counts().unwrap().frames > after + 500,
                "{family:?}: not served again"
            );
        }
        let sent = running.stop().unwrap().frames;
        thread::sleep(SETTLE);
        eprintln!(
            "DEBUG {}",
            String::from_utf8_lossy(&router.run(&["stats"]).stdout)
        );
        eprintln!("DEBUG {:#}", router.status());
        let fast = router.stats().fast() - fast_from;
        assert!(
            fast > sent * 8 / 10,
            "{family:?}: {fast} of {sent} were fast"
        );
        for (i, sink) in sinks.iter().enumerate() {
            let (counts, of_flow) = (sink.counts().unwrap(), sink.flow(0).unwrap());
            assert_eq!(counts.bad_ip_checksum + counts.bad_l4_checksum, 0);
            if i + 1 < RECEIVERS {
                assert_eq!(of_flow.frames, sent, "{family:?}, receiver {i}");
            }
        }
    }
    router.stop();
}
