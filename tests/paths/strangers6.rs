// SPDX-License-Identifier: MIT OR Apache-2.0
//! The same of IPv6.

use std::borrow::Borrow;
use std::net::Ipv6Addr;

use freeway_lab::Lab;
use freeway_lab::frame::{MAC_CLIENT, MAC_LAN, sum16};
use freeway_testkit::*;
use serde_json::Value;

use crate::strangers::{
    PATIENCE, active_in, all_to, confirm, ip, left, most_leave_as, routed, station, wait,
    wait_for_reason,
};

pub fn client() -> Ipv6Addr {
    "2001:db8:1::2".parse().unwrap()
}

/// What is between IPv6 header and UDP: the first header's number, and their octets.
pub type Headers<'a> = (u8, &'a [u8]);

pub const NONE: Headers<'static> = (17, &[]);

/// A packet that is like no other.
pub fn packet(src: Ipv6Addr, dst: Ipv6Addr, number: u16) -> Vec<u8> {
    with(src, dst, number, 64, NONE)
}

pub fn with(
    src: Ipv6Addr,
    dst: Ipv6Addr,
    number: u16,
    hop_limit: u8,
    (first, headers): Headers<'_>,
) -> Vec<u8> {
    let mut udp = vec![0u8; 26];
    udp[0..2].copy_from_slice(&number.to_be_bytes());
    udp[2..4].copy_from_slice(&7000u16.to_be_bytes());
    udp[4..6].copy_from_slice(&26u16.to_be_bytes());
    let pseudo = [
        &src.octets()[..],
        &dst.octets(),
        &[0, 0, 0, 26, 0, 0, 0, 17],
        &udp,
    ]
    .concat();
    let sum = !sum16(&pseudo);
    udp[6..8].copy_from_slice(&sum.to_be_bytes());
    let mut ip = vec![0x60, 0, (number >> 8) as u8, number as u8];
    ip.extend(((headers.len() + udp.len()) as u16).to_be_bytes());
    ip.extend([first, hop_limit]);
    ip.extend(src.octets());
    ip.extend(dst.octets());
    [&MAC_LAN[..], &MAC_CLIENT, &[0x86, 0xdd], &ip, headers, &udp].concat()
}

pub fn strangers(count: u16) -> Vec<Vec<u8>> {
    let dst = |n: u16| Ipv6Addr::new(0x2001, 0xdb8, 0x100, n % 7, 0, 0, n, 1);
    (0..count)
        .map(|n| packet(client(), dst(n), 1000 + n))
        .collect()
}

/// A neighbour at the server's wire, which is nobody.
pub fn neighbour(lab: &Lab, last: u8) {
    let words = format!(
        "neigh replace 2001:db8:2::{last:x} lladdr 02:00:00:00:09:{last:02x} nud permanent dev wan0"
    );
    ip(lab, &words);
}

pub fn leave_as_the_kernel_sends_them<R: Borrow<Router>>(start: impl Fn(&Lab) -> R) {
    let Some(_machine) = machine() else { return };
    let lab = build("routed6");
    ip(&lab, "route add 2001:db8:100::/48 via 2001:db8:2::2");
    let mut frames = strangers(1000);
    let to = |last: &str| format!("2001:db8:100::{last}").parse().unwrap();
    // what only its destination reads, and what each router reads: padding, a router alert
    for headers in [
        (43, &[17, 0, 4, 0, 0, 0, 0, 0][..]),
        (44, &[17, 0, 0, 0, 0, 0, 0, 1]),
        (60, &[17, 0, 1, 4, 0, 0, 0, 0]),
        (0, &[17, 0, 1, 4, 0, 0, 0, 0]),
        (0, &[17, 0, 5, 2, 0, 0, 1, 0]),
    ] {
        frames.push(with(client(), to("9"), 3000, 64, headers));
    }
    for (number, hop_limit) in (3100..).zip([0, 1, 2, 255]) {
        frames.push(with(client(), to("9"), number, hop_limit, NONE));
    }
    let sources = [
        "2001:db8:1::77",
        "2001:db8:1::1",
        "2001:db8:2::1",
        "2001:db8:2::2",
        "2001:db8:ffff::1",
        "::",
        "::1",
        "::7",
        "::ffff:192.0.2.1",
        "fe80::9",
        "fec0::9",
        "ff02::9",
    ];
    for (number, src) in (3200..).zip(sources) {
        frames.push(packet(src.parse().unwrap(), to("9"), number));
    }
    let destinations = [
        "::",
        "::1",
        "::ffff:192.0.2.1",
        "fe80::9",
        "ff0e::9",
        "2001:db8:1::9",
        "2001:db8:2::1",
        "2001:db8:1::1",
        "2001:db8:ffff::9",
    ];
    for (number, dst) in (3300..).zip(destinations) {
        frames.push(packet(client(), dst.parse().unwrap(), number));
    }
    let by_kernel = left(&lab, &frames);
    let started = start(&lab);
    let router = started.borrow();
    wait(router, "prefix paths", |routes| active_in("ipv6", routes));
    confirm(&lab, router, &frames[..20]);
    most_leave_as(router, &lab, &frames, &by_kernel, 500);
    let routes = router.json(&["routes"]);
    assert_eq!(routes["contradicted"], 0, "{routes}");
    let answer = &router.json(&["routes", "2001:db8:100::9"])["answer"];
    assert_eq!(answer["prefix"], "2001:db8:100::/48", "{answer}");
    assert_eq!(
        (&answer["fast"], &answer["agrees"]),
        (&true.into(), &true.into()),
        "{answer}"
    );
    assert_eq!(answer["neighbour"], "2001:db8:2::2", "{answer}");
    // conntrack waits for the others of a packet before a rule takes it out of its sight
    let rules = "table inet f {\nchain raw {\ntype filter hook prerouting priority raw\niifname lan0 notrack\n}\n\
        chain forward {\ntype filter hook forward priority 0\nct state established accept\n}\n}";
    lab.router().tool_with_input("nft -f -", rules).unwrap();
    wait(router, "prefix paths with rules", |routes| {
        routes["ipv6"]["active"] == true && routes["ports"] == serde_json::json!(["lan0"])
    });
    confirm(&lab, router, &frames[..20]);
    // what follows a fragment's header has whole octets of octets, or nobody waits for the rest
    const FIRST: [u8; 14] = [17, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    let ahead: [(u8, &[u8]); 4] = [
        (44, &[]),
        (60, &[44, 0, 1, 4, 0, 0, 0, 0]),
        (43, &[44, 0, 4, 0, 0, 0, 0, 0]),
        (51, &[44, 1, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1]),
    ];
    let pieces = ahead.map(|(first, headers)| {
        let headers = [headers, &FIRST].concat();
        with(client(), to("9"), 3000, 64, (first, &headers))
    });
    assert_eq!(left(&lab, &pieces).len(), 0);
}

pub fn changes_are_followed<R: Borrow<Router>>(start: impl Fn(&Lab) -> R) {
    let Some(_machine) = machine() else { return };
    let lab = build("routed6");
    for last in 0x10..0x13 {
        neighbour(&lab, last);
    }
    ip(&lab, "route add 2001:db8:100::/48 via 2001:db8:2::10");
    let started = start(&lab);
    let router = started.borrow();
    wait(router, "prefix paths", |routes| active_in("ipv6", routes));
    let frames = strangers(100);
    let all_to = |what: &str, wanted| all_to(&lab, &frames, what, wanted);
    let fast = |what: &str, last: u8| {
        all_to(what, Some(station(last)));
        confirm(&lab, router, &frames);
        all_to(what, Some(station(last)));
    };
    let none = |why: &str| {
        wait_for_reason(router, "ipv6", why);
        let before = routed(router);
        left(&lab, &frames);
        assert_eq!(routed(router), before, "{why}");
    };
    fast("the first", 0x10);
    ip(&lab, "route replace 2001:db8:100::/48 via 2001:db8:2::11");
    fast("another gateway", 0x11);
    ip(&lab, "route add 2001:db8:100::/49 via 2001:db8:2::12");
    fast("a more specific route", 0x12);
    ip(
        &lab,
        "neigh replace 2001:db8:2::12 lladdr 02:00:00:00:09:63 nud permanent dev wan0",
    );
    fast("another station", 0x63);
    ip(&lab, "route replace blackhole 2001:db8:100::/49");
    all_to("nowhere", None);
    ip(&lab, "route del 2001:db8:100::/49");
    fast("the shorter one again", 0x11);
    // for some sources: the kernel's, and again when it has gone
    ip(
        &lab,
        "route add 2001:db8:100::/48 from 2001:db8:1::/64 via 2001:db8:2::10",
    );
    all_to("a route of some sources", Some(station(0x10)));
    let answer = &router.json(&["routes", "2001:db8:100::9"])["answer"];
    assert_eq!(answer["fast"], false, "{answer}");
    ip(&lab, "route del 2001:db8:100::/48 from 2001:db8:1::/64");
    fast("of all sources", 0x11);
    let tool = |line: &str| drop(lab.router().tool(line).unwrap());
    // what routers advertise, and what is longer than it
    tool("sysctl -qw net.ipv6.conf.wan0.mtu=1280");
    until("a smaller MTU", PATIENCE, || {
        let routes = router.json(&["routes"]);
        let hops = routes["next_hops"].as_array().unwrap();
        let of_ipv6 = |hop: &&Value| hop["neighbour"].as_str().unwrap().contains(':');
        let hop = hops.iter().find(of_ipv6)?;
        (hop["len_max"] == 1280).then_some(())
    });
    tool("ip -6 rule add from 2001:db8:9::/48 blackhole");
    none("routing rule");
    tool("ip -6 rule del from 2001:db8:9::/48 blackhole");
    fast("without the rule", 0x11);
    tool("sysctl -qw net.ipv6.conf.all.proxy_ndp=1");
    none("proxy_ndp");
    tool("sysctl -qw net.ipv6.conf.all.proxy_ndp=0");
    fast("without proxies", 0x11);
    tool("sysctl -qw net.ipv6.conf.all.forwarding=0");
    none("forwarding is not 1");
    assert_eq!(left(&lab, &frames).values().sum::<usize>(), 0);
}
