// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames of any content through the router, compared byte by byte.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use freeway_lab::clock::realtime_ns;
use freeway_lab::frame::{MAC_SERVER, MAC_WAN, sum16};
use freeway_lab::{Capture, FlowSpec, Injector, Options, Proto, Reference, Sink, SinkSpec};

const WAIT: Duration = Duration::from_secs(2);

/// What the router makes of a frame from the client.
fn routed(spec: &FlowSpec, flow: u32, round: u32) -> Vec<u8> {
    let spec = FlowSpec {
        mac_source: MAC_WAN,
        mac_destination: MAC_SERVER,
        ttl: spec.ttl - 1,
        ..*spec
    };
    spec.frame(flow, round)
}

#[test]
fn forwarded_frames_differ_as_they_should() {
    let Some(_machine) = common::machine() else {
        return;
    };
    for name in ["routed", "routed6"] {
        let options = Options {
            router_tx_checksum: false,
            ..Options::default()
        };
        let lab = common::build_with(name, options);
        let mut capture = Capture::open(lab.server_port()).unwrap();
        let injector = Injector::open(lab.client_port()).unwrap();
        for proto in [Proto::Udp, Proto::Tcp] {
            // Consecutive segments of one connection are what GRO likes to merge.
            let spec = lab.flows(proto, 1, 1000);
            let frames: Vec<_> = (0..20).map(|round| spec.frame(0, round)).collect();
            let start = realtime_ns();
            let sent = injector.send_all(&frames, Duration::ZERO).unwrap();
            let got = capture.collect(20, WAIT, |_| true).unwrap();
            assert_eq!(got.len(), 20, "{name} {proto:?}");
            for (round, frame) in (0..).zip(&got) {
                assert_eq!(
                    frame.bytes,
                    routed(&spec, 0, round),
                    "{name} {proto:?} {round}"
                );
                assert!(frame.time_ns >= start && frame.time_ns <= realtime_ns());
                assert!(sent[round as usize].before_ns <= sent[round as usize].after_ns);
            }
        }
        assert_eq!(capture.dropped().unwrap(), 0);
    }
}

#[test]
fn nat_changes_addresses_and_checksums() {
    let Some(_machine) = common::machine() else {
        return;
    };
    let lab = common::build("nat");
    let mut capture = Capture::open(lab.server_port()).unwrap();
    let injector = Injector::open(lab.client_port()).unwrap();
    let spec = lab.flows(Proto::Udp, 10, 64);
    for flow in 0..10 {
        injector.send(&spec.frame(flow, 0)).unwrap();
    }
    let got = capture
        .collect(10, WAIT, |frame| frame[12..14] == [8, 0])
        .unwrap();
    assert_eq!(got.len(), 10);
    for (flow, frame) in (0..).zip(&got) {
        let behind = FlowSpec {
            near: [198, 51, 100, 1].into(),
            ..spec
        };
        assert_eq!(frame.bytes, routed(&behind, flow, 0), "flow {flow}");
        assert_eq!(sum16(&frame.bytes[14..34]), 0xffff);
    }
}

#[test]
fn captures_work_the_other_way_and_beside_redirects() {
    let Some(_machine) = common::machine() else {
        return;
    };
    let lab = common::build("routed");
    let spec = lab.reply_flows(Proto::Tcp, 3, 200);
    {
        let mut capture = Capture::open(lab.client_port()).unwrap();
        Injector::open(lab.server_port())
            .unwrap()
            .send(&spec.frame(2, 0))
            .unwrap();
        let got = capture.collect(1, WAIT, |_| true).unwrap();
        assert_eq!(got.len(), 1);
        assert_eq!(got[0].bytes.len(), 196);
        // Nothing more comes, and waiting for it ends.
        let more = capture
            .collect(1, Duration::from_millis(50), |_| true)
            .unwrap();
        assert!(more.is_empty(), "{more:?}");
    }
    // A redirect delivers the frame as it is, also while and after GRO is off at the server.
    let _redirect = lab.attach(Reference::XdpRedirect).unwrap();
    let injector = Injector::open(lab.client_port()).unwrap();
    let frame = lab.flows(Proto::Udp, 1, 64).frame(0, 9);
    {
        let mut capture = Capture::open(lab.server_port()).unwrap();
        injector.send(&frame).unwrap();
        let got = capture.collect(1, WAIT, |_| true).unwrap();
        assert_eq!(
            got.iter().map(|got| &got.bytes).collect::<Vec<_>>(),
            [&frame]
        );
    }
    let features = lab.server().tool("ethtool -k eth0").unwrap();
    assert!(
        features.contains("generic-receive-offload: on"),
        "{features}"
    );
    let sink = Sink::attach(lab.server_port(), SinkSpec::default()).unwrap();
    injector.send(&frame).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(sink.counts().unwrap().frames, 1);
}

#[test]
fn frames_that_a_port_cannot_send_are_refused() {
    let Some(_machine) = common::machine() else {
        return;
    };
    let lab = common::build("routed");
    let injector = Injector::open(lab.client_port()).unwrap();
    for len in [0, 13, 1519, 2000] {
        let error = injector.send(&vec![0; len]).unwrap_err().to_string();
        assert!(error.contains(&len.to_string()), "{error}");
    }
    for len in [14, 60, 1514] {
        injector.send(&vec![0; len]).unwrap();
    }
}
