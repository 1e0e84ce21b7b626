// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's FIB from XDP, the peer of the benches: what it makes of frames, byte by byte.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::peer::{Site, routed, with_options};
use freeway_lab::frame::sum16;
use freeway_lab::{FlowSpec, Proto, Reference};

fn site(topology: &str) -> Site {
    Site::new(common::build(topology), Reference::XdpFib)
}

#[test]
fn frames_are_as_the_kernel_would_send_them() {
    let Some(_machine) = common::machine() else {
        return;
    };
    for name in ["routed", "routed6"] {
        let mut site = site(name);
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
        let mut site = site(name);
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
    let mut site = site("routed");
    let frame = with_options(site.lab.flows(Proto::Udp, 1, 100).frame(0, 0));
    assert_eq!(site.left_to_the_kernel(&frame), (true, 1));
}
