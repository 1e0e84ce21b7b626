// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many flows: the indices against a walk over all, and bounds of what one call does.

use std::net::IpAddr;

use freeway_abi::FW_ST_ACTIVE;
use freeway_kernel::model::{Event, Prefix, Tuple};
use proptest::prelude::*;

use super::{HZ, LAN, Seen, WAN, World, around, names, port};
use crate::key::FlowKey;
use crate::record::Record;
use crate::table::Table;
use crate::{Op, Policy, Port, Settings};

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Few distinct addresses of both families, so that they meet.
fn address(v6: bool, bits: u8) -> IpAddr {
    let [a, b] = [bits >> 2 & 3, bits & 3];
    match v6 {
        false => [192, 0, a, b].into(),
        true => [0x2001, 0xdb8, 0, 0, 0, 0, a.into(), b.into()].into(),
    }
}

fn record(v6: bool, bits: [u8; 4], port_in: u32, nexthop: u32, sport: u16) -> Record {
    let [src, dst, out_src, out_dst] = bits.map(|bits| address(v6, bits));
    let tuple = |src, dst| Tuple {
        src,
        dst,
        proto: UDP,
        sport,
        dport: 53,
    };
    let key = FlowKey {
        tuple: tuple(src, dst),
        port: port_in,
    };
    let mut record = Record::new(&key, &tuple(out_src, out_dst)).unwrap();
    record.nexthop = nexthop;
    record
}

fn sorted(flows: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut flows: Vec<u32> = flows.collect();
    flows.sort_unstable();
    flows
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// What the table finds by index is what a walk over all flows finds, and nothing twice.
    #[test]
    fn the_indices_agree_with_a_walk(
        steps in prop::collection::vec(
            (any::<bool>(), any::<bool>(), any::<[u8; 4]>(), 1..4u32, 1..4u32, 0..3u16, 1..24u32),
            1..80,
        ),
        bits in any::<u8>(),
        len in 0..=128u8,
    ) {
        let mut table = Table::new();
        for (add, v6, bits, port, nexthop, sport, index) in steps {
            let record = record(v6, bits.map(|b| b & 15), port, nexthop, sport);
            let known = table.find(&record.key());
            if add && known.is_none() && table.get(index).is_none() {
                table.insert(index, record);
            } else {
                let last = table.get(index).map(|r| r.nexthop);
                let last = last.map(|n| table.iter().filter(|(_, r)| r.nexthop == n).count() == 1);
                prop_assert_eq!(table.remove(index).map(|(_, last)| last), last);
            }
            prop_assert_eq!(table.iter().count(), table.len());
            for (index, record) in table.iter() {
                prop_assert_eq!(table.find(&record.key()), Some(index));
            }
        }
        for v6 in [false, true] {
            let prefix = Prefix { addr: address(v6, bits), len: len.min(if v6 { 128 } else { 32 }) };
            let inside = |r: &Record| {
                let (key, out) = (r.key(), r.out());
                [key.tuple.src, key.tuple.dst, out.dst].iter().any(|ip| prefix.contains(*ip))
            };
            let walk = sorted(table.iter().filter(|(_, r)| inside(r)).map(|(i, _)| i));
            prop_assert_eq!(sorted(table.within(prefix)), walk);
        }
        for n in 1..4 {
            let walk = sorted(table.iter().filter(|(_, r)| r.port_in == n).map(|(i, _)| i));
            prop_assert_eq!(sorted(table.at_port(n)), walk);
            let walk = sorted(table.iter().filter(|(_, r)| r.nexthop == n).map(|(i, _)| i));
            prop_assert_eq!(sorted(table.through(n)), walk);
        }
        let all: Vec<u32> = table.iter().map(|(index, _)| index).collect();
        for index in all {
            table.remove(index);
        }
        prop_assert_eq!(table.address_count(), 0, "an address leaked");
    }
}

fn small_steps() -> Settings {
    Settings {
        work_max: 4,
        narrow_max: 8,
        ..Settings::default()
    }
}

/// So many UDP flows that are used now.
fn busy(world: &mut World, flows: u16) {
    for n in 0..flows {
        world.learn(Seen::new(UDP, n));
    }
    let now = world.now;
    for flow in world.flows.values_mut() {
        flow.state.used_tick = now;
        flow.state.packets = 1;
    }
}

fn removed(ops: &[Op]) -> usize {
    names(ops).iter().filter(|name| **name == "remove").count()
}

/// Calls until there is nothing left to do; how many flows each call removed.
fn finish(world: &mut World) -> Vec<usize> {
    let mut calls = Vec::new();
    while world.manager.has_work() {
        calls.push(removed(&world.work()));
        assert!(calls.len() < 1000, "it never ends");
    }
    calls
}

#[test]
fn ageing_takes_bounded_steps() {
    let mut world = World::new(small_steps());
    busy(&mut world, 50);
    world.advance(31 * HZ);
    let first = removed(&world.tick());
    let calls = finish(&mut world);
    assert!(
        first <= 4 && calls.iter().all(|n| *n <= 4),
        "{first} {calls:?}"
    );
    assert_eq!(first + calls.iter().sum::<usize>(), 50);
    assert_eq!(world.manager.stats().aged, 50);
}

#[test]
fn every_flow_is_looked_at_within_the_scan() {
    let settings = Settings {
        flows_max: 20_000,
        ..Settings::default()
    };
    let mut world = World::new(settings);
    let scanned = 12_000;
    // World::check is slow: the manager alone
    let mut ops = Vec::new();
    for n in 0..scanned {
        let c = Seen::new(UDP, n).candidate(1, world.now);
        world.manager.candidate(&c, around(1), world.now, &mut ops);
    }
    for op in ops {
        if let Op::InsertFlow { index, flow, .. } = op {
            world.flows.insert(index, *flow);
        }
    }
    let start = world.now;
    let mut gone = vec![false; usize::from(scanned) + 1];
    // a tick each quarter of a second; never used: all are idle after 30 s
    for quarter in 1..=4 * 40 {
        let now = start.wrapping_add(quarter * HZ / 4);
        let mut ops = Vec::new();
        world.manager.tick(now, &world.view(), &mut ops);
        while world.manager.has_work() {
            world.manager.work(now, &world.view(), &mut ops);
        }
        for op in ops {
            if let Op::RemoveFlow { index } = op {
                assert!(quarter >= 4 * 30, "too early");
                assert!(!std::mem::replace(&mut gone[index as usize], true));
            }
        }
    }
    assert_eq!(
        gone.iter().filter(|gone| **gone).count(),
        usize::from(scanned)
    );
}

#[test]
fn a_new_policy_sweeps_in_bounded_steps() {
    let mut world = World::new(small_steps());
    busy(&mut world, 40);
    let udp = |udp| Policy {
        udp,
        ..Policy::default()
    };
    let first = world.call(|m, now, ops| m.set_policy(udp(false), now, ops));
    assert_eq!(removed(&first), 4);
    assert!(
        world.learn(Seen::new(UDP, 90)).is_empty(),
        "refused at once"
    );
    assert!(finish(&mut world).iter().all(|n| *n <= 4));
    assert_eq!(world.manager.flow_count(), 0);

    // allowed again before the sweep has come by: those left may stay
    world.advance(2 * HZ);
    world.tick();
    world.call(|m, now, ops| m.set_policy(udp(true), now, ops));
    busy(&mut world, 40);
    world.call(|m, now, ops| m.set_policy(udp(false), now, ops));
    world.call(|m, now, ops| m.set_policy(udp(true), now, ops));
    finish(&mut world);
    assert_eq!(world.manager.flow_count(), 36);
}

#[test]
fn a_flush_is_not_forgotten_for_a_policy() {
    let mut world = World::new(small_steps());
    busy(&mut world, 40);
    world.call(|m, now, ops| m.flush(now, ops));
    world.call(|m, now, ops| m.set_policy(Policy::default(), now, ops));
    finish(&mut world);
    assert_eq!(world.manager.flow_count(), 0);
}

#[test]
fn what_concerns_very_many_begins_an_epoch() {
    for (flows, ops_wanted) in [(8, "unconfirm"), (9, "set_epoch")] {
        let mut world = World::new(small_steps());
        busy(&mut world, flows);
        let route = super::cases::route([198, 51, 100, 0], 24);
        for event in [&route, &Event::RoutesUnknown] {
            let ops = world.call(|m, now, ops| m.kernel_event(event, now, ops));
            assert!(
                names(&ops).iter().all(|name| *name == ops_wanted),
                "{ops:?}"
            );
            assert!(!ops.is_empty());
        }
        let mtu = Port {
            mtu: 1400,
            ..port(WAN)
        };
        let ops = world.call(|m, now, ops| m.set_port(mtu, now, ops));
        assert!(
            names(&ops).iter().all(|name| *name == ops_wanted),
            "{ops:?}"
        );
    }
}

#[test]
fn a_busy_port_that_goes_stops_at_once_and_empties_by_and_by() {
    for ifindex in [LAN, WAN] {
        let mut world = World::new(small_steps());
        busy(&mut world, 40);
        let ops = world.call(|m, now, ops| m.remove_port(ifindex, now, ops));
        let names = names(&ops);
        assert!(names.contains(&"set_epoch"), "{names:?}");
        if ifindex == WAN {
            assert!(world.nexthops.values().all(|nexthop| nexthop.valid == 0));
        }
        // back before its flows have left: none of them is taken over
        world.call(|m, now, ops| m.set_port(port(ifindex), now, ops));
        if ifindex == WAN {
            finish(&mut world);
            assert_eq!(world.manager.flow_count(), 0);
            assert_eq!(world.manager.nexthop_count(), 0);
        }
    }
}

#[test]
fn a_mark_renews_once_for_both_directions() {
    let mut world = World::new(Settings::default());
    let seen = Seen::new(TCP, 0);
    world.learn(seen);
    world.learn(seen.reply());
    world.prepared(seen.conn(), true);
    world.tick();
    world.advance(HZ);
    let (orig, reply) = (world.index(seen), world.index(seen.reply()));
    // the kernel sees a packet of each direction
    for index in [orig, reply] {
        let now = world.now;
        let state = &mut world.flows.get_mut(&index).unwrap().state;
        state.status = FW_ST_ACTIVE;
        state.confirmed_tick = now;
        state.used_tick = now;
        state.packets = 1;
        world.seen.insert(index);
    }
    world.advance(HZ / 8);
    let ops = world.tick();
    let wanted = Op::Prepare {
        conn: seen.conn(),
        timeout_s: Some(1000),
    };
    assert_eq!(ops, [wanted]);
    assert!(world.seen.is_empty(), "marks are taken");
    world.prepared(seen.conn(), true);
    world.advance(HZ / 8);
    assert!(world.tick().is_empty(), "nothing was seen since");
}

#[test]
fn marks_are_read_in_bounded_steps() {
    let mut world = World::new(small_steps());
    for n in 0..20 {
        world.learn(Seen::new(TCP, n));
        world.prepared(Seen::new(TCP, n).conn(), true);
    }
    world.tick();
    finish(&mut world);
    world.advance(HZ);
    let now = world.now;
    for (index, flow) in &mut world.flows {
        flow.state.confirmed_tick = now;
        flow.state.used_tick = now;
        flow.state.packets = 1;
        world.seen.insert(*index);
    }
    world.advance(1);
    let count = |ops: &[Op]| names(ops).iter().filter(|n| **n == "prepare").count();
    let mut renewed = count(&world.tick());
    while world.manager.has_work() {
        renewed += count(&world.work());
    }
    assert_eq!(renewed, 20);
}
