// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program that forwards in the router's place, and single frames through it.

use std::time::Duration;

use freeway_lab::frame::{MAC_SERVER, MAC_WAN, sum16};
use freeway_lab::{Capture, FlowSpec, Injector, Lab, Reference, ReferenceGuard};

const WAIT: Duration = Duration::from_secs(2);
const TRIES: usize = 5;
const BRIEF: Duration = Duration::from_millis(100);

pub struct Site {
    capture: Capture,
    injector: Injector,
    program: ReferenceGuard,
    pub lab: Lab,
}

impl Site {
    pub fn new(lab: Lab, reference: Reference) -> Site {
        Site {
            program: lab.attach(reference).unwrap(),
            capture: Capture::open(lab.server_port()).unwrap(),
            injector: Injector::open(lab.client_port()).unwrap(),
            lab,
        }
    }

    /// What reaches the server of a frame, which is not the kernel's; a host speaks by itself at times, so it is tried again.
    pub fn forwarded(&mut self, frame: &[u8]) -> Vec<u8> {
        for _ in 0..TRIES {
            let before = self.program.counted().unwrap();
            self.injector.send(frame).unwrap();
            let got = self.capture.collect(1, WAIT, is_unicast).unwrap();
            if self.program.counted().unwrap() == before {
                return got.into_iter().next().unwrap().bytes;
            }
        }
        panic!("the kernel was given {TRIES} times one more");
    }

    /// Whether the kernel got a frame, and how many reached the server.
    pub fn left_to_the_kernel(&mut self, frame: &[u8]) -> (bool, usize) {
        let before = self.program.counted().unwrap();
        self.injector.send(frame).unwrap();
        let got = self.capture.collect(1, BRIEF, is_unicast).unwrap();
        (self.program.counted().unwrap() > before, got.len())
    }
}

/// What hosts say by themselves goes to groups.
fn is_unicast(frame: &[u8]) -> bool {
    frame[0] & 1 == 0
}

/// A flow's frame as the server gets it.
pub fn routed(spec: &FlowSpec, flow: u32) -> Vec<u8> {
    let behind = FlowSpec {
        mac_source: MAC_WAN,
        mac_destination: MAC_SERVER,
        ttl: spec.ttl - 1,
        ..*spec
    };
    behind.frame(flow, 0)
}

/// The same frame with three NOPs and an end for options, which the kernel looks at and forwards.
pub fn with_options(mut frame: Vec<u8>) -> Vec<u8> {
    frame.splice(34..34, [1, 1, 1, 0]);
    frame[14] = 0x46;
    let length = u16::from_be_bytes([frame[16], frame[17]]) + 4;
    frame[16..18].copy_from_slice(&length.to_be_bytes());
    frame[24..26].fill(0);
    let sum = !sum16(&frame[14..38]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}
