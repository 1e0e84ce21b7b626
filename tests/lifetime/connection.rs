// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which connections are learned, by what conntrack says of them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{Read, Write};
use std::net::UdpSocket;
use std::thread;
use std::time::Duration;

use freeway_kernel::model::TcpState;
use freeway_lab::{Lab, Options};
use freeway_testkit::*;
use nix::sys::signal::Signal;

const CLIENT: &str = "192.0.2.2:40000";
const SERVER: &str = "198.51.100.2:5000";
const PACKETS: usize = 40;

/// Sends datagrams 10 ms apart; how many arrive.
fn send(from: &UdpSocket, to: &UdpSocket, packets: usize) -> usize {
    to.set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    let mut arrived = 0;
    for n in 0..packets {
        from.send_to(&n.to_be_bytes(), SERVER).unwrap();
        thread::sleep(Duration::from_millis(10));
        let mut room = [0; 64];
        arrived += usize::from(to.recv(&mut room).is_ok());
    }
    arrived
}

fn ends(lab: &Lab) -> (UdpSocket, UdpSocket) {
    let end = |netns, address: &str| udp(netns, address.parse().unwrap());
    (end(lab.client(), CLIENT), end(lab.server(), SERVER))
}

#[test]
fn one_way_udp_is_fast_unless_new_packets_are_counted() {
    let Some(_machine) = machine() else { return };
    let limit = "table inet extra {\n chain c {\n type filter hook forward priority 10\n \
                 ct state new limit rate over 1000000/second drop\n }\n}\n";
    for (nft, config, fast) in [
        ("", "", true),
        ("", "[policy]\nudp_one_way = false\n", false),
        (limit, "", false),
    ] {
        let lab = build_with(
            "nat",
            Options {
                extra_nft: nft.into(),
                ..Options::default()
            },
        );
        let router = Router::start_with(&lab, config);
        let (client, server) = ends(&lab);
        assert_eq!(send(&client, &server, PACKETS), PACKETS);
        let (flows, stats) = (router.flows("proto udp dport 5000"), router.stats());
        assert_eq!(flows.len(), usize::from(fast), "{nft}{config}{stats}");
        assert_eq!(stats.fast() > PACKETS as u64 / 2, fast, "{stats}");
        assert_eq!(stats.reason("learn_no_reply") > 0, !fast, "{stats}");
        if fast {
            lab.router().tool_with_input("nft -f -", limit).unwrap();
            until("the flow leaves", Duration::from_secs(5), || {
                let flows = router.flows("proto udp dport 5000");
                flows.is_empty().then_some(())
            });
            send(&client, &server, PACKETS);
            assert!(router.flows("proto udp dport 5000").is_empty());
        }
        router.stop();
    }
}

#[test]
fn connections_that_user_space_made_are_learned() {
    let Some(_machine) = machine() else { return };
    let lab = build("nat");
    // As conntrackd does: the kernel adds extensions for sequence numbers to each, empty ones.
    let line = "conntrack -I -p udp -s 192.0.2.2 -d 198.51.100.2 --sport 40000 --dport 5000 \
                --reply-src 198.51.100.2 --reply-dst 192.0.2.2 --reply-port-src 5000 --reply-port-dst 40000 \
                --src-nat 198.51.100.1 -t 120 -u SEEN_REPLY,ASSURED";
    lab.router().tool(line).unwrap();
    let router = Router::start_with(&lab, "[policy]\nudp_one_way = false\n");
    let (client, server) = ends(&lab);
    assert_eq!(send(&client, &server, PACKETS), PACKETS);
    let stats = router.stats();
    let flows = router.flows("proto udp dport 5000");
    assert_eq!(flows.len(), 1, "{stats}");
    assert_eq!(flows[0]["to_src"], "198.51.100.1", "{stats}");
    assert_eq!(stats.reason("learn_seqadj"), 0, "{stats}");
    assert!(stats.fast() > PACKETS as u64 / 2, "{stats}");
    router.stop();
}

/// A daemon that is late hears of connections that are over: no segment would take their flows back.
#[test]
fn a_connection_that_has_closed_is_not_fast() {
    let Some(_machine) = machine() else { return };
    let lab = build("nat");
    let router = Router::start(&lab);
    let to = address(SERVER);
    let listener = listen(lab.server(), to);
    router.signal(Signal::SIGSTOP);
    let (mut near, mut far) = pair((lab.client(), address(CLIENT)), to, &listener);
    for _ in 0..4 {
        let mut bytes = *b"question";
        near.write_all(&bytes).unwrap();
        far.read_exact(&mut bytes).unwrap();
        far.write_all(&bytes).unwrap();
        near.read_exact(&mut bytes).unwrap();
    }
    drop((near, far));
    let there = || connection_from(&lab, 6, 40_000).expect("a connection");
    let patience = Duration::from_secs(10);
    until("the connection has closed", patience, || {
        there()
            .tcp
            .is_some_and(|tcp| tcp.state == TcpState::TimeWait)
            .then_some(())
    });
    router.signal(Signal::SIGCONT);
    until("the daemon hears of it", patience, || {
        let candidates = router.status()["learn"]["candidates"].as_u64();
        (candidates > Some(0)).then_some(())
    });
    assert_eq!(router.flows("proto tcp"), [""; 0]);
    assert!(there().timeout_s <= Some(120), "{:?}", there());
    router.stop();
}
