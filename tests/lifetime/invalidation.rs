// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long a change in the kernel takes to reach the fast path, at half the kernel's measured capacity.
//!
//! ```text
//!                                   router                                  sink
//!   generators (CPU 0)   +---------------------------+   one wire, XDP, any destination MAC
//!  +--------+            |                           |            +-----------------------+
//!  | client |------------| lan0    daemon       wan0 |------------| server    198.51.100.2|
//!  +--------+            |         (CPU 1)           |            | gateway A .10  ..0a:01|
//!   concerned flows  ->  +---------------------------+            | gateway B .11  ..0b:01|
//!   bystanders       ->     203.0.113.0/24 via A or B             +-----------------------+
//! ```
//!
//! Each trial waits until the concerned flows are forwarded by the fast path, makes one change by a netlink request
//! of this process, and takes CLOCK_MONOTONIC just after the acknowledgement was read (`ack`) and just before the
//! request was sent (`request`). The sink's XDP program notes CLOCK_MONOTONIC for the last frame that looks as it did
//! before the change. The delay that is asserted is from `ack`. The kernel acknowledges a little before this process
//! runs again, so this figure may be too small by one wake-up; the one from `request` is too large by the whole
//! change (an nft commit waits for an RCU grace period), and is printed beside it. The truth is between the two.
//!
//! Generators and daemon run at nice -20, so that other work on the machine does not count.
//!
//! The same in the engine's place: `cargo test -p freeway-engine --test invalidation`.
//!
//! `FREEWAY_LONG=1`: 200 trials of each kind instead of 20. `FREEWAY_JSON=FILE`: appends one JSON object a row.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use freeway_lab::clock::monotonic_ns;
use freeway_lab::frame::{MAC_SERVER, MAC_WAN};
use freeway_lab::{FlowSpec, Generator, Load, Options, Proto, Rule, Until};
use freeway_testkit::invalidation::netlink::*;
use freeway_testkit::invalidation::site::*;
use freeway_testkit::{Moment, until};

/// In the engine's package it is the engine that forwards.
const PLACE: Place = match env!("CARGO_PKG_NAME").as_bytes() {
    b"freeway-engine" => Place::Engine,
    _ => Place::Xdp,
};

/// Whom sets name.
const HOST: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);
/// Bans that end by themselves: how many, after what time, and how much later at most.
const TIMEOUTS: usize = 2;
const TIMEOUT: Duration = Duration::from_secs(2);
const TIMED_OUT_MS: f64 = 100.0;

#[test]
fn routes_neighbours_and_links() {
    routes_neighbours_and_links_at(PLACE);
}

/// The same by prefix paths.
#[test]
fn routes_neighbours_and_links_by_prefix() {
    let place = match PLACE {
        Place::Engine => Place::EngineRoutes,
        _ => Place::Routes,
    };
    if place == Place::EngineRoutes && !freeway_testkit::long() {
        println!("skipped: in the long form alone with the engine, which goes by the same tables");
        return;
    }
    routes_neighbours_and_links_at(place);
}

fn routes_neighbours_and_links_at(place: Place) {
    let Some(_machine) = freeway_testkit::machine() else {
        return;
    };
    let site = Site::build_at(place, "routed", Options::default());
    let wan = site.wan;
    let via = |gateway| Target::Gateway(gateway, wan);
    let restore = |netlink: &mut Netlink| {
        netlink.change(neighbour_replace(wan, SERVER, MAC_SERVER));
        netlink.change(neighbour_replace(wan, GATEWAY_A, MAC_A));
        netlink.change(neighbour_replace(wan, GATEWAY_B, MAC_B));
        netlink.change(route_replace(NETWORK, &via(GATEWAY_A)));
    };
    restore(&mut site.netlink());
    let mut rows = Rows::default();
    let mut trials = Trials {
        site: &site,
        next_port: 0x5000,
        bystanders: true,
        near: None,
    };
    let (at_a, at_far) = (destination_mac(MAC_A), destination(FAR));

    let row = trials.run(
        "route replaced",
        at_a,
        Some(destination_mac(MAC_B)),
        |netlink| netlink.change(route_replace(NETWORK, &via(GATEWAY_B))),
        restore,
    );
    rows.take(&row, true);
    let row = trials.run(
        "route deleted",
        at_far,
        None,
        |netlink| netlink.change(route_delete(NETWORK, &via(GATEWAY_A))),
        restore,
    );
    rows.take(&row, true);
    let row = trials.run(
        "route unreachable",
        at_far,
        None,
        |netlink| netlink.change(route_replace(NETWORK, &Target::Unreachable)),
        restore,
    );
    rows.take(&row, true);
    let row = trials.run(
        "route blackhole",
        at_far,
        None,
        |netlink| netlink.change(route_replace(NETWORK, &Target::Blackhole)),
        restore,
    );
    rows.take(&row, true);
    let row = trials.run(
        "neighbour moved",
        at_a,
        Some(destination_mac(MAC_A2)),
        |netlink| netlink.change(neighbour_replace(wan, GATEWAY_A, MAC_A2)),
        restore,
    );
    rows.take(&row, true);
    let row = trials.run(
        "neighbour deleted",
        at_a,
        None,
        |netlink| netlink.change(neighbour_delete(wan, GATEWAY_A)),
        restore,
    );
    rows.take(&row, true);
    let row = trials.run(
        "neighbour failed",
        at_a,
        None,
        |netlink| netlink.change(neighbour_failed(wan, GATEWAY_A)),
        restore,
    );
    rows.take(&row, true);
    let lo = site.lab.router().ifindex("lo").unwrap();
    let row = trials.run(
        "address added",
        at_far,
        None,
        |netlink| netlink.change(address(lo, FAR, true)),
        |netlink| {
            netlink.change(address(lo, FAR, false));
        },
    );
    rows.take(&row, true);
    // From here on everything that leaves at this port is concerned; frames of bystanders still fit.
    let row = trials.run(
        "link MTU",
        LONG,
        None,
        |netlink| netlink.change(link_mtu(wan, 200)),
        |netlink| {
            netlink.change(link_mtu(wan, 1500));
        },
    );
    rows.take(&row, false);
    // No bystanders: the kernel forgets all neighbours of the port, permanent ones too, and loses what it likes.
    trials.bystanders = false;
    let row = trials.run(
        "link MAC",
        source_mac(MAC_WAN),
        Some(source_mac(MAC_WAN2)),
        |netlink| {
            let acked = netlink.change(link_mac(wan, MAC_WAN2));
            restore(netlink);
            acked
        },
        |netlink| {
            netlink.change(link_mac(wan, MAC_WAN));
            restore(netlink);
        },
    );
    rows.take(&row, false);
    rows.take(&again(|| down(&site, at_far, restore)), false);
    site.daemon.stop();
    rows.judge();
}

#[test]
fn rules_nexthops_and_switches() {
    if PLACE == Place::Engine && !freeway_testkit::long() {
        println!("skipped: in the long form alone with the engine, which goes by the same epoch");
        return;
    }
    let Some(_machine) = freeway_testkit::machine() else {
        return;
    };
    let site = Site::build_at(PLACE, "routed", Options::default());
    let (lan, wan) = (site.lan, site.wan);
    let router = site.lab.router();
    let restore = |netlink: &mut Netlink| {
        netlink.change(neighbour_replace(wan, SERVER, MAC_SERVER));
        netlink.change(neighbour_replace(wan, GATEWAY_A, MAC_A));
        netlink.change(neighbour_replace(wan, GATEWAY_B, MAC_B));
        netlink.change(nexthop_replace(7, GATEWAY_A, wan));
        netlink.change(route_replace(NETWORK, &Target::Nexthop(7)));
    };
    restore(&mut site.netlink());
    let mut rows = Rows::default();
    // Each of these changes concerns every flow: bystanders wait until they are confirmed, and lose nothing.
    let mut trials = Trials {
        site: &site,
        next_port: 0x5000,
        bystanders: true,
        near: None,
    };
    let (at_a, at_far) = (destination_mac(MAC_A), destination(FAR));
    let row = trials.run(
        "nexthop replaced",
        at_a,
        Some(destination_mac(MAC_B)),
        |netlink| netlink.change(nexthop_replace(7, GATEWAY_B, wan)),
        restore,
    );
    rows.take(&row, false);
    let row = trials.run(
        "nexthop deleted",
        at_far,
        None,
        |netlink| netlink.change(nexthop_delete(7)),
        restore,
    );
    rows.take(&row, false);
    let row = trials.run(
        "rule added",
        at_far,
        None,
        |netlink| netlink.change(rule(NETWORK, true)),
        |netlink| {
            netlink.change(rule(NETWORK, false));
        },
    );
    rows.take(&row, false);
    let mut xfrm = Netlink::xfrm(router);
    let mut undo = Netlink::xfrm(router);
    let row = trials.run(
        "xfrm policy",
        at_far,
        None,
        |_| xfrm.change(policy_block(NETWORK, true)),
        |_| {
            undo.change(policy_block(NETWORK, false));
        },
    );
    rows.take(&row, false);
    // Nobody has a route to these sources, which is not asked before.
    trials.near = Some(Ipv4Addr::new(198, 18, 0, 5));
    let rp_filter = |value| {
        router
            .sysctl("net/ipv4/conf/lan0/rp_filter", value)
            .unwrap()
    };
    let row = trials.run(
        "rp_filter",
        at_far,
        None,
        |_| timed(|| rp_filter("1")),
        |_| rp_filter("0"),
    );
    rows.take(&row, false);
    trials.near = None;

    // No bystanders: nothing is forwarded any more.
    trials.bystanders = false;
    let forward = |value| router.sysctl("net/ipv4/ip_forward", value).unwrap();
    let row = trials.run(
        "ip_forward",
        at_far,
        None,
        |_| timed(|| forward("0")),
        |_| forward("1"),
    );
    rows.take(&row, false);
    let row = trials.run(
        "qdisc added",
        at_far,
        None,
        |netlink| netlink.change(qdisc_tbf(wan)),
        |netlink| {
            netlink.change(qdisc_delete(wan));
        },
    );
    rows.take(&row, false);
    site.netlink().change(qdisc_clsact(lan));
    let dropper = constant_program(3, 2);
    let row = trials.run(
        "tc filter added",
        at_far,
        None,
        |netlink| netlink.change(filter_bpf(lan, &dropper)),
        |netlink| {
            netlink.change(filter_delete(lan));
        },
    );
    rows.take(&row, false);
    // A bridge that is down takes all frames of its ports.
    router.tool("ip link add br0 type bridge").unwrap();
    let bridge = router.ifindex("br0").unwrap();
    let row = trials.run(
        "bridge membership",
        at_far,
        None,
        |netlink| netlink.change(link_master(lan, bridge)),
        |netlink| {
            netlink.change(link_master(lan, 0));
        },
    );
    rows.take(&row, false);
    site.daemon.stop();
    rows.judge();
}

/// No port, no bystanders.
fn down(site: &Site, old: Rule, mut restore: impl FnMut(&mut Netlink)) -> Row {
    let wan = site.wan;
    let mut netlink = site.netlink();
    let mut row = site.row("link down");
    let spec = FlowSpec {
        far: FAR.into(),
        near_port: 0x3000,
        ..site.lab.flows(Proto::Udp, FLOWS, 128)
    };
    let generator = Arc::new(Generator::new(site.lab.client_port(), &spec).unwrap());
    let pps = 2 * site.pps;
    for _ in 0..trials() {
        let load = Load::paced(Until::Stopped, pps).on_cpu(0);
        let running = generator.start(load).unwrap();
        site.wait_fast(0x3000, FLOWS);
        site.watch_old(old);
        let acked = netlink.change(link_up(wan, false));
        row.add(acked, site.last_old());
        running.stop().unwrap();
        netlink.change(link_up(wan, true));
        freeway_testkit::until("carrier", PATIENCE, || {
            let link = site.lab.router().tool("ip -o link show wan0").unwrap();
            link.contains("LOWER_UP").then_some(())
        });
        restore(&mut netlink);
    }
    row
}

#[test]
fn rules_and_connections() {
    let Some(_machine) = freeway_testkit::machine() else {
        return;
    };
    let options = Options {
        extra_nft: "table inet victim {\n\
             \tchain forward {\n\
             \t\ttype filter hook forward priority -10; policy accept;\n\
             \t}\n}\n\
             table inet sets {\n\
             \tset hosts {\n\t\ttype ipv4_addr;\n\t}\n\
             \tset allowed {\n\t\ttype ipv4_addr; elements = { 192.0.2.10 };\n\t}\n\
             \tmap verdicts {\n\t\ttype ipv4_addr : verdict;\n\t}\n\
             \tchain forward {\n\
             \t\ttype filter hook forward priority -8; policy accept;\n\
             \t\tip saddr @hosts drop\n\
             \t\tip saddr 192.0.2.10 ip saddr != @allowed drop\n\
             \t\tip saddr vmap @verdicts\n\
             \t}\n}\n\
             table inet bans {\n\
             \tset banned {\n\t\ttype ipv4_addr; flags timeout;\n\t}\n\
             \tchain raw {\n\
             \t\ttype filter hook prerouting priority raw; policy accept;\n\
             \t\tip saddr @banned drop\n\
             \t}\n}\n\
             table inet marks {\n\
             \tchain forward {\n\
             \t\ttype filter hook forward priority -5; policy accept;\n\
             \t\tct mark 1 drop\n\
             \t}\n}\n"
            .into(),
        ..Options::default()
    };
    let site = Site::build_at(PLACE, "nat", options);
    let mut rows = Rows::default();
    let concerned = source_ports(0x4000, FLOWS);
    let spec = site.lab.flows(Proto::Udp, FLOWS, 128);
    let generator = Arc::new(Generator::new(site.lab.client_port(), &spec).unwrap());
    site.sink.set_rule(CONCERNED, concerned).unwrap();

    let row = again(|| rule_comes_and_goes(&site, &generator, concerned));
    rows.take(&row, false);
    commits(&site, &generator);

    for (kind, table, set, verdict, comes) in [
        ("set element added", "sets", "hosts", false, true),
        ("set element gone", "sets", "allowed", false, false),
        ("verdict map element", "sets", "verdicts", true, true),
        ("banned", "bans", "banned", false, true),
    ] {
        let row = again(|| elements(&site, kind, (table, set), verdict, comes));
        rows.take(&row, true);
    }
    if PLACE == Place::Xdp {
        let row = again(|| banned_for(&site, Row::new("unbanned"), trials(), None));
        rows.take(&row, true);
        let timed_out = || Row::bounded("ban timed out", TIMED_OUT_MS);
        let row = again(|| banned_for(&site, timed_out(), TIMEOUTS, Some(TIMEOUT)));
        rows.take(&row, true);
    }

    // From now on a connection that is gone cannot come back by itself.
    let guard = "add rule inet marks forward ct state new drop\n";
    let router = site.lab.router();
    router.tool_with_input("nft -f -", guard).unwrap();
    let mut victims = VICTIM..;
    let row = again(|| {
        connections(
            &site,
            "conntrack -D",
            trials(),
            &mut victims,
            |connection| connection.delete(),
        )
    });
    rows.take(&row, true);
    let row = again(|| {
        connections(
            &site,
            "conntrack mark",
            trials(),
            &mut victims,
            |connection| connection.mark(1),
        )
    });
    rows.take(&row, true);
    victims = older()..;
    let row = again(|| {
        let row = connections(
            &site,
            "conntrack -D, old",
            OLDER as usize,
            &mut victims,
            |connection| connection.delete(),
        );
        Row {
            bound_ms: Some(OLDER_MS),
            ..row
        }
    });
    rows.take(&row, true);
    site.daemon.stop();
    rows.judge();
}

/// A rule that drops the concerned flows comes and goes.
fn rule_comes_and_goes(site: &Site, generator: &Arc<Generator>, concerned: Rule) -> Row {
    let mut netlink = Netlink::netfilter(site.lab.router());
    let mut row = site.row("nft rule added");
    let watch = site.start_bystanders();
    let running = generator.start(site.load()).unwrap();
    for _ in 0..trials() {
        site.wait_fast(0x4000, FLOWS);
        site.wait_fast(BYSTANDER_PORT, FLOWS);
        site.watch_old(concerned);
        let last = BYSTANDER_PORT - 1;
        let acked = netlink.nft(rule_drop_sports("victim", "forward", last));
        row.add(acked, site.last_old());
        netlink.nft(rules_flush("victim", "forward"));
    }
    site.wait_fast(0x4000, FLOWS);
    site.wait_fast(BYSTANDER_PORT, FLOWS);
    row.bystanders = Some(site.stop_bystanders(watch));
    running.stop().unwrap();
    row
}

/// A commit that changes nothing for anybody: nothing may be lost, all are fast again.
fn commits(site: &Site, generator: &Arc<Generator>) {
    let mut netlink = Netlink::netfilter(site.lab.router());
    thread::sleep(Duration::from_millis(20));
    let arrived = || site.sink.mark(CONCERNED).unwrap().count;
    let (sent_before, arrived_before) = (generator.frames().unwrap(), arrived());
    let watch = site.start_bystanders();
    let running = generator.start(site.load()).unwrap();
    let mut again_ms = Vec::new();
    for _ in 0..trials() {
        site.wait_fast(0x4000, FLOWS);
        let acked = netlink.nft(rule_drop_sports("victim", "forward", 1));
        site.wait_fast(0x4000, FLOWS);
        site.wait_fast(BYSTANDER_PORT, FLOWS);
        let now = monotonic_ns();
        again_ms.push((now - acked.acked_ns) as f64 / 1e6);
        netlink.nft(rules_flush("victim", "forward"));
    }
    running.stop().unwrap();
    let mut all = site.stop_bystanders(watch);
    let sent = generator.frames().unwrap() - sent_before;
    all.arrived += arrived() - arrived_before;
    all.sent += sent;
    println!(
        "row: nft commit        n {:3}  all flows seen fast again after p50 {:.0} worst {:.0} ms \
         (asked by `freeway flows`), lost {} of {}, {} dropped by ports",
        again_ms.len(),
        quantile(&again_ms, 0.5),
        quantile(&again_ms, 1.0),
        all.lost(),
        all.sent,
        all.dropped
    );
    assert!(all.lost() <= all.dropped || !all.judged);
}

/// Flows from the host that sets name, from these source ports on.
fn of_host(site: &Site, first: u16) -> Arc<Generator> {
    let spec = FlowSpec {
        near: HOST.into(),
        near_port: first,
        ..site.lab.flows(Proto::Udp, FLOWS, 128)
    };
    Arc::new(Generator::new(site.lab.client_port(), &spec).unwrap())
}

/// Repeats a change of a set's element, which lets the kernel drop what the concerned flows' client sends.
fn elements(
    site: &Site,
    kind: &'static str,
    (table, set): (&str, &str),
    verdict: bool,
    comes: bool,
) -> Row {
    const FIRST: u16 = 0x7000;
    let mut netlink = Netlink::netfilter(site.lab.router());
    let mut row = site.row(kind);
    let generator = of_host(site, FIRST);
    let concerned = source_ports(FIRST, FLOWS);
    let watch = site.start_bystanders();
    site.wait_fast(BYSTANDER_PORT, FLOWS);
    let running = generator.start(site.load()).unwrap();
    for _ in 0..trials() {
        site.wait_fast(FIRST, FLOWS);
        site.watch_old(concerned);
        let change = |present| element(table, set, &HOST.octets(), verdict, present);
        let acked = netlink.nft(change(comes));
        row.add(acked, site.last_old());
        netlink.nft(change(!comes));
    }
    running.stop().unwrap();
    row.bystanders = Some(site.stop_bystanders(watch));
    row
}

/// A host is banned, which the scrubber sees to, until it is not, or for some time: from then on its frames arrive again.
fn banned_for(site: &Site, mut row: Row, trials: usize, timeout: Option<Duration>) -> Row {
    const FIRST: u16 = 0x7100;
    let mut netlink = Netlink::netfilter(site.lab.router());
    let generator = of_host(site, FIRST);
    let concerned = source_ports(FIRST, FLOWS);
    let watch = site.start_bystanders();
    site.wait_fast(BYSTANDER_PORT, FLOWS);
    let running = generator.start(site.load()).unwrap();
    let banned = |present| element("bans", "banned", &HOST.octets(), false, present);
    let dropped = || site.daemon.stats().reason("scrubbed");
    while row.ack_ms.len() < trials {
        site.watch_old(concerned);
        let before = dropped();
        let end = match timeout {
            None => {
                netlink.nft(banned(true));
                None
            }
            Some(timeout) => {
                let seconds = timeout.as_secs();
                let text = format!("add element inet bans banned {{ {HOST} timeout {seconds}s }}");
                let router = site.lab.router();
                let ban = timed(|| router.tool_with_input("nft -f -", &text).unwrap());
                Some(ban + timeout)
            }
        };
        until("frames dropped in XDP", PATIENCE, || {
            (dropped() > before).then_some(())
        });
        let end = end.unwrap_or_else(|| {
            site.last_old();
            netlink.nft(banned(false))
        });
        if timeout.is_some() && monotonic_ns() > end.before_ns {
            println!("     {}: over before it was looked at", row.kind);
            continue;
        }
        let patience = Moment::now() + PATIENCE;
        let first_ns = loop {
            let last_ns = site.sink.mark(OLD).unwrap().last_seen_ns;
            if last_ns > end.before_ns {
                break last_ns;
            }
            assert!(
                Moment::now() < patience,
                "a host is dropped that is not banned"
            );
            thread::sleep(Duration::from_micros(100));
        };
        row.add(end, first_ns);
    }
    running.stop().unwrap();
    row.bystanders = Some(site.stop_bystanders(watch));
    row
}

/// Repeats a change, each time of another connection, which does not come back.
fn connections(
    site: &Site,
    kind: &'static str,
    trials: usize,
    victims: &mut std::ops::RangeFrom<u32>,
    change: impl Fn(&Tracked) -> (u16, u16, Vec<u8>),
) -> Row {
    let mut netlink = Netlink::netfilter(site.lab.router());
    let mut row = site.row(kind);
    let watch = site.start_bystanders();
    site.wait_fast(BYSTANDER_PORT, FLOWS);
    for victim in victims.take(trials) {
        let connection = connection(victim);
        let spec = FlowSpec {
            near_port: connection.sport,
            ..site.lab.flows(Proto::Udp, 1, 128)
        };
        let generator = Arc::new(Generator::new(site.lab.client_port(), &spec).unwrap());
        let running = generator.start(site.load()).unwrap();
        site.wait_fast(connection.sport, 1);
        let rule = source_ports(connection.sport, 1);
        site.watch_old(rule);
        let acked = netlink.change(change(&connection));
        row.add(acked, site.last_old());
        running.stop().unwrap();
    }
    row.bystanders = Some(site.stop_bystanders(watch));
    row
}
