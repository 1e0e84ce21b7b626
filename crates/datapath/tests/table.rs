// SPDX-License-Identifier: MIT OR Apache-2.0
//! The flow table against a plain map: flows come and go until it is full.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use freeway_abi::{FW_R_FAST, FW_R_MISS};
use freeway_datapath::user::Pipeline;
use support::random::Random;
use support::state::Flow;
use support::target::Native;

const FLOWS: u32 = 7168;
const STEPS: u32 = 200_000;

/// Tuples that crowd: few addresses, and ports that differ in their lower bits.
fn flow(random: &mut Random) -> Flow {
    let near = random.below(16) as u8;
    let (src, dst): (IpAddr, IpAddr) = if random.one_in(4) {
        let address =
            |net: u16, host: u8| Ipv6Addr::new(0x2001, 0xdb8, net, 0, 0, 0, 0, host.into());
        (address(1, near).into(), address(2, 1).into())
    } else {
        (
            Ipv4Addr::new(192, 0, 2, near).into(),
            Ipv4Addr::new(198, 51, 100, 1).into(),
        )
    };
    Flow {
        src,
        dst,
        sport: 40_000 + random.below(1024) as u16,
        dport: 440 + random.below(4) as u16,
        ..Flow::default()
    }
}

#[test]
fn flows_are_found_until_they_leave() {
    let mut random = Random(0x5eed);
    let mut pipeline = Pipeline::new(FLOWS, 1).expect("memory");
    pipeline.set_now(Native::NOW);
    pipeline.control().deadline_tick = Native::NOW.wrapping_add(1000);
    *pipeline.nexthop(1).unwrap() = Flow::default().nexthop(0);
    let mut known: HashMap<(IpAddr, u16, u16), (u32, Flow)> = HashMap::new();
    let mut free: Vec<u32> = (1..=FLOWS).rev().collect();
    let mut refused = 0;
    for step in 0..STEPS {
        // the table fills in the first half of a round, and empties in the second
        let filling = step % 50_000 < 25_000;
        let flow = flow(&mut random);
        let key = (flow.src, flow.sport, flow.dport);
        if let Some((index, flow)) = known.get(&key).cloned() {
            let verdict = pipeline.forward(&mut flow.frame().bytes(), flow.port);
            assert_eq!(
                verdict.reason, FW_R_FAST,
                "step {step}: flow {index} is in the table"
            );
            if !filling || random.one_in(8) {
                pipeline.remove(index);
                free.push(index);
                known.remove(&key);
            }
        } else {
            let verdict = pipeline.forward(&mut flow.frame().bytes(), flow.port);
            assert_eq!(verdict.reason, FW_R_MISS, "step {step}: no such flow");
            let Some(index) = free.pop().filter(|_| filling) else {
                continue;
            };
            *pipeline.flow(index).unwrap() = flow.record(1, false, flow.state(Native::NOW, 250));
            if pipeline.insert(index) {
                known.insert(key, (index, flow));
            } else {
                refused += 1;
                free.push(index);
            }
        }
        if step % 25_000 == 24_999 {
            for (index, flow) in known.values() {
                let verdict = pipeline.forward(&mut flow.frame().bytes(), flow.port);
                assert_eq!(
                    verdict.reason, FW_R_FAST,
                    "step {step}: flow {index} is lost"
                );
            }
        }
        if step == 24_999 {
            assert!(known.len() > 6000, "only {} flows were taken", known.len());
        }
    }
    assert!(refused < STEPS / 1000, "{refused} flows found no place");
}
