// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stream's frames against the model, its pace, and what the meter says of them.
#![allow(clippy::unwrap_used)]

mod common;

use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use freeway_lab::frame::{FAR_PORT, FCS_BYTES, FRAME_BYTES_JUMBO};
use freeway_lab::routes::Beyond;
use freeway_lab::{
    FlowSpec, Injector, Lab, LabError, Loopback, Meter, Mix, Offer, Options, Proto, Sink, SinkSpec,
    Stream, Topology, Way,
};
use freeway_testkit::Moment;

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

type Open = fn(&[Way<'_>], &Mix) -> Result<Stream, LabError>;
/// What frames of one page leave by, and what any frame can.
const SENDERS: [Open; 2] = [Stream::new, Stream::by_sockets];

fn stream_by(open: Open, lab: &Lab, flows: u32, mix: &Mix) -> Stream {
    let way = Way {
        port: lab.client_port(),
        flows: lab.flows(Proto::Udp, flows, 64),
    };
    open(&[way], mix).unwrap()
}

fn stream(lab: &Lab, flows: u32, mix: &Mix) -> Stream {
    stream_by(Stream::new, lab, flows, mix)
}

/// Waits for so many frames, for a while.
fn arrived(meter: &Meter, frames: u64) {
    let patience = Moment::now() + Duration::from_secs(5);
    while meter.frames().unwrap() < frames && Moment::now() < patience {
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
        let all = [Mix::of(64), Mix::of(571), Mix::of(1518), Mix::imix()];
        let by_program = all.iter().map(|mix| (SENDERS[0], mix));
        let by_sockets = all[1..].iter().map(|mix| (SENDERS[1], mix));
        for (open, mix) in by_program.chain(by_sockets) {
            let sink = Sink::attach(lab.lan_port(), every_frame).unwrap();
            let stream = stream_by(open, &lab, 7, mix);
            let offered = stream.run(&burst(480)).unwrap();
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
    let mix = Mix::of(128);
    for open in SENDERS {
        let sink = Sink::attach(lab.lan_port(), every_frame).unwrap();
        let stream = stream_by(open, &lab, 12, &mix);
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
    }
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
    let family = lab.topology().family;
    let meters = [lab.server_port(), lab.client_port()];
    let meters = meters.map(|port| Meter::attach(port, family).unwrap());
    for open in SENDERS {
        let stream = open(&ways, &Mix::imix()).unwrap();
        let offered = stream.run(&burst(2000)).unwrap();
        assert_eq!(offered.frames, 2000);
        for meter in &meters {
            arrived(meter, 1000);
            let metered = meter.read().unwrap();
            assert_eq!((metered.frames, metered.early), (1000, 0));
            assert!(metered.times.is_empty());
            meter.clear().unwrap();
        }
    }
}

#[test]
fn frames_of_several_pages_are_sent_and_metered() {
    let Some(_machine) = common::machine() else {
        return;
    };
    let (flows, mix) = (7, Mix::of(FRAME_BYTES_JUMBO));
    let bytes = u64::from(FRAME_BYTES_JUMBO - FCS_BYTES);
    let every_frame = Offer {
        stamps: Some(Duration::ZERO),
        ..Offer::load(1000, Duration::from_millis(100), 0)
    };
    for name in ["routed", "routed6"] {
        let options = Options {
            mtu: 9000,
            ..Options::default()
        };
        let lab = common::build_with(name, options);
        let spec = lab.flows(Proto::Udp, flows, 64);
        let loopback = Loopback::new(&lab, &[spec], &mix, 0).unwrap();
        let through = stream(&lab, flows, &mix);
        let meter = Meter::attach(lab.server_port(), lab.topology().family).unwrap();
        for (stream, meter) in [(&loopback.stream, &loopback.meter), (&through, &meter)] {
            let offered = stream.run(&every_frame).unwrap();
            assert!((1..=100).contains(&offered.frames), "{offered:?}");
            arrived(meter, offered.frames);
            let metered = meter.read().unwrap();
            assert_eq!(metered.frames, offered.frames);
            assert_eq!(metered.bytes, offered.frames * bytes);
            assert_eq!(metered.timed() + metered.early, offered.stamped);
            assert!(offered.stamped > 0 && metered.max_ns > 0, "{metered:?}");
        }
        drop(meter);
        // the kernel verifies checksums
        let far = SocketAddr::new(lab.topology().family.plan().server, FAR_PORT);
        let receiver = lab
            .server()
            .enter(|| UdpSocket::bind(far))
            .unwrap()
            .unwrap();
        let patience = Some(Duration::from_secs(5));
        receiver.set_read_timeout(patience).unwrap();
        for stamps in [None, Some(Duration::ZERO)] {
            let offer = Offer {
                stamps,
                frames: Some(9),
                ..Offer::load(1000, Duration::from_secs(1), 0)
            };
            let offered = through.run(&offer).unwrap();
            let mut timed = 0;
            for _ in 0..offered.frames {
                let mut payload = [0; 9216];
                let len = receiver.recv(&mut payload).unwrap();
                let model = stamped(spec, FRAME_BYTES_JUMBO).frame(0, 0);
                assert_eq!(payload[8..len], model[model.len() - len + 8..], "{name}");
                timed += u64::from(payload[..8] != [0; 8]);
            }
            assert_eq!((offered.frames, timed), (9, offered.stamped));
        }
    }
}

#[test]
fn sizes_have_limits() {
    let Some(_machine) = common::machine() else {
        return;
    };
    let lab = common::build("routed");
    let way = Way {
        port: lab.client_port(),
        flows: lab.flows(Proto::Udp, 1, 64),
    };
    let why = Stream::new(&[way], &Mix::of(FRAME_BYTES_JUMBO + 1)).unwrap_err();
    assert!(why.to_string().contains("64 to 9000"), "{why}");
    // a port's MTU is another
    let stream = Stream::new(&[way], &Mix::of(1519)).unwrap();
    let why = stream.run(&burst(1)).unwrap_err();
    assert!(why.to_string().contains("send a frame from eth0"), "{why}");
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

/// A meter for one address takes whole frames to its port alone: not what a switch floods, nor pieces.
#[test]
fn a_meter_for_one_address_takes_nothing_else() {
    let Some(_machine) = common::machine() else {
        return;
    };
    for name in ["routed", "routed6"] {
        let lab = common::build(name);
        let port = lab.server_port();
        let spec = FlowSpec {
            mac_destination: port.mac,
            ..lab.flows(Proto::Udp, 1, 128)
        };
        let (_, to) = spec.tuple(0);
        let meter = Meter::attach_for(port, to).unwrap();
        let injector = Injector::open(lab.wan_port()).unwrap();
        let whole = spec.frame(0, 0);
        let changed = |at: usize, octet: u8| {
            let mut frame = whole.clone();
            frame[at] ^= octet;
            frame
        };
        let v6 = spec.far.is_ipv6();
        let mut others = vec![changed(5, 1), changed(14 + if v6 { 39 } else { 19 }, 1)];
        if !v6 {
            // the first piece, and a later one
            others.extend([changed(20, 0x20), changed(21, 1)]);
        }
        for frame in others.iter().chain([&whole]) {
            injector.send(frame).unwrap();
        }
        let deadline = Moment::now() + Duration::from_secs(5);
        while meter.frames().unwrap() == 0 && Moment::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        let metered = meter.read().unwrap();
        assert_eq!(metered.frames, 1, "{name}");
        assert!(metered.other >= others.len() as u64, "{name}: {metered:?}");
    }
}
