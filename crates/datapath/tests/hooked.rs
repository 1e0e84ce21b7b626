// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whoever is hooked into the way of packets is named, from whatever network namespace it came.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use freeway_datapath::{Function, Hooked};
use freeway_testkit::{build, machine};

const IPV4: u8 = 2;
const IPV6: u8 = 10;
/// NF_INET_FORWARD.
const FORWARD: u32 = 2;

fn names(functions: &[Function]) -> Vec<&str> {
    functions.iter().map(|f| f.name.as_str()).collect()
}

#[test]
fn who_is_hooked_in_is_named() {
    let Some(_machine) = machine() else { return };
    let lab = build("nat");
    let hooked = Hooked::load().unwrap();
    let index = lab.router().ifindex("wan0").unwrap();
    let here = |lab: &freeway_lab::Lab| {
        let look = || {
            let hooks = |family| hooked.nf_hooks(family, FORWARD).unwrap();
            (hooked.rx_handler(index).unwrap(), hooks(IPV4), hooks(IPV6))
        };
        lab.router().enter(look).unwrap()
    };

    let (taker, ipv4, ipv6) = here(&lab);
    assert_eq!(taker, None);
    assert_eq!(names(&ipv4), ["nft_do_chain_inet"]);
    assert_eq!(names(&ipv6), ["nft_do_chain_inet"]);

    // of the namespace below nothing tells, and the device has the port's own MAC address
    let namespace = lab.client().name();
    let line = format!("ip link add mv0 link wan0 netns {namespace} type macvlan mode passthru");
    lab.router().tool(&line).unwrap();
    lab.router()
        .tool("iptables-legacy -A FORWARD -j ACCEPT")
        .unwrap();
    let (taker, ipv4, ipv6) = here(&lab);
    assert_eq!(taker.unwrap().name, "macvlan_handle_frame");
    assert_eq!(names(&ipv4), ["ipt_do_table", "nft_do_chain_inet"]);
    assert_eq!(names(&ipv6), ["nft_do_chain_inet"]);

    // another namespace has devices of the same numbers, and hooks of its own
    let elsewhere = || {
        let hooks = hooked.nf_hooks(IPV4, FORWARD).unwrap();
        let handlers = (1..64).filter_map(|index| hooked.rx_handler(index).ok());
        let handlers: Vec<_> = handlers.collect();
        (hooks, handlers)
    };
    let (hooks, handlers) = lab.server().enter(elsewhere).unwrap();
    assert_eq!(hooks, []);
    // of the loopback and the wire
    assert_eq!(handlers, [None, None]);
    lab.client().tool("ip link del mv0").unwrap();
    assert_eq!(here(&lab).0, None);

    let netdev = || {
        let hooks = hooked.netdev_hooks(index).unwrap();
        (hooks, hooked.checks_sources().unwrap())
    };
    assert_eq!(lab.router().enter(netdev).unwrap(), (Vec::new(), false));
    let rules =
        "table netdev t { chain c { type filter hook ingress device wan0 priority 0; }; }\n";
    let hooks_there = lab.router().tool_with_input("nft -f -", rules).is_ok();
    let route = "ip route add local 10.9.9.0/24 dev lo";
    lab.router().tool(route).unwrap();
    lab.router().tool(&route.replace("add", "del")).unwrap();
    let (hooks, checks) = lab.router().enter(netdev).unwrap();
    // a kernel may be without CONFIG_NETFILTER_INGRESS
    let wanted: &[&str] = if hooks_there {
        &["nft_do_chain_netdev"]
    } else {
        &[]
    };
    assert_eq!(names(&hooks), wanted);
    assert!(checks, "once is for ever");
    let elsewhere = || hooked.checks_sources().unwrap();
    assert!(!lab.server().enter(elsewhere).unwrap());
}
