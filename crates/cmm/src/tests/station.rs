// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flows of stations behind a bridge: XDP's where the station is known, else tc's.

use freeway_abi::fw_nexthop;

use super::{Fitness, LAN, Op, Seen, WAN, World, around, port};
use crate::{Path, Port, Settings, StationExit, Tag};

const UDP: u8 = 17;
/// As candidates have them.
const SENDER: [u8; 6] = [2, 0, 0, 0, 0, 7];
const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 6];
const RECEIVER: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// A port of the bridge.
const MEMBER: StationExit = StationExit {
    device: 40,
    slot: 41,
    tag: Tag {
        protocol: 0x8100,
        vlan: 5,
    },
};

/// The LAN is a bridge; both ports are fit for both paths.
fn world() -> World {
    let mut world = World::new(Settings::default());
    for (ifindex, by_station) in [(LAN, true), (WAN, false)] {
        let port = Port {
            tc: Fitness::FULL,
            by_station,
            ..port(ifindex)
        };
        world.call(|m, now, ops| m.set_port(port, now, ops));
    }
    world
}

fn up() -> Seen {
    Seen::new(UDP, 1)
}

fn down() -> Seen {
    Seen {
        via: RECEIVER[5],
        ..up().reply()
    }
}

fn path(world: &World, seen: Seen) -> Option<Path> {
    world.manager.find(&seen.key()).map(|(_, flow)| flow.path)
}

fn enter(world: &mut World, mac: [u8; 6], known: bool) -> Vec<Op> {
    let sender = |_| Some(SENDER);
    world.call(|m, now, ops| {
        m.set_station_entry((LAN, mac), known);
        if m.few_move() {
            m.move_stations(sender, now, ops);
        }
    })
}

fn leave(world: &mut World, exit: Option<StationExit>) -> Vec<Op> {
    world.call(|m, now, ops| m.set_station_exit((LAN, RECEIVER), exit, now, ops))
}

fn nexthop(ops: &[Op]) -> fw_nexthop {
    let written = ops.iter().find_map(|op| match op {
        Op::SetNexthop { nexthop, .. } => Some(**nexthop),
        _ => None,
    });
    written.unwrap()
}

#[test]
fn what_a_station_sends_is_xdps_once_it_is_known_to_come_in_there() {
    let world = &mut world();
    world.learn(up());
    assert_eq!(path(world, up()), Some(Path::Tc));
    enter(world, OTHER, true);
    assert_eq!(path(world, up()), Some(Path::Tc), "another's");
    enter(world, SENDER, true);
    assert_eq!(path(world, up()), None, "it is learned anew");
    world.learn(up());
    assert_eq!(path(world, up()), Some(Path::Xdp));
    enter(world, SENDER, true);
    enter(world, OTHER, false);
    assert_eq!(path(world, up()), Some(Path::Xdp));
    enter(world, SENDER, false);
    assert_eq!(path(world, up()), None);
    world.learn(up());
    assert_eq!(path(world, up()), Some(Path::Tc));
}

#[test]
fn what_goes_to_a_station_is_xdps_once_it_is_known_where_it_is() {
    let world = &mut world();
    world.learn(down());
    assert_eq!(path(world, down()), Some(Path::Tc));
    leave(world, Some(MEMBER));
    assert_eq!(path(world, down()), None, "it is learned anew");
    let written = nexthop(&world.learn(down()));
    assert_eq!(path(world, down()), Some(Path::Xdp));
    assert_eq!(written.port, LAN, "as the kernel's own");
    assert_eq!(written.devmap_slot, MEMBER.slot);
    assert_eq!(written.tag[0], MEMBER.tag.record());
    assert_eq!([written.tags_len, written.outer_len], [4, 4]);

    assert!(leave(world, Some(MEMBER)).is_empty());
    let moved = StationExit {
        device: 50,
        slot: 51,
        tag: Tag::default(),
    };
    let ops = leave(world, Some(moved));
    assert!(matches!(
        ops[..2],
        [Op::InvalidateNexthop { .. }, Op::RemoveFlow { .. }]
    ));
    let written = nexthop(&world.learn(down()));
    assert_eq!([written.devmap_slot, written.outer_len.into()], [51, 0]);
    leave(world, None);
    assert_eq!(path(world, down()), None);
    world.learn(down());
    assert_eq!(path(world, down()), Some(Path::Tc));
}

/// tc's own next hop has the same header, and another slot.
#[test]
fn both_paths_have_next_hops_of_their_own() {
    let world = &mut world();
    let untagged = StationExit {
        tag: Tag::default(),
        ..MEMBER
    };
    leave(world, Some(untagged));
    world.learn(down());
    let marked = Seen {
        ..Seen::new(UDP, 2).reply()
    };
    let mut c = marked.candidate(world.epoch, world.now);
    c.conn.mark = 7;
    c.mark = 0;
    world.call(|m, now, ops| m.candidate(&c, around(1), now, ops));
    assert_eq!(
        [path(world, down()), path(world, marked)],
        [Some(Path::Xdp), Some(Path::Tc)]
    );
    let through = |seen| {
        let flow = &world.flows[&world.index(seen)];
        world.nexthops[&flow.nexthop].devmap_slot
    };
    assert_eq!([through(down()), through(marked)], [MEMBER.slot, LAN]);
}

/// Of what was merged before the station was known; XDP keeps frames from that afterwards.
#[test]
fn merged_flows_follow_their_station() {
    let world = &mut world();
    let mut c = up().candidate(world.epoch, world.now);
    c.unwired = 1;
    let offer = |world: &mut World| {
        world.call(|m, now, ops| m.candidate(&c, around(1), now, ops));
    };
    offer(world);
    assert_eq!(path(world, up()), Some(Path::Tc));
    enter(world, SENDER, true);
    assert_eq!(path(world, up()), None);
    offer(world);
    assert_eq!(path(world, up()), None, "seen before");
    world.learn(up());
    assert_eq!(path(world, up()), Some(Path::Xdp));
}

#[test]
fn marked_flows_come_back_to_tc() {
    let world = &mut world();
    let mut c = up().candidate(world.epoch, world.now);
    c.mark = 7;
    c.unwired = 1;
    for known in [false, true] {
        enter(world, SENDER, known);
        world.call(|m, now, ops| m.candidate(&c, around(1), now, ops));
        assert_eq!(path(world, up()), Some(Path::Tc));
    }
}

/// A sweep neither moves flows to tc nor away from there.
#[test]
fn rulesets_leave_paths_alone() {
    let world = &mut world();
    world.learn(down());
    enter(world, SENDER, true);
    world.learn(up());
    world.call(|m, now, ops| m.set_ruleset(Vec::new(), Vec::new(), now, ops));
    assert_eq!(path(world, up()), Some(Path::Xdp));
    assert_eq!(path(world, down()), Some(Path::Tc));
}

#[test]
fn a_bridge_that_goes_takes_its_stations_along() {
    let world = &mut world();
    enter(world, SENDER, true);
    world.learn(up());
    world.call(|m, now, ops| m.remove_port(LAN, now, ops));
    let back = Port {
        tc: Fitness::FULL,
        by_station: true,
        vrf: 0,
        ..port(LAN)
    };
    world.call(|m, now, ops| m.set_port(back, now, ops));
    world.learn(up());
    assert_eq!(path(world, up()), Some(Path::Tc));
}

/// Where there are many flows, they wait for a tick, and follow in pieces.
#[test]
fn many_flows_follow_their_station_by_and_by() {
    let mut world = world();
    world.manager.settings.work_max = 4;
    for n in 0..10 {
        world.learn(Seen::new(UDP, n));
    }
    assert!(enter(&mut world, SENDER, true).is_empty());
    let mut left = Vec::new();
    for _ in 0..4 {
        let sender = |_| Some(SENDER);
        let ops = world.call(|m, now, ops| m.move_stations(sender, now, ops));
        left.push(
            ops.iter()
                .filter(|op| matches!(op, Op::RemoveFlow { .. }))
                .count(),
        );
    }
    assert_eq!(left, [4, 4, 2, 0]);
}
