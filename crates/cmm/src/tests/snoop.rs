// SPDX-License-Identifier: MIT OR Apache-2.0
//! What bridges copy to those who listen.

use std::net::IpAddr;

use freeway_abi::{
    FW_BRIDGES_GROUPS, FW_NH_OLIST, FW_OLISTS, FW_PATH_COPIES, fw_crossed, fw_event, fw_group,
    fw_stations, fw_tag,
};
use freeway_kernel::model::{Event, Fdb, Mac, Mdb, MdbKey, RouterPort};

use crate::tests::States;
use crate::{
    BridgeOp, BridgePort, BridgeRefusal, BridgedLeg, Bridges, Fitness, Manager, RoutedPort,
    Settings, Stations,
};

const BRIDGE: u32 = 9;
const HZ: u32 = 250;
const EPOCH: u32 = 7;
const A: [u8; 6] = [2, 0, 0, 0, 0, 1];
const GROUP_MAC: [u8; 6] = [1, 0, 0x5e, 1, 2, 3];
const GROUP: [u8; 4] = [239, 1, 2, 3];
const SOURCE: [u8; 4] = [10, 9, 0, 1];

fn entry(port: u32) -> Mdb {
    Mdb {
        key: MdbKey {
            bridge: BRIDGE,
            group: GROUP.into(),
            vlan: 0,
            source: None,
            port,
        },
        excluded: false,
    }
}

fn stations() -> Stations {
    Stations {
        port: 1,
        dst: GROUP_MAC,
        src: A,
        tag_be: [0; 2],
    }
}

/// Four ports; A is at the first, and somebody listens at the second and the third.
struct World {
    bridges: Bridges,
    token: u32,
    now: u32,
}

impl World {
    fn new() -> World {
        let mut bridges = Bridges::new(HZ);
        let mut ops = Vec::new();
        for ifindex in 1..=4 {
            let port = BridgePort {
                ifindex,
                bridge: BRIDGE,
                slot: ifindex + 100,
                mtu: 1500,
                fit: Fitness::FULL,
            };
            bridges.set_port(port, &mut ops);
        }
        bridges.set_snooping(BRIDGE, true, &mut ops);
        let at = Fdb {
            ifindex: 1,
            master: Some(BRIDGE),
            mac: Mac(A),
            vlan: None,
            remote: None,
            local: false,
        };
        bridges.learn_station(&at, &mut ops);
        for port in [2, 3] {
            bridges.learn_listener(entry(port).key, false);
        }
        assert!(ops.is_empty());
        World {
            bridges,
            token: 0,
            now: 1000,
        }
    }

    /// The kernel sends copies of a frame to these ports.
    fn sent(&mut self, ports: &[u32]) -> Vec<BridgeOp> {
        self.sent_as(ports, |_| ())
    }

    fn sent_as(&mut self, ports: &[u32], change: impl Fn(&mut fw_crossed)) -> Vec<BridgeOp> {
        let mut ops = Vec::new();
        self.token += 1;
        self.now += 1;
        for (copy, port_out) in (0..).zip(ports) {
            let mut crossed = fw_crossed {
                ev: fw_event {
                    tick: self.now,
                    ..Default::default()
                },
                key: stations().record(),
                port_out: *port_out,
                epoch: EPOCH,
                set: 5,
                token: self.token,
                copy,
                tick: self.now,
                group: fw_group {
                    saddr_be: [u32::from_ne_bytes(SOURCE), 0, 0, 0],
                    daddr_be: [u32::from_ne_bytes(GROUP), 0, 0, 0],
                },
                ..Default::default()
            };
            change(&mut crossed);
            self.bridges.crossed(&crossed, EPOCH, self.now, &mut ops);
        }
        self.now += 2;
        self.bridges.settle_groups(EPOCH, self.now, &mut ops);
        ops
    }

    /// Two frames alike.
    fn learn(&mut self, ports: &[u32]) -> Vec<BridgeOp> {
        let first = self.sent(ports);
        let known = matches!(first[..], [BridgeOp::ForgetOffer { set: 5 }]);
        assert!(known || first.is_empty(), "{first:?}");
        self.sent(ports)
    }

    fn event(&mut self, event: Event) -> Vec<BridgeOp> {
        let mut ops = Vec::new();
        self.bridges.kernel_event(&event, self.now, &mut ops);
        ops
    }

    fn refused(&self, refusal: BridgeRefusal) -> u64 {
        self.bridges.refused().get(&refusal).copied().unwrap_or(0)
    }

    #[track_caller]
    fn is_refused(&mut self, ports: &[u32], refusal: BridgeRefusal) {
        let before = self.refused(refusal);
        assert_eq!(legs(&self.learn(ports)), None);
        assert!(
            self.refused(refusal) > before,
            "{:?}",
            self.bridges.refused()
        );
    }
}

/// Where frames are copied from now on.
fn legs(ops: &[BridgeOp]) -> Option<Vec<u32>> {
    ops.iter().find_map(|op| match op {
        BridgeOp::SetCopies { legs, .. } => Some(legs.iter().map(|leg| leg.port).collect()),
        _ => None,
    })
}

fn is_removal(ops: &[BridgeOp]) -> bool {
    let removal =
        |op: &BridgeOp| matches!(op, BridgeOp::RemovePath { stations: s, .. } if *s == stations());
    ops.iter().any(removal) && legs(ops).is_none()
}

#[test]
fn a_list_is_what_was_seen_twice() {
    let mut world = World::new();
    assert_eq!(
        world.bridges.wanted() & FW_BRIDGES_GROUPS,
        FW_BRIDGES_GROUPS
    );
    let once = world.sent(&[3, 2]);
    assert_eq!(once, [BridgeOp::ForgetOffer { set: 5 }]);
    let twice = world.sent(&[2, 3]);
    let Some(BridgeOp::SetCopies {
        stations: whose,
        ethertype,
        path,
        legs,
    }) = twice.last()
    else {
        panic!("{twice:?}")
    };
    assert_eq!((*whose, *ethertype), (stations(), 0x0800));
    assert_eq!((path.devmap_slot, path.len_max), (FW_PATH_COPIES, 1518));
    assert_eq!(path.group.daddr_be[0].to_ne_bytes(), GROUP);
    let slots: Vec<_> = legs.iter().map(|leg| (leg.port, leg.slot)).collect();
    assert_eq!(slots, [(2, 102), (3, 103)]);
    assert_eq!(world.bridges.paths().count(), 1);
    // the same again changes nothing
    assert_eq!(world.sent(&[2, 3]), [BridgeOp::ForgetOffer { set: 5 }]);
}

#[test]
fn copies_are_those_that_the_database_names() {
    let mut world = World::new();
    for ports in [&[2][..], &[2, 3, 4], &[2, 4], &[2, 2, 3]] {
        world.is_refused(ports, BridgeRefusal::Group);
    }
    world.is_refused(&[2, 3, BRIDGE], BridgeRefusal::Host);
    world.is_refused(&[2, 3, 77], BridgeRefusal::Port);
    // a router behind a port has them, too
    let (bridge, port, vlan) = (BRIDGE, 4, 0);
    world.event(Event::RouterPortNew(RouterPort { bridge, port, vlan }));
    assert_eq!(legs(&world.learn(&[2, 3, 4])), Some(vec![2, 3, 4]));
    // but those of MLD may be other ones
    assert_eq!(legs(&world.learn(&[2, 3])), Some(vec![2, 3]));
}

#[test]
fn the_router_itself_listens() {
    let mut world = World::new();
    assert!(legs(&world.learn(&[2, 3])).is_some());
    assert!(is_removal(&world.event(Event::MdbChanged(entry(BRIDGE)))));
    world.is_refused(&[2, 3], BridgeRefusal::Host);
    world.event(Event::MdbGone(entry(BRIDGE)));
    assert!(legs(&world.learn(&[2, 3])).is_some());
    // and the bridge shows it
    let routed = RoutedPort {
        ifindex: 80,
        bridge: BRIDGE,
        mtu: 1500,
        fit: Fitness::FULL,
    };
    world.bridges.set_routed(routed, &mut Vec::new());
    let ops = world.sent(&[2, 3, 80]);
    assert!(is_removal(&ops), "{ops:?}");
}

#[test]
fn joins_and_leaves_end_the_list() {
    let mut world = World::new();
    for event in [
        Event::MdbGone(entry(3)),
        Event::MdbChanged(entry(4)),
        Event::RouterPortNew(RouterPort {
            bridge: BRIDGE,
            port: 4,
            vlan: 0,
        }),
    ] {
        let mut world = World::new();
        assert!(legs(&world.learn(&[2, 3])).is_some());
        assert!(is_removal(&world.event(event)));
        assert_eq!(world.bridges.paths().count(), 0);
    }
    // of other groups they do not
    assert!(legs(&world.learn(&[2, 3])).is_some());
    let mut other = entry(4);
    other.key.group = [239, 9, 9, 9].into();
    assert_eq!(world.event(Event::MdbChanged(other)), []);
    // what was seen before says nothing any more
    let mut world = World::new();
    world.sent(&[2, 3]);
    world.event(Event::MdbGone(entry(3)));
    world.event(Event::MdbChanged(entry(3)));
    assert_eq!(legs(&world.sent(&[2, 3])), None);
    assert_eq!(legs(&world.sent(&[2, 3])), Some(vec![2, 3]));
}

#[test]
fn frames_from_before_an_event_say_nothing() {
    let mut world = World::new();
    world.event(Event::MdbChanged(entry(4)));
    let came = world.now;
    // in the ring since
    for _ in 0..3 {
        let ops = world.sent_as(&[2, 3], |copy| copy.tick = came);
        assert_eq!(ops, [BridgeOp::ForgetOffer { set: 5 }]);
    }
    for _ in 0..3 {
        let ops = world.sent_as(&[2, 3, 4], |copy| copy.epoch = EPOCH - 1);
        assert_eq!(ops, [BridgeOp::ForgetOffer { set: 5 }]);
    }
    assert_eq!(legs(&world.learn(&[2, 3, 4])), Some(vec![2, 3, 4]));
}

#[test]
fn entries_of_a_source_come_first() {
    let mut world = World::new();
    let source = Some(IpAddr::from(SOURCE));
    let mut own = entry(4);
    own.key.source = source;
    world.event(Event::MdbChanged(own));
    world.is_refused(&[2, 3], BridgeRefusal::Group);
    assert_eq!(legs(&world.learn(&[4])), Some(vec![4]));
    // one that is kept from it
    own.excluded = true;
    world.event(Event::MdbChanged(own));
    world.is_refused(&[4], BridgeRefusal::Group);
    world.event(Event::MdbGone(own));
    own.key.source = Some([10, 9, 0, 2].into());
    world.event(Event::MdbChanged(own));
    assert_eq!(legs(&world.learn(&[2, 3])), Some(vec![2, 3]));
}

#[test]
fn a_lost_copy_is_noticed() {
    let mut world = World::new();
    let lost = |copy: &mut fw_crossed| {
        if copy.port_out == 3 {
            copy.copy += 1;
        }
    };
    world.sent_as(&[2, 3], lost);
    assert_eq!(legs(&world.sent_as(&[2, 3], lost)), None);
    assert!(world.refused(BridgeRefusal::Group) > 0);
}

#[test]
fn ports_and_bridges_end_the_list() {
    type Change = fn(&mut Bridges, &mut Vec<BridgeOp>);
    let changes: [Change; 5] = [
        |b, ops| b.remove_port(1, ops),
        |b, ops| b.remove_port(3, ops),
        |b, ops| b.doubt(BRIDGE, ops),
        |b, ops| b.set_snooping(BRIDGE, false, ops),
        |b, ops| b.flush(ops),
    ];
    for change in changes {
        let mut world = World::new();
        assert!(legs(&world.learn(&[2, 3])).is_some());
        let mut ops = Vec::new();
        world.bridges.remove_port(4, &mut ops);
        assert_eq!(ops, []);
        change(&mut world.bridges, &mut ops);
        assert!(is_removal(&ops), "{ops:?}");
    }
    // a source that moves
    let mut world = World::new();
    assert!(legs(&world.learn(&[2, 3])).is_some());
    let moved = Fdb {
        ifindex: 4,
        master: Some(BRIDGE),
        mac: Mac(A),
        vlan: None,
        remote: None,
        local: false,
    };
    assert!(is_removal(&world.event(Event::FdbChanged(moved))));
    world.is_refused(&[2, 3], BridgeRefusal::Station);
}

#[test]
fn a_bridge_that_does_not_snoop_is_the_kernels() {
    let mut world = World::new();
    let mut ops = Vec::new();
    world.bridges.set_snooping(BRIDGE, false, &mut ops);
    assert_eq!(world.bridges.wanted() & FW_BRIDGES_GROUPS, 0);
    world.is_refused(&[2, 3], BridgeRefusal::Snooping);
}

#[test]
fn one_group_for_a_pair_of_addresses() {
    let mut world = World::new();
    assert!(legs(&world.learn(&[2, 3])).is_some());
    let other: [u8; 4] = [238, 129, 2, 3];
    for port in [2, 3] {
        let mut entry = entry(port);
        entry.key.group = other.into();
        assert_eq!(world.event(Event::MdbChanged(entry)), []);
    }
    for _ in 0..2 {
        let ops = world.sent_as(&[2, 3], |copy| {
            copy.group.daddr_be[0] = u32::from_ne_bytes(other);
        });
        assert_eq!(legs(&ops), None);
    }
    assert_eq!(world.refused(BridgeRefusal::Taken), 1);
    assert_eq!(world.bridges.paths().count(), 1);
}

#[test]
fn tags_tell_the_vlan() {
    let tag = fw_tag {
        tpid_be: 0x8100u16.to_be(),
        tci_be: 10u16.to_be(),
    };
    for (entry_vlan, learned) in [(10, true), (20, false)] {
        let mut world = World::new();
        for port in [2, 3] {
            world.event(Event::MdbGone(entry(port)));
            let mut entry = entry(port);
            entry.key.vlan = entry_vlan;
            world.event(Event::MdbChanged(entry));
        }
        for vlan in [10, 20] {
            let at = Fdb {
                ifindex: 1,
                master: Some(BRIDGE),
                mac: Mac(A),
                vlan: Some(vlan),
                remote: None,
                local: false,
            };
            world.event(Event::FdbChanged(at));
        }
        let no_vlan = Fdb {
            ifindex: 1,
            master: Some(BRIDGE),
            mac: Mac(A),
            vlan: None,
            remote: None,
            local: false,
        };
        world.event(Event::FdbGone(no_vlan));
        let tagged = |copy: &mut fw_crossed| {
            if copy.port_out == 3 {
                copy.tag_out = tag;
            }
        };
        world.sent_as(&[2, 3], tagged);
        let ops = world.sent_as(&[2, 3], tagged);
        assert_eq!(legs(&ops).is_some(), learned, "{entry_vlan}");
        if let Some(BridgeOp::SetCopies { path, legs, .. }) = ops.last() {
            // the tag makes the longest frame of the third port longer
            assert_eq!(path.len_max, 1514);
            assert_eq!(
                [legs[0].tag_be, legs[1].tag_be],
                [[0; 2], [tag.tpid_be, tag.tci_be]]
            );
        }
    }
}

#[test]
fn who_listens_to_other_groups_keeps_nothing_from_being_learned() {
    let mut other = entry(4);
    other.key.group = [239, 9, 9, 9].into();
    let router = RouterPort {
        bridge: BRIDGE,
        port: 4,
        vlan: 0,
    };
    for (event, learned) in [
        (Event::MdbChanged(other), true),
        (Event::MdbChanged(entry(3)), false),
        (Event::RouterPortGone(router), false),
    ] {
        let mut world = World::new();
        let mut ops = Vec::new();
        for _ in 0..3 {
            // when the frame comes
            let at = world.now + 1;
            world.bridges.kernel_event(&event, at, &mut ops);
            ops.extend(world.sent(&[2, 3]));
        }
        assert_eq!(legs(&ops).is_some(), learned, "{event:?}");
    }
}

#[test]
fn lists_are_used_again_once_nobody_can_hold_them() {
    let mut manager = Manager::new(Settings {
        hz: HZ,
        ..Settings::default()
    });
    let legs = [BridgedLeg {
        port: 2,
        slot: 102,
        tag_be: [0x8100u16.to_be(), 0x2003u16.to_be()],
    }];
    let mut lists = Vec::new();
    while let Some(list) = manager.take_bridged_list(&stations(), 0x0800, &legs) {
        lists.push(list);
    }
    assert_eq!(lists.len() as u32, FW_OLISTS - 1);
    let list = lists.remove(0);
    assert_eq!(list.nexthop.valid, FW_NH_OLIST);
    assert_eq!(list.nexthop.devmap_slot, list.number);
    let number = list.number;
    let leg = list.legs[0];
    assert_eq!((leg.port, leg.devmap_slot, leg.outer_len), (2, 102, 4));
    assert_eq!(leg.tag[0].tci_be, 0x2003u16.to_be());
    assert_eq!(leg.l2[..14], [&GROUP_MAC[..], &A, &[8, 0]].concat());
    manager.leave_bridged_list(list.index, 1000);
    let again = |manager: &mut Manager| manager.take_bridged_list(&stations(), 0x0800, &legs);
    assert!(again(&mut manager).is_none());
    manager.tick(1000 + 2 * HZ, &States::default(), &mut Vec::new());
    let list = again(&mut manager).map(|again| again.number);
    assert_eq!(list, Some(number));
    let _: fw_stations = stations().record();
}
