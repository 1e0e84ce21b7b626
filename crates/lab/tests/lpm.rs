// SPDX-License-Identifier: MIT OR Apache-2.0
//! The LPM trie from XDP, the peer of the benches: what it makes of frames, byte by byte.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::peer::{Site, routed, with_options};
use freeway_lab::frame::sum16;
use freeway_lab::routes::{Beyond, ROUTES_MAX};
use freeway_lab::{FlowSpec, LabError, Options, Proto, Reference};

const ROUTES: u32 = 500;

/// A router with so many routes in the trie, and all in the kernel.
fn site(routes: u32) -> Site {
    let options = Options {
        routes: ROUTES,
        beyond: Some(Beyond {
            hosts: ROUTES,
            routes: ROUTES,
        }),
        ..Options::default()
    };
    let lab = common::build_with("routed", options);
    Site::new(lab, Reference::XdpLpm { routes })
}

#[test]
fn frames_are_as_the_kernel_would_send_them() {
    let Some(_machine) = common::machine() else {
        return;
    };
    let mut site = site(ROUTES);
    for proto in [Proto::Udp, Proto::Tcp] {
        // each flow is to a network of its own
        for flow in 0..ROUTES {
            let spec = FlowSpec {
                ttl: 2 + (flow % 254) as u8,
                ..site.lab.flows(proto, ROUTES, 100 + flow)
            };
            let got = site.forwarded(&spec.frame(flow, 0));
            assert_eq!(got, routed(&spec, flow), "{proto:?} {flow}");
            assert_eq!(sum16(&got[14..34]), 0xffff);
        }
    }
}

#[test]
fn the_kernel_has_what_is_not_plain() {
    let Some(_machine) = common::machine() else {
        return;
    };
    let mut site = site(ROUTES);
    let spec = site.lab.flows(Proto::Udp, 1, 100);
    for ttl in [0, 1] {
        let frame = FlowSpec { ttl, ..spec }.frame(0, 0);
        assert_eq!(site.left_to_the_kernel(&frame), (true, 0), "{ttl}");
    }
    // nobody's network, and the router itself
    let lan = site.lab.topology().family.plan().lan;
    for far in ["203.0.113.1".parse().unwrap(), lan] {
        let frame = FlowSpec {
            far,
            beyond: None,
            ..spec
        };
        let left = site.left_to_the_kernel(&frame.frame(0, 0));
        assert_eq!(left, (true, 0), "{far}");
    }
    for kind in [[0x08, 0x06], [0x86, 0xdd]] {
        let mut frame = spec.frame(0, 0);
        frame[12..14].copy_from_slice(&kind);
        assert_eq!(site.left_to_the_kernel(&frame), (true, 0), "{kind:x?}");
    }
    let frame = with_options(spec.frame(0, 0));
    assert_eq!(site.left_to_the_kernel(&frame), (true, 1));
}

#[test]
fn the_kernel_has_what_the_trie_has_not() {
    let Some(_machine) = common::machine() else {
        return;
    };
    // each destination is in a network of its own
    for (routes, left) in [(1, ROUTES - 1), (0, ROUTES)] {
        let mut site = site(routes);
        let spec = site.lab.flows(Proto::Udp, ROUTES, 100);
        let frames = (0..ROUTES).map(|flow| spec.frame(flow, 0));
        let passed = frames.filter(|frame| site.left_to_the_kernel(frame).0);
        assert_eq!(passed.count(), left as usize, "{routes}");
    }
}

#[test]
fn a_whole_table_fits() {
    let Some(_machine) = common::machine() else {
        return;
    };
    let lab = common::build("routed");
    let routes = ROUTES_MAX;
    lab.attach(Reference::XdpLpm { routes }).unwrap();
    let more = lab.attach(Reference::XdpLpm { routes: routes + 1 });
    assert!(matches!(more, Err(LabError::Invalid(_))), "{more:?}");
}
