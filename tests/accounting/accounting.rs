// SPDX-License-Identifier: MIT OR Apache-2.0
//! What nfdump's nfcapd and pmacct's nfacctd sum up is what was sent, to the packet and octet.
//!
//! ```text
//!      client                     router                     server
//!  +------------+         +---------------------+         +------------+
//!  |       eth0 |---------| lan0           wan0 |---------| eth0       |
//!  | collectors |         | masquerade (IPv4)   |         |            |
//!  +------------+         +---------------------+         +------------+
//!   192.0.2.2/24                                           198.51.100.2/24
//!   2001:db8:1::2/64                                       2001:db8:2::2/64
//! ```
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod collectors;
mod lasting;
mod relay;
mod traffic;

use std::time::Duration;

use freeway_lab::Lab;
use freeway_testkit::*;
use serde_json::Value;

use collectors::{Collector, Nfacctd, Nfcapd};
use relay::Relay;
use traffic::{Sums, Traffic};

/// Only a fault takes so long.
const PATIENCE: Duration = Duration::from_secs(60);
/// Connections of each family.
fn connections() -> u16 {
    if long() { 5000 } else { 120 }
}

/// A lab of IPv4 behind a masquerade and IPv6 without, whose conntrack counts.
fn lab() -> Lab {
    let lab = build("nat");
    for (netns, devices) in [
        (lab.client(), &[("eth0", "2001:db8:1::2/64")][..]),
        (
            lab.router(),
            &[("lan0", "2001:db8:1::1/64"), ("wan0", "2001:db8:2::1/64")],
        ),
        (lab.server(), &[("eth0", "2001:db8:2::2/64")]),
    ] {
        for (device, address) in devices {
            let path = format!("net/ipv6/conf/{device}/disable_ipv6");
            netns.sysctl(&path, "0").unwrap();
            netns
                .tool(&format!("ip addr add {address} dev {device} nodad"))
                .unwrap();
        }
    }
    let route = |netns: &freeway_lab::Netns, via| {
        netns
            .tool(&format!("ip -6 route add default via {via}"))
            .unwrap();
    };
    route(lab.client(), "2001:db8:1::1");
    route(lab.server(), "2001:db8:2::1");
    lab.router()
        .sysctl("net/ipv6/conf/all/forwarding", "1")
        .unwrap();
    lab.router()
        .sysctl("net/netfilter/nf_conntrack_acct", "1")
        .unwrap();
    lab
}

fn accounting(router: &Router) -> Value {
    router.json(&["stats"])["accounting"].clone()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

fn collector(accounting: &Value, port: u16) -> &Value {
    let mut all = accounting["collectors"].as_array().unwrap().iter();
    let end = format!(":{port}");
    all.find(|one| one["collector"].as_str().unwrap().ends_with(&end))
        .unwrap()
}

/// Waits until all that is due is told to all that listen.
fn wait_told(router: &Router, connections: u64, listening: &[u16]) {
    let mut last = Value::Null;
    until("all connections are told of", PATIENCE, || {
        last = accounting(router);
        let due = number(&last["records"]);
        let told = |port: &u16| {
            let one = collector(&last, *port);
            number(&one["records"]) + number(&one["dropped"]) >= due
        };
        (due >= connections && listening.iter().all(told)).then_some(())
    });
}

#[test]
fn what_collectors_sum_up_is_what_was_sent() {
    let Some(_machine) = machine() else { return };
    freeway_datapath::raise_descriptor_limit().unwrap();
    let lab = lab();
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let host = lab.client();
    let nfcapd =
        |port, name| -> Box<dyn Collector + '_> { Box::new(Nfcapd::start(host, port, &at(name))) };
    let nfacctd =
        |port, name| -> Box<dyn Collector + '_> { Box::new(Nfacctd::start(host, port, &at(name))) };
    let collectors = vec![
        ("IPFIX, nfcapd", nfcapd(4001, "a")),
        ("IPFIX without biflows, nfcapd", nfcapd(4002, "b")),
        ("NetFlow v9, nfcapd", nfcapd(4003, "c")),
        ("IPFIX over TCP, nfcapd", nfcapd(4004, "d")),
        ("IPFIX without biflows, nfacctd", nfacctd(4012, "f")),
        ("NetFlow v9, nfacctd", nfacctd(4013, "g")),
        (
            "IPFIX over TCP without biflows, nfacctd",
            nfacctd(4015, "h"),
        ),
    ];
    for (_, collector) in &collectors {
        collector.wait();
    }
    // neither takes TCP in Debian
    let relays = [
        Relay::start(host, 5004, 4004),
        Relay::start(host, 5015, 4015),
    ];
    let export =
        |port: u16, more: &str| format!("[[export]]\ncollector = \"192.0.2.2:{port}\"\n{more}\n");
    let uniflow = "biflow = false";
    let tcp = "transport = \"tcp\"";
    let netflow9 = "format = \"netflow9\"";
    let config = [
        export(4001, ""),
        export(4002, uniflow),
        export(4003, netflow9),
        export(5004, tcp),
        export(4012, uniflow),
        export(4013, netflow9),
        export(5015, &format!("{tcp}\n{uniflow}")),
        // nobody is there
        export(4020, ""),
        export(4021, &format!("{tcp}\nqueue = 64")),
    ]
    .concat();
    let router = Router::start_with(&lab, &config);

    let mut traffic = Traffic::new(&lab);
    traffic.udp(connections(), 0..4);
    traffic.go_on(&router, connections(), 16);
    traffic.tcp(if long() { 200 } else { 20 });
    let sent = traffic.sums();

    lab.router().tool("conntrack -F").unwrap();
    let listening = [4001, 4002, 4003, 5004, 4012, 4013, 5015];
    wait_told(&router, sent.len() as u64, &listening);
    let told = accounting(&router);
    for port in listening {
        let one = collector(&told, port);
        assert_eq!(number(&one["dropped"]), 0, "{one:#}");
        assert_eq!(one["state"], "ready", "{one:#}");
    }
    for port in [4020, 4021] {
        let one = collector(&told, port);
        assert!(number(&one["dropped"]) > 0, "{one:#}");
        assert_eq!(one["state"], "down", "{one:#}");
        assert!(
            one["error"].as_str().unwrap().contains("refused"),
            "{one:#}"
        );
    }
    assert_eq!(number(&told["uncounted"]), 0, "{told:#}");
    router.stop();
    drop(relays);
    for (_, collector) in &collectors {
        collector.end();
    }
    for (name, collector) in collectors {
        compare(name, &sent, &collector.sums());
    }
}

#[track_caller]
fn compare(name: &str, sent: &Sums, told: &Sums) {
    let differs = sent.iter().filter(|(key, sum)| told.get(key) != Some(sum));
    let differs: Vec<_> = differs
        .map(|(key, sum)| format!("{key:?}: sent {sum:?}, told {:?}", told.get(key)))
        .collect();
    assert!(
        differs.is_empty(),
        "{name}: {} of {}: {:#?}",
        differs.len(),
        sent.len(),
        &differs[..differs.len().min(5)]
    );
    let more: Vec<_> = told.keys().filter(|key| !sent.contains_key(key)).collect();
    assert!(more.is_empty(), "{name}: {more:?}");
}
