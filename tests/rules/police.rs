// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits of punts by reason, with real packets: the excess of a flood is dropped and counted, all else goes on.
//!
//!   client, flood of fragments --- lan0 router wan0 --- server, what arrives is counted
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use freeway_lab::frame::{MAC_CLIENT, MAC_LAN, sum16};
use freeway_lab::{Capture, Injector, Lab};
use freeway_testkit::*;

const FLOOD: u16 = 3000;
const PINGS: u16 = 500;
/// A CPU's burst is 64 whatever the rate; few come after it while the flood lasts.
const LIMIT: &str = "[policy]\nicmp = false\n[punts.limits]\nfragment = 100\n";

const UDP: u8 = 17;
const ICMP: u8 = 1;
const MORE_FRAGMENTS: u16 = 0x2000;

/// A packet from the client to the server, numbered by its identification.
fn packet(proto: u8, frag: u16, id: u16) -> Vec<u8> {
    let mut l4 = vec![0u8; 32];
    if proto == ICMP {
        l4[0] = 8;
        let sum = !sum16(&l4);
        l4[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    let mut ip = vec![0x45, 0];
    for word in [20 + l4.len() as u16, id, frag] {
        ip.extend(word.to_be_bytes());
    }
    ip.extend([64, proto, 0, 0, 192, 0, 2, 2, 198, 51, 100, 2]);
    let sum = !sum16(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    [&MAC_LAN[..], &MAC_CLIENT, &[8, 0], &ip, &l4].concat()
}

/// Sends a flood of fragments and some pings; how many of each arrive at the server.
fn flood(lab: &Lab) -> [usize; 2] {
    let mut capture = Capture::open(lab.server_port()).unwrap();
    let injector = Injector::open(lab.client_port()).unwrap();
    let fragments = (0..FLOOD).map(|id| packet(UDP, MORE_FRAGMENTS, id));
    let pings = (0..PINGS).map(|id| packet(ICMP, 0, id));
    let frames: Vec<_> = fragments.chain(pings).collect();
    injector.send_all(&frames, Duration::ZERO).unwrap();
    let from_client = |frame: &[u8]| frame.len() > 34 && frame[26..30] == [192, 0, 2, 2];
    let arrived = capture
        .drain(Duration::from_millis(500), from_client)
        .unwrap();
    assert_eq!(capture.dropped().unwrap(), 0);
    [UDP, ICMP].map(|proto| arrived.iter().filter(|f| f.bytes[23] == proto).count())
}

#[test]
fn a_flood_is_held_to_its_limit() {
    let Some(_machine) = machine() else { return };
    let lab = build("routed");
    let router = Router::start_with(&lab, LIMIT);
    let to = "198.51.100.2:5001".parse().unwrap();
    let listener = listen(lab.server(), to);
    let from = "192.0.2.2:40001".parse().unwrap();
    let mut ends = pair((lab.client(), from), to, &listener);
    router.wait_fast_while("proto tcp", 2, 1, || exchange_blocks(&mut ends, 8));

    let before = router.stats();
    let [fragments, pings] = flood(&lab);
    let stats = router.stats();
    let since = |name: &str| stats.reason(name) - before.reason(name);
    println!(
        "{fragments} of {FLOOD} fragments and {pings} of {PINGS} pings arrived; {} policed",
        since("policed")
    );
    assert_eq!(fragments as u64, since("fragment"));
    assert_eq!(since("fragment") + since("policed"), u64::from(FLOOD));
    assert!((64..FLOOD as usize / 4).contains(&fragments), "{fragments}");
    assert_eq!(pings, usize::from(PINGS));
    // with the server's answers
    assert_eq!(since("icmp"), 2 * u64::from(PINGS));
    exchange_blocks(&mut ends, 8);
    let limit = serde_json::json!([{
        "name": "fragment", "packets_per_s": 100, "dropped": since("policed")
    }]);
    assert_eq!(stats.0["limits"], limit);
    assert_eq!(router.status()["limits"], limit);

    let page = |command| String::from_utf8(router.run(&[command]).stdout).unwrap();
    let text = page("stats");
    assert!(
        text.contains("fragment  over 100 a second and CPU"),
        "{text}"
    );
    let text = page("status");
    assert!(text.contains("Limits"), "{text}");
    let doctor = router.json(&["doctor"]);
    let findings = doctor["findings"].as_array().unwrap();
    let finding = findings.iter().find(|f| f["area"] == "limits").unwrap();
    assert_eq!(finding["severity"], "warning", "{finding}");
    router.stop();

    // another configuration, with a restart
    let router = Router::start(&lab);
    assert_eq!(flood(&lab), [usize::from(FLOOD), usize::from(PINGS)]);
    let stats = router.stats();
    assert_eq!(stats.reason("fragment"), u64::from(FLOOD));
    assert_eq!(stats.reason("policed"), 0);
    assert_eq!(stats.0["limits"], serde_json::json!([]));
    router.stop();
}
