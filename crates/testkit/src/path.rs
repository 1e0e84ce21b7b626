// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flows that take a certain path.

use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::{Moment, Router};

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

/// Sends until the flow to the server goes this way; how long that took.
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
        let flows = router.flows(&format!("proto udp dport {}", server.port()));
        if flows
            .iter()
            .any(|flow| flow["path"] == path && flow["state"] == "active")
        {
            return start.elapsed();
        }
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "not {path}: {flows:#?}\n{}\n{:#}",
            router.stats(),
            router.status()["ports"]
        );
    }
}
