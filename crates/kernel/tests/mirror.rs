// SPDX-License-Identifier: MIT OR Apache-2.0
//! The mirror against a real kernel: changes made by ip, bridge, tc and nft must come as events and show in the
//! state; resynchronising must find nothing that the events did not tell.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::time::Duration;

use common::mirror::{PATIENCE, assert_in_step, index, quiet, read_until};
use common::{attempt, in_namespace, nft, run};
use freeway_kernel::mirror::{Mirror, MirrorConfig};
use freeway_kernel::model::*;
use freeway_testkit::Moment;

/// A pair of connected links, both up.
fn pair() {
    quiet();
    run("ip link add v0 type veth peer name v1");
    run("ip link set v0 up");
    run("ip link set v1 up");
    std::thread::sleep(Duration::from_millis(100));
}

#[test]
fn links_come_change_and_go() {
    in_namespace(|| {
        quiet();
        let mut mirror = Mirror::open().unwrap();
        assert!(
            mirror
                .links()
                .values()
                .any(|link| link.name == "lo" && link.up)
        );
        run("ip link add v0 type veth peer name v1");
        read_until(
            &mut mirror,
            "v0",
            |e| matches!(e, Event::LinkChanged(l) if l.name == "v0"),
        );
        read_until_link(&mut mirror, "v1");
        let v0 = mirror.link_by_name("v0").unwrap().clone();
        assert_eq!(v0.kind.as_deref(), Some("veth"));
        assert!(v0.framing() == Framing::Ethernet && v0.mac.is_some() && !v0.up && v0.mtu == 1500);
        assert_eq!(v0.link, Some(index(&mirror, "v1")));
        run("ip link set v0 mtu 1400 address 02:00:00:00:00:07 up");
        read_until(&mut mirror, "mtu and MAC", |event| {
            matches!(event, Event::LinkChanged(l) if l.mtu == 1400 && l.up
                && l.mac == Some(Mac([2, 0, 0, 0, 0, 7])))
        });
        run("ip link set v1 up promisc on");
        read_until(
            &mut mirror,
            "promiscuity",
            |event| matches!(event, Event::LinkChanged(l) if l.name == "v1" && l.promiscuity == 1),
        );
        assert_in_step(&mut mirror);
        run("ip link del v0");
        read_until(
            &mut mirror,
            "gone",
            |e| matches!(e, Event::LinkGone { ifindex } if *ifindex == v0.ifindex),
        );
        assert_in_step(&mut mirror);
        assert!(mirror.link_by_name("v0").is_none());
    });
}

fn read_until_link(mirror: &mut Mirror, name: &str) {
    let start = Moment::now();
    while mirror.link_by_name(name).is_none() {
        mirror.read(&mut Vec::new()).unwrap();
        assert!(start.elapsed() < PATIENCE, "no link {name}");
    }
}

/// The kernel's watch over carriers (net/core/link_watch.c) tells up to a second later than a dump would.
fn read_until_running(mirror: &mut Mirror, ifindex: u32, running: bool) {
    let start = Moment::now();
    while mirror.links()[&ifindex].running != running {
        mirror.read(&mut Vec::new()).unwrap();
        assert!(start.elapsed() < PATIENCE, "link {ifindex}: not {running}");
    }
}

#[test]
fn bridges_and_stations() {
    in_namespace(|| {
        pair();
        let mut mirror = Mirror::open().unwrap();
        let v0 = index(&mirror, "v0");
        run("ip link add br0 type bridge");
        read_until_link(&mut mirror, "br0");
        let br0 = index(&mirror, "br0");
        assert!(matches!(
            mirror.links()[&br0].detail,
            LinkDetail::Bridge { stp_state: 0, .. }
        ));
        run("ip link set v0 master br0");
        read_until(
            &mut mirror,
            "enslaved",
            |e| matches!(e, Event::LinkChanged(l) if l.ifindex == v0 && l.master == Some(br0)),
        );
        run("ip link set br0 up");
        read_until(&mut mirror, "forwarding", |event| {
            matches!(event, Event::LinkChanged(l) if l.ifindex == v0
                && matches!(l.port, PortDetail::Bridge { state: 3, .. }))
        });
        read_until_running(&mut mirror, br0, true);
        if attempt("bridge fdb add 02:00:00:00:00:09 dev v0 master static").0 {
            read_until(&mut mirror, "station", |event| {
                matches!(event, Event::FdbChanged(f) if f.mac == Mac([2, 0, 0, 0, 0, 9])
                    && f.ifindex == v0 && f.master == Some(br0))
            });
            assert!(
                mirror
                    .fdb()
                    .keys()
                    .any(|(master, _, mac)| *master == br0 && mac.0[5] == 9)
            );
            run("bridge fdb del 02:00:00:00:00:09 dev v0 master");
            read_until(
                &mut mirror,
                "station gone",
                |e| matches!(e, Event::FdbGone(f) if f.mac.0[5] == 9),
            );
        }
        assert_in_step(&mut mirror);
        run("ip link set v0 nomaster");
        read_until(
            &mut mirror,
            "left",
            |e| matches!(e, Event::LinkChanged(l) if l.ifindex == v0 && l.master.is_none()),
        );
        read_until_running(&mut mirror, br0, false);
        assert_in_step(&mut mirror);
        assert_eq!(mirror.links()[&v0].port, PortDetail::None);
    });
}

#[test]
fn addresses_routes_rules_nexthops() {
    in_namespace(|| {
        pair();
        let mut mirror = Mirror::open().unwrap();
        let v0 = index(&mirror, "v0");
        run("ip addr add 192.0.2.1/24 dev v0");
        read_until(
            &mut mirror,
            "address",
            |event| matches!(event, Event::AddrChanged(a) if a.ifindex == v0 && a.prefix_len == 24),
        );
        run("ip -6 addr add 2001:db8::1/64 dev v0 nodad");
        run("ip route add 198.51.100.0/24 via 192.0.2.2 mtu 1300");
        let prefix = Prefix {
            addr: [198, 51, 100, 0].into(),
            len: 24,
        };
        let events = read_until(
            &mut mirror,
            "route",
            |e| matches!(e, Event::RouteChanged(r, false) if r.dst == prefix),
        );
        let route = events
            .iter()
            .find_map(|e| match e {
                Event::RouteChanged(r, _) if r.dst == prefix => Some(r),
                _ => None,
            })
            .unwrap();
        assert_eq!(
            (route.family, route.table, route.oif()),
            (Family::Ipv4, 254, Some(v0))
        );
        assert_eq!(
            (route.gateway(), route.mtu),
            (Some([192, 0, 2, 2].into()), Some(1300))
        );
        run("ip route replace 198.51.100.0/24 via 192.0.2.3");
        read_until(
            &mut mirror,
            "replaced",
            |event| matches!(event, Event::RouteChanged(r, true) if r.gateway() == Some([192, 0, 2, 3].into())),
        );
        assert_in_step(&mut mirror);
        run("ip route del 198.51.100.0/24");
        read_until(
            &mut mirror,
            "route gone",
            |e| matches!(e, Event::RouteGone(r) if r.dst == prefix),
        );
        run("ip route add 198.51.100.0/24 nexthop via 192.0.2.2 weight 2 nexthop via 192.0.2.3");
        read_until(
            &mut mirror,
            "multipath",
            |event| matches!(event, Event::RouteChanged(r, _) if r.hops.len() == 2 && r.hops[0].weight == 1),
        );
        // a locked MTU and realms are more than a way out
        for more in ["mtu lock 1300", "realms 7"] {
            run(&format!(
                "ip route replace 198.51.100.0/24 via 192.0.2.2 {more}"
            ));
            read_until(
                &mut mirror,
                "special route",
                |e| matches!(e, Event::RouteChanged(r, true) if r.dst == prefix && r.special),
            );
        }
        run("ip -6 route add 2001:db8:1::/48 via 2001:db8::2");
        read_until(
            &mut mirror,
            "IPv6 route",
            |e| matches!(e, Event::RouteChanged(r, _) if r.dst.len == 48),
        );
        run("ip rule add from 192.0.2.0/25 fwmark 0x7/0xff iif v0 table 77 priority 500");
        read_until(&mut mirror, "rule", |event| {
            matches!(event, Event::RuleChanged(r) if r.priority == 500 && r.table == 77
                && r.fwmark == Some((7, 0xff)) && r.iif.as_deref() == Some("v0")
                && r.src.is_some_and(|p| p.len == 25))
        });
        assert_in_step(&mut mirror);
        run("ip rule del priority 500");
        read_until(
            &mut mirror,
            "rule gone",
            |e| matches!(e, Event::RuleChanged(r) if r.priority == 500),
        );
        run("ip nexthop add id 7 via 192.0.2.2 dev v0");
        read_until(&mut mirror, "nexthop", |e| {
            matches!(e, Event::NexthopChanged { id: 7 })
        });
        assert_eq!(mirror.nexthops()[&7].oif, Some(v0));
        run("ip route add 203.0.113.0/24 nhid 7");
        read_until(
            &mut mirror,
            "its route",
            |e| matches!(e, Event::RouteChanged(r, _) if r.nexthop_id == Some(7)),
        );
        run("ip nexthop replace id 7 via 192.0.2.3 dev v0");
        read_until(&mut mirror, "replaced nexthop", |e| {
            matches!(e, Event::NexthopChanged { id: 7 })
        });
        assert_in_step(&mut mirror);
        run("ip addr del 192.0.2.1/24 dev v0");
        read_until(
            &mut mirror,
            "address gone",
            |e| matches!(e, Event::AddrGone(a) if a.ifindex == v0),
        );
    });
}

#[test]
fn neighbours_tell_outcomes_only() {
    in_namespace(|| {
        pair();
        run("ip addr add 192.0.2.1/24 dev v0");
        let mut mirror = Mirror::open().unwrap();
        let is = |event: &Event, mac: u8| matches!(event, Event::NeighChanged(n) if n.lladdr.is_some_and(|m| m.0[5] == mac));
        run("ip neigh add 192.0.2.9 lladdr 02:00:00:00:00:01 dev v0 nud reachable");
        read_until(&mut mirror, "neighbour", |e| is(e, 1));
        run("ip neigh change 192.0.2.9 lladdr 02:00:00:00:00:01 dev v0 nud stale");
        std::thread::sleep(Duration::from_millis(50));
        let mut events = Vec::new();
        mirror.read(&mut events).unwrap();
        // the links may still be coming up
        events.retain(|event| matches!(event, Event::NeighChanged(_) | Event::NeighGone(_)));
        assert_eq!(events, [], "stale is as good as reachable");
        let key = (index(&mirror, "v0"), [192, 0, 2, 9].into());
        assert_eq!(mirror.neighs()[&key].state, 4);
        run("ip neigh change 192.0.2.9 lladdr 02:00:00:00:00:02 dev v0 nud stale");
        read_until(&mut mirror, "moved", |e| is(e, 2));
        run("ip neigh change 192.0.2.9 dev v0 nud failed");
        read_until(
            &mut mirror,
            "failed",
            |e| matches!(e, Event::NeighChanged(n) if !n.is_valid()),
        );
        run("ip neigh del 192.0.2.9 dev v0");
        read_until(
            &mut mirror,
            "gone",
            |e| matches!(e, Event::NeighGone(n) if n.ip == key.1),
        );
        assert_in_step(&mut mirror);
    });
}

#[test]
fn forwarding_switches() {
    in_namespace(|| {
        quiet();
        let mut mirror = Mirror::open().unwrap();
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
        read_until(&mut mirror, "ip_forward", |e| {
            matches!(
                e,
                Event::NetconfChanged {
                    ifindex: -1,
                    family: Family::Ipv4
                }
            )
        });
        assert_eq!(mirror.netconf()[&(Family::Ipv4, -1)].forwarding, Some(true));
        std::fs::write("/proc/sys/net/ipv4/conf/lo/rp_filter", "2").unwrap();
        read_until(&mut mirror, "rp_filter", |e| {
            matches!(e, Event::NetconfChanged { ifindex: 1, .. })
        });
        assert_eq!(mirror.netconf()[&(Family::Ipv4, 1)].rp_filter, Some(2));
        std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
        read_until(&mut mirror, "IPv6", |e| {
            matches!(
                e,
                Event::NetconfChanged {
                    ifindex: -1,
                    family: Family::Ipv6
                }
            )
        });
        assert_in_step(&mut mirror);
    });
}

#[test]
fn qdiscs_and_filters() {
    in_namespace(|| {
        pair();
        let mut mirror = Mirror::open().unwrap();
        let v0 = index(&mirror, "v0");
        run("tc qdisc add dev v0 root handle 1: htb");
        read_until(
            &mut mirror,
            "qdisc",
            |e| matches!(e, Event::QdiscChanged { ifindex } if *ifindex == v0),
        );
        assert!(
            mirror
                .qdiscs()
                .values()
                .any(|q| q.ifindex == v0 && q.kind == "htb" && q.parent == u32::MAX)
        );
        run("tc qdisc add dev v0 clsact");
        read_until(
            &mut mirror,
            "clsact",
            |e| matches!(e, Event::QdiscChanged { ifindex } if *ifindex == v0),
        );
        assert!(
            mirror
                .qdiscs()
                .values()
                .any(|q| q.ifindex == v0 && q.kind == "clsact")
        );
        let filters = ["basic", "u32 match u32 0 0"];
        let added = filters.iter().find(|kind| {
            attempt(&format!(
                "tc filter add dev v0 ingress protocol ip prio 7 {kind}"
            ))
            .0
        });
        if added.is_some() {
            read_until(
                &mut mirror,
                "filter",
                |e| matches!(e, Event::FilterChanged { ifindex } if *ifindex == v0),
            );
            assert!(!mirror.filters()[&v0].is_empty());
            let first = &mirror.filters()[&v0][0];
            assert_eq!(
                (first.parent, first.priority, first.protocol),
                (TC_INGRESS, 7, 0x0800)
            );
        } else {
            eprintln!("no classifier in this kernel");
        }
        assert_in_step(&mut mirror);
        run("tc class add dev v0 parent 1: classid 1:1 htb rate 10mbit");
        run("tc class add dev v0 parent 1:1 classid 1:10 htb rate 5mbit");
        run("tc filter add dev v0 parent 1:1 protocol ip prio 3 u32 match u32 0 0 classid 1:10");
        read_until(
            &mut mirror,
            "a class's filter",
            |e| matches!(e, Event::FilterChanged { ifindex } if *ifindex == v0),
        );
        let of_class = |f: &Filter| (f.parent, f.priority) == (0x0001_0001, 3) && !f.is_hooked();
        assert!(
            mirror.filters()[&v0].iter().any(of_class),
            "{:?}",
            mirror.filters()
        );
        assert_in_step(&mut mirror);
        run("tc qdisc del dev v0 clsact");
        run("tc qdisc del dev v0 root");
        read_until(
            &mut mirror,
            "gone",
            |e| matches!(e, Event::QdiscChanged { ifindex } if *ifindex == v0),
        );
        std::thread::sleep(Duration::from_millis(50));
        mirror.read(&mut Vec::new()).unwrap();
        assert!(mirror.filters().get(&v0).is_none());
        assert!(
            !mirror
                .qdiscs()
                .values()
                .any(|q| q.kind == "htb" || q.kind == "clsact")
        );
        assert_in_step(&mut mirror);
    });
}

#[test]
fn ruleset_and_set_elements() {
    in_namespace(|| {
        let mut mirror = Mirror::open().unwrap();
        nft("table inet t { set s { type ipv4_addr; } }");
        read_until(&mut mirror, "ruleset", |e| {
            matches!(e, Event::RulesetChanged { .. })
        });
        mirror.read(&mut Vec::new()).unwrap();
        run("nft add element inet t s { 192.0.2.1, 192.0.2.2 }");
        let events = read_until(
            &mut mirror,
            "elements",
            |event| matches!(event, Event::SetElementsChanged { family: 1, table, set, changes } if table == "t" && set == "s" && changes.added.len() == 2),
        );
        assert_eq!(events.len(), 1, "{events:#?}");
        assert_in_step(&mut mirror);
    });
}

#[test]
fn policies_of_ipsec() {
    in_namespace(|| {
        let mut mirror = Mirror::open().unwrap();
        let policy = "src 192.0.2.0/24 dst 198.51.100.0/24 dir fwd";
        if !attempt(&format!("ip xfrm policy add {policy} action block")).0 {
            eprintln!("skipped: no IPsec in this kernel");
            return;
        }
        read_until(&mut mirror, "policy", |e| *e == Event::XfrmChanged);
        assert_eq!(mirror.xfrm_policies(), 1);
        assert_in_step(&mut mirror);
        run(&format!("ip xfrm policy delete {policy}"));
        read_until(&mut mirror, "gone", |e| *e == Event::XfrmChanged);
        assert_eq!(mirror.xfrm_policies(), 0);
    });
}

#[test]
fn overrun_is_told_and_made_up_for() {
    in_namespace(|| {
        pair();
        run("ip addr add 192.0.2.1/24 dev v0");
        let config = MirrorConfig {
            receive_buffer_bytes: 4096,
            ..MirrorConfig::default()
        };
        let mut mirror = Mirror::open_with(config).unwrap();
        let batch: String = (0..500)
            .map(|n| format!("route add 10.{}.{}.0/24 via 192.0.2.2\n", n / 250, n % 250))
            .collect();
        common::feed("ip -batch -", &batch);
        let mut events = Vec::new();
        mirror.read(&mut events).unwrap();
        assert!(
            events.contains(&Event::Overrun {
                source: Source::Route
            }),
            "{}",
            events.len()
        );
        let told = events
            .iter()
            .filter(|e| matches!(e, Event::RouteChanged(..)))
            .count();
        let made_up = mirror.resync().unwrap();
        let rest = made_up
            .iter()
            .filter(|e| matches!(e, Event::RouteChanged(..)))
            .count();
        assert_eq!(told + rest, 500);
        assert!(!made_up.iter().any(|e| matches!(e, Event::Overrun { .. })));
        assert_eq!(mirror.resync().unwrap(), []);
    });
}

#[test]
fn a_route_that_went_in_silence_is_told_when_it_is_back() {
    in_namespace(|| {
        pair();
        run("ip addr add 192.0.2.1/24 dev v0");
        run("ip route add 198.51.100.0/24 via 192.0.2.2");
        let mut mirror = Mirror::open().unwrap();
        let prefix = Prefix {
            addr: [198, 51, 100, 0].into(),
            len: 24,
        };
        let mut events = Vec::new();
        run("ip link set v0 down");
        run("ip link set v0 up");
        mirror.read(&mut events).unwrap();
        let is = |event: &Event| match event {
            Event::RouteChanged(route, _) | Event::RouteGone(route) => route.dst == prefix,
            _ => false,
        };
        assert!(!events.iter().any(is), "{events:?}");
        run("ip route add 198.51.100.0/24 via 192.0.2.2");
        read_until(&mut mirror, "the route again", is);
        assert_in_step(&mut mirror);
    });
}

#[test]
fn many_routes_are_a_digest() {
    in_namespace(|| {
        pair();
        run("ip addr add 192.0.2.1/24 dev v0");
        let config = MirrorConfig {
            route_limit: 50,
            ..MirrorConfig::default()
        };
        let mut mirror = Mirror::open_with(config).unwrap();
        assert!(mirror.routes().is_some());
        let batch: String = (0..100)
            .map(|n| format!("route add 10.0.{n}.0/24 via 192.0.2.2\n"))
            .collect();
        common::feed("ip -batch -", &batch);
        let mut events = Vec::new();
        mirror.read(&mut events).unwrap();
        assert_eq!(
            events
                .iter()
                .filter(|e| matches!(e, Event::RouteChanged(..)))
                .count(),
            100
        );
        assert!(mirror.routes().is_none());
        assert_eq!(mirror.resync().unwrap(), [Event::RoutesUnknown]);
        assert_eq!(mirror.resync().unwrap(), []);
        run("ip route del 10.0.7.0/24");
        mirror.read(&mut events).unwrap();
        assert_eq!(mirror.resync().unwrap(), [Event::RoutesUnknown]);
        assert_eq!(mirror.resync().unwrap(), []);
    });
}

#[test]
fn snapshot_is_the_way_from_nothing() {
    in_namespace(|| {
        pair();
        let mirror = Mirror::open().unwrap();
        let events = mirror.snapshot();
        let links = events
            .iter()
            .filter(|e| matches!(e, Event::LinkChanged(_)))
            .count();
        assert_eq!(links, mirror.links().len());
        assert!(
            !events
                .iter()
                .any(|e| matches!(e, Event::LinkGone { .. } | Event::Overrun { .. }))
        );
        assert!(mirror.fds().iter().all(|fd| *fd >= 0));
        assert_eq!(mirror.fds().len(), mirror.sources().len());
    });
}
