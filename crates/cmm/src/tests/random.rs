// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random events; the world checks after each that nothing is wrong.

use freeway_abi::{FW_R_CLOSING, FW_R_CONN_GONE};
use freeway_kernel::model::{Event, Mac, Neigh};
use proptest::prelude::*;

use super::{HZ, LAN, Seen, WAN, World, port};
use crate::{Fitness, Policy, Port, RuleScope, Settings};

#[derive(Clone, Debug)]
enum Step {
    Learn(Seen),
    Answer {
        first: bool,
        ok: bool,
    },
    Suspended {
        index: u32,
        closing: bool,
    },
    /// The data plane suspended it, and the event was lost.
    Lost {
        index: u32,
    },
    Used {
        index: u32,
        bytes: u64,
    },
    Advance(u32),
    Tick,
    Neighbour {
        lan: bool,
        mac: Option<u8>,
    },
    Routes,
    Ruleset {
        protos: Vec<u8>,
    },
    Udp(bool),
    Port {
        lan: bool,
        fit: bool,
    },
    PortGone {
        lan: bool,
    },
    Epoch,
    Flush,
    InsertFailed {
        index: u32,
    },
}

fn seen() -> impl Strategy<Value = Seen> {
    let proto = prop_oneof![Just(6u8), Just(17)];
    (
        0..4u16,
        proto,
        any::<bool>(),
        any::<bool>(),
        1..4u8,
        any::<bool>(),
    )
        .prop_map(|(n, proto, reply, tracked, via, changed)| Seen {
            n,
            proto,
            reply,
            tracked,
            via,
            changed,
        })
}

fn step() -> impl Strategy<Value = Step> {
    let index = || 1..10u32;
    let mac = prop_oneof![Just(None), (1..4u8).prop_map(Some)];
    prop_oneof![
        12 => seen().prop_map(Step::Learn),
        6 => (any::<bool>(), prop_oneof![4 => Just(true), 1 => Just(false)])
            .prop_map(|(first, ok)| Step::Answer { first, ok }),
        3 => (index(), any::<bool>()).prop_map(|(index, closing)| Step::Suspended { index, closing }),
        1 => index().prop_map(|index| Step::Lost { index }),
        4 => (index(), prop_oneof![Just(1000u64), Just(1 << 30)])
            .prop_map(|(index, bytes)| Step::Used { index, bytes }),
        6 => prop_oneof![Just(1), Just(HZ / 4), Just(HZ), Just(40 * HZ)].prop_map(Step::Advance),
        6 => Just(Step::Tick),
        2 => (any::<bool>(), mac).prop_map(|(lan, mac)| Step::Neighbour { lan, mac }),
        1 => Just(Step::Routes),
        1 => prop_oneof![Just(vec![]), Just(vec![6]), Just(vec![17])]
            .prop_map(|protos| Step::Ruleset { protos }),
        1 => any::<bool>().prop_map(Step::Udp),
        2 => (any::<bool>(), any::<bool>()).prop_map(|(lan, fit)| Step::Port { lan, fit }),
        1 => any::<bool>().prop_map(|lan| Step::PortGone { lan }),
        1 => Just(Step::Epoch),
        1 => Just(Step::Flush),
        1 => index().prop_map(|index| Step::InsertFailed { index }),
    ]
}

fn take(world: &mut World, step: Step) {
    let side = |lan| if lan { LAN } else { WAN };
    match step {
        Step::Learn(seen) => drop(world.learn(seen)),
        Step::Answer { first, ok } => {
            let asked = if first {
                world.asked.first()
            } else {
                world.asked.last()
            };
            if let Some(conn) = asked.copied() {
                world.prepared(conn, ok);
            }
        }
        Step::Suspended { index, closing } => {
            let reason = if closing {
                FW_R_CLOSING
            } else {
                FW_R_CONN_GONE
            };
            world.call(|m, now, ops| m.suspended(index, reason, now, ops));
        }
        Step::Lost { index } => world.suspend(index),
        Step::Used { index, bytes } => {
            let now = world.now;
            if let Some(flow) = world.flows.get_mut(&index) {
                flow.state.packets += 1;
                flow.state.bytes += bytes;
                flow.state.used_tick = now;
            }
        }
        Step::Advance(ticks) => world.advance(ticks),
        Step::Tick => drop(world.tick()),
        Step::Neighbour { lan, mac } => {
            let event = Event::NeighChanged(Neigh {
                ifindex: side(lan),
                ip: [198, 51, 100, 2].into(),
                lladdr: mac.map(|last| Mac([2, 0, 0, 0, 0, last])),
                state: if mac.is_some() { 2 } else { 0x20 },
            });
            world.call(|m, now, ops| m.kernel_event(&event, now, ops));
        }
        Step::Routes => {
            world.call(|m, now, ops| m.kernel_event(&Event::RoutesUnknown, now, ops));
        }
        Step::Ruleset { protos } => {
            let scopes = match protos.is_empty() {
                true => vec![],
                false => vec![RuleScope {
                    protos,
                    ..RuleScope::everything()
                }],
            };
            world.call(|m, now, ops| m.set_ruleset(scopes, Vec::new(), now, ops));
        }
        Step::Udp(udp) => {
            world.call(|m, now, ops| {
                m.set_policy(
                    Policy {
                        udp,
                        ..Policy::default()
                    },
                    now,
                    ops,
                )
            });
        }
        Step::Port { lan, fit } => {
            let port = Port {
                xdp: Fitness {
                    input: fit,
                    output: fit,
                },
                ..port(side(lan))
            };
            world.call(|m, now, ops| m.set_port(port, now, ops));
        }
        Step::PortGone { lan } => {
            world.call(|m, now, ops| m.remove_port(side(lan), now, ops));
        }
        Step::Epoch => drop(world.call(|m, _, ops| m.new_epoch(ops))),
        Step::Flush => drop(world.call(|m, now, ops| m.flush(now, ops))),
        Step::InsertFailed { index } => {
            world.call(|m, now, ops| m.insert_failed(index, now, ops));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    /// World::apply and World::check say what must never be.
    #[test]
    fn nothing_goes_wrong(steps in prop::collection::vec(step(), 1..120)) {
        // Small tables, so that they fill.
        let settings = Settings { flows_max: 9, nexthops_max: 4, ..Settings::default() };
        let mut world = World::new(settings);
        for step in steps {
            take(&mut world, step);
        }
        // Everything that was taken comes back.
        world.call(|m, now, ops| m.flush(now, ops));
        world.advance(HZ);
        world.tick();
        for ifindex in [LAN, WAN] {
            world.call(|m, now, ops| m.set_port(port(ifindex), now, ops));
        }
        world.call(|m, now, ops| m.set_ruleset(Vec::new(), Vec::new(), now, ops));
        world.call(|m, now, ops| m.set_policy(Policy::default(), now, ops));
        for n in 0..9 {
            let seen = Seen { via: 1 + n as u8 % 4, ..Seen::new(17, 100 + n) };
            world.learn(seen);
            prop_assert!(world.has(seen), "index or next hop lost: {:?}", world.manager.refusal(&seen.key()));
        }
    }
}
