// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flows of the engine in XDP: what is handed over, and what becomes of it without a socket.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use freeway_abi::{
    FW_FLOW_ENGINE, FW_R_ENGINE, FW_R_GUARD_TTL, FW_R_OWNER, FW_ST_ACTIVE, fw_control,
};
use freeway_datapath::{Hook, LoadOptions};
use support::state::{Flow, Tick};
use support::target::{Loaded, Target};

fn flow(proto: u8) -> Flow {
    Flow {
        proto,
        ttl: 64,
        len_max: 1500,
        conn: false,
        due: Tick("now+1000000".into()),
        ..Flow::default()
    }
}

/// Without a socket the kernel gets the frame as it came, whatever else would be true of it.
#[test]
fn what_no_socket_takes_is_the_kernels() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: loading BPF programs needs root");
        return;
    }
    support::stay_on_this_cpu();
    for sockets in [false, true] {
        let options = LoadOptions {
            sockets,
            ..Loaded::options()
        };
        let mut target = Loaded::with(&options, Hook::Xdp, true);
        target.control(&fw_control {
            on: FW_ST_ACTIVE,
            epoch: 1,
            deadline_tick: target.now().wrapping_add(1_000_000),
            reval_budget: 1000,
            check_budget: 1000,
            ..Default::default()
        });
        if sockets {
            // the port has some, of which none is there any more
            target.datapath.set_sockets(1, 0, &[]).unwrap();
        }
        for (index, proto) in [(1, 17), (2, 6)] {
            let flow = flow(proto);
            target.nexthop(index, flow.nexthop(Loaded::SLOT));
            let (now, hz) = (target.now(), target.hz());
            let mut record = flow.record(index, false, flow.state(now, hz));
            record.flags |= FW_FLOW_ENGINE as u8;
            target.insert(index, &record);
            let before = target.counts();
            let frame = flow.frame().bytes();
            let outcome = target.run(&frame, 1);
            assert!(!outcome.fast && !outcome.dropped);
            assert_eq!(outcome.frame, frame);
            // what the kernel is to have for another reason has that one
            let mut other = flow.frame();
            other.ttl = 63;
            target.run(&other.bytes(), 1);
            let counted = |reason: u32| target.counts()[reason as usize] - before[reason as usize];
            let guarded = u64::from(sockets);
            assert_eq!(counted(FW_R_OWNER), 2 - guarded, "{sockets} {proto}");
            assert_eq!(counted(FW_R_GUARD_TTL), guarded, "{sockets} {proto}");
            assert_eq!(counted(FW_R_ENGINE), 0);
            let state = target.state(index);
            assert_eq!((state.packets, state.status), (0, FW_ST_ACTIVE));
        }
    }
}
