// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flows to groups.

use std::net::IpAddr;

use freeway_abi::{FW_NH_OLIST, fw_candidate, words_of};
use freeway_kernel::model::{Event, Mroute, Oif};

use super::{Seen, World, names, port};
use crate::{Around, Fitness, Op, Policy, Port, Refusal, Settings};

const IN: u32 = super::LAN;
const OUT: [u32; 3] = [2, 3, 4];

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn route(ports: &[(u32, u8)]) -> Mroute {
    let oifs = ports.iter().map(|(ifindex, ttl)| Oif {
        ifindex: *ifindex,
        ttl: *ttl,
    });
    Mroute {
        src: address("192.0.2.2"),
        group: address("239.1.1.1"),
        iif: IN,
        oifs: oifs.collect(),
        table: 253,
    }
}

/// A router that serves the three ports.
fn world() -> World {
    let mut world = World::new(Settings::default());
    for ifindex in OUT {
        world.call(|m, now, ops| m.set_port(port(ifindex), now, ops));
    }
    set(&mut world, &route(&OUT.map(|port| (port, 1))));
    world
}

fn set(world: &mut World, route: &Mroute) -> Vec<Op> {
    let event = Event::MrouteChanged(route.clone());
    world.call(|m, now, ops| m.kernel_event(&event, now, ops))
}

/// One of the copies of a packet with a token.
fn copy(world: &World, token: u32, number: usize, port: u32) -> fw_candidate {
    let seen = Seen {
        tracked: false,
        ..Seen::new(17, 0)
    };
    let mut c = seen.candidate(world.epoch, world.now);
    c.key.daddr_be = words_of(address("239.1.1.1"));
    c.saddr_be = c.key.saddr_be;
    c.daddr_be = c.key.daddr_be;
    (c.sport_be, c.dport_be, c.nat) = (c.key.sport_be, c.key.dport_be, 0);
    (c.token, c.copy, c.port_out) = (token, number as u8, port);
    c.ev.tick = world.now;
    c.l2_out[..12].copy_from_slice(&[1, 0, 0x5e, 1, 1, 1, 2, 0, 0, 0, 0, port as u8]);
    c
}

/// What comes of a packet of which the kernel makes copies to these ports.
fn packet(world: &mut World, token: u32, ports: &[u32]) -> Vec<Op> {
    for (number, port) in ports.iter().enumerate() {
        let c = copy(world, token, number, *port);
        let ops = world.call(|m, now, ops| m.candidate(&c, Around::PLAIN, now, ops));
        assert_eq!(names(&ops), [""; 0], "before all copies are there");
    }
    world.advance(2);
    world.call(|m, now, ops| m.settle_groups(now, ops))
}

fn refusal(world: &World) -> Option<Refusal> {
    let key = crate::FlowKey::of(&copy(world, 1, 0, OUT[0])).unwrap();
    world.manager.refusal(&key)
}

#[test]
fn two_equal_packets_make_a_flow() {
    let mut world = world();
    assert_eq!(names(&packet(&mut world, 1, &OUT)), ["forget_offer"]);
    let ops = packet(&mut world, 2, &[4, 3, 2]);
    assert_eq!(names(&ops), ["set_olist", "insert", "activate"]);
    let Op::SetOlist {
        number,
        legs,
        nexthop,
        ..
    } = &ops[0]
    else {
        panic!("{ops:?}");
    };
    assert_eq!((nexthop.valid, nexthop.devmap_slot), (FW_NH_OLIST, *number));
    assert_eq!(legs.iter().map(|leg| leg.port).collect::<Vec<_>>(), OUT);
    assert!(legs.iter().all(|leg| leg.l2[11] == leg.port as u8));
    let (_, flow) = world.manager.flows().next().unwrap();
    assert_eq!(world.manager.exits(&flow), OUT);
}

#[test]
fn packets_of_one_group_that_differ_make_none() {
    let mut world = world();
    packet(&mut world, 1, &OUT);
    // a copy with another source address
    for (number, port) in OUT.iter().enumerate() {
        let mut c = copy(&world, 2, number, *port);
        c.l2_out[11] ^= 0x40;
        world.call(|m, now, ops| m.candidate(&c, Around::PLAIN, now, ops));
    }
    world.advance(2);
    let ops = world.call(|m, now, ops| m.settle_groups(now, ops));
    assert_eq!(names(&ops), [""; 0], "one that keeps changing has to wait");
    // copies that are not alike within the packet
    for (number, port) in OUT.iter().enumerate() {
        let mut c = copy(&world, 3, number, *port);
        c.ttl_out -= number as u8;
        world.call(|m, now, ops| m.candidate(&c, Around::PLAIN, now, ops));
    }
    world.advance(2);
    world.call(|m, now, ops| m.settle_groups(now, ops));
    assert_eq!(refusal(&world), Some(Refusal::Copies));
    assert_eq!(world.manager.flow_count(), 0);
}

#[test]
fn copies_must_be_those_of_the_route() {
    let mut world = world();
    for ports in [&OUT[..2], &[2, 3, 4, 1], &[2, 2, 3, 4]] {
        for token in 1..4 {
            packet(&mut world, token, ports);
        }
        assert_eq!(world.manager.flow_count(), 0, "{ports:?}");
    }
    assert_eq!(refusal(&world), Some(Refusal::Copies));
    // packets of TTL 64 do not leave where it must be above that
    set(&mut world, &route(&[(2, 1), (3, 64), (4, 63)]));
    packet(&mut world, 1, &[2, 4]);
    assert!(!packet(&mut world, 2, &[2, 4]).is_empty());
    assert_eq!(world.manager.flow_count(), 1);
    // the route of another input, or two that may be meant
    let other = Mroute {
        iif: 9,
        ..route(&[(2, 1)])
    };
    let twin = Mroute {
        table: 7,
        ..route(&[(2, 1)])
    };
    for routes in [vec![other], vec![route(&[(2, 1)]), twin]] {
        let mut world = self::world();
        routes.iter().for_each(|route| drop(set(&mut world, route)));
        packet(&mut world, 1, &[2]);
        packet(&mut world, 2, &[2]);
        assert_eq!(world.manager.flow_count(), 0, "{routes:?}");
    }
}

#[test]
fn a_changed_route_ends_its_flows_at_once() {
    let mut world = world();
    packet(&mut world, 1, &OUT);
    packet(&mut world, 2, &OUT);
    let ops = set(&mut world, &route(&[(2, 1), (3, 1)]));
    assert_eq!(names(&ops), ["remove"]);
    // nothing of the packets before is believed
    let ops = packet(&mut world, 3, &OUT[..2]);
    assert_eq!(names(&ops), ["forget_offer"]);
    assert!(names(&packet(&mut world, 4, &OUT[..2])).contains(&"activate"));
    let gone = Event::MrouteGone(route(&[]));
    let ops = world.call(|m, now, ops| m.kernel_event(&gone, now, ops));
    assert_eq!(names(&ops), ["remove"]);
    assert!(!world.manager.routes_multicast());
    // copies that wait for others are offered again
    set(&mut world, &route(&OUT.map(|port| (port, 1))));
    let c = copy(&world, 5, 0, 2);
    world.call(|m, now, ops| m.candidate(&c, Around::PLAIN, now, ops));
    let ops = set(&mut world, &route(&OUT.map(|port| (port, 1))));
    assert_eq!(names(&ops), ["forget_offer"]);
    assert!(!world.manager.is_gathering());
    // another cache may be chosen now
    let ops = world.call(|m, now, ops| m.kernel_event(&Event::MruleChanged, now, ops));
    assert_eq!(names(&ops), ["set_epoch"]);
}

#[test]
fn routes_of_other_sources_are_no_concern() {
    let mut world = world();
    packet(&mut world, 1, &OUT);
    packet(&mut world, 2, &OUT);
    let unresolved = Mroute {
        src: address("192.0.2.99"),
        iif: 0,
        ..route(&[])
    };
    assert_eq!(names(&set(&mut world, &unresolved)), [""; 0]);
    let any = Mroute {
        src: address("0.0.0.0"),
        group: address("0.0.0.0"),
        ..route(&[])
    };
    assert_eq!(names(&set(&mut world, &any)), ["remove"]);
}

#[test]
fn a_list_that_was_not_written_is_nobodys() {
    let mut world = world();
    packet(&mut world, 1, &OUT);
    let ops = packet(&mut world, 2, &OUT);
    let Op::SetOlist { index, .. } = ops[0] else {
        panic!("{ops:?}");
    };
    let ops = world.call(|m, now, ops| m.list_failed(index, now, ops));
    assert_eq!(names(&ops), ["remove"]);
    assert_eq!(refusal(&world), Some(Refusal::NexthopsFull));
    // the next flow has another one, which is written
    packet(&mut world, 3, &OUT);
    let ops = packet(&mut world, 4, &OUT);
    assert!(matches!(ops[0], Op::SetOlist { index: other, .. } if other != index));
}

#[test]
fn the_data_plane_may_hold_a_list_for_a_second() {
    let mut world = world();
    let mut lists = Vec::new();
    for (token, ports) in [&OUT[..], &OUT[..2], &OUT[1..], &OUT[..1]]
        .iter()
        .enumerate()
    {
        set(
            &mut world,
            &route(&ports.iter().map(|port| (*port, 1)).collect::<Vec<_>>()),
        );
        packet(&mut world, 2 * token as u32, ports);
        for op in packet(&mut world, 2 * token as u32 + 1, ports) {
            if let Op::SetOlist { number, .. } = op {
                assert!(!lists.contains(&number), "list {number} is still held");
                lists.push(number);
            }
        }
    }
    assert_eq!(lists.len(), 4);
    world.advance(2 * super::HZ);
    world.tick();
    set(&mut world, &route(&OUT.map(|port| (port, 1))));
    packet(&mut world, 10, &OUT);
    let ops = packet(&mut world, 11, &OUT);
    let again = |op: &Op| matches!(op, Op::SetOlist { number, .. } if lists.contains(number));
    assert!(ops.iter().any(again), "numbers come back");
}

#[test]
fn every_leg_must_be_fit() {
    let xdp_only = |device: u32, xdp: Fitness| Port {
        device,
        xdp,
        ..port(4)
    };
    let without = Fitness {
        input: true,
        output: false,
    };
    for unfit in [xdp_only(4, without), xdp_only(3, Fitness::FULL)] {
        let mut world = world();
        world.call(|m, now, ops| m.set_port(unfit.clone(), now, ops));
        for token in 1..4 {
            packet(&mut world, token, &OUT);
        }
        assert_eq!(world.manager.flow_count(), 0, "{unfit:?}");
        // and a leg that becomes unfit ends the flow
        let mut world = self::world();
        packet(&mut world, 1, &OUT);
        packet(&mut world, 2, &OUT);
        assert_eq!(world.manager.flow_count(), 1);
        world.call(|m, now, ops| m.set_port(unfit.clone(), now, ops));
        assert_eq!(world.manager.flow_count(), 0, "{unfit:?}");
    }
}

#[test]
fn the_policy_may_leave_groups_to_the_kernel() {
    let mut world = world();
    packet(&mut world, 1, &OUT);
    packet(&mut world, 2, &OUT);
    let policy = Policy {
        multicast: false,
        ..Policy::default()
    };
    let ops = world.call(|m, now, ops| m.set_policy(policy, now, ops));
    assert_eq!(names(&ops), ["remove"]);
    packet(&mut world, 3, &OUT);
    packet(&mut world, 4, &OUT);
    assert_eq!(refusal(&world), Some(Refusal::Policy));
}

#[test]
fn what_the_router_itself_receives_is_the_kernels() {
    let mut world = world();
    let local = Around {
        local: true,
        ..Around::PLAIN
    };
    for token in 1..4 {
        for (number, port) in OUT.iter().enumerate() {
            let c = copy(&world, token, number, *port);
            let around = if number == 1 { local } else { Around::PLAIN };
            world.call(|m, now, ops| m.candidate(&c, around, now, ops));
        }
        world.advance(2);
        world.call(|m, now, ops| m.settle_groups(now, ops));
    }
    assert_eq!(world.manager.flow_count(), 0);
    assert_eq!(refusal(&world), Some(Refusal::Local));
    packet(&mut world, 5, &OUT);
    packet(&mut world, 6, &OUT);
    let [index] = world.manager.group_flows()[..] else {
        panic!("one flow");
    };
    let ops = world.call(|m, now, ops| m.received_here(index, now, ops));
    assert_eq!(names(&ops), ["remove"]);
}
