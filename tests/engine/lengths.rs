// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames that are longer than usual, at ports of the engine.
#![allow(clippy::unwrap_used)]

use std::net::UdpSocket;
use std::time::Duration;

use freeway_lab::Options;
use freeway_testkit::engine::{Device, Engine, of_lab, take_ports, take_ports_of};
use freeway_testkit::*;
use nix::sys::signal::Signal;

const LONG_MTU: u32 = 9000;
const DATAGRAMS: usize = 200;

fn exceptions_dropped(router: &Router) -> u64 {
    let counts = &router.status()["engine"]["counts"];
    counts["exceptions_dropped"].as_u64().unwrap_or(0)
}

/// Datagrams of as many octets as a frame holds to 100: each arrives as it was sent, and comes back.
#[track_caller]
fn exchange_long(ends: &(UdpSocket, UdpSocket)) {
    // IPv4 and UDP headers are beside it
    let most = LONG_MTU as usize - 28;
    for n in 0..DATAGRAMS {
        let len = most - (most - 100) * n / (DATAGRAMS - 1);
        path::exchange(ends, address(SERVER), len, n);
    }
}

/// Most are the engine's; the kernel has the first, for it has not seen one so long.
#[test]
fn long_frames_are_forwarded_whole() {
    let Some(_machine) = machine() else { return };
    let lab = build_with(
        "nat",
        Options {
            mtu: LONG_MTU,
            ..Options::default()
        },
    );
    let config = take_ports_of(lab.router(), 0, Device::Pcap, &of_lab());
    assert!(config.contains(&format!("mtu = {LONG_MTU}")), "{config}");
    let engine = Engine::start(&lab, &config);
    let router = Engine::daemon(lab.router(), "", &["lan0", "wan0"]);
    let ends = patient(udp_ends(&lab));
    let server = address(SERVER);
    let packets = || {
        let flows = router.flows("proto udp dport 5000");
        flows[0]["packets"].as_u64().unwrap()
    };
    // flows that a late daemon has learned anew count from nothing
    let enough = (0..3).any(|_| {
        path::until_path(&router, &ends, server, "engine");
        let before = packets();
        exchange_long(&ends);
        let fast = packets().saturating_sub(before);
        println!("{fast} of {DATAGRAMS} were fast");
        fast >= DATAGRAMS as u64 * 3 / 4
    });
    assert!(enough, "{}", router.stats());
    router.stop();
    engine.stop();
}

/// The kernel may think that a port sends longer frames than it does: those are dropped and counted, and the others go on.
#[test]
fn a_frame_that_the_port_cannot_send_is_counted() {
    let Some(_machine) = machine() else { return };
    let lab = build("nat");
    let mut engine = Engine::start(&lab, &take_ports(&lab));
    let router = Engine::daemon(lab.router(), "", &["lan0", "wan0"]);
    let ends = patient(udp_ends(&lab));
    let server = address(SERVER);
    path::until_path(&router, &ends, server, "engine");
    lab.router().tool("ip link set wan0 mtu 4000").unwrap();
    let sender = udp(lab.router(), address("198.51.100.1:6000"));
    let before = exceptions_dropped(&router);
    until("the dropped frame", Duration::from_secs(20), || {
        sender.send_to(&[1; 3000], address(SERVER)).unwrap();
        (exceptions_dropped(&router) > before).then_some(())
    });
    // nothing of them has come, also not in parts
    ends.1.set_nonblocking(true).unwrap();
    assert!(ends.1.recv_from(&mut [0; 4096]).is_err());
    ends.1.set_nonblocking(false).unwrap();
    path::until_path(&router, &ends, server, "engine");
    path::send(&ends, server, 50);
    router.stop();
    engine.signal(Signal::SIGTERM);
    assert!(engine.wait().success(), "{}", engine.log());
}
