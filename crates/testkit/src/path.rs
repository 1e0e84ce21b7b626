// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flows that take a certain path.

use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::engine::START;
use crate::{Moment, Router, until};

/// Sends datagrams both ways, each of which must arrive.
pub fn send(ends: &(UdpSocket, UdpSocket), server: SocketAddr, datagrams: u64) {
    let mut room = [0; 64];
    for n in 0..datagrams {
        ends.0.send_to(&n.to_be_bytes(), server).unwrap();
        let (len, from) = ends.1.recv_from(&mut room).unwrap();
        assert_eq!(room[..len], n.to_be_bytes(), "datagram {n}");
        ends.1.send_to(&room[..len], from).unwrap();
        assert_eq!(ends.0.recv(&mut room).unwrap(), 8, "answer {n}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A datagram of so many octets, which `seed` makes another one, and its answer: both have to arrive as they were sent.
#[track_caller]
pub fn exchange(ends: &(UdpSocket, UdpSocket), server: SocketAddr, len: usize, seed: usize) {
    let mut room = vec![0; len + 1];
    let sent: Vec<u8> = (0..len).map(|at| (at * 7 + seed) as u8).collect();
    ends.0.send_to(&sent, server).unwrap();
    let (got, from) = ends.1.recv_from(&mut room).unwrap();
    assert!(room[..got] == sent, "datagram {seed} of {len} octets");
    ends.1.send_to(&sent, from).unwrap();
    let got = ends.0.recv(&mut room).unwrap();
    assert!(room[..got] == sent, "answer {seed} of {len} octets");
}

/// Packets of UDP flows, of both directions, that the engine forwarded.
pub fn engine_packets(router: &Router) -> u64 {
    let flows = router.flows("proto udp");
    let engines = flows.iter().filter(|flow| flow["path"] == "engine");
    engines.map(|flow| flow["packets"].as_u64().unwrap()).sum()
}

/// What `freeway explain` says of the flow while it has packets.
pub fn explain(
    router: &Router,
    ends: &(UdpSocket, UdpSocket),
    client: &str,
    server: &str,
) -> Value {
    thread::scope(|scope| {
        let asked = scope.spawn(|| router.json(&["explain", "udp", client, server]));
        while !asked.is_finished() {
            send(ends, server.parse().unwrap(), 5);
        }
        asked.join().unwrap()
    })
}

/// Sends until the flow to the server goes this way, and its answers are fast, too, on whatever path; how long that took.
#[track_caller]
pub fn until_path(
    router: &Router,
    ends: &(UdpSocket, UdpSocket),
    server: SocketAddr,
    path: &str,
) -> Duration {
    let start = Moment::now();
    loop {
        send(ends, server, 10);
        let active = router.flows("proto udp state active");
        let mut there = active.iter().filter(|flow| flow["dport"] == server.port());
        let mut back = active.iter().filter(|flow| flow["sport"] == server.port());
        if there.any(|flow| flow["path"] == path) && back.next().is_some() {
            return start.elapsed();
        }
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "not {path}: {:#?}\n{}\n{:#}",
            router.flows("proto udp"),
            router.stats(),
            router.status()["ports"]
        );
    }
}

/// What was lost while something was started again stays lost; from the first datagram that arrives on all do, and the flow goes
/// by the engine again.
#[track_caller]
pub fn until_through(router: &Router, ends: &(UdpSocket, UdpSocket), server: SocketAddr) {
    let mut room = [0; 64];
    let patience = |ms| ends.1.set_read_timeout(Some(Duration::from_millis(ms)));
    patience(200).unwrap();
    until("the first datagram", START, || {
        ends.0.send_to(b"again", server).unwrap();
        ends.1.recv_from(&mut room).ok()
    });
    // those before it that were late
    while ends.1.recv_from(&mut room).is_ok() {}
    patience(10_000).unwrap();
    until_path(router, ends, server, "engine");
}
