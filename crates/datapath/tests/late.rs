// SPDX-License-Identifier: MIT OR Apache-2.0
//! More flows are due than the budget lets through: each is late, none is forgotten. And a daemon that has been dead for
//! weeks stays dead, although ticks wrap.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::os::fd::AsFd;

use freeway_abi::{FW_R_FAST, FW_R_REVALIDATE};
use freeway_datapath::user::Pipeline;
use freeway_datapath::{Datapath, Hook};
use support::frame::Frame;
use support::run::run;
use support::state::Flow;
use support::target::{Loaded, Native};

const FLOWS: u32 = 300;
/// Revalidations a tick; a round takes FLOWS / BUDGET ticks.
const BUDGET: u32 = 2;
const INTERVAL: u32 = 100;

#[test]
fn revalidations_over_the_budget_come_in_turn() {
    let mut pipeline = Pipeline::new(FLOWS, 1).expect("memory");
    pipeline.set_now(Native::NOW);
    let control = pipeline.control();
    control.deadline_tick = Native::NOW.wrapping_add(1 << 20);
    control.reval_budget = BUDGET;
    *pipeline.nexthop(1).unwrap() = Flow::default().nexthop(0);
    let flows: Vec<Flow> = (0..FLOWS)
        .map(|n| Flow {
            sport: 1024 + n as u16,
            ..Flow::default()
        })
        .collect();
    for (flow, index) in flows.iter().zip(1..) {
        let mut state = flow.state(Native::NOW, 250);
        state.interval = INTERVAL as u16;
        state.reval_tick = Native::NOW.wrapping_add(INTERVAL);
        state.due_tick = state.reval_tick;
        *pipeline.flow(index).unwrap() = flow.record(1, false, state);
        assert!(pipeline.insert(index), "index {index}");
    }
    let round = FLOWS / BUDGET;
    let mut last = vec![Native::NOW; flows.len()];
    let (mut worst, mut fast, mut slow) = (0, 0u64, 0u64);
    for tick in 1..6 * round {
        let now = Native::NOW.wrapping_add(tick);
        pipeline.set_now(now);
        for (n, flow) in flows.iter().enumerate() {
            match pipeline
                .forward(&mut flow.frame().bytes(), flow.port)
                .reason
            {
                FW_R_FAST => fast += 1,
                FW_R_REVALIDATE => {
                    slow += 1;
                    if tick > 3 * round {
                        worst = worst.max(now.wrapping_sub(last[n]));
                    }
                    last[n] = now;
                    // as tc egress confirms it
                    let state = &mut pipeline.flow(n as u32 + 1).unwrap().state;
                    (state.misses, state.pending) = (0, 0);
                    state.reval_tick = now.wrapping_add(INTERVAL);
                }
                reason => panic!("flow {n}: reason {reason}"),
            }
        }
    }
    let late = last
        .iter()
        .map(|last| Native::NOW.wrapping_add(6 * round).wrapping_sub(*last));
    worst = worst.max(late.max().unwrap());
    println!("worst {worst} ticks of a round of {round}; {fast} fast, {slow} revalidated");
    assert!(
        worst <= round * 5 / 4,
        "a flow waited {worst} ticks, a round takes {round}"
    );
    assert!(
        slow >= u64::from(5 * FLOWS * 9 / 10),
        "only {slow} revalidations"
    );
}

#[test]
fn the_deadline_of_a_dead_daemon_never_lies_ahead() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: loading BPF programs needs root");
        return;
    }
    let datapath = Datapath::load(&Loaded::options()).unwrap();
    let frame = Frame::default().bytes();
    let now = |datapath: &Datapath| datapath.clock.now_tick().unwrap();
    for hook in [Hook::Ingress, Hook::IngressAlone, Hook::BridgeIngress] {
        let tick = now(&datapath);
        let moved = |deadline: u32| {
            datapath.control.set_deadline(deadline);
            let prog = datapath.prog(hook).unwrap();
            run(prog.as_fd(), &frame, 1);
            let moved_to = datapath.control.deadline();
            (moved_to != deadline).then(|| now(&datapath).wrapping_sub(moved_to))
        };
        assert_eq!(moved(tick.wrapping_add(1 << 20)), None, "{hook:?}");
        // a few days ago
        assert_eq!(moved(tick.wrapping_sub(1 << 28)), None, "{hook:?}");
        // weeks ago: soon it would lie ahead
        let weeks = tick.wrapping_add(1 << 31).wrapping_add(1 << 20);
        let since = moved(weeks).unwrap();
        assert!((1 << 29..1 << 30).contains(&since), "{hook:?}: {since}");
    }
}
