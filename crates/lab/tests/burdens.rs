// SPDX-License-Identifier: MIT OR Apache-2.0
//! What makes a router's work harder: a full table of routes, and rules ahead of the one that accepts.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use freeway_lab::routes::Beyond;
use freeway_lab::ruleset::policies;
use freeway_lab::{Family, FlowSpec, Generator, Lab, Load, Options, Proto, Sink, SinkSpec, Until};

/// Sends and sees that all of it arrives as it should.
#[track_caller]
fn forwards(lab: &Lab, spec: &FlowSpec) {
    let sink = Sink::attach(lab.server_port(), SinkSpec::thorough(spec.flows)).unwrap();
    let generator = Generator::new(lab.client_port(), spec).unwrap();
    generator
        .run(&Load::paced(Until::Frames(2000), 20_000))
        .unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let counts = sink.counts().unwrap();
    assert_eq!(counts.frames, 2000, "{counts:?}");
    let wrong = counts.bad_ip_checksum + counts.bad_l4_checksum + counts.unverified;
    assert_eq!(wrong, 0, "{counts:?}");
}

#[test]
fn hosts_beyond_the_server_are_reached() {
    let Some(_machine) = common::machine() else {
        return;
    };
    let beyond = Beyond {
        hosts: 300,
        routes: 5000,
    };
    for routes in [0, 5000] {
        let lab = common::build_with(
            "routed",
            Options {
                routes,
                beyond: Some(beyond),
                ..Options::default()
            },
        );
        let list = lab.router().tool("ip route show").unwrap();
        let by_way = list.lines().filter(|line| line.contains(" via "));
        assert_eq!(by_way.count(), routes.max(1) as usize);
        let spec = lab.flows(Proto::Udp, 1000, 100);
        assert_eq!(spec.beyond, Some(beyond));
        forwards(&lab, &spec);
        lab.prime(Proto::Udp, 1000, None).unwrap();
    }
}

#[test]
fn policies_match_nothing() {
    let Some(_machine) = common::machine() else {
        return;
    };
    for (name, family) in [("nat", Family::Ipv4), ("routed6", Family::Ipv6)] {
        let lab = common::build_with(
            name,
            Options {
                extra_nft: policies(family, 1000),
                ..Options::default()
            },
        );
        let rules = lab.router().tool("nft list ruleset").unwrap();
        let drops = rules.lines().filter(|line| line.ends_with(" drop"));
        assert!(drops.count() >= 1000, "{rules}");
        forwards(&lab, &lab.flows(Proto::Udp, 100, 100));
    }
}
