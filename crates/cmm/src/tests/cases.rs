// SPDX-License-Identifier: MIT OR Apache-2.0
//! One behaviour a test.

use freeway_abi::{FW_R_CLOSING, FW_ST_SUSPENDED, fw_candidate};
use freeway_kernel::Affected;
use freeway_kernel::model::{Connection, CtStatus, Event, Family, Mac, Neigh, Prefix, Tuple};
use freeway_kernel::nft::SetChanges;

use super::{HZ, LAN, Seen, WAN, World, around, names, port};
use crate::{ConnKey, Fitness, Op, Policy, Port, Refusal, RuleScope, Selection, Settings};

const TCP: u8 = 6;
const UDP: u8 = 17;
const ESP: u8 = 50;
const REACHABLE: u16 = 0x02;

fn world() -> World {
    World::new(Settings::default())
}

/// A TCP connection, fast in both directions.
fn fast_tcp(world: &mut World, n: u16) -> Seen {
    let seen = Seen::new(TCP, n);
    world.learn(seen);
    world.prepared(seen.conn(), true);
    world.learn(seen.reply());
    seen
}

#[test]
fn udp_is_fast_at_once() {
    let mut world = world();
    let ops = world.learn(Seen::new(UDP, 0));
    assert_eq!(names(&ops), ["set_nexthop", "insert", "activate"]);
    let ops = world.learn(Seen::new(UDP, 0).reply());
    assert_eq!(
        names(&ops),
        ["set_nexthop", "insert", "set_peer", "set_peer", "activate"]
    );
    let ops = world.learn(Seen::new(UDP, 1));
    assert_eq!(
        names(&ops),
        ["insert", "activate"],
        "the next hop is shared"
    );
}

#[test]
fn tcp_is_prepared_before_it_is_fast() {
    let mut world = world();
    let seen = Seen::new(TCP, 0);
    assert_eq!(
        names(&world.learn(seen)),
        ["set_nexthop", "insert", "prepare"]
    );
    let ops = world.learn(seen.reply());
    assert_eq!(
        names(&ops),
        ["set_nexthop", "insert", "set_peer", "set_peer"],
        "asked once"
    );
    let ops = world.prepared(seen.conn(), true);
    assert_eq!(
        names(&ops),
        ["activate", "activate"],
        "both directions wait for it"
    );
}

#[test]
fn tcp_that_cannot_be_prepared_stays_in_the_kernel() {
    let mut world = world();
    let seen = Seen::new(TCP, 0);
    world.learn(seen);
    world.learn(seen.reply());
    let ops = world.prepared(seen.conn(), false);
    assert!(!names(&ops).contains(&"activate"), "{ops:?}");
    assert_eq!(world.manager.flow_count(), 0);
    assert_eq!(world.manager.stats().refused[&Refusal::Preparation], 1);
}

#[test]
fn an_answer_for_a_connection_that_is_gone_does_nothing() {
    let mut world = world();
    let seen = Seen::new(TCP, 0);
    world.learn(seen);
    world.call(|m, now, ops| m.flush(now, ops));
    assert!(world.prepared(seen.conn(), true).is_empty());
}

#[test]
fn suspension_ends_both_directions() {
    let mut world = world();
    let seen = fast_tcp(&mut world, 0);
    let other = fast_tcp(&mut world, 1);
    let index = world.index(seen.reply());
    let ops = world.call(|m, now, ops| m.suspended(index, FW_R_CLOSING, now, ops));
    assert_eq!(names(&ops).iter().filter(|n| **n == "remove").count(), 2);
    assert!(!world.has(seen) && !world.has(seen.reply()));
    assert!(world.has(other) && world.has(other.reply()));
    // the kernel saw it again: prepared again before it is fast
    world.advance(2 * HZ);
    assert!(names(&world.learn(seen)).contains(&"prepare"));
}

#[test]
fn without_a_connection_the_tuples_link_the_directions() {
    let mut world = world();
    let seen = Seen {
        tracked: false,
        ..Seen::new(TCP, 0)
    };
    assert_eq!(
        names(&world.learn(seen)),
        ["set_nexthop", "insert", "activate"]
    );
    world.learn(seen.reply());
    let index = world.index(seen);
    world.call(|m, now, ops| m.suspended(index, FW_R_CLOSING, now, ops));
    assert_eq!(world.manager.flow_count(), 0);
}

#[test]
fn a_lost_suspension_is_noticed() {
    let mut world = world();
    let seen = fast_tcp(&mut world, 0);
    let index = world.index(seen);
    world.suspend(index);
    world.tick();
    assert!(!world.has(seen));
}

#[track_caller]
fn refused(world: &mut World, refusal: Refusal, change: impl FnOnce(&mut fw_candidate)) {
    let seen = Seen::new(UDP, 7);
    let mut c = seen.candidate(world.epoch, world.now);
    change(&mut c);
    let before = world
        .manager
        .stats()
        .refused
        .get(&refusal)
        .copied()
        .unwrap_or(0);
    let ops = world.call(|m, now, ops| m.candidate(&c, around(1), now, ops));
    let wanted: &[&str] = match refusal {
        Refusal::Epoch => &["forget_offer"],
        _ => &[],
    };
    assert_eq!(names(&ops), wanted, "{refusal:?}");
    assert_eq!(
        world.manager.stats().refused.get(&refusal),
        Some(&(before + 1)),
        "{refusal:?}"
    );
}

#[test]
fn what_is_entered_says_whose_it_is() {
    let w = &mut world();
    let mut conn = |seen: Seen| {
        let ops = w.learn(seen);
        let conns = ops.iter().find_map(|op| match op {
            Op::InsertFlow { conn, .. } => Some(*conn),
            _ => None,
        });
        conns.unwrap()
    };
    let seen = Seen::new(UDP, 7);
    assert_eq!(conn(seen), Some((seen.conn(), false)));
    assert_eq!(conn(seen.reply()), Some((seen.conn(), true)));
    let untracked = Seen {
        tracked: false,
        ..Seen::new(UDP, 8)
    };
    assert_eq!(conn(untracked), None);
}

#[test]
fn each_refusal_has_its_name() {
    let w = &mut world();
    refused(w, Refusal::Malformed, |c| c.family = 5);
    refused(w, Refusal::Framing, |c| c.l2_in_len = 18);
    refused(w, Refusal::Station, |c| c.l2_in[5] ^= 1);
    refused(w, Refusal::Framing, |c| c.l2_out_len = 22);
    refused(w, Refusal::PortIn, |c| c.key.port_proto = 9 << 8 | 17);
    refused(w, Refusal::PortOut, |c| c.port_out = 9);
    refused(w, Refusal::Mark, |c| c.mark = 1);
    refused(w, Refusal::Mark, |c| c.conn.mark = 1);
    refused(w, Refusal::Zone, |c| c.conn.zone = 1);
    refused(w, Refusal::Epoch, |c| c.epoch += 1);
    refused(w, Refusal::Length, |c| c.len_l3 = 1501);
    assert_eq!(
        w.manager.refusal(&Seen::new(UDP, 7).key()),
        Some(Refusal::Length)
    );
    w.learn(Seen::new(UDP, 7));
    assert_eq!(
        w.manager.refusal(&Seen::new(UDP, 7).key()),
        None,
        "it is fast now"
    );

    let w = &mut world();
    let c = Seen::new(UDP, 7).candidate(1, w.now);
    w.call(|m, now, ops| m.candidate(&c, around(2), now, ops));
    assert_eq!(w.manager.stats().refused[&Refusal::Copies], 1);

    for (input, output, refusal) in [
        (false, true, Refusal::PortIn),
        (true, false, Refusal::PortOut),
    ] {
        let w = &mut world();
        for ifindex in [LAN, WAN] {
            let port = Port {
                xdp: Fitness { input, output },
                ..port(ifindex)
            };
            w.call(|m, now, ops| m.set_port(port, now, ops));
        }
        refused(w, refusal, |_| {});
    }

    let w = &mut world();
    let lan = RuleScope {
        iif: Some(vec![LAN]),
        ..RuleScope::everything()
    };
    w.call(|m, now, ops| m.set_ruleset(vec![lan.clone()], vec![], now, ops));
    refused(w, Refusal::Ruleset, |_| {});
    w.learn(Seen::new(UDP, 7).reply());
    assert!(
        w.has(Seen::new(UDP, 7).reply()),
        "another direction is not concerned"
    );
    w.call(|m, now, ops| m.set_ruleset(vec![], vec![lan], now, ops));
    refused(w, Refusal::Mark, |_| {});
    let bare = RuleScope {
        connection: Some(false),
        ..RuleScope::everything()
    };
    let tracked = RuleScope {
        connection: Some(true),
        ..RuleScope::everything()
    };
    w.call(|m, now, ops| m.set_ruleset(vec![bare], vec![], now, ops));
    w.learn(Seen::new(UDP, 8));
    assert!(w.has(Seen::new(UDP, 8)), "it has a connection");
    w.call(|m, now, ops| m.set_ruleset(vec![tracked], vec![], now, ops));
    assert!(!w.has(Seen::new(UDP, 8)), "flows that have one leave");
    refused(w, Refusal::Ruleset, |_| {});

    let w = &mut world();
    w.call(|m, now, ops| {
        m.set_policy(
            Policy {
                udp: false,
                ..Policy::default()
            },
            now,
            ops,
        )
    });
    refused(w, Refusal::Policy, |_| {});

    let w = &mut World::new(Settings {
        flows_max: 1,
        ..Settings::default()
    });
    w.learn(Seen::new(UDP, 0));
    refused(w, Refusal::TableFull, |_| {});

    let w = &mut World::new(Settings {
        nexthops_max: 1,
        ..Settings::default()
    });
    w.learn(Seen::new(UDP, 0));
    refused(w, Refusal::NexthopsFull, |c| c.l2_out[5] = 77);
    w.learn(Seen::new(UDP, 7));
    assert!(w.has(Seen::new(UDP, 7)), "a known next hop is no new one");
}

#[test]
fn an_outcome_that_keeps_changing_is_the_kernels() {
    let mut world = world();
    // its ports were set a moment ago
    world.advance(2 * HZ);
    let mut seen = Seen {
        changed: true,
        ..Seen::new(UDP, 0)
    };
    for via in 1..=3 {
        seen.via = via;
        world.learn(seen);
        assert!(world.has(seen));
        world.advance(HZ);
    }
    seen.via = 4;
    assert!(world.learn(seen).is_empty());
    assert_eq!(world.manager.refusal(&seen.key()), Some(Refusal::Unstable));
    world.advance(60 * HZ);
    world.learn(seen);
    assert_eq!(
        world.manager.refusal(&seen.key()),
        None,
        "a minute later it may try again"
    );
}

#[test]
fn an_outcome_that_the_user_keeps_changing_is_learned_each_time() {
    let mut world = world();
    let mut seen = Seen {
        changed: true,
        ..Seen::new(UDP, 0)
    };
    for via in 1..=20 {
        unconfirmed(&mut world, &Event::NeighChanged(neigh(WAN, Some(via))));
        world.advance(1);
        seen.via = via;
        assert!(!world.learn(seen).is_empty(), "{via}");
        assert_eq!(world.manager.refusal(&seen.key()), None);
        world.advance(HZ / 10);
    }
    // what nobody changed is not explained by what was changed a second ago
    world.advance(2 * HZ);
    for _ in 0..4 {
        seen.via = 100 - seen.via;
        world.learn(seen);
        world.advance(HZ);
    }
    assert_eq!(world.manager.refusal(&seen.key()), Some(Refusal::Unstable));
}

#[test]
fn a_changed_outcome_replaces_the_flow() {
    let mut world = world();
    let seen = fast_tcp(&mut world, 0);
    let old = world.index(seen);
    let changed = Seen {
        via: 2,
        changed: true,
        ..seen
    };
    let ops = world.learn(changed);
    assert!(names(&ops).contains(&"remove"), "{ops:?}");
    let new = world.index(seen);
    assert_ne!(old, new, "no packet in flight mixes the two");
    assert_eq!(world.flows[&new].state.peer, world.index(seen.reply()));
    // again through the same next hop, whose last flow it is
    world.advance(HZ);
    world.learn(changed);
    assert_eq!(world.manager.stats().replaced, 2);
}

fn unconfirmed(world: &mut World, event: &Event) -> Vec<u32> {
    world.unconfirmed.clear();
    world.call(|m, now, ops| m.kernel_event(event, now, ops));
    world.unconfirmed.iter().copied().collect()
}

pub(super) fn route(prefix: [u8; 4], len: u8) -> Event {
    let route = freeway_kernel::model::Route {
        family: Family::Ipv4,
        table: 254,
        dst: Prefix {
            addr: prefix.into(),
            len,
        },
        src: None,
        tos: 0,
        priority: 0,
        kind: 1,
        protocol: 4,
        scope: 0,
        prefsrc: None,
        nexthop_id: None,
        mtu: None,
        hops: Vec::new(),
        special: false,
    };
    Event::RouteChanged(route, false)
}

#[test]
fn a_route_concerns_the_flows_that_it_covers() {
    let mut world = world();
    let seen = fast_tcp(&mut world, 0);
    let both = {
        let mut both = vec![world.index(seen), world.index(seen.reply())];
        both.sort_unstable();
        both
    };
    assert_eq!(unconfirmed(&mut world, &route([198, 51, 100, 0], 24)), both);
    assert_eq!(unconfirmed(&mut world, &route([0, 0, 0, 0], 0)), both);
    assert_eq!(
        unconfirmed(&mut world, &route([192, 0, 2, 2], 32)),
        both,
        "rp_filter, reply"
    );
    assert!(unconfirmed(&mut world, &route([203, 0, 113, 0], 24)).is_empty());
    assert_eq!(unconfirmed(&mut world, &Event::RoutesUnknown), both);
    let addr = Event::AddrGone(freeway_kernel::model::Addr {
        ifindex: WAN,
        local: [198, 51, 100, 1].into(),
        prefix_len: 24,
        peer: None,
        broadcast: None,
        flags: 0,
        scope: 0,
    });
    assert_eq!(unconfirmed(&mut world, &addr), [world.index(seen.reply())]);
    assert_eq!(
        world.manager.flow_count(),
        2,
        "they wait, they do not leave"
    );
}

fn neigh(ifindex: u32, mac: Option<u8>) -> Neigh {
    Neigh {
        ifindex,
        ip: [198, 51, 100, 2].into(),
        lladdr: mac.map(|last| Mac([2, 0, 0, 0, 0, last])),
        state: if mac.is_some() { REACHABLE } else { 0x20 },
    }
}

#[test]
fn a_neighbour_concerns_the_flows_behind_it() {
    let mut world = world();
    let seen = Seen {
        via: 1,
        ..Seen::new(UDP, 0)
    };
    let elsewhere = Seen {
        via: 3,
        ..Seen::new(UDP, 1)
    };
    world.learn(seen);
    world.learn(elsewhere);
    let index = world.index(seen);
    // the first sight of it is no change
    assert!(unconfirmed(&mut world, &Event::NeighChanged(neigh(WAN, Some(1)))).is_empty());
    assert!(unconfirmed(&mut world, &Event::NeighChanged(neigh(WAN, Some(1)))).is_empty());
    assert!(unconfirmed(&mut world, &Event::NeighChanged(neigh(LAN, Some(1)))).is_empty());
    assert_eq!(
        unconfirmed(&mut world, &Event::NeighChanged(neigh(WAN, Some(5)))),
        [index]
    );
    unconfirmed(&mut world, &Event::NeighChanged(neigh(WAN, Some(1))));
    assert_eq!(
        unconfirmed(&mut world, &Event::NeighGone(neigh(WAN, Some(1)))),
        [index]
    );
    unconfirmed(&mut world, &Event::NeighChanged(neigh(WAN, Some(1))));
    assert_eq!(
        unconfirmed(&mut world, &Event::NeighChanged(neigh(WAN, None))),
        [index],
        "FAILED"
    );
}

#[test]
fn a_neighbours_flows_stop_by_one_write_and_then_wait() {
    let mut world = world();
    for n in 0..3 {
        world.learn(Seen {
            via: 1,
            ..Seen::new(UDP, n)
        });
    }
    let event = Event::NeighChanged(neigh(WAN, Some(1)));
    world.call(|m, now, ops| m.kernel_event(&event, now, ops));
    let event = Event::NeighGone(neigh(WAN, Some(1)));
    let ops = world.call(|m, now, ops| m.kernel_event(&event, now, ops));
    assert_eq!(
        names(&ops),
        [
            "invalidate_nexthop",
            "unconfirm",
            "unconfirm",
            "unconfirm",
            "set_nexthop"
        ]
    );
}

#[test]
fn a_rule_may_see_a_flow_before_or_behind_translation() {
    let tuple = |src: &str, dst: &str, sport, dport| Tuple {
        src: src.parse().unwrap(),
        dst: dst.parse().unwrap(),
        proto: UDP,
        sport,
        dport,
    };
    let came = tuple("192.0.2.2", "198.51.100.1", 4000, 80);
    let left = tuple("203.0.113.1", "198.51.100.9", 5000, 8080);
    let concerns = |scope: RuleScope| scope.matches(&came, &left, LAN, WAN);
    let one = |ip: &str| vec![(ip.parse().unwrap(), ip.parse().unwrap())];
    let all = RuleScope::everything;
    for (src, wanted) in [
        ("192.0.2.2", true),
        ("203.0.113.1", true),
        ("192.0.2.3", false),
    ] {
        assert_eq!(
            concerns(RuleScope {
                src: one(src),
                ..all()
            }),
            wanted,
            "from {src}"
        );
    }
    for (dst, wanted) in [
        ("198.51.100.1", true),
        ("198.51.100.9", true),
        ("192.0.2.2", false),
    ] {
        assert_eq!(
            concerns(RuleScope {
                dst: one(dst),
                ..all()
            }),
            wanted,
            "to {dst}"
        );
    }
    for (port, wanted) in [(4000, true), (5000, true), (80, false)] {
        let sport = vec![(port, port)];
        assert_eq!(
            concerns(RuleScope { sport, ..all() }),
            wanted,
            "from {port}"
        );
    }
    for (port, wanted) in [(80, true), (8080, true), (4000, false)] {
        let dport = vec![(port, port)];
        assert_eq!(concerns(RuleScope { dport, ..all() }), wanted, "to {port}");
    }
}

#[test]
fn elements_of_sets_concern_those_they_match() {
    let mut world = world();
    world.learn(Seen::new(UDP, 0));
    world.learn(Seen::new(UDP, 1));
    let mut concerned = |affected: Affected, everywhere| {
        let ops = world.call(|m, now, ops| m.elements_changed(&affected, everywhere, now, ops));
        assert!(names(&ops).iter().all(|name| *name == "unconfirm"));
        ops.len()
    };
    let addrs = |from: &str, to: &str| Affected {
        addrs: vec![(from.parse().unwrap(), to.parse().unwrap())],
        ports: Vec::new(),
    };
    for everywhere in [false, true] {
        assert_eq!(concerned(addrs("192.0.2.2", "192.0.2.2"), everywhere), 2);
        assert_eq!(concerned(addrs("192.0.2.0", "192.0.2.9"), everywhere), 2);
        assert_eq!(
            concerned(addrs("198.51.100.2", "198.51.100.9"), everywhere),
            2
        );
        assert_eq!(concerned(addrs("192.0.2.3", "192.0.2.255"), everywhere), 0);
        assert_eq!(concerned(addrs("2001:db8::", "2001:db8::9"), everywhere), 0);
    }
    // the masquerade's address, which only postrouting sees as a source
    let router = || addrs("198.51.100.1", "198.51.100.1");
    assert_eq!(concerned(router(), true), 2);
    let ports = Affected {
        addrs: Vec::new(),
        ports: vec![(40_001, 40_009)],
    };
    assert_eq!(concerned(ports, false), 1);
}

#[test]
fn rules_begin_an_epoch() {
    let mut world = world();
    world.learn(Seen::new(UDP, 0));
    for event in [
        Event::NexthopChanged { id: 1 },
        Event::NetconfChanged {
            ifindex: 1,
            family: Family::Ipv4,
        },
        Event::RulesetChanged { generation: 2 },
        Event::SetElementsChanged {
            family: 2,
            table: "t".into(),
            set: "s".into(),
            changes: SetChanges::default(),
        },
        Event::XfrmChanged,
    ] {
        let epoch = world.epoch;
        let ops = world.call(|m, now, ops| m.kernel_event(&event, now, ops));
        assert_eq!(names(&ops), ["set_epoch"], "{event:?}");
        assert_eq!(world.epoch, epoch + 1);
    }
    let quiet = Event::FilterChanged { ifindex: 1 };
    assert!(
        world
            .call(|m, now, ops| m.kernel_event(&quiet, now, ops))
            .is_empty()
    );
}

fn tracked(seen: Seen) -> Connection {
    let [orig, reply]: [Tuple; 2] = seen.tuples();
    Connection {
        id: 1,
        family: Family::Ipv4,
        proto: seen.proto,
        orig,
        reply,
        status: CtStatus(0xe),
        timeout_s: Some(100),
        mark: 0,
        zone: 0,
        zone_orig: None,
        zone_reply: None,
        tcp: None,
        helper: None,
        synproxy: false,
        seq_adjust: false,
        labels: false,
        counters_orig: None,
        counters_reply: None,
        start_ns: None,
        stop_ns: None,
    }
}

#[test]
fn flows_without_an_answer_leave_when_rules_count_new_packets() {
    let mut w = world();
    let (one_way, answered) = (Seen::new(UDP, 0), Seen::new(UDP, 1));
    let mut candidate = one_way.candidate(w.epoch, w.now);
    candidate.conn.status = CtStatus::CONFIRMED;
    w.call(|m, now, ops| m.candidate(&candidate, around(1), now, ops));
    w.learn(answered);
    assert!(w.has(one_way) && w.has(answered));
    w.call(|m, now, ops| m.set_one_way(false, now, ops));
    assert!(!w.has(one_way) && w.has(answered));
    w.call(|m, now, ops| m.candidate(&candidate, around(1), now, ops));
    assert!(!w.has(one_way), "nor do they come back");
}

#[test]
fn a_connection_that_ends_or_changes_takes_its_flows_along() {
    let same = |c: Connection| Event::ConnectionUpdated(c);
    let base = tracked(Seen::new(TCP, 0));
    let with = |status| Connection {
        status: CtStatus(status),
        ..base.clone()
    };
    for (event, gone) in [
        (Event::ConnectionDestroyed(base.clone()), true),
        (same(base.clone()), false),
        (
            same(Connection {
                mark: 1,
                ..base.clone()
            }),
            true,
        ),
        (
            same(Connection {
                helper: Some("ftp".into()),
                ..base.clone()
            }),
            true,
        ),
        (
            same(Connection {
                labels: true,
                ..base.clone()
            }),
            true,
        ),
        (same(with(0xe | CtStatus::DYING)), true),
        (same(with(0xe | CtStatus::SEQ_ADJUST)), true),
        (same(with(0xe | CtStatus::OFFLOAD)), true),
        (same(with(0xe & !CtStatus::ASSURED)), true),
        (same(with(0xe & !CtStatus::SEEN_REPLY)), true),
        (same(with(0xe | CtStatus::SRC_NAT_DONE)), false),
        (
            Event::ConnectionDestroyed(tracked(Seen::new(TCP, 9))),
            false,
        ),
        (
            Event::ConnectionDestroyed(Connection {
                zone: 1,
                ..base.clone()
            }),
            false,
        ),
    ] {
        let mut world = world();
        let seen = fast_tcp(&mut world, 0);
        let other = fast_tcp(&mut world, 1);
        world.call(|m, now, ops| m.kernel_event(&event, now, ops));
        assert_eq!(!world.has(seen), gone, "{event:?}");
        assert_eq!(!world.has(seen.reply()), gone, "{event:?}");
        assert!(world.has(other) && world.has(other.reply()), "{event:?}");
    }
}

#[test]
fn flows_that_conntrack_calls_one_connection_leave_together() {
    let mut world = world();
    let esp = |n| Seen::new(ESP, n);
    let other = Seen::new(UDP, 9);
    world.learn(other);
    for n in 0..3 {
        world.learn(esp(n));
        world.learn(esp(n).reply());
    }
    assert!((0..3).all(|n| world.has(esp(n)) && world.has(esp(n).reply())));
    let mut connection = tracked(esp(0));
    connection.orig = connection.orig.tracked();
    connection.reply = connection.reply.tracked();
    let key = ConnKey {
        orig: connection.orig,
        zone: 0,
    };
    for most in [1, 2, 100] {
        assert_eq!(world.manager.connections_to_ask_for(most), [key]);
    }
    world.call(|m, now, ops| m.connection_updated(&connection, now, ops));
    assert!(world.has(esp(0)), "as before");
    let mut another = connection.clone();
    another.reply.dst = [198, 51, 100, 99].into();
    connection.mark = 1;
    for changed in [connection.clone(), another] {
        let event = Event::ConnectionUpdated(changed);
        world.call(|m, now, ops| m.kernel_event(&event, now, ops));
        for n in 0..3 {
            assert!(!world.has(esp(n)) && !world.has(esp(n).reply()));
            world.learn(esp(n));
            world.learn(esp(n).reply());
        }
    }
    let event = Event::ConnectionDestroyed(connection);
    world.call(|m, now, ops| m.kernel_event(&event, now, ops));
    assert!((0..3).all(|n| !world.has(esp(n)) && !world.has(esp(n).reply())));
    assert!(world.has(other));
    assert!(world.manager.connections_to_ask_for(100).is_empty());
}

#[test]
fn links_take_or_stop_their_flows() {
    let mut world = world();
    let seen = fast_tcp(&mut world, 0);
    assert!(
        world
            .call(|m, now, ops| m.set_port(port(WAN), now, ops))
            .is_empty(),
        "no change"
    );
    let ops = world.call(|m, now, ops| {
        m.set_port(
            Port {
                mtu: 1400,
                ..port(WAN)
            },
            now,
            ops,
        )
    });
    assert_eq!(names(&ops), ["unconfirm", "unconfirm"]);
    let unfit = Port {
        xdp: Fitness {
            input: true,
            output: false,
        },
        ..port(WAN)
    };
    world.call(|m, now, ops| m.set_port(unfit, now, ops));
    assert!(!world.has(seen));
    world.call(|m, now, ops| m.remove_port(WAN, now, ops));
    assert_eq!(world.manager.flow_count(), 0);
}

#[test]
fn idle_flows_leave_and_tell_conntrack() {
    let mut world = world();
    let seen = fast_tcp(&mut world, 0);
    let index = world.index(seen);
    let used = world.now.wrapping_add(HZ);
    for flow in world.flows.values_mut() {
        flow.state.packets = 10;
        flow.state.used_tick = used;
    }
    world.advance(60 * HZ);
    assert!(!names(&world.tick()).contains(&"remove"), "59 s");
    world.advance(HZ);
    let ops = world.tick();
    assert!(ops.contains(&crate::Op::RemoveFlow { index }));
    let told: Vec<_> = ops
        .iter()
        .filter(|op| matches!(op, crate::Op::Prepare { .. }))
        .collect();
    let once = crate::Op::Prepare {
        conn: seen.conn(),
        timeout_s: Some(940),
    };
    assert_eq!(told, [&once], "as liberal as it was, 1000 s less 60");
    assert_eq!(world.manager.flow_count(), 0);
    assert_eq!(world.manager.stats().aged, 2);

    let mut world = self::world();
    world.learn(Seen::new(UDP, 0));
    world.advance(30 * HZ);
    assert_eq!(
        names(&world.tick()),
        ["remove"],
        "never used: nothing to tell"
    );
}

/// The kernel has seen a packet, and is told what it forgot; but not of a connection that it closes, or had closed before the
/// flows were there.
#[test]
fn what_closes_is_not_given_time() {
    let told = |packets, closing| {
        let mut world = world();
        let seen = Seen::new(TCP, 0);
        let both = [seen, seen.reply()];
        for direction in both {
            world.learn(direction);
        }
        world.prepared(seen.conn(), true);
        world.advance(HZ);
        for direction in both {
            let index = world.index(direction);
            world.seen.insert(index);
            let now = world.now;
            let state = &mut world.flows.get_mut(&index).unwrap().state;
            state.confirmed_tick = now;
            state.used_tick = now;
            state.packets = packets;
            if closing {
                state.status = FW_ST_SUSPENDED;
            }
        }
        world.advance(1);
        let names = names(&world.tick());
        names.iter().filter(|name| **name == "prepare").count()
    };
    assert_eq!(told(1, false), 1, "once for both");
    assert_eq!(told(0, false), 0, "the kernel has seen all");
    assert_eq!(told(1, true), 0);
}

/// What is written when a connection goes idle that was learned with so many seconds left.
fn time_left(proto: u8, seen_s: u32, policy: bool) -> Option<u32> {
    let mut world = world();
    let seen = Seen::new(proto, 0);
    let mut c = seen.candidate(1, world.now);
    c.conn.timeout_ticks = seen_s * HZ;
    c.conn.timeout_policy = policy.into();
    world.call(|m, now, ops| m.candidate(&c, around(1), now, ops));
    world.prepared(seen.conn(), true);
    let used = world.now.wrapping_add(HZ);
    for flow in world.flows.values_mut() {
        flow.state.packets = 1;
        flow.state.used_tick = used;
    }
    world.advance(100 * HZ + HZ);
    world.tick().iter().find_map(|op| match op {
        crate::Op::Prepare { timeout_s, .. } => *timeout_s,
        crate::Op::SetTimeout { seconds, .. } => Some(*seconds),
        _ => None,
    })
}

#[test]
fn no_timeout_is_written_that_the_kernel_would_not_give() {
    assert_eq!(time_left(TCP, 432_000, false), Some(431_900));
    // data was on its way: acknowledged by now, so the sysctl for established ones holds
    assert_eq!(time_left(TCP, 300, false), Some(431_900));
    // a timeout policy says otherwise
    assert_eq!(time_left(TCP, 200, true), Some(100));
    assert_eq!(time_left(TCP, 60, true), None, "it has run out");
    assert_eq!(time_left(UDP, 120, false), Some(20));
    assert_eq!(time_left(UDP, 30, false), None);
}

#[test]
fn conntrack_is_told_before_a_short_timeout_runs_out() {
    let mut world = world();
    let mut c = Seen::new(UDP, 0).candidate(1, world.now);
    c.conn.timeout_ticks = 28 * HZ;
    world.call(|m, now, ops| m.candidate(&c, around(1), now, ops));
    let used = world.now.wrapping_add(HZ);
    for flow in world.flows.values_mut() {
        flow.state.packets = 1;
        flow.state.used_tick = used;
    }
    world.advance(7 * HZ);
    assert!(names(&world.tick()).is_empty(), "6 s");
    world.advance(HZ);
    let ops = world.tick();
    let told = |op: &crate::Op| matches!(op, crate::Op::SetTimeout { seconds: 21, .. });
    assert!(ops.iter().any(told), "{ops:?}");
    assert_eq!(world.manager.flow_count(), 0);
}

#[test]
fn what_the_kernel_has_just_seen_is_not_idle() {
    let mut world = world();
    fast_tcp(&mut world, 0);
    let (used, now) = (world.now, world.now.wrapping_add(20 * HZ));
    for flow in world.flows.values_mut() {
        flow.state.packets = 1;
        flow.state.used_tick = used;
        flow.state.confirmed_tick = now;
    }
    world.advance(20 * HZ);
    let told = world.tick().into_iter().find_map(|op| match op {
        crate::Op::Prepare { timeout_s, .. } => Some(timeout_s),
        _ => None,
    });
    assert_eq!(told, Some(Some(1000)));
}

#[test]
fn a_busy_connection_is_prepared_again() {
    let mut world = world();
    let seen = fast_tcp(&mut world, 0);
    let index = world.index(seen);
    // the kernel has seen none of its packets since
    let before = world.now.wrapping_sub(10);
    for flow in world.flows.values_mut() {
        flow.state.confirmed_tick = before;
    }
    let fast = |world: &mut World, bytes: u64| {
        let now = world.now;
        let state = &mut world.flows.get_mut(&index).unwrap().state;
        state.bytes = bytes;
        state.packets = 1;
        state.used_tick = now;
        names(&world.tick()).contains(&"prepare")
    };
    assert!(!fast(&mut world, (1 << 30) - 1));
    assert!(fast(&mut world, 1 << 30));
    world.prepared(seen.conn(), true);
    assert!(!fast(&mut world, (2 << 30) - 1));
    assert!(fast(&mut world, 2 << 30));
}

#[test]
fn indices_rest_for_a_second() {
    let mut world = World::new(Settings {
        flows_max: 1,
        ..Settings::default()
    });
    let seen = Seen::new(UDP, 0);
    world.learn(seen);
    let index = world.index(seen);
    world.call(|m, now, ops| m.flush(now, ops));
    world.advance(HZ - 1);
    world.tick();
    assert!(world.learn(seen).is_empty(), "still resting");
    world.advance(1);
    world.tick();
    world.learn(seen);
    assert_eq!(world.index(seen), index);
}

#[test]
fn doing_it_twice_changes_nothing() {
    let mut world = world();
    let seen = fast_tcp(&mut world, 0);
    world.learn(Seen::new(UDP, 1));
    let exclude = vec![Selection {
        proto: Some(17),
        ..Selection::default()
    }];
    let policy = Policy {
        exclude,
        ..Policy::default()
    };
    let scope = RuleScope {
        protos: vec![17],
        ..RuleScope::everything()
    };
    for second in [false, true] {
        let mut ops = Vec::new();
        for ifindex in [LAN, WAN] {
            ops.extend(world.call(|m, now, ops| m.set_port(port(ifindex), now, ops)));
        }
        ops.extend(world.call(|m, now, ops| m.set_policy(policy.clone(), now, ops)));
        ops.extend(world.call(|m, now, ops| {
            m.set_ruleset(vec![scope.clone()], Vec::new(), now, ops);
        }));
        let neigh = Event::NeighChanged(neigh(WAN, Some(1)));
        ops.extend(world.call(|m, now, ops| m.kernel_event(&neigh, now, ops)));
        let same = Event::ConnectionUpdated(tracked(seen));
        ops.extend(world.call(|m, now, ops| m.kernel_event(&same, now, ops)));
        assert_eq!(ops.is_empty(), second, "{ops:?}");
    }
    assert!(world.has(seen));
}

/// What was seen ahead of a change, or in its tick, is not learned after it; what has nothing to do with it is.
#[test]
fn candidates_do_not_outlive_what_they_saw() {
    let [near, far, other] =
        [[192, 0, 2, 0], [198, 51, 100, 0], [203, 0, 113, 0]].map(|network| route(network, 24));
    for (change, concerns) in [
        (near, true),
        (far, true),
        (Event::RoutesUnknown, true),
        (other, false),
    ] {
        for (later_ticks, momentary) in [(0, true), (1, false)] {
            let w = &mut world();
            w.advance(9);
            let mut c = Seen::new(UDP, 1).candidate(w.epoch, w.now);
            c.ev.tick = w.now.wrapping_add(later_ticks);
            w.call(|m, now, ops| m.kernel_event(&change, now, ops));
            let epoch = w.epoch;
            let ops = w.call(|m, now, ops| m.candidate(&c, around(1), now, ops));
            let refused = names(&ops) == ["forget_offer"];
            assert_eq!(refused, concerns && momentary, "{change:?} {later_ticks}");
            assert_eq!(w.manager.flow_count(), usize::from(!refused));
            assert_eq!(w.epoch, epoch);
        }
    }
    // of one that waited for long that is not known
    let w = &mut world();
    w.advance(10 * HZ + 9);
    let mut c = Seen::new(UDP, 1).candidate(w.epoch, w.now);
    c.ev.tick = w.now.wrapping_sub(10 * HZ + 1);
    w.call(|m, now, ops| m.candidate(&c, around(1), now, ops));
    assert_eq!(w.manager.flow_count(), 0);
}

/// Nothing changes for so long that ticks wrap: what changed last is not later than what is seen now.
#[test]
fn a_calm_of_weeks_forbids_no_learning() {
    let mut world = World::new(Settings::default());
    world.advance(11 * HZ);
    world.work();
    world.advance(1 << 31);
    let seen = Seen::new(17, 1);
    world.learn(seen);
    assert!(world.has(seen));
}
