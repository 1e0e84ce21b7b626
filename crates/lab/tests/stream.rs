// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stream's frames against the model, its pace, and what the meter says of them.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::{Duration, Instant};

use freeway_lab::routes::Beyond;
use freeway_lab::{
    FlowSpec, Lab, Loopback, Meter, Mix, Offer, Options, Proto, Sink, SinkSpec, Stream, Topology,
    Way,
};

fn stamped(spec: FlowSpec, frame_bytes: u32) -> FlowSpec {
    FlowSpec {
        frame_bytes,
        stamped: true,
        ..spec
    }
}

fn burst(frames: u64) -> Offer {
    Offer {
        frames: Some(frames),
        ..Offer::full(Duration::from_secs(30), 0)
    }
}

fn stream(lab: &Lab, flows: u32, mix: &Mix) -> Stream {
    let way = Way {
        port: lab.client_port(),
        flows: lab.flows(Proto::Udp, flows, 64),
    };
    Stream::new(&[way], mix).unwrap()
}

/// Waits for so many frames, for a while.
fn arrived(meter: &Meter, frames: u64) {
    let patience = Instant::now() + Duration::from_secs(5);
    while meter.frames().unwrap() < frames && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn frames_are_the_models() {
    let Some(_machine) = common::machine() else {
        return;
    };
    let every_frame = SinkSpec {
        capture_every: 1,
        capture_limit: 4096,
        verify: true,
        ..SinkSpec::default()
    };
    for name in ["routed", "routed6"] {
        let lab = common::build(name);
        for mix in [Mix::of(64), Mix::of(571), Mix::of(1518), Mix::imix()] {
            let sink = Sink::attach(lab.lan_port(), every_frame).unwrap();
            let offered = stream(&lab, 7, &mix).run(&burst(480)).unwrap();
            assert_eq!(offered.frames, 480);
            let captured = sink.captured().unwrap();
            assert_eq!(captured.len(), 480, "{name} {mix:?}");
            let spec = lab.flows(Proto::Udp, 7, 64);
            let mut of_size = vec![0; mix.sizes().count()];
            for (flow, frame) in (0..7).cycle().zip(&captured) {
                let models = mix.sizes().map(|size| stamped(spec, size).frame(flow, 0));
                let which = models.into_iter().position(|model| model == frame.bytes);
                of_size[which.unwrap()] += 1;
            }
            if of_size.len() > 1 {
                assert_eq!(of_size, [280, 160, 40]);
            }
            let counts = sink.counts().unwrap();
            let wrong = counts.bad_ip_checksum + counts.bad_l4_checksum + counts.unverified;
            assert_eq!(wrong, 0, "{name} {mix:?}");
        }
    }
}

#[test]
fn flows_go_to_hosts_in_turn() {
    let Some(_machine) = common::machine() else {
        return;
    };
    let topology = Topology::parse("routed").unwrap();
    let beyond = Some(Beyond {
        hosts: 5,
        routes: 1000,
    });
    let options = Options {
        beyond,
        ..Options::default()
    };
    let lab = Lab::build(topology, options).unwrap();
    let every_frame = SinkSpec {
        capture_every: 1,
        capture_limit: 64,
        verify: true,
        ..SinkSpec::default()
    };
    let sink = Sink::attach(lab.lan_port(), every_frame).unwrap();
    let mix = Mix::of(128);
    let stream = stream(&lab, 12, &mix);
    // hosts and flows go on from one run to the next
    for frames in [7, 23] {
        assert_eq!(stream.run(&burst(frames)).unwrap().frames, frames);
    }
    let captured = sink.captured().unwrap();
    assert_eq!(captured.len(), 30);
    let spec = stamped(lab.flows(Proto::Udp, 12, 64), 128);
    for (flow, frame) in (0..12).cycle().zip(&captured) {
        assert_eq!(frame.bytes, spec.frame(flow, 0), "{flow}");
    }
    let counts = sink.counts().unwrap();
    assert_eq!((counts.bad_ip_checksum, counts.bad_l4_checksum), (0, 0));
    let ways = [
        lab.flows(Proto::Udp, 12, 64),
        lab.reply_flows(Proto::Udp, 12, 64),
    ];
    let ways = ways.map(|flows| Way {
        port: lab.client_port(),
        flows,
    });
    let why = Stream::new(&ways, &mix).unwrap_err().to_string();
    assert!(why.contains("one direction only"), "{why}");
}

#[test]
fn two_directions_take_turns() {
    let Some(_machine) = common::machine() else {
        return;
    };
    let lab = common::build("nat");
    lab.prime(Proto::Udp, 50, Some(0)).unwrap();
    let ways = [
        Way {
            port: lab.client_port(),
            flows: lab.flows(Proto::Udp, 50, 64),
        },
        Way {
            port: lab.server_port(),
            flows: lab.reply_flows(Proto::Udp, 50, 64),
        },
    ];
    let stream = Stream::new(&ways, &Mix::imix()).unwrap();
    let family = lab.topology().family;
    let meters = [lab.server_port(), lab.client_port()];
    let meters = meters.map(|port| Meter::attach(port, family).unwrap());
    let offered = stream.run(&burst(2000)).unwrap();
    assert_eq!(offered.frames, 2000);
    for meter in &meters {
        arrived(meter, 1000);
        let metered = meter.read().unwrap();
        assert_eq!((metered.frames, metered.early), (1000, 0));
        assert!(metered.times.is_empty());
    }
}

#[test]
fn times_are_taken() {
    let Some(_machine) = common::machine() else {
        return;
    };
    for name in ["routed", "routed6"] {
        let lab = common::build(name);
        let meter = Meter::attach(lab.server_port(), lab.topology().family).unwrap();
        let check = SinkSpec {
            verify: true,
            ..SinkSpec::default()
        };
        let offer = Offer {
            stamps: Some(Duration::ZERO),
            ..Offer::load(1000, Duration::from_millis(300), 0)
        };
        let stream = stream(&lab, 7, &Mix::of(64));
        let offered = stream.run(&offer).unwrap();
        arrived(&meter, offered.frames);
        let metered = meter.read().unwrap();
        assert!((1..=300).contains(&offered.frames), "{offered:?}");
        // of frames that a delay has made a burst, one has the time
        assert!(
            (1..=offered.frames).contains(&offered.stamped),
            "{offered:?}"
        );
        assert_eq!(metered.frames, offered.frames);
        assert_eq!(metered.timed() + metered.early, offered.stamped);
        let longest = metered.times.last().unwrap().0;
        assert!(longest.abs_diff(metered.max_ns) * 64 <= metered.max_ns);
        meter.clear().unwrap();
        assert_eq!(meter.read().unwrap().frames, 0);
        drop(meter);
        // some of many, and their checksums are right
        let sink = Sink::attach(lab.server_port(), check).unwrap();
        let offer = Offer {
            stamps: Some(Duration::from_millis(1)),
            ..Offer::load(20_000, Duration::from_millis(300), 0)
        };
        let offered = stream.run(&offer).unwrap();
        assert!(offered.frames + offered.left_out <= 6000, "{offered:?}");
        assert!((1..=601).contains(&offered.stamped), "{offered:?}");
        let counts = sink.counts().unwrap();
        assert_eq!((counts.bad_l4_checksum, counts.bad_ip_checksum), (0, 0));
    }
}

#[test]
fn a_loopback_loses_nothing_at_a_low_rate() {
    let Some(_machine) = common::machine() else {
        return;
    };
    let topology = Topology::parse("routed").unwrap();
    let lab = Lab::build(topology, freeway_lab::Options::default()).unwrap();
    let flows = [lab.flows(Proto::Udp, 100, 64)];
    let loopback = Loopback::new(&lab, &flows, &Mix::imix(), 0).unwrap();
    let offer = Offer::load(1000, Duration::from_millis(200), 0);
    let offered = loopback.stream.run(&offer).unwrap();
    arrived(&loopback.meter, offered.frames);
    assert_eq!(loopback.meter.frames().unwrap(), offered.frames);
    assert!((1..=200).contains(&offered.frames), "{offered:?}");
}
