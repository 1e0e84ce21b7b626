// SPDX-License-Identifier: MIT OR Apache-2.0
//! From one manager to another.

use freeway_abi::{FW_ST_SUSPENDED, fw_candidate, fw_flow, fw_kept, fw_state};

use super::{HZ, LAN, Seen, WAN, World};
use crate::{Around, Op, RuleScope, Settings};

/// As the engine lists a flow.
fn handed(world: &World, seen: Seen) -> Option<fw_candidate> {
    let index = world.index(seen);
    let kept = fw_kept {
        ct_status: 0xe,
        ct_mark: 0,
    };
    world.manager.handed(index, &world.flows[&index], kept)
}

fn adopt(world: &mut World, handed: &fw_candidate) -> (bool, Vec<Op>) {
    let mut taken = false;
    let ops = world.call(|m, now, ops| taken = m.adopt(handed, Around::PLAIN, now, ops));
    (taken, ops)
}

/// All that a packet is compared with and changed by.
fn essence(flow: &fw_flow) -> fw_flow {
    fw_flow {
        state: fw_state {
            len_max: flow.state.len_max,
            interval: 0,
            ..fw_state::default()
        },
        ..*flow
    }
}

/// TCP both ways, UDP, and UDP that conntrack does not see, all of them fast.
fn learned() -> (World, Vec<Seen>) {
    let mut world = World::new(Settings::default());
    let (tcp, udp) = (Seen::new(6, 1), Seen::new(17, 2));
    let untracked = Seen {
        tracked: false,
        ..Seen::new(17, 3)
    };
    let all = vec![tcp, tcp.reply(), udp, untracked];
    for seen in &all {
        world.learn(*seen);
    }
    world.prepared(tcp.conn(), true);
    (world, all)
}

#[test]
fn what_is_adopted_is_the_same() {
    let (before, all) = learned();
    let mut after = World::new(Settings::default());
    after.now = before.now.wrapping_add(10 * HZ);
    // other numbers, and another epoch
    after.learn(Seen::new(17, 9));
    after.call(|m, _, ops| m.new_epoch(ops));
    for seen in &all {
        let handed = handed(&before, *seen).expect("a fast flow");
        let (taken, _) = adopt(&mut after, &handed);
        assert!(taken, "{seen:?}");
        let (old, new) = (before.index(*seen), after.index(*seen));
        let (mut one, mut other) = (essence(&before.flows[&old]), essence(&after.flows[&new]));
        let hops = (
            before.nexthops[&one.nexthop],
            after.nexthops[&other.nexthop],
        );
        assert_eq!(hops.0, hops.1);
        (one.nexthop, other.nexthop) = (0, 0);
        assert_eq!(one, other, "{seen:?}");
        let [one, other] = [(&before, old), (&after, new)].map(|(world, index)| {
            let flow = world.manager.flow(index).unwrap();
            (
                flow.key,
                flow.out,
                flow.port_out,
                flow.conn,
                flow.reply,
                flow.path,
            )
        });
        assert_eq!(one, other);
    }
    // conntrack is asked once more, and says whether the connection is still there
    let tcp = all[0];
    assert_eq!(after.asked, [tcp.conn()]);
    assert!(!after.manager.find(&tcp.key()).unwrap().1.active);
    after.prepared(tcp.conn(), true);
    for seen in &all {
        assert!(after.manager.find(&seen.key()).unwrap().1.active);
    }
    let conn = |world: &World| {
        let conn = world.manager.connection(&tcp.conn()).unwrap();
        (conn.status, conn.mark, conn.timeout_s, conn.preparation)
    };
    assert_eq!(conn(&before), conn(&after));
}

#[test]
fn what_is_open_is_not_handed_over() {
    let (mut world, all) = learned();
    let tcp = Seen::new(6, 7);
    world.learn(tcp);
    assert_eq!(handed(&world, tcp), None, "its connection is not prepared");
    let udp = all[2];
    let index = world.index(udp);
    let state = world.flows[&index].state;
    let mut with = |change: &dyn Fn(&mut fw_state)| {
        let flow = world.flows.get_mut(&index).unwrap();
        flow.state = state;
        change(&mut flow.state);
        handed(&world, udp).is_some()
    };
    assert!(with(&|_| {}));
    assert!(!with(&|state| state.status = FW_ST_SUSPENDED));
    assert!(
        !with(&|state| state.epoch = 0),
        "a change took its confirmation"
    );
    assert!(
        !with(&|state| state.misses = 1),
        "a packet did not come out"
    );
    assert!(with(&|_| {}));
    world.call(|m, _, ops| m.new_epoch(ops));
    assert_eq!(handed(&world, udp), None, "all are to be confirmed");
}

#[test]
fn the_other_one_judges_by_what_it_knows() {
    let (before, all) = learned();
    let udp = handed(&before, all[2]).unwrap();
    let mut forbidden = World::new(Settings::default());
    let rules = vec![RuleScope::everything()];
    forbidden.call(|m, now, ops| m.set_ruleset(rules, Vec::new(), now, ops));
    assert!(!adopt(&mut forbidden, &udp).0);
    for gone in [LAN, WAN] {
        let mut world = World::new(Settings::default());
        world.call(|m, now, ops| m.remove_port(gone, now, ops));
        assert!(!adopt(&mut world, &udp).0);
    }
    // whatever it is
    let mut world = World::new(Settings::default());
    assert!(!adopt(&mut world, &fw_candidate::default()).0);
    assert_eq!(world.manager.flow_count(), 0);
}

#[test]
fn nothing_is_trusted_longer() {
    let (mut before, all) = learned();
    let udp = all[2];
    let index = before.index(udp);
    let now = before.now.wrapping_add(HZ);
    for left in [7, -7, (100 * HZ).cast_signed()] {
        let due_tick = now.wrapping_add_signed(left);
        let state = &mut before.flows.get_mut(&index).unwrap().state;
        state.reval_tick = due_tick;
        state.confirmed_tick = now.wrapping_sub(3 * HZ);
        let handed = handed(&before, udp).unwrap();
        let mut after = World::new(Settings::default());
        after.now = now;
        assert!(adopt(&mut after, &handed).0);
        let state = after.flows[&after.index(udp)].state;
        let left = left.clamp(0, state.interval.into());
        assert_eq!(state.reval_tick, now.wrapping_add_signed(left));
        assert_eq!(state.confirmed_tick, now.wrapping_sub(3 * HZ));
    }
}
