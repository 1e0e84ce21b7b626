// SPDX-License-Identifier: MIT OR Apache-2.0
//! One frame through the parser and all entries of the data plane, over flows of each kind.

use std::cell::RefCell;

use freeway_abi::{FW_R_COUNT, FW_R_FAST, fw_state};
use freeway_datapath::user::Pipeline;

use super::input::Input;
use crate::support::frame::Frame;
use crate::support::router::{NOW, Router, connection, learn, pipeline};

struct Kept {
    pair: [Pipeline; 2],
    states: Vec<fw_state>,
    now: u32,
}

thread_local! {
    static KEPT: RefCell<Option<Kept>> = const { RefCell::new(None) };
}

/// An octet of switches, a token and a segment size, then the frame.
pub fn run(bytes: &[u8]) {
    KEPT.with_borrow_mut(|kept| kept.get_or_insert_with(Kept::new).run(&mut Input(bytes)));
}

/// IPv4 or IPv6, UDP or TCP.
fn first(n: usize) -> Frame {
    let frame = Frame {
        proto: if n & 2 != 0 { 6 } else { 17 },
        ..Frame::default()
    };
    if n & 1 == 0 {
        return frame;
    }
    Frame {
        src: [0x2001, 0xdb8, 1, 0, 0, 0, 0, 2].into(),
        dst: [0x2001, 0xdb8, 2, 0, 0, 0, 0, 2].into(),
        ..frame
    }
}

impl Kept {
    fn new() -> Self {
        let mut pair = [pipeline(), pipeline()];
        pair[1].set_straight(false);
        for pipeline in &mut pair {
            for n in 0..4 {
                // each learns into a table of its own manager, at index 1: made room for
                let first = first(n);
                let to = (first.src, 1024, first.dst, first.dport);
                learn(pipeline, &first, &Router { to, tos: None });
                pipeline.remove(1);
                let flow = pipeline.flow(1).copied();
                let index = 10 + n as u32;
                if let (Some(to), Some(flow)) = (pipeline.flow(index), flow) {
                    *to = flow;
                }
                assert!(pipeline.insert(index));
            }
        }
        let states = (10..14).filter_map(|index| pair[0].flow(index).map(|f| f.state));
        let states = states.collect();
        Self {
            pair,
            states,
            now: NOW,
        }
    }

    fn run(&mut self, input: &mut Input<'_>) {
        let (switches, token, gso) = (input.u8(), input.u16(), u32::from(input.u16()));
        let frame = input.bytes(usize::MAX);
        self.now = self.now.wrapping_add(1000);
        let now = self.now;
        let first = first(usize::from(switches & 3));
        let conn = connection(&first, &first);
        let mut results = Vec::new();
        for pipeline in &mut self.pair {
            pipeline.set_now(now);
            pipeline.set_conn(&conn);
            let control = pipeline.control();
            control.deadline_tick = now.wrapping_add(1 << 20);
            control.watch = u32::from(switches & 4 != 0);
            for (index, state) in (10..).zip(&self.states) {
                if let Some(flow) = pipeline.flow(index) {
                    flow.state = *state;
                    let due = if switches & 8 != 0 { 0 } else { 1000 };
                    flow.state.due_tick = now.wrapping_add(due);
                    flow.state.reval_tick = now.wrapping_add(due);
                }
            }
            results.push(one(pipeline, frame, switches, token, gso));
            while pipeline.event().is_some() {}
        }
        assert_eq!(results[0], results[1], "the straight way and step by step");
    }
}

fn one(
    pipeline: &mut Pipeline,
    frame: &[u8],
    switches: u8,
    token: u16,
    gso: u32,
) -> (u32, Vec<u8>, u32, u32) {
    let exactly = || frame.to_vec().into_boxed_slice().into_vec();
    let mut left = exactly();
    let verdict = pipeline.forward(&mut left, 1);
    assert!(verdict.reason < FW_R_COUNT);
    if verdict.reason == FW_R_FAST {
        assert!(left.len() <= frame.len() && left.len() >= 14 + 28);
        assert_eq!(verdict.port_out, Some(2));
    } else {
        assert_eq!(left, frame, "the kernel's frame was touched");
    }
    let mut came = exactly();
    let noted = pipeline.ingress(&mut came, 1, if switches & 16 != 0 { gso } else { 0 });
    assert_eq!(came, frame, "tc ingress touched it");
    let token = if switches & 32 != 0 {
        token.into()
    } else {
        noted
    };
    let mut leaves = exactly();
    let learned = pipeline.egress(
        &mut leaves,
        2,
        if switches & 64 != 0 { gso } else { 0 },
        token,
    );
    assert!(learned < FW_R_COUNT);
    assert_eq!(leaves, frame, "tc egress touched it");
    (verdict.reason, left, noted, learned)
}
