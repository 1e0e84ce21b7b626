// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bridged frames.

use freeway_abi::{
    FW_BRIDGES_LEARN, FW_BRIDGES_ROUTED, FW_PATH_UP, FW_PATHS_MAX, fw_crossed, fw_path,
    fw_stations, fw_tag,
};
use freeway_kernel::model::{Event, Fdb, Mac};

use crate::{
    BridgeOp, BridgePort, BridgeRefusal, Bridges, Fitness, PathView, RoutedPort, StationExit,
    Stations, Tag,
};

const BRIDGE: u32 = 9;
const HZ: u32 = 250;
const A: [u8; 6] = [2, 0, 0, 0, 0, 1];
const B: [u8; 6] = [2, 0, 0, 0, 0, 2];

fn port(ifindex: u32) -> BridgePort {
    BridgePort {
        ifindex,
        bridge: BRIDGE,
        slot: ifindex + 100,
        mtu: 1500,
        fit: Fitness::FULL,
    }
}

fn at(mac: [u8; 6], ifindex: u32) -> Fdb {
    Fdb {
        ifindex,
        master: Some(BRIDGE),
        mac: Mac(mac),
        vlan: None,
        remote: None,
        local: false,
    }
}

/// A sends to B, from port 1 to port 2.
fn crossed() -> fw_crossed {
    fw_crossed {
        key: stations().record(),
        port_out: 2,
        epoch: 7,
        set: 5,
        ..fw_crossed::default()
    }
}

fn stations() -> Stations {
    Stations {
        port: 1,
        dst: B,
        src: A,
        tag_be: [0; 2],
    }
}

/// Ports 1 and 2, A at the first and B at the second.
fn world() -> Bridges {
    let mut bridges = Bridges::new(HZ);
    let mut ops = Vec::new();
    for ifindex in [1, 2] {
        bridges.set_port(port(ifindex), &mut ops);
    }
    bridges.learn_station(&at(A, 1), &mut Vec::new());
    bridges.learn_station(&at(B, 2), &mut Vec::new());
    assert!(ops.is_empty());
    bridges
}

fn learn(bridges: &mut Bridges, crossed: &fw_crossed) -> Vec<BridgeOp> {
    let mut ops = Vec::new();
    bridges.crossed(crossed, crossed.epoch, 1000, &mut ops);
    ops
}

fn event(bridges: &mut Bridges, event: Event) -> Vec<BridgeOp> {
    let mut ops = Vec::new();
    bridges.kernel_event(&event, 1000, &mut ops);
    ops
}

fn is_removal(ops: &[BridgeOp]) -> bool {
    matches!(ops, [BridgeOp::RemovePath { stations: s, .. }] if *s == stations())
}

#[test]
fn a_path_is_what_was_seen() {
    let mut bridges = world();
    let ops = learn(&mut bridges, &crossed());
    let [
        BridgeOp::ForgetOffer { set: 5 },
        BridgeOp::SetPath {
            stations: whose,
            path,
        },
    ] = &ops[..]
    else {
        panic!("{ops:?}")
    };
    assert_eq!(*whose, stations());
    let wanted = fw_path {
        key: stations().record(),
        epoch: 7,
        reval_tick: 1000 + HZ,
        interval: HZ,
        used_tick: 1000,
        port: 2,
        devmap_slot: 102,
        len_max: 1518,
        ..fw_path::default()
    };
    assert_eq!(**path, wanted);
    assert_eq!(bridges.paths().count(), 1);
    assert_eq!(bridges.learned(), 1);
}

#[test]
fn the_longest_frame_is_that_of_the_port_out() {
    let tag = fw_tag {
        tpid_be: 0x8100u16.to_be(),
        tci_be: 10u16.to_be(),
    };
    for (tag_in, tag_out, len) in [(false, true, 1514), (true, false, 1522), (true, true, 1518)] {
        let mut seen = crossed();
        if tag_in {
            seen.key.tag = tag;
        }
        if tag_out {
            seen.tag_out = tag;
        }
        let ops = learn(&mut world(), &seen);
        let Some(BridgeOp::SetPath { path, .. }) = ops.last() else {
            panic!("{ops:?}")
        };
        assert_eq!(path.len_max, len);
    }
}

#[test]
fn what_the_bridge_does_not_say_is_refused() {
    type Change = fn(&mut Bridges);
    let cases: [(&str, Change, BridgeRefusal); 7] = [
        (
            "no port",
            |b| b.remove_port(1, &mut Vec::new()),
            BridgeRefusal::Port,
        ),
        (
            "of another bridge",
            |b| {
                let other = BridgePort {
                    bridge: 8,
                    ..port(2)
                };
                b.set_port(other, &mut Vec::new());
            },
            BridgeRefusal::Port,
        ),
        (
            "may not send",
            |b| {
                let fit = Fitness {
                    output: false,
                    ..Fitness::FULL
                };
                b.set_port(BridgePort { fit, ..port(2) }, &mut Vec::new());
            },
            BridgeRefusal::Port,
        ),
        (
            "elsewhere",
            |b| b.learn_station(&at(B, 3), &mut Vec::new()),
            BridgeRefusal::Station,
        ),
        (
            "sender elsewhere",
            |b| b.learn_station(&at(A, 2), &mut Vec::new()),
            BridgeRefusal::Station,
        ),
        (
            "unknown",
            |b| b.kernel_event(&Event::FdbGone(at(B, 2)), 1000, &mut Vec::new()),
            BridgeRefusal::Station,
        ),
        (
            "the bridge's own in some VLAN",
            |b| {
                let own = Fdb {
                    local: true,
                    vlan: Some(4),
                    ..at(B, 2)
                };
                b.learn_station(&own, &mut Vec::new());
            },
            BridgeRefusal::Station,
        ),
    ];
    for (what, change, refusal) in cases {
        let mut bridges = world();
        change(&mut bridges);
        assert!(learn(&mut bridges, &crossed()).is_empty(), "{what}");
        assert_eq!(bridges.refused().get(&refusal), Some(&1), "{what}");
    }
}

/// In the VLAN of the frames, or in each in which they may be.
#[test]
fn each_vlan_has_stations_of_its_own() {
    let tagged = |vlan: u16| fw_tag {
        tpid_be: 0x8100u16.to_be(),
        tci_be: (0x6000 | vlan).to_be(),
    };
    let mut seen = [crossed(); 3];
    seen[0].key.tag = tagged(10);
    seen[1].tag_out = tagged(10);
    let [tag_in, tag_out, none] = seen;
    for (places, taken) in [
        // A and B: VLAN and port of each
        (&[(A, 10, 1), (B, 10, 2)][..], [true, true, true]),
        (&[(A, 10, 1), (B, 20, 2)], [false; 3]),
        (&[(A, 10, 1), (A, 20, 1), (B, 10, 2)], [true, true, false]),
        (&[(A, 10, 1), (A, 20, 1), (B, 10, 2), (B, 20, 2)], [true; 3]),
        (&[(A, 20, 1), (B, 20, 2)], [false, false, true]),
        (&[(A, 0, 1), (B, 0, 2)], [true; 3]),
    ] {
        for (frame, taken) in [tag_in, tag_out, none].iter().zip(taken) {
            let mut bridges = Bridges::new(HZ);
            for ifindex in [1, 2] {
                bridges.set_port(port(ifindex), &mut Vec::new());
            }
            for (mac, vlan, ifindex) in places {
                let vlan = Some(*vlan).filter(|vlan| *vlan != 0);
                bridges.learn_station(
                    &Fdb {
                        vlan,
                        ..at(*mac, *ifindex)
                    },
                    &mut Vec::new(),
                );
            }
            let ops = learn(&mut bridges, frame);
            assert_eq!(!ops.is_empty(), taken, "{places:?} {frame:?}");
        }
    }
}

#[test]
fn paths_end_with_what_they_go_by() {
    let events: [(&str, Event); 6] = [
        ("the receiver moves", Event::FdbChanged(at(B, 3))),
        ("the sender moves", Event::FdbChanged(at(A, 2))),
        ("the receiver is forgotten", Event::FdbGone(at(B, 2))),
        ("the sender is forgotten", Event::FdbGone(at(A, 1))),
        (
            "the receiver is the bridge",
            Event::FdbChanged(Fdb {
                local: true,
                ..at(B, 2)
            }),
        ),
        (
            "it is elsewhere in a VLAN",
            Event::FdbChanged(Fdb {
                vlan: Some(3),
                ..at(B, 1)
            }),
        ),
    ];
    for (what, change) in events {
        let mut bridges = world();
        learn(&mut bridges, &crossed());
        let mut ops = event(&mut bridges, change);
        ops.retain(|op| !matches!(op, BridgeOp::SetOwn { .. }));
        assert!(is_removal(&ops), "{what}");
        assert_eq!(bridges.paths().count(), 0, "{what}");
    }
    for change in [
        Event::FdbChanged(at(B, 2)),
        Event::FdbGone(at([2, 0, 0, 0, 0, 3], 2)),
        Event::FdbGone(Fdb {
            master: Some(8),
            ..at(B, 2)
        }),
    ] {
        let mut bridges = world();
        learn(&mut bridges, &crossed());
        assert!(event(&mut bridges, change).is_empty());
    }
}

#[test]
fn paths_end_with_their_ports() {
    for ifindex in [1, 2] {
        let (mut bridges, mut ops) = (world(), Vec::new());
        learn(&mut bridges, &crossed());
        bridges.set_port(port(ifindex), &mut ops);
        assert!(ops.is_empty(), "nothing changed");
        bridges.set_port(
            BridgePort {
                mtu: 1400,
                ..port(ifindex)
            },
            &mut ops,
        );
        assert!(is_removal(&ops));
        learn(&mut bridges, &crossed());
        ops.clear();
        bridges.remove_port(ifindex, &mut ops);
        assert!(is_removal(&ops));
    }
    let (mut bridges, mut ops) = (world(), Vec::new());
    learn(&mut bridges, &crossed());
    bridges.flush(&mut ops);
    assert!(is_removal(&ops));
}

/// All of one age.
struct Used(u32);

impl PathView for Used {
    fn path(&self, _: &Stations) -> Option<fw_path> {
        Some(fw_path {
            used_tick: self.0,
            ..fw_path::default()
        })
    }
}

/// There are so many paths, no more, and each place is somebody's again after it was another's.
#[test]
fn paths_are_bounded_and_age() {
    let mut bridges = world();
    let nth = |number: u32| {
        let tag = fw_tag {
            tpid_be: number as u16,
            tci_be: (number >> 16) as u16,
        };
        let key = fw_stations {
            tag,
            ..stations().record()
        };
        fw_crossed { key, ..crossed() }
    };
    for _ in 0..2 {
        for number in 0..FW_PATHS_MAX {
            assert_eq!(learn(&mut bridges, &nth(number)).len(), 2, "{number}");
        }
        assert!(learn(&mut bridges, &nth(FW_PATHS_MAX)).is_empty());
        let mut counts: Vec<_> = bridges.paths().map(|path| path.count).collect();
        counts.sort_unstable();
        assert!(counts.into_iter().eq(0..FW_PATHS_MAX));
        let now = 1000 + 61 * HZ;
        let mut ops = Vec::new();
        for _ in 0..100 {
            bridges.tick(now, &Used(now + 1), &mut ops);
            bridges.tick(now, &Used(now - 60 * HZ), &mut ops);
        }
        assert!(ops.is_empty());
        for _ in 0..100 {
            bridges.tick(now, &Used(1000), &mut ops);
        }
        assert_eq!(ops.len() as u32, FW_PATHS_MAX);
        assert_eq!(bridges.paths().count(), 0);
    }
    assert_eq!(bridges.refused()[&BridgeRefusal::TableFull], 2);
}

#[test]
fn nothing_is_learned_where_nobody_wants_it() {
    let mut bridges = world();
    assert!(bridges.learns());
    bridges.remove_port(1, &mut Vec::new());
    bridges.remove_port(2, &mut Vec::new());
    assert!(!bridges.learns());
}

/// An address is the router's own as long as it is at any bridge, in any VLAN.
#[test]
fn the_routers_own_addresses_are_told() {
    let mut bridges = world();
    let own = |bridge, vlan| Fdb {
        local: true,
        master: Some(bridge),
        vlan: Some(vlan),
        ..at(B, 2)
    };
    let told = |ops: Vec<BridgeOp>| match &ops[..] {
        [BridgeOp::SetOwn { mac: B, own }] => Some(*own),
        [] => None,
        _ => panic!("{ops:?}"),
    };
    for (change, wanted) in [
        (Event::FdbChanged(own(BRIDGE, 1)), Some(true)),
        (Event::FdbChanged(own(BRIDGE, 1)), None),
        (Event::FdbChanged(own(8, 2)), Some(true)),
        (Event::FdbGone(own(BRIDGE, 1)), Some(true)),
        (Event::FdbGone(own(BRIDGE, 1)), None),
        (Event::FdbChanged(at(B, 3)), None),
        (
            Event::FdbChanged(Fdb {
                local: false,
                ..own(8, 2)
            }),
            Some(false),
        ),
    ] {
        let what = format!("{change:?}");
        assert_eq!(told(event(&mut bridges, change)), wanted, "{what}");
    }
}

const ROUTER: [u8; 6] = [2, 0, 0, 0, 0, 9];
const VLAN: u32 = 19;

/// As [`world`]; the bridge has an address and routes, as does a VLAN of it.
fn routing() -> Bridges {
    let mut bridges = world();
    let own = Fdb {
        local: true,
        ..at(ROUTER, BRIDGE)
    };
    bridges.learn_station(&own, &mut Vec::new());
    for ifindex in [BRIDGE, VLAN] {
        let port = RoutedPort {
            ifindex,
            bridge: BRIDGE,
            mtu: 1500,
            fit: Fitness::FULL,
        };
        bridges.set_routed(port, &mut Vec::new());
    }
    bridges
}

/// A's frames to the router.
fn up() -> fw_crossed {
    let mut up = crossed();
    up.key.macs[..6].copy_from_slice(&ROUTER);
    up.port_out = BRIDGE;
    up
}

/// The router's frames to B.
fn down() -> fw_crossed {
    let mut down = crossed();
    down.key.port = BRIDGE;
    down.key.macs[6..].copy_from_slice(&ROUTER);
    down
}

fn entry(port: u32, mac: [u8; 6], known: bool) -> BridgeOp {
    BridgeOp::Entry { port, mac, known }
}

fn no_exit() -> BridgeOp {
    BridgeOp::Exit {
        port: BRIDGE,
        mac: B,
        exit: None,
    }
}

#[test]
fn what_is_the_routers_goes_up() {
    for port_out in [BRIDGE, VLAN] {
        let ops = learn(&mut routing(), &fw_crossed { port_out, ..up() });
        let [
            BridgeOp::ForgetOffer { .. },
            BridgeOp::SetPath { path, .. },
            last,
        ] = &ops[..]
        else {
            panic!("{ops:?}")
        };
        assert_eq!([path.port, path.devmap_slot], [port_out, FW_PATH_UP]);
        assert_eq!(*last, entry(port_out, A, true));
    }
}

#[test]
fn what_the_router_sends_goes_down() {
    let mut seen = down();
    seen.tag_out = fw_tag {
        tpid_be: 0x8100u16.to_be(),
        tci_be: 10u16.to_be(),
    };
    let ops = learn(&mut routing(), &seen);
    let wanted = BridgeOp::Exit {
        port: BRIDGE,
        mac: B,
        exit: Some(StationExit {
            device: 2,
            slot: 102,
            tag: Tag {
                protocol: 0x8100,
                vlan: 10,
            },
        }),
    };
    assert_eq!(ops.last(), Some(&wanted));
}

#[test]
fn what_the_bridge_does_not_say_goes_neither_up_nor_down() {
    type Change = fn(&mut Bridges, &mut fw_crossed);
    let elsewhere: Change = |bridges, seen| {
        let mac = if seen.key.port == BRIDGE { B } else { A };
        bridges.learn_station(&at(mac, 3), &mut Vec::new());
    };
    let not_own: Change = |bridges, _| {
        event(bridges, Event::FdbGone(at(ROUTER, BRIDGE)));
    };
    let not_routed: Change = |bridges, _| bridges.remove_routed(BRIDGE, &mut Vec::new());
    let no_input: Change = |bridges, _| {
        let fit = Fitness::default();
        bridges.set_port(BridgePort { fit, ..port(1) }, &mut Vec::new());
    };
    let no_output: Change = |bridges, _| {
        let fit = Fitness::default();
        bridges.set_port(BridgePort { fit, ..port(2) }, &mut Vec::new());
    };
    let small: Change = |bridges, _| {
        let small = BridgePort {
            mtu: 1400,
            ..port(2)
        };
        bridges.set_port(small, &mut Vec::new());
    };
    let tagged: Change = |_, seen| {
        seen.tag_out.tpid_be = 0x8100u16.to_be();
        seen.tag_out.tci_be = 0x2005u16.to_be();
    };
    for (which, what, change, refusal) in [
        (up(), "up, elsewhere", elsewhere, BridgeRefusal::Station),
        (up(), "up, not own", not_own, BridgeRefusal::Station),
        (up(), "up, not routed", not_routed, BridgeRefusal::Port),
        (up(), "up, no input", no_input, BridgeRefusal::Port),
        (up(), "up, with a tag", tagged, BridgeRefusal::Station),
        (down(), "down, elsewhere", elsewhere, BridgeRefusal::Station),
        (down(), "down, not own", not_own, BridgeRefusal::Station),
        (down(), "down, not routed", not_routed, BridgeRefusal::Port),
        (down(), "down, no output", no_output, BridgeRefusal::Port),
        (down(), "down, small MTU", small, BridgeRefusal::Port),
        (down(), "down, priority", tagged, BridgeRefusal::Station),
    ] {
        let (mut bridges, mut seen) = (routing(), which);
        change(&mut bridges, &mut seen);
        let ops = learn(&mut bridges, &seen);
        let wanted = match seen.port_out {
            BRIDGE if what != "up, not routed" => vec![entry(BRIDGE, A, false)],
            _ => Vec::new(),
        };
        assert_eq!(ops, wanted, "{what}");
        assert_eq!(bridges.refused()[&refusal], 1, "{what}");
    }
}

/// Where a station with XDP moves to another port with XDP its flows wait; else they are tc's.
#[test]
fn stations_that_move_take_their_flows_along() {
    let mut bridges = routing();
    learn(&mut bridges, &up());
    learn(&mut bridges, &down());
    let ops = event(&mut bridges, Event::FdbChanged(at(A, 2)));
    assert!(matches!(ops[..], [BridgeOp::RemovePath { .. }]), "{ops:?}");
    let ops = event(&mut bridges, Event::FdbChanged(at(A, 3)));
    assert_eq!(ops, [entry(BRIDGE, A, false), entry(VLAN, A, false)]);
    let ops = event(&mut bridges, Event::FdbChanged(at(B, 1)));
    assert!(
        matches!(&ops[..], [exit, BridgeOp::RemovePath { .. }] if *exit == no_exit()),
        "{ops:?}"
    );
}

#[test]
fn ways_up_and_down_end_with_what_they_go_by() {
    type Change = fn(&mut Bridges, &mut Vec<BridgeOp>);
    let cases: [(&str, Change, bool, bool); 6] = [
        (
            "the bridge does not route",
            |bridges, ops| bridges.remove_routed(BRIDGE, ops),
            true,
            true,
        ),
        (
            "the port in is none",
            |bridges, ops| bridges.remove_port(1, ops),
            true,
            false,
        ),
        (
            "the port out is none",
            |bridges, ops| bridges.remove_port(2, ops),
            false,
            true,
        ),
        (
            "the address is another",
            |bridges, ops| {
                let gone = Event::FdbGone(Fdb {
                    local: true,
                    ..at(ROUTER, BRIDGE)
                });
                bridges.kernel_event(&gone, 1000, ops);
            },
            true,
            true,
        ),
        (
            "the bridge is another",
            |bridges, ops| bridges.doubt(BRIDGE, ops),
            false,
            true,
        ),
        (
            "everything is",
            |bridges, ops| bridges.flush(ops),
            true,
            true,
        ),
    ];
    for (what, change, ends_up, ends_down) in cases {
        let mut bridges = routing();
        learn(&mut bridges, &up());
        learn(&mut bridges, &down());
        let mut ops = Vec::new();
        change(&mut bridges, &mut ops);
        let removed = |port: u32| {
            ops.iter().any(
                |op| matches!(op, BridgeOp::RemovePath { stations, .. } if stations.port == port),
            )
        };
        assert_eq!(
            [removed(1), removed(BRIDGE)],
            [ends_up, ends_down],
            "{what}"
        );
        assert_eq!(ops.contains(&no_exit()), ends_down, "{what}");
    }
}

/// The kernel has sent elsewhere, and the data plane has seen it.
#[test]
fn contradicted_ways_down_leave() {
    struct Contradicted;
    impl PathView for Contradicted {
        fn path(&self, _: &Stations) -> Option<fw_path> {
            Some(fw_path {
                used_tick: 1000,
                ..fw_path::default()
            })
        }
    }
    let mut bridges = routing();
    learn(&mut bridges, &up());
    learn(&mut bridges, &down());
    let mut ops = Vec::new();
    bridges.tick(1000, &Contradicted, &mut ops);
    assert!(
        matches!(&ops[..], [exit, BridgeOp::RemovePath { .. }] if *exit == no_exit()),
        "{ops:?}"
    );
}

/// What is the router's own is noted only where a bridge routes.
#[test]
fn what_is_the_routers_is_learned_where_a_bridge_routes() {
    let mut bridges = routing();
    assert_eq!(bridges.wanted(), FW_BRIDGES_LEARN | FW_BRIDGES_ROUTED);
    let routed = |port, routed| BridgeOp::SetRouted { port, routed };
    let mut ops = Vec::new();
    bridges.remove_routed(VLAN, &mut ops);
    assert_eq!(bridges.wanted(), FW_BRIDGES_LEARN | FW_BRIDGES_ROUTED);
    bridges.remove_routed(BRIDGE, &mut ops);
    assert_eq!(ops, [routed(VLAN, false), routed(BRIDGE, false)]);
    assert_eq!(bridges.wanted(), FW_BRIDGES_LEARN);
    let port = RoutedPort {
        ifindex: BRIDGE,
        bridge: BRIDGE,
        mtu: 1500,
        fit: Fitness::FULL,
    };
    ops.clear();
    bridges.set_routed(port, &mut ops);
    assert_eq!(ops, [routed(BRIDGE, true)]);
    assert_eq!(bridges.wanted(), FW_BRIDGES_LEARN | FW_BRIDGES_ROUTED);
}

#[test]
fn a_station_that_is_forgotten_enters_no_longer() {
    let mut bridges = routing();
    let other = Fdb {
        local: true,
        ..at([2, 0, 0, 0, 0, 10], BRIDGE)
    };
    bridges.learn_station(&other, &mut Vec::new());
    let mut second = up();
    second.key.macs[..6].copy_from_slice(&other.mac.0);
    learn(&mut bridges, &up());
    learn(&mut bridges, &second);
    // of one of the router's addresses: the other path is left
    let ops = event(&mut bridges, Event::FdbGone(other));
    assert!(!ops.contains(&entry(BRIDGE, A, false)), "{ops:?}");
    let ops = event(&mut bridges, Event::FdbGone(at(A, 1)));
    assert!(matches!(ops[0], BridgeOp::RemovePath { .. }), "{ops:?}");
    assert!(ops.contains(&entry(BRIDGE, A, false)), "{ops:?}");
}

#[test]
fn what_was_seen_in_another_epoch_is_seen_again() {
    let mut ops = Vec::new();
    routing().crossed(&down(), 8, 1000, &mut ops);
    assert_eq!(ops, [BridgeOp::ForgetOffer { set: 5 }]);
}

/// The kernel sends elsewhere, where XDP may not.
#[test]
fn a_way_down_ends_with_what_contradicts_it() {
    let mut bridges = routing();
    learn(&mut bridges, &down());
    let mut seen = down();
    seen.tag_out.tpid_be = 0x8100u16.to_be();
    seen.tag_out.tci_be = 0x2005u16.to_be();
    assert!(learn(&mut bridges, &seen).contains(&no_exit()));
}

/// Of a tag with another priority there is no room for a path; the other one is used on.
#[test]
fn a_refusal_takes_nothing_from_other_paths() {
    let mut bridges = routing();
    learn(&mut bridges, &up());
    let mut refused = up();
    refused.key.tag = fw_tag {
        tpid_be: 0x8100u16.to_be(),
        tci_be: 0x2000u16.to_be(),
    };
    refused.tag_out = refused.key.tag;
    assert_eq!(learn(&mut bridges, &refused), []);
}

#[test]
fn a_station_that_moved_in_silence_is_forgotten() {
    let mut bridges = routing();
    learn(&mut bridges, &up());
    event(&mut bridges, Event::FdbChanged(at(A, 2)));
    let ops = event(&mut bridges, Event::FdbGone(at(A, 2)));
    assert_eq!(ops, [entry(BRIDGE, A, false), entry(VLAN, A, false)]);
}

/// The bridge's PVID is another.
#[test]
fn a_way_up_to_elsewhere_ends_the_old_one() {
    let mut bridges = routing();
    learn(&mut bridges, &up());
    let elsewhere = fw_crossed {
        port_out: VLAN,
        ..up()
    };
    let ops = learn(&mut bridges, &elsewhere);
    assert!(ops.contains(&entry(BRIDGE, A, false)), "{ops:?}");
    assert_eq!(ops.last(), Some(&entry(VLAN, A, true)));
}
