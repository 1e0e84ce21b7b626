// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's FIB from XDP, the peer of the benches: what it makes of frames, byte by byte.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::time::Duration;

use freeway_lab::frame::{MAC_SERVER, MAC_WAN, sum16};
use freeway_lab::{Capture, FlowSpec, Injector, Lab, Proto, Reference, ReferenceGuard};

const WAIT: Duration = Duration::from_secs(2);
const TRIES: usize = 5;
const BRIEF: Duration = Duration::from_millis(100);

struct Site {
    capture: Capture,
    injector: Injector,
    fib: ReferenceGuard,
    lab: Lab,
}

impl Site {
    fn new(topology: &str) -> Site {
        let lab = common::build(topology);
        Site {
            fib: lab.attach(Reference::XdpFib).unwrap(),
            capture: Capture::open(lab.server_port()).unwrap(),
            injector: Injector::open(lab.client_port()).unwrap(),
            lab,
        }
    }

    /// What reaches the server of a frame, which is not the kernel's; a host speaks by itself at times, so it is tried again.
    fn forwarded(&mut self, frame: &[u8]) -> Vec<u8> {
        for _ in 0..TRIES {
            let before = self.fib.counted().unwrap();
            self.injector.send(frame).unwrap();
            let got = self.capture.collect(1, WAIT, is_unicast).unwrap();
            if self.fib.counted().unwrap() == before {
                return got.into_iter().next().unwrap().bytes;
            }
        }
        panic!("the kernel was given {TRIES} times one more");
    }

    /// Whether the kernel got a frame, and how many reached the server.
    fn left_to_the_kernel(&mut self, frame: &[u8]) -> (bool, usize) {
        let before = self.fib.counted().unwrap();
        self.injector.send(frame).unwrap();
        let got = self.capture.collect(1, BRIEF, is_unicast).unwrap();
        (self.fib.counted().unwrap() > before, got.len())
    }
}

/// What hosts say by themselves goes to groups.
fn is_unicast(frame: &[u8]) -> bool {
    frame[0] & 1 == 0
}

fn routed(spec: &FlowSpec, flow: u32) -> Vec<u8> {
    let behind = FlowSpec {
        mac_source: MAC_WAN,
        mac_destination: MAC_SERVER,
        ttl: spec.ttl - 1,
        ..*spec
    };
    behind.frame(flow, 0)
}

#[test]
fn frames_are_as_the_kernel_would_send_them() {
    let Some(_machine) = common::machine() else {
        return;
    };
    for name in ["routed", "routed6"] {
        let mut site = Site::new(name);
        for proto in [Proto::Udp, Proto::Tcp] {
            // the checksum's carry depends on the TTL; 255 to 2
            for ttl in (2..=255).rev() {
                let spec = FlowSpec {
                    ttl,
                    ..site.lab.flows(proto, 300, 100 + u32::from(ttl))
                };
                let flow = u32::from(ttl);
                let got = site.forwarded(&spec.frame(flow, 0));
                assert_eq!(got, routed(&spec, flow), "{name} {proto:?} {ttl}");
                if name == "routed" {
                    assert_eq!(sum16(&got[14..34]), 0xffff);
                }
            }
        }
    }
}

#[test]
fn the_kernel_has_what_is_not_plain() {
    let Some(_machine) = common::machine() else {
        return;
    };
    for name in ["routed", "routed6"] {
        let mut site = Site::new(name);
        let spec = site.lab.flows(Proto::Udp, 1, 100);
        // the end of the way: an ICMP error for the client, and nothing for the server
        for ttl in [0, 1] {
            let frame = FlowSpec { ttl, ..spec }.frame(0, 0);
            assert_eq!(site.left_to_the_kernel(&frame), (true, 0), "{name} {ttl}");
        }
        // nobody's network, and the router itself
        let plan = site.lab.topology().family.plan();
        let nowhere = match name {
            "routed" => "203.0.113.1",
            _ => "2001:db8:ffff::1",
        };
        for far in [nowhere.parse().unwrap(), plan.lan] {
            let frame = FlowSpec { far, ..spec }.frame(0, 0);
            assert_eq!(site.left_to_the_kernel(&frame), (true, 0), "{name} {far}");
        }
        let mut arp = spec.frame(0, 0);
        arp[12..14].copy_from_slice(&[0x08, 0x06]);
        assert_eq!(site.left_to_the_kernel(&arp), (true, 0), "{name}");
    }
    // with options, which the kernel looks at and forwards
    let mut site = Site::new("routed");
    let spec = site.lab.flows(Proto::Udp, 1, 100);
    let mut frame = spec.frame(0, 0);
    frame.splice(34..34, [1, 1, 1, 0]);
    frame[14] = 0x46;
    let length = u16::from_be_bytes([frame[16], frame[17]]) + 4;
    frame[16..18].copy_from_slice(&length.to_be_bytes());
    frame[24..26].fill(0);
    let sum = !sum16(&frame[14..38]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(site.left_to_the_kernel(&frame), (true, 1));
}
