// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prefix paths of IPv6.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use freeway_testkit::random::Random;
use freeway_testkit::*;

use super::strangers6::*;
use super::{ON, active_in, compare, confirm, in_xdp, ip, kept_at, left, wait, wait_for_reason};

#[test]
fn packets_of_ipv6_without_flows_leave_as_the_kernel_sends_them() {
    leave_as_the_kernel_sends_them(in_xdp);
}

/// Rules of one family alone.
#[test]
fn rules_of_ipv6_are_in_the_way_of_ipv6() {
    let Some(_machine) = machine() else { return };
    let lab = build("routed6");
    ip(&lab, "route add 2001:db8:100::/48 via 2001:db8:2::2");
    let router = Router::start_with(&lab, ON);
    wait(&router, "prefix paths", |routes| active_in("ipv6", routes));
    let frames = strangers(200);
    confirm(&lab, &router, &frames);
    let nft = |text: &str| {
        let text = format!("flush ruleset\n{text}");
        lab.router().tool_with_input("nft -f -", &text).unwrap();
    };
    let drops = |family: &str| {
        nft(&format!(
            "table {family} f {{ chain c {{ type filter hook forward priority 0; udp sport 1001 drop\n}}\n}}"
        ));
    };
    drops("ip6");
    let routes = wait_for_reason(&router, "ipv6", "chain c of table ip6 f");
    println!("{}", routes["ports_kept"]);
    assert_eq!(
        left(&lab, &frames).values().sum::<usize>(),
        frames.len() - 1
    );
    drops("ip");
    wait(&router, "rules of IPv4 alone", |routes| {
        let kept = ["lan0", "wan0"].map(|port| kept_at(routes, port));
        routes["ipv6"]["active"] == true && kept.iter().all(|why| !why.contains("ip6"))
    });
    confirm(&lab, &router, &frames);
    assert_eq!(left(&lab, &frames).values().sum::<usize>(), frames.len());
}

#[test]
fn a_change_of_ipv6_is_one_here() {
    changes_are_followed(in_xdp);
}

/// Tables that change at random, and packets to their ends: each leaves where the kernel alone sends it.
#[test]
fn random_tables_of_ipv6_route_as_the_kernel_does() {
    let Some(_machine) = machine() else { return };
    let lab = build("routed6");
    for last in 0x10..0x18 {
        neighbour(&lab, last);
    }
    let router = Router::start_with(&lab, ON);
    wait(&router, "prefix paths", |routes| active_in("ipv6", routes));
    let mut random = Random(0x5eed);
    let rounds = if long() { 60 } else { 3 };
    let mut there: BTreeMap<String, (u128, u8)> = BTreeMap::new();
    let (mut number, mut fast, mut all) = (0u16, 0, 0);
    for round in 0..rounds {
        let mut batch = String::new();
        for _ in 0..60 {
            let len = 28 + random.below(101) as u8;
            let site = u128::from(random.draw() & 0xff) << 80;
            let below = u128::from(random.draw() & 3) << 62;
            let address =
                0x2001_0db8 << 96 | 0x100 << 80 | site | below | u128::from(random.draw() & 3);
            let address = address >> (128 - len) << (128 - len);
            let prefix = format!("{}/{len}", Ipv6Addr::from(address));
            let hop = 0x10 + random.below(8);
            let way = match random.below(12) {
                0 => "blackhole",
                1 => "unreachable",
                _ => "",
            };
            let via = match (way, random.below(10)) {
                ("", 0) => "dev wan0".to_owned(),
                ("", 1) => {
                    format!("nexthop via 2001:db8:2::{hop:x} nexthop via 2001:db8:2::10")
                }
                ("", 2) => format!("via 2001:db8:2::{hop:x} mtu 1280"),
                ("", 3) => format!("via 2001:db8:2::{hop:x} expires 1000"),
                ("", _) => format!("via 2001:db8:2::{hop:x}"),
                _ => String::new(),
            };
            if there.contains_key(&prefix) && random.below(3) == 0 {
                batch += &format!("route del {prefix}\n");
                there.remove(&prefix);
            } else {
                batch += &format!("route replace {way} {prefix} {via}\n");
                there.insert(prefix, (address, len));
            }
        }
        let batched = lab
            .router()
            .tool_with_input("ip -6 -force -batch -", &batch);
        if let Err(error) = batched {
            println!("some changes of {batch} are none: {error}");
        }
        let mut frames = Vec::new();
        for (first, len) in there.values() {
            let last = first | u128::MAX.checked_shr((*len).into()).unwrap_or(0);
            for address in [*first, last, first.wrapping_sub(1), last.wrapping_add(1)] {
                number = number.wrapping_add(1);
                frames.push(packet(client(), address.into(), number));
            }
        }
        all += frames.len() as u64;
        match compare(&lab, &router, "ipv6", &frames) {
            Ok(by_prefixes) => fast += by_prefixes,
            Err(frame) => {
                let to: [u8; 16] = frame[38..54].try_into().unwrap();
                let to = Ipv6Addr::from(to).to_string();
                let known = &router.json(&["routes", &to])["answer"];
                panic!("round {round}: {frame:02x?}: {known}");
            }
        }
    }
    println!("{fast} of {all} by prefixes");
    assert!(fast * 10 > all, "{fast} of {all}");
}
