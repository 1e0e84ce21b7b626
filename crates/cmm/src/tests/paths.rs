// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which program a flow belongs to, and when it changes.

use std::sync::Arc;

use freeway_abi::{FW_FLOW_ENGINE, FW_FLOW_TC, fw_candidate, fw_flow, fw_nexthop};

use super::{Around, Fitness, LAN, Op, Seen, WAN, World, around, port};
use crate::{
    Classes, Framing, Path, Policy, Port, Refusal, Selection, Served, Session, Settings, Steering,
    Tag,
};

const UDP: u8 = 17;

/// Ports for both paths.
fn world() -> World {
    let mut world = World::new(Settings::default());
    for ifindex in [LAN, WAN] {
        set(&mut world, ifindex, Fitness::FULL, Fitness::FULL);
    }
    world
}

fn set(world: &mut World, ifindex: u32, xdp: Fitness, tc: Fitness) {
    let port = Port {
        xdp,
        tc,
        ..port(ifindex)
    };
    world.call(|m, now, ops| m.set_port(port, now, ops));
}

fn input() -> Fitness {
    Fitness {
        input: true,
        output: false,
    }
}

/// Spoils a candidate.
type Change = fn(&mut fw_candidate);

/// Offers a candidate; what was written for it.
fn offer(
    world: &mut World,
    seen: Seen,
    around: Around,
    change: impl Fn(&mut fw_candidate),
) -> Option<(fw_flow, Option<fw_nexthop>)> {
    let mut c = seen.candidate(world.epoch, world.now);
    change(&mut c);
    let ops = world.call(|m, now, ops| m.candidate(&c, around, now, ops));
    let nexthop = ops.iter().find_map(|op| match op {
        Op::SetNexthop { nexthop, .. } => Some(**nexthop),
        _ => None,
    });
    ops.iter().find_map(|op| match op {
        Op::InsertFlow { flow, .. } => Some((**flow, nexthop)),
        _ => None,
    })
}

fn path(world: &World, seen: Seen) -> Option<Path> {
    world.manager.find(&seen.key()).map(|(_, flow)| flow.path)
}

fn is_tc(flow: &fw_flow) -> bool {
    u32::from(flow.flags) & FW_FLOW_TC != 0
}

#[test]
fn paths_follow_what_the_ports_are_fit_for() {
    let none = Fitness::default();
    for (lan, wan, wanted) in [
        (
            (Fitness::FULL, Fitness::FULL),
            (Fitness::FULL, Fitness::FULL),
            Ok(Path::Xdp),
        ),
        // a shaper at the output
        (
            (Fitness::FULL, Fitness::FULL),
            (input(), Fitness::FULL),
            Ok(Path::Tc),
        ),
        // an input without XDP
        (
            (none, Fitness::FULL),
            (Fitness::FULL, Fitness::FULL),
            Ok(Path::Tc),
        ),
        (
            (Fitness::FULL, none),
            (none, Fitness::FULL),
            Err(Refusal::NoPath),
        ),
        (
            (none, none),
            (Fitness::FULL, Fitness::FULL),
            Err(Refusal::PortIn),
        ),
        (
            (Fitness::FULL, Fitness::FULL),
            (input(), input()),
            Err(Refusal::PortOut),
        ),
    ] {
        let world = &mut world();
        set(world, LAN, lan.0, lan.1);
        set(world, WAN, wan.0, wan.1);
        let seen = Seen::new(UDP, 1);
        let written = offer(world, seen, around(1), |_| {});
        match wanted {
            Ok(wanted) => {
                assert_eq!(path(world, seen), Some(wanted), "{lan:?} {wan:?}");
                assert_eq!(is_tc(&written.unwrap().0), wanted == Path::Tc);
            }
            Err(refusal) => {
                assert!(written.is_none());
                assert_eq!(
                    world.manager.stats().refused[&refusal],
                    1,
                    "{lan:?} {wan:?}"
                );
            }
        }
    }
}

#[test]
fn the_engine_has_what_passes_its_ports_alone() {
    for (lan, wan, wanted) in [
        (true, true, Path::Engine),
        // neither it nor XDP has both
        (true, false, Path::Tc),
        (false, true, Path::Tc),
        (false, false, Path::Xdp),
    ] {
        let world = &mut world();
        for (ifindex, engine) in [(LAN, lan), (WAN, wan)] {
            let engine = match engine {
                true => Served::Whole,
                false => Served::No,
            };
            let port = Port {
                engine,
                tc: Fitness::FULL,
                ..port(ifindex)
            };
            world.call(|m, now, ops| m.set_port(port, now, ops));
        }
        let seen = Seen::new(UDP, 1);
        let (flow, _) = offer(world, seen, around(1), |_| {}).unwrap();
        assert_eq!(path(world, seen), Some(wanted), "{lan} {wan}");
        assert_eq!(is_tc(&flow), wanted == Path::Tc);
        assert_eq!(
            world.manager.engine_flow_count(),
            usize::from(wanted == Path::Engine)
        );
        // programs do not look up its connections: the daemon does
        let asked = world.manager.connections_to_ask_for(8).len();
        assert_eq!(asked, usize::from(wanted == Path::Engine), "{lan} {wan}");
        // when it goes, so do its flows
        world.call(|m, now, ops| m.set_port(port(LAN), now, ops));
        world.tick();
        assert_eq!(world.manager.engine_flow_count(), 0);
    }
}

/// Where the engine has a scheduler, what would bind a flow to tc is its class; with other classes it is learned anew.
#[test]
fn the_engine_has_what_its_scheduler_has_a_class_for() {
    let world = &mut world();
    let classes = |other| Classes {
        past: vec![9],
        marks: vec![(7, u32::MAX, 2)],
        other,
        ..Classes::default()
    };
    let serve = |world: &mut World, classes: Option<Classes>| {
        for (ifindex, classes) in [(LAN, None), (WAN, classes.map(Arc::new))] {
            let port = Port {
                engine: Served::Whole,
                tc: Fitness::FULL,
                classes,
                ..port(ifindex)
            };
            world.call(|m, now, ops| m.set_port(port, now, ops));
        }
    };
    serve(world, Some(classes(Some(0))));
    let cases: [(Change, Path, (u16, u32, u32)); 4] = [
        (|c| c.priority = 6, Path::Engine, (1, 0, 6)),
        (|c| c.mark = 7, Path::Engine, (3, 7, 0)),
        (|c| c.priority = 9, Path::Tc, (0, 0, 9)),
        (|c| c.conn.mark = 7, Path::Tc, (0, 0, 0)),
    ];
    for (number, (change, wanted, carried)) in (1..).zip(cases) {
        let seen = Seen::new(UDP, number);
        let (_, nexthop) = offer(world, seen, around(1), change).unwrap();
        assert_eq!(path(world, seen), Some(wanted), "{number}");
        let nexthop = nexthop.unwrap();
        let carries = (nexthop.leaf, nexthop.mark, nexthop.priority);
        assert_eq!(carries, carried, "{number}");
    }
    assert_eq!(world.manager.engine_flow_count(), 2);
    serve(world, Some(classes(Some(1))));
    assert_eq!(world.manager.engine_flow_count(), 0);
    serve(world, None);
    let seen = Seen::new(UDP, 5);
    offer(world, seen, around(1), |c| c.mark = 7).unwrap();
    assert_eq!(path(world, seen), Some(Path::Tc));
}

/// Where XDP and the engine share a port, the policy says whose a flow is, and moves it.
#[test]
fn flows_are_steered_where_the_ports_are_shared() {
    let by = |engine, proto, port| Steering {
        flows: Selection {
            proto,
            ifindex: Some(vec![port]),
            ..Selection::default()
        },
        engine,
    };
    for (lan, wan, steer, wanted) in [
        (Served::Chosen, Served::Chosen, vec![], Path::Xdp),
        (
            Served::Chosen,
            Served::Chosen,
            vec![by(true, None, WAN)],
            Path::Engine,
        ),
        (
            Served::Chosen,
            Served::Chosen,
            vec![by(false, Some(UDP), LAN), by(true, None, LAN)],
            Path::Xdp,
        ),
        (
            Served::Chosen,
            Served::Chosen,
            vec![by(true, Some(6), LAN)],
            Path::Xdp,
        ),
        (
            Served::Chosen,
            Served::No,
            vec![by(true, None, LAN)],
            Path::Xdp,
        ),
        // nobody has both
        (
            Served::Chosen,
            Served::Whole,
            vec![by(true, None, LAN)],
            Path::Tc,
        ),
    ] {
        let world = &mut world();
        for (ifindex, engine) in [(LAN, lan), (WAN, wan)] {
            let port = Port {
                engine,
                tc: Fitness::FULL,
                ..port(ifindex)
            };
            world.call(|m, now, ops| m.set_port(port, now, ops));
        }
        let policy = Policy {
            steer,
            ..Policy::default()
        };
        world.call(|m, now, ops| m.set_policy(policy.clone(), now, ops));
        let seen = Seen::new(UDP, 1);
        let (flow, _) = offer(world, seen, around(1), |_| {}).unwrap();
        assert_eq!(path(world, seen), Some(wanted), "{policy:?}");
        let engine = u32::from(flow.flags) & FW_FLOW_ENGINE != 0;
        assert_eq!(engine, wanted == Path::Engine);
        // the engine goes: its flows leave, those of others do not even wait
        let other = Seen::new(6, 2);
        world.learn(other);
        let moves = [seen, other].map(|seen| path(world, seen) == Some(Path::Engine));
        let port = Port {
            tc: Fitness::FULL,
            ..port(LAN)
        };
        world.call(|m, now, ops| m.set_port(port, now, ops));
        world.tick();
        for (seen, moves) in [seen, other].into_iter().zip(moves) {
            assert_eq!(
                path(world, seen).is_none(),
                moves || lan != Served::Chosen,
                "{policy:?}"
            );
        }
    }
    // rules change on a running system
    let world = &mut world();
    for ifindex in [LAN, WAN] {
        let port = Port {
            engine: Served::Chosen,
            ..port(ifindex)
        };
        world.call(|m, now, ops| m.set_port(port, now, ops));
    }
    let seen = Seen::new(UDP, 1);
    for wanted in [Path::Xdp, Path::Engine, Path::Xdp] {
        let steer = vec![by(wanted == Path::Engine, None, LAN)];
        let policy = Policy {
            steer,
            ..Policy::default()
        };
        world.call(|m, now, ops| m.set_policy(policy, now, ops));
        world.tick();
        assert_eq!(path(world, seen), None, "{wanted:?}");
        world.advance(crate::tests::HZ);
        world.tick();
        offer(world, seen, around(1), |_| {}).unwrap();
        assert_eq!(path(world, seen), Some(wanted));
    }
}

#[test]
fn paths_of_marked_and_unwired_flows_are_tcs() {
    let bind: [(Change, Refusal); 3] = [
        (|c| c.mark = 7, Refusal::Mark),
        (|c| c.conn.mark = 7, Refusal::Mark),
        (|c| c.unwired = 1, Refusal::Unwired),
    ];
    for (change, refusal) in bind {
        let world = &mut world();
        let seen = Seen::new(UDP, 1);
        let (flow, _) = offer(world, seen, around(1), change).unwrap();
        assert!(is_tc(&flow), "{refusal:?}");
        // it stays there, whatever else it could
        let (index, _) = world.manager.find(&seen.key()).unwrap();
        world.call(|m, now, ops| m.set_sniffed(index, true, now, ops));
        world.call(|m, now, ops| m.set_sniffed(index, false, now, ops));
        assert_eq!(path(world, seen), Some(Path::Tc));
        // and is the kernel's where tc may not have it
        set(world, WAN, Fitness::FULL, Fitness::default());
        assert!(!world.has(seen), "{refusal:?}");
        assert!(offer(world, seen, around(1), change).is_none());
        assert_eq!(world.manager.stats().refused[&refusal], 1);
    }
}

#[test]
fn paths_of_tc_have_next_hops_with_mark_and_priority() {
    let world = &mut world();
    let of = |n: u16, mark: u32, priority: u32| {
        (Seen::new(UDP, n), move |c: &mut fw_candidate| {
            (c.mark, c.priority) = (mark, priority);
        })
    };
    let mut written = Vec::new();
    for (n, mark, priority) in [
        (1, 7, 3),
        (2, 7, 3),
        (3, 7, 4),
        (4, 8, 3),
        (5, 0, 3),
        (6, 0, 5),
    ] {
        let (seen, change) = of(n, mark, priority);
        let (flow, nexthop) = offer(world, seen, around(1), change).unwrap();
        written.push((flow.nexthop, nexthop.map(|n| (n.mark, n.priority))));
    }
    assert_eq!(written[0].1, Some((7, 3)));
    assert_eq!(written[1], (written[0].0, None), "shared");
    assert_eq!(written[2].1, Some((7, 4)));
    assert_eq!(written[3].1, Some((8, 3)));
    // XDP's frames have neither, whatever the kernel's had
    assert_eq!(written[4].1, Some((0, 0)));
    assert_eq!(written[5], (written[4].0, None));
}

#[test]
fn paths_change_with_a_port_and_with_a_sniffer() {
    let world = &mut world();
    let seen = Seen::new(UDP, 1);
    offer(world, seen, around(1), |_| {}).unwrap();
    // a shaper: learned anew, by tc
    set(world, WAN, input(), Fitness::FULL);
    assert!(!world.has(seen));
    assert!(is_tc(&offer(world, seen, around(1), |_| {}).unwrap().0));
    // it goes: back
    set(world, WAN, Fitness::FULL, Fitness::FULL);
    assert!(!world.has(seen));
    assert!(!is_tc(&offer(world, seen, around(1), |_| {}).unwrap().0));
    let sniffed = |world: &mut World, sniffed: bool| {
        let (index, _) = world.manager.find(&seen.key()).unwrap();
        world.call(|m, now, ops| m.set_sniffed(index, sniffed, now, ops));
    };
    sniffed(world, false);
    assert!(world.has(seen), "nothing changed");
    sniffed(world, true);
    assert!(!world.has(seen));
    let taken = Around {
        sniffed: true,
        ..around(1)
    };
    assert!(is_tc(&offer(world, seen, taken, |_| {}).unwrap().0));
    sniffed(world, true);
    assert!(world.has(seen), "it is where it has to be");
    sniffed(world, false);
    assert!(!world.has(seen));
    // where tc may not forward, it is the kernel's
    set(world, WAN, Fitness::FULL, Fitness::default());
    offer(world, seen, around(1), |_| {}).unwrap();
    sniffed(world, true);
    assert!(!world.has(seen));
    assert!(offer(world, seen, taken, |_| {}).is_none());
    assert_eq!(world.manager.stats().refused[&Refusal::Sniffed], 1);
}

#[test]
fn xdp_tags_what_leaves_and_tc_does_not() {
    let world = &mut world();
    let tag = Tag {
        protocol: 0x8100,
        vlan: 5,
    };
    let tagged = Port {
        framing: Framing {
            tags: [tag, Tag::default()],
            session: None,
        },
        tc: Fitness::FULL,
        ..port(WAN)
    };
    world.call(|m, now, ops| m.set_port(tagged.clone(), now, ops));
    let plain: Change = |_| {};
    let marked: Change = |c| c.mark = 7;
    for (number, change, len) in [(1, plain, 4), (2, marked, 0)] {
        let (flow, nexthop) = offer(world, Seen::new(UDP, number), around(1), change).unwrap();
        let nexthop = nexthop.unwrap();
        assert_eq!(is_tc(&flow), len == 0);
        assert_eq!(nexthop.tags_len, len);
        let tags = if len == 0 { Tag::default() } else { tag };
        assert_eq!(nexthop.tag[0].tpid_be, tags.record().tpid_be);
        assert_eq!(nexthop.tag[0].tci_be, tags.record().tci_be);
        assert_eq!((nexthop.l2_len, &nexthop.l2[12..14]), (14, &[8, 0][..]));
    }
    // other tags: what was learned of the first does not hold
    let other = Port {
        framing: Framing {
            tags: [tag, tag],
            session: None,
        },
        ..tagged
    };
    world.call(|m, now, ops| m.set_port(other, now, ops));
    assert_eq!(path(world, Seen::new(UDP, 1)), None);
    let (_, nexthop) = offer(world, Seen::new(UDP, 3), around(1), plain).unwrap();
    assert_eq!(nexthop.unwrap().tags_len, 8);
}

#[test]
fn xdp_puts_what_leaves_into_the_session() {
    let world = &mut world();
    let session = Session {
        id: 0x1234,
        remote: [2, 1, 1, 1, 1, 1],
        own: [2, 2, 2, 2, 2, 2],
    };
    let dialled = |session| Port {
        framing: Framing {
            session: Some(session),
            ..Framing::default()
        },
        tc: Fitness::FULL,
        ..port(WAN)
    };
    world.call(|m, now, ops| m.set_port(dialled(session), now, ops));
    // as a device without a link layer shows it
    let bare: Change = |c| (c.l2_out, c.l2_out_len) = ([0; 32], 0);
    let bare_marked: Change = |c| (c.l2_out, c.l2_out_len, c.mark) = ([0; 32], 0, 7);
    let (flow, nexthop) = offer(world, Seen::new(UDP, 1), around(1), bare).unwrap();
    let nexthop = nexthop.unwrap();
    assert!(!is_tc(&flow));
    assert_eq!((nexthop.tags_len, nexthop.outer_len), (0, 8));
    assert_eq!(nexthop.session, 0x0001_1234);
    let link = [&session.remote[..], &session.own, &[8, 0]].concat();
    assert_eq!((nexthop.l2_len, &nexthop.l2[..14]), (14, &link[..]));

    let (flow, nexthop) = offer(world, Seen::new(UDP, 2), around(1), bare_marked).unwrap();
    let nexthop = nexthop.unwrap();
    assert!(is_tc(&flow));
    assert_eq!(
        (nexthop.l2_len, nexthop.outer_len, nexthop.session),
        (0, 0, 0)
    );

    // dialled anew: nothing goes by the old one
    let other = Session { id: 9, ..session };
    world.call(|m, now, ops| m.set_port(dialled(other), now, ops));
    assert_eq!(path(world, Seen::new(UDP, 1)), None);
    let (_, nexthop) = offer(world, Seen::new(UDP, 3), around(1), bare).unwrap();
    assert_eq!(nexthop.unwrap().session, 0x0001_0009);
}
