// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel as a multicast router: what its entries say is what happens.
#![allow(clippy::unwrap_used)]

mod common;

use std::net::IpAddr;
use std::time::Duration;

use freeway_lab::frame::group_mac;
use freeway_lab::twins::{Kind, PORTS, host_mac, router_mac};
use freeway_lab::{Capture, Family, FlowSpec, Injector, Mroute, Netns, Twins};

const WAIT: Duration = Duration::from_secs(2);
const QUIET: Duration = Duration::from_millis(100);
const TTL: u8 = 8;

const FAMILIES: [(Family, &str, &str); 2] = [
    (Family::Ipv4, "239.1.1.1", "239.129.1.2"),
    (Family::Ipv6, "ff3e::1", "ff3e::2"),
];

struct Site {
    mroute: Mroute,
    ports: [u32; 3],
    spec: FlowSpec,
    other: IpAddr,
    injector: Injector,
    captures: [Capture; 2],
    // after what is in its namespaces
    twins: Twins,
}

impl Site {
    fn build((family, group, other): (Family, &str, &str)) -> Site {
        let twins = Twins::build([Kind::Wire; 3]).unwrap();
        let router = twins.routers()[0];
        let plan = family.plan();
        let address = format!("address add {}/{} dev lan0\n", plan.lan, plan.prefix_len);
        router.tool_with_input("ip -batch -", &address).unwrap();
        let ports = PORTS.map(|port| router.ifindex(port).unwrap());
        let mut mroute = Mroute::open(router, family).unwrap();
        for port in ports {
            mroute.add_port(port).unwrap();
        }
        let group: IpAddr = group.parse().unwrap();
        let spec = FlowSpec {
            frame_bytes: 100,
            mac_source: host_mac(0),
            mac_destination: group_mac(group),
            near: plan.client,
            far: group,
            ttl: TTL,
            ..FlowSpec::default()
        };
        Site {
            mroute,
            ports,
            spec,
            other: other.parse().unwrap(),
            injector: Injector::open(twins.end(0, 0)).unwrap(),
            captures: [1, 2].map(|port| Capture::open(twins.end(0, port)).unwrap()),
            twins,
        }
    }

    fn router(&self) -> &Netns {
        self.twins.routers()[0]
    }

    fn set(&self, outputs: &[usize]) {
        let outputs: Vec<u32> = outputs.iter().map(|output| self.ports[*output]).collect();
        let FlowSpec { near, far, .. } = self.spec;
        self.mroute.set(near, far, self.ports[0], &outputs).unwrap();
    }

    /// Sends a frame; it must leave by these ports and no other, once, a hop older and otherwise as it is.
    fn expect(&mut self, spec: &FlowSpec, round: u32, outputs: &[usize]) {
        self.injector.send(&spec.frame(0, round)).unwrap();
        let ours = |bytes: &[u8]| bytes.starts_with(&spec.mac_destination);
        for (capture, port) in self.captures.iter_mut().zip(1..) {
            let copy = FlowSpec {
                mac_source: router_mac(port),
                ttl: spec.ttl - 1,
                ..*spec
            };
            let wanted: Vec<_> = (outputs.contains(&port))
                .then(|| copy.frame(0, round))
                .into_iter()
                .collect();
            let mut got = capture.collect(wanted.len(), WAIT, ours).unwrap();
            got.extend(capture.drain(QUIET, ours).unwrap());
            let got: Vec<_> = got.into_iter().map(|frame| frame.bytes).collect();
            assert_eq!(got, wanted, "{spec:?} round {round}, port {port}");
        }
    }
}

#[test]
fn copies_leave_by_the_ports_of_the_entry() {
    let Some(_machine) = common::machine() else {
        return;
    };
    for family in FAMILIES {
        let mut site = Site::build(family);
        let spec = site.spec;
        let choices: [&[usize]; 5] = [&[1, 2], &[2], &[], &[1], &[1, 2]];
        for (round, outputs) in (0..).zip(choices) {
            site.set(outputs);
            site.expect(&spec, round, outputs);
        }
        let other = FlowSpec {
            mac_destination: group_mac(site.other),
            far: site.other,
            ..spec
        };
        site.expect(&other, 0, &[]);
        // A last hop's packets go no further.
        let last = FlowSpec { ttl: 1, ..spec };
        site.injector.send(&last.frame(0, 9)).unwrap();
        site.expect(&spec, 10, &[1, 2]);
        assert!(site.mroute.set(spec.near, spec.far, 9999, &[]).is_err());
    }
}

#[test]
fn entries_go_with_their_router() {
    let Some(_machine) = common::machine() else {
        return;
    };
    for family in FAMILIES {
        let mut site = Site::build(family);
        let spec = site.spec;
        let listed = |site: &Site| {
            let family = if spec.near.is_ipv4() { "-4" } else { "-6" };
            let line = format!("ip {family} mroute show");
            site.router().tool(&line).unwrap()
        };
        site.set(&[1, 2]);
        site.expect(&spec, 0, &[1, 2]);
        assert!(listed(&site).contains("wan1"), "{}", listed(&site));
        site.mroute.remove(spec.near, spec.far).unwrap();
        assert!(!listed(&site).contains("wan1"), "{}", listed(&site));
        // Kept until there is an entry, and then sent by it.
        site.expect(&spec, 1, &[]);
        site.set(&[2]);
        let ours = |bytes: &[u8]| bytes.starts_with(&spec.mac_destination);
        assert_eq!(site.captures[1].collect(1, WAIT, ours).unwrap().len(), 1);
        site.expect(&spec, 2, &[2]);
        assert!(Mroute::open(site.router(), family.0).is_err());
        let another = Mroute::open(site.router(), other(family.0)).unwrap();
        drop(std::mem::replace(&mut site.mroute, another));
        assert!(!listed(&site).contains("wan1"), "{}", listed(&site));
        site.expect(&spec, 3, &[]);
    }
}

fn other(family: Family) -> Family {
    match family {
        Family::Ipv4 => Family::Ipv6,
        Family::Ipv6 => Family::Ipv4,
    }
}
