// SPDX-License-Identifier: MIT OR Apache-2.0
//! Traffic through the kernel's router, primed connections, sinks, references.
#![allow(clippy::unwrap_used)]

mod common;

use std::net::Ipv4Addr;
use std::time::Duration;

use freeway_lab::clock::monotonic_ns;
use freeway_lab::frame::MAC_WAN;
use freeway_lab::{
    Filter, FlowSpec, Generator, LabError, Load, MeasureSpec, Options, PortForward, Proto,
    Reference, Reflector, Rule, Sink, SinkSpec, Until, measure, measure_reference,
};

#[test]
fn the_kernel_forwards_every_frame() {
    let Some(_machine) = common::machine() else {
        return;
    };
    for name in ["routed", "nat", "routed6", "nat6"] {
        let lab = common::build(name);
        for proto in [Proto::Udp, Proto::Tcp] {
            lab.prime(proto, 1000, Some(0)).unwrap();
            let sink = Sink::attach(lab.server_port(), SinkSpec::thorough(1000)).unwrap();
            let spec = lab.flows(proto, 1000, 100);
            let generator = Generator::new(lab.client_port(), &spec).unwrap();
            // One long run, so that pages come back with the router's changes in them.
            generator
                .run(&Load::paced(Until::Frames(100_000), 200_000).on_cpu(0))
                .unwrap();
            std::thread::sleep(Duration::from_millis(20));
            let counts = sink.counts().unwrap();
            assert_eq!(counts.frames, 100_000, "{name} {proto:?} {counts:?}");
            let wrong = counts.bad_ip_checksum + counts.bad_l4_checksum + counts.unverified;
            assert_eq!(
                wrong + counts.reordered + counts.untracked,
                0,
                "{name} {proto:?} {counts:?}"
            );
            for (i, flow) in sink.flows().unwrap().iter().enumerate() {
                assert_eq!(
                    (flow.frames, flow.next_round),
                    (100, 100),
                    "{name} {proto:?} flow {i}"
                );
            }
        }
    }
}

#[test]
fn replies_reach_the_client() {
    let Some(_machine) = common::machine() else {
        return;
    };
    for name in ["routed", "nat", "routed6", "nat6"] {
        let lab = common::build(name);
        for proto in [Proto::Udp, Proto::Tcp] {
            lab.prime(proto, 500, Some(0)).unwrap();
            let sink = Sink::attach(lab.client_port(), SinkSpec::thorough(500)).unwrap();
            let spec = lab.reply_flows(proto, 500, 100);
            let generator = Generator::new(lab.server_port(), &spec).unwrap();
            generator
                .run(&Load::paced(Until::Frames(5000), 100_000))
                .unwrap();
            std::thread::sleep(Duration::from_millis(20));
            let counts = sink.counts().unwrap();
            assert_eq!(counts.frames, 5000, "{name} {proto:?} {counts:?}");
            assert_eq!(
                counts.bad_ip_checksum + counts.bad_l4_checksum,
                0,
                "{name} {proto:?}"
            );
        }
    }
}

#[test]
fn primed_connections_are_assured() {
    let Some(_machine) = common::machine() else {
        return;
    };
    let tracked = Options {
        filter: Some(Filter::Tracked),
        ..Options::default()
    };
    for (name, options) in [("nat", Options::default()), ("routed6", tracked)] {
        let lab = common::build_with(name, options);
        let family = if name == "nat" { "ipv4" } else { "ipv6" };
        for (proto, state) in [(Proto::Udp, ""), (Proto::Tcp, "ESTABLISHED")] {
            assert_eq!(lab.prime(proto, 40, None).unwrap().flows, 40);
            let line = format!("conntrack -L -f {family} -p {}", proto.name());
            let list = lab.router().tool(&line).unwrap();
            let good = |line: &&str| line.contains("[ASSURED]") && line.contains(state);
            assert_eq!(
                list.lines().filter(good).count(),
                40,
                "{name} {proto:?}\n{list}"
            );
        }
    }
}

#[test]
fn the_firewall_is_in_force() {
    let Some(_machine) = common::machine() else {
        return;
    };
    let lab = common::build("nat");
    // TCP segments of no connection are invalid or new, depending on nf_conntrack_tcp_loose; from the WAN they are
    // not let in.
    let sink = Sink::attach(lab.client_port(), SinkSpec::default()).unwrap();
    let spec = FlowSpec {
        near: lab.flows(Proto::Udp, 1, 64).near,
        ..lab.reply_flows(Proto::Udp, 10, 64)
    };
    let generator = Generator::new(lab.server_port(), &spec).unwrap();
    generator
        .run(&Load::paced(Until::Frames(100), 10_000))
        .unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(sink.counts().unwrap().frames, 0);
}

#[test]
fn a_port_forward_leads_to_the_client() {
    let Some(_machine) = common::machine() else {
        return;
    };
    let forward = PortForward {
        proto: Proto::Udp,
        wan_port: 8080,
        to: Ipv4Addr::new(192, 0, 2, 2).into(),
        to_port: 80,
    };
    let options = Options {
        port_forwards: vec![forward],
        ..Options::default()
    };
    let lab = common::build_with("nat", options);
    let rules = SinkSpec {
        rules: true,
        verify: true,
        ..SinkSpec::default()
    };
    let sink = Sink::attach(lab.client_port(), rules).unwrap();
    sink.set_rule(
        0,
        Rule {
            offset: 36,
            mask: 0xffff_0000,
            value: 80 << 16,
        },
    )
    .unwrap();
    let spec = FlowSpec {
        near_port: 8080,
        ..lab.reply_flows(Proto::Udp, 1, 64)
    };
    let generator = Generator::new(lab.server_port(), &spec).unwrap();
    generator
        .run(&Load::paced(Until::Frames(50), 10_000))
        .unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(sink.mark(0).unwrap().count, 50);
    assert_eq!(sink.counts().unwrap().bad_l4_checksum, 0);
}

#[test]
fn rules_mark_what_they_match() {
    let Some(_machine) = common::machine() else {
        return;
    };
    let lab = common::build("routed");
    let spec = SinkSpec {
        rules: true,
        ..SinkSpec::default()
    };
    let sink = Sink::attach(lab.server_port(), spec).unwrap();
    let client = Ipv4Addr::new(192, 0, 2, 2);
    sink.set_rule(0, Rule::source_mac(MAC_WAN[5])).unwrap();
    sink.set_rule(1, Rule::source_ipv4(client)).unwrap();
    sink.set_rule(2, Rule::ttl_ipv4(63)).unwrap();
    sink.set_rule(3, Rule::ttl_ipv4(64)).unwrap();
    sink.set_rule(4, Rule::destination_mac(MAC_WAN[5])).unwrap();
    assert!(sink.set_rule(8, Rule::ttl_ipv4(64)).is_err());
    assert!(
        sink.set_rule(
            0,
            Rule {
                offset: 256,
                mask: 1,
                value: 1
            }
        )
        .is_err()
    );
    let generator = Generator::new(lab.client_port(), &lab.flows(Proto::Udp, 1, 64)).unwrap();
    let before = monotonic_ns();
    generator
        .run(&Load::paced(Until::Frames(20), 1000))
        .unwrap();
    std::thread::sleep(Duration::from_millis(20));
    for (rule, count) in [(0, 20), (1, 20), (2, 20), (3, 0), (4, 0), (5, 0)] {
        let mark = sink.mark(rule).unwrap();
        assert_eq!(mark.count, count, "rule {rule}");
        if count > 0 {
            assert!(before < mark.first_seen_ns && mark.last_seen_ns < monotonic_ns());
            assert!(mark.first_seen_ns < mark.last_seen_ns, "{mark:?}");
        } else {
            assert_eq!(mark.last_seen_ns, 0);
        }
    }
    sink.set_rule(0, Rule::default()).unwrap();
    assert_eq!(sink.mark(0).unwrap().count, 0);
}

#[test]
fn a_thorough_sink_leaves_neighbours_alone() {
    let Some(_machine) = common::machine() else {
        return;
    };
    for name in ["routed", "routed6"] {
        let options = Options {
            static_neighbours: false,
            ..Options::default()
        };
        let lab = common::build_with(name, options);
        let sink = Sink::attach(lab.server_port(), SinkSpec::thorough(1)).unwrap();
        let generator = Generator::new(lab.client_port(), &lab.flows(Proto::Udp, 1, 100)).unwrap();
        generator
            .run(&Load::paced(Until::Frames(100), 1000))
            .unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let counts = sink.counts().unwrap();
        // The kernel queues frames while it resolves the neighbour.
        assert!(
            counts.frames >= 90 && counts.passed > 0,
            "{name} {counts:?}"
        );
    }
}

#[test]
fn wrong_checksums_are_noticed() {
    let Some(_machine) = common::machine() else {
        return;
    };
    let lab = common::build("routed");
    let sink = Sink::attach(lab.lan_port(), SinkSpec::thorough(1)).unwrap();
    let injector = freeway_lab::Injector::open(lab.client_port()).unwrap();
    let spec = lab.flows(Proto::Udp, 1, 101);
    let good = spec.frame(0, 5);
    let flip = |at: usize| {
        let mut frame = good.clone();
        frame[at] ^= 0x10;
        frame
    };
    injector.send(&good).unwrap();
    // In turn: TTL, UDP checksum, a byte of payload, and the last one, which is alone in its word.
    for at in [22, 40, 60, good.len() - 1] {
        injector.send(&flip(at)).unwrap();
    }
    injector.send(&spec.frame(0, 2)).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let counts = sink.counts().unwrap();
    assert_eq!(
        (
            counts.frames,
            counts.bad_ip_checksum,
            counts.bad_l4_checksum
        ),
        (6, 1, 3)
    );
    let flow = sink.flow(0).unwrap();
    // The same round again is as much out of order as the earlier one.
    assert_eq!(
        (flow.next_round, flow.reordered, flow.extent_max),
        (6, 5, 3)
    );
}

#[test]
fn references_count_and_detach() {
    let Some(_machine) = common::machine() else {
        return;
    };
    let lab = common::build("nat");
    let spec = MeasureSpec {
        warmup: Duration::from_millis(20),
        duration: Duration::from_millis(100),
        ..MeasureSpec::default()
    };
    for reference in [
        Reference::XdpDrop,
        Reference::XdpRedirect,
        Reference::XdpPass,
        Reference::TcEgressDrop,
    ] {
        let sample = measure_reference(&lab, &spec, reference).unwrap();
        assert!(sample.received > 0, "{reference:?} {sample:?}");
        assert!(
            sample.received.abs_diff(sample.sent) <= sample.sent / 100,
            "{reference:?} {sample:?}"
        );
    }
    let kernel = measure(&lab, &spec).unwrap();
    assert!(kernel.received > 0, "{kernel:?}");
    for port in ["lan0", "wan0"] {
        let link = lab.router().tool(&format!("ip link show {port}")).unwrap();
        assert!(!link.contains("xdp"), "{link}");
    }
}

#[test]
fn a_second_program_is_refused() {
    let Some(_machine) = common::machine() else {
        return;
    };
    let lab = common::build("routed");
    let _sink = Sink::attach(lab.server_port(), SinkSpec::plain()).unwrap();
    let error = Reflector::attach(lab.server_port()).unwrap_err();
    assert!(
        matches!(error, LabError::Io { .. }) && error.to_string().contains("eth0"),
        "{error}"
    );
}

#[test]
fn a_million_flows() {
    let Some(_machine) = common::machine() else {
        return;
    };
    let lab = common::build("routed");
    let sink = Sink::attach(lab.server_port(), SinkSpec::thorough(1_000_000)).unwrap();
    let generator =
        Generator::new(lab.client_port(), &lab.flows(Proto::Udp, 1_000_000, 64)).unwrap();
    generator
        .run(&Load::paced(Until::Frames(1_000_000), 400_000).on_cpu(0))
        .unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let counts = sink.counts().unwrap();
    assert_eq!(counts.frames, 1_000_000, "{counts:?}");
    for flow in (0..1_000_000).step_by(9973) {
        assert_eq!(sink.flow(flow).unwrap().frames, 1, "flow {flow}");
    }
}
