// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ports of VRFs: the same addresses in several, and what goes from one to another.

use freeway_kernel::model::{Event, Prefix};

use super::{LAN, Seen, WAN, World, around, names, port};
use crate::{FlowKey, Leaks, Manager, Op, Policy, Port, Preparation, Refusal, Settings};

const TCP: u8 = 6;
const UDP: u8 = 17;
/// The ports of another customer: what comes in at the first of these leaves at the second.
const OTHER: [u32; 2] = [11, 12];
const VRFS: [u32; 2] = [100, 200];

fn set_port(w: &mut World, ifindex: u32, vrf: u32) -> Vec<Op> {
    let port = Port {
        vrf,
        ..port(ifindex)
    };
    w.call(|m, now, ops| m.set_port(port, now, ops))
}

/// Two VRFs, of two ports each.
fn world() -> World {
    let mut w = World::new(Settings::default());
    for (ports, vrf) in [([LAN, WAN], VRFS[0]), (OTHER, VRFS[1])] {
        for port in ports {
            set_port(&mut w, port, vrf);
        }
    }
    w
}

/// A flow of the first VRF as it is in the second.
fn learn_other(w: &mut World, seen: Seen) -> FlowKey {
    let mut c = seen.candidate(w.epoch, w.now);
    let [lan, wan] = OTHER;
    let (came, left) = if seen.reply { (wan, lan) } else { (lan, wan) };
    c.key.port_proto = came << 8 | u32::from(seen.proto);
    c.l2_in[5] = came as u8;
    c.port_out = left;
    w.call(|m, now, ops| m.candidate(&c, around(1), now, ops));
    FlowKey {
        port: came,
        ..seen.key()
    }
}

fn find(m: &Manager, key: FlowKey) -> Option<u32> {
    m.find(&key).map(|(index, _)| index)
}

#[test]
fn the_same_tuple_in_two_vrfs_is_two_connections() {
    let w = &mut world();
    let orig = Seen::new(TCP, 1);
    for seen in [orig, orig.reply()] {
        w.learn(seen);
    }
    let others = [orig, orig.reply()].map(|seen| learn_other(w, seen));
    assert_eq!(w.manager.flow_count(), 4);
    assert_eq!(w.manager.connection_count(), 2);
    // conntrack has one for both: what it is told holds for both
    assert_eq!(w.asked, [orig.conn(); 2]);
    w.prepared(orig.conn(), true);
    let active = w.manager.flows().all(|(_, flow)| flow.active);
    assert!(active);
    let [a, b] = others.map(|key| find(&w.manager, key).unwrap());
    assert_eq!((w.flows[&a].state.peer, w.flows[&b].state.peer), (b, a));
    let [a, b] = [orig, orig.reply()].map(|seen| w.index(seen));
    assert_eq!((w.flows[&a].state.peer, w.flows[&b].state.peer), (b, a));
    assert_eq!(
        w.manager.connection(&orig.conn()).unwrap().preparation,
        Preparation::Done
    );

    // one that closes ends its own two; the end of conntrack's all
    let closing = w.index(orig);
    w.suspend(closing);
    w.call(|m, now, ops| m.suspended(closing, freeway_abi::FW_R_CLOSING, now, ops));
    assert_eq!(w.manager.flow_count(), 2);
    assert!(!w.has(orig) && !w.has(orig.reply()));
    w.advance(2 * super::HZ);
    w.learn(orig);
    w.call(|m, now, ops| m.connection_gone(&orig.conn(), now, ops));
    assert_eq!(w.manager.flow_count(), 0);
}

/// Who leaves first says nothing of the time that is left: the other has its own.
#[test]
fn what_is_shared_keeps_its_timeout() {
    let w = &mut world();
    w.learn(Seen::new(UDP, 1));
    let index = w.index(Seen::new(UDP, 1));
    w.flows.get_mut(&index).unwrap().state.packets = 9;
    w.advance(35 * super::HZ);
    let used = w.now.wrapping_sub(34 * super::HZ);
    w.flows.get_mut(&index).unwrap().state.used_tick = used;
    let other = learn_other(w, Seen::new(UDP, 1));
    let ops = w.tick();
    assert_eq!(names(&ops), ["remove"], "{ops:?}");
    assert!(find(&w.manager, other).is_some());
}

#[test]
fn a_port_that_changes_its_vrf_is_learned_anew() {
    for vrf in [0, VRFS[1]] {
        let w = &mut world();
        w.learn(Seen::new(TCP, 1));
        w.learn(Seen::new(TCP, 1).reply());
        let other = learn_other(w, Seen::new(TCP, 1));
        set_port(w, WAN, vrf);
        assert_eq!(w.manager.flow_count(), 1);
        assert!(find(&w.manager, other).is_some());
    }
}

#[test]
fn what_may_pass_a_vrfs_own_interface_is_the_kernels() {
    let w = &mut world();
    set_port(w, WAN, 0);
    let (seen, refusal) = (Seen::new(UDP, 1), Seen::new(UDP, 1).key());
    let refusal = |w: &World| w.manager.refusal(&refusal);
    let to = |net: [u8; 4], len| {
        Leaks::To(
            [Prefix {
                addr: net.into(),
                len,
            }]
            .into(),
        )
    };
    let set = |w: &mut World, leaks: Leaks| w.call(|m, now, ops| m.set_leaks(leaks, now, ops));
    w.learn(seen);
    w.learn(seen.reply());
    let within = learn_other(w, seen);
    set(w, to([203, 0, 113, 0], 24));
    assert_eq!(w.manager.flow_count(), 3, "another destination");
    // to the server; its answers go to another address
    for leaks in [to([198, 51, 100, 0], 24), to([0; 4], 0), Leaks::Unknown] {
        set(w, Leaks::default());
        w.advance(2 * super::HZ);
        w.learn(seen);
        w.learn(seen.reply());
        assert!(w.has(seen) && w.has(seen.reply()));
        let all = leaks != to([198, 51, 100, 0], 24);
        set(w, leaks);
        assert!(!w.has(seen));
        assert_eq!(w.has(seen.reply()), !all);
        w.learn(seen);
        assert_eq!(refusal(w), Some(Refusal::Leak));
        assert!(find(&w.manager, within).is_some(), "it stays in its VRF");
    }
    // what the sweep for another reason finds
    w.call(|m, now, ops| m.set_policy(Policy::default(), now, ops));
    assert!(find(&w.manager, within).is_some());
    let route = Event::RoutesUnknown;
    w.call(|m, now, ops| m.kernel_event(&route, now, ops));
}

#[test]
fn groups_of_a_vrf_are_the_kernels() {
    let w = &mut world();
    let seen = Seen {
        tracked: false,
        ..Seen::new(UDP, 0)
    };
    let mut c = seen.candidate(w.epoch, w.now);
    let group = freeway_abi::words_of([239, 1, 1, 1].into());
    (c.key.daddr_be, c.daddr_be, c.nat) = (group, group, 0);
    (c.saddr_be, c.token) = (c.key.saddr_be, 1);
    (c.sport_be, c.dport_be) = (c.key.sport_be, c.key.dport_be);
    w.call(|m, now, ops| m.candidate(&c, around(1), now, ops));
    w.advance(3);
    w.call(|m, now, ops| m.settle_groups(now, ops));
    assert_eq!(w.manager.stats().refused[&Refusal::VrfGroup], 1);
}
