// SPDX-License-Identifier: MIT OR Apache-2.0
//! The generator's frames against the model, its counts, and its rate.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use freeway_lab::frame::FLOWS_PER_BLOCK;
use freeway_lab::routes::Beyond;
use freeway_lab::{FlowSpec, Generator, Load, Proto, Sink, SinkSpec, Until, Way};
use freeway_testkit::{dropped, long, until};

fn every_frame() -> SinkSpec {
    SinkSpec {
        capture_every: 1,
        capture_limit: 4096,
        verify: true,
        ..SinkSpec::default()
    }
}

#[test]
fn frames_are_the_models() {
    let Some(_machine) = common::machine() else {
        return;
    };
    for name in ["routed", "routed6"] {
        let lab = common::build(name);
        for proto in [Proto::Udp, Proto::Tcp] {
            for frame_bytes in [64, 67, 68, 79, 82, 86, 128, 1517, 1518] {
                let spec = FlowSpec {
                    tos: 0x2e << 2,
                    // some are of the next block
                    first: [0, FLOWS_PER_BLOCK - 3][usize::from(frame_bytes == 128)],
                    ..lab.flows(proto, 7, frame_bytes)
                };
                let sink = Sink::attach(lab.lan_port(), every_frame()).unwrap();
                let generator = Generator::new(lab.client_port(), &spec).unwrap();
                let frames = 7 * 40;
                generator.run(&Load::full(Until::Frames(frames))).unwrap();
                let captured = sink.captured().unwrap();
                assert_eq!(captured.len() as u64, frames, "{spec:?}");
                for (i, frame) in (0..).zip(&captured) {
                    assert_eq!(frame.bytes, spec.frame(i % 7, i / 7), "{spec:?}, frame {i}");
                }
                let counts = sink.counts().unwrap();
                assert_eq!(
                    counts.bad_ip_checksum + counts.bad_l4_checksum,
                    0,
                    "{spec:?}"
                );
            }
        }
    }
}

#[test]
fn destinations_come_in_turn() {
    let Some(_machine) = common::machine() else {
        return;
    };
    let lab = common::build("routed");
    for proto in [Proto::Udp, Proto::Tcp] {
        // as many rounds, fewer hosts than flows, and more
        for hosts in [1, 3, 7, 20] {
            let beyond = Some(Beyond { hosts, routes: 100 });
            let spec = FlowSpec {
                beyond,
                ..lab.flows(proto, 7, 68)
            };
            let sink = Sink::attach(lab.lan_port(), every_frame()).unwrap();
            let generator = Generator::new(lab.client_port(), &spec).unwrap();
            generator.run(&Load::full(Until::Frames(70))).unwrap();
            let captured = sink.captured().unwrap();
            assert_eq!(captured.len(), 70, "{spec:?}");
            for (i, frame) in (0..).zip(&captured) {
                assert_eq!(frame.bytes, spec.frame(i % 7, i / 7), "{spec:?}, frame {i}");
            }
        }
    }
    let backwards = FlowSpec {
        beyond: Some(Beyond {
            hosts: 1,
            routes: 1,
        }),
        ..lab.reply_flows(Proto::Udp, 1, 64)
    };
    assert!(backwards.check().is_err());
}

#[test]
fn tagged_frames_are_the_models() {
    let Some(_machine) = common::machine() else {
        return;
    };
    let of_tags = SinkSpec {
        tagged: true,
        ..every_frame()
    };
    for name in ["routed", "routed6"] {
        let lab = common::build(name);
        for proto in [Proto::Udp, Proto::Tcp] {
            for (frame_bytes, headroom) in [(64, 0), (67, 8), (82, 8), (1518, 0), (1518, 8)] {
                let spec = FlowSpec {
                    vlan: Some(5),
                    headroom,
                    ..lab.flows(proto, 7, frame_bytes)
                };
                let sink = Sink::attach(lab.lan_port(), of_tags).unwrap();
                let generator = Generator::new(lab.client_port(), &spec).unwrap();
                generator.run(&Load::full(Until::Frames(70))).unwrap();
                let captured = sink.captured().unwrap();
                assert_eq!(captured.len(), 70, "{spec:?}");
                for (i, frame) in (0..).zip(&captured) {
                    assert_eq!(frame.bytes, spec.frame(i % 7, i / 7), "{spec:?}, frame {i}");
                }
                let counts = sink.counts().unwrap();
                let wrong = counts.bad_ip_checksum + counts.bad_l4_checksum + counts.unverified;
                assert_eq!((counts.frames, wrong), (70, 0), "{spec:?}");
            }
        }
    }
}

#[test]
fn a_sink_of_tagged_frames_leaves_others() {
    let Some(_machine) = common::machine() else {
        return;
    };
    let lab = common::build("routed");
    let of_tags = SinkSpec {
        tagged: true,
        ..SinkSpec::thorough(7)
    };
    let sink = Sink::attach(lab.lan_port(), of_tags).unwrap();
    let generator = Generator::new(lab.client_port(), &lab.flows(Proto::Udp, 7, 64)).unwrap();
    generator.run(&Load::full(Until::Frames(70))).unwrap();
    let counts = sink.counts().unwrap();
    assert_eq!((counts.frames, counts.passed), (0, 70), "{counts:?}");
}

#[test]
fn replies_and_blocks_are_the_models() {
    let Some(_machine) = common::machine() else {
        return;
    };
    for name in ["routed", "nat", "routed6"] {
        let lab = common::build(name);
        let flows = 3 * FLOWS_PER_BLOCK - 5;
        for (from, at, spec) in [
            (
                lab.client_port(),
                lab.lan_port(),
                lab.flows(Proto::Udp, flows, 96),
            ),
            (
                lab.server_port(),
                lab.wan_port(),
                lab.reply_flows(Proto::Udp, flows, 96),
            ),
            (
                lab.server_port(),
                lab.wan_port(),
                lab.reply_flows(Proto::Tcp, flows, 96),
            ),
        ] {
            let sampling = SinkSpec {
                capture_every: 997,
                ..every_frame()
            };
            let sampled = || {
                let sink = Sink::attach(at, sampling).unwrap();
                let generator = Generator::new(from, &spec).unwrap();
                let sent = generator
                    .run(&Load::full(Until::Frames(200_000)).on_cpu(0))
                    .unwrap();
                assert_eq!(sent.frames, 200_000);
                sink.captured().unwrap()
            };
            // each CPU samples for itself, and on a busy machine another one takes some frames
            let mut tries = (0..3).map(|_| sampled());
            let captured = tries.find(|captured| captured.len() == 201);
            let captured = captured.expect("201 samples in one of three runs");
            for (i, frame) in captured.iter().enumerate() {
                let number = i as u32 * 997;
                assert_eq!(
                    frame.bytes,
                    spec.frame(number % flows, number / flows),
                    "{number}"
                );
            }
        }
    }
}

/// Frames of two directions are the models' and leave by turns, also where one has a tag and the other has none, or one has
/// more memory ahead of it.
#[test]
fn frames_of_two_directions_alternate() {
    let Some(_machine) = common::machine() else {
        return;
    };
    let sampling = SinkSpec {
        capture_every: 7,
        ..every_frame()
    };
    let flows = 100;
    for name in ["nat", "routed6"] {
        let lab = common::build(name);
        for (proto, bytes, vlan, headroom) in [
            (Proto::Udp, 96, None, 0),
            (Proto::Tcp, 1518, None, 8),
            (Proto::Udp, 1518, Some(5), 8),
        ] {
            let forward = FlowSpec {
                vlan,
                headroom,
                ..lab.flows(proto, flows, bytes)
            };
            let ends = [
                (lab.client_port(), lab.lan_port(), forward),
                (
                    lab.server_port(),
                    lab.wan_port(),
                    lab.reply_flows(proto, flows, bytes),
                ),
            ];
            let sinks = ends.map(|(_, at, flows)| {
                let tagged = flows.vlan.is_some();
                Sink::attach(at, SinkSpec { tagged, ..sampling }).unwrap()
            });
            let ways = ends.map(|(port, _, flows)| Way { port, flows });
            let generator = Generator::by_turns(&ways).unwrap();
            let mut total = 0;
            for frames in [1, 2, 7, 64, 1001] {
                let load = Load::full(Until::Frames(frames)).on_cpu(0);
                assert_eq!(generator.run(&load).unwrap().frames, frames);
                total += frames;
                let arrived = sinks.each_ref().map(|sink| sink.counts().unwrap().frames);
                assert_eq!(arrived, [total.div_ceil(2), total / 2], "{name} {proto:?}");
            }
            assert_eq!(generator.frames().unwrap(), total);
            assert_eq!(generator.wire_bytes(), forward.wire_bytes());
            for (sink, (.., spec)) in sinks.iter().zip(ends) {
                let captured = sink.captured().unwrap();
                assert!(captured.len() > 70, "{}", captured.len());
                for (i, frame) in captured.iter().enumerate() {
                    let number = i as u32 * 7;
                    let model = spec.frame(number % flows, number / flows);
                    assert_eq!(frame.bytes, model, "{number}");
                }
            }
        }
        let mixed = [
            Way {
                port: lab.client_port(),
                flows: lab.flows(Proto::Udp, flows, 96),
            },
            Way {
                port: lab.server_port(),
                flows: lab.reply_flows(Proto::Tcp, flows, 96),
            },
        ];
        let error = Generator::by_turns(&mixed).unwrap_err().to_string();
        assert!(error.contains("one protocol"), "{error}");
    }
}

#[test]
fn rounds_continue_and_counts_are_exact() {
    let Some(_machine) = common::machine() else {
        return;
    };
    let lab = common::build("routed");
    let sink = Sink::attach(lab.lan_port(), SinkSpec::thorough(100)).unwrap();
    let spec = lab.flows(Proto::Udp, 100, 64);
    let generator = Generator::new(lab.client_port(), &spec).unwrap();
    for frames in [1, 63, 64, 65, 99, 100, 101, 10_007] {
        assert_eq!(
            generator
                .run(&Load::full(Until::Frames(frames)))
                .unwrap()
                .frames,
            frames
        );
    }
    generator
        .run(&Load::paced(Until::Frames(500), 50_000))
        .unwrap();
    let total = 1 + 63 + 64 + 65 + 99 + 100 + 101 + 10_007 + 500;
    assert_eq!(generator.frames().unwrap(), total);
    let counts = sink.counts().unwrap();
    assert_eq!((counts.frames, counts.bytes), (total, total * 60));
    assert_eq!(
        counts.reordered + counts.untracked + counts.bad_l4_checksum,
        0
    );
    for (i, flow) in (0u64..).zip(sink.flows().unwrap()) {
        assert_eq!(flow.frames, (total - i).div_ceil(100), "flow {i}");
        assert_eq!(u64::from(flow.next_round), flow.frames, "flow {i}");
    }
}

#[test]
fn a_paced_generator_keeps_its_rate() {
    let Some(_machine) = common::machine() else {
        return;
    };
    let lab = common::build("routed");
    let sink = Sink::attach(lab.server_port(), SinkSpec::plain()).unwrap();
    let generator = Generator::new(lab.client_port(), &lab.flows(Proto::Udp, 10, 64)).unwrap();
    for pps in [1_000, 50_000, 300_000] {
        let (before, dropped_before) = (sink.counts().unwrap().frames, dropped(&lab));
        let time = Duration::from_secs(1);
        let sent = generator
            .run(&Load::paced(Until::Elapsed(time), pps).on_cpu(0))
            .unwrap();
        until("all that was sent", Duration::from_secs(5), || {
            let arrived = sink.counts().unwrap().frames - before;
            let lost = dropped(&lab) - dropped_before;
            (arrived + lost >= sent.frames).then_some(())
        });
        println!(
            "{} frames in {} ns at {pps} a second",
            sent.frames, sent.elapsed_ns
        );
        let share = sent.frames as f64 / (pps as f64 * sent.elapsed_ns as f64 / 1e9);
        assert!(share <= 1.0, "{pps} a second: {share} of them");
        // what a late machine leaves out is its own
        let wanted = if long() { 0.95 } else { 0.0 };
        assert!(share > wanted, "{pps} a second: {share} of them");
    }
}

#[test]
fn a_running_generator_stops() {
    let Some(_machine) = common::machine() else {
        return;
    };
    let lab = common::build("routed");
    let sink = Sink::attach(lab.lan_port(), SinkSpec::plain()).unwrap();
    let spec = lab.flows(Proto::Udp, 10, 64);
    let generator = Arc::new(Generator::new(lab.client_port(), &spec).unwrap());
    assert!(generator.run(&Load::full(Until::Stopped)).is_err());
    for load in [
        Load::full(Until::Stopped),
        Load::paced(Until::Stopped, 10_000),
    ] {
        let running = generator.start(load).unwrap();
        thread::sleep(Duration::from_millis(300));
        assert!(!running.is_done());
        let sent = running.stop().unwrap();
        assert!(
            sent.frames > 1000 && sent.elapsed_ns < 2_000_000_000,
            "{sent:?}"
        );
    }
    drop(generator.start(Load::full(Until::Stopped)).unwrap());
    assert_eq!(sink.counts().unwrap().frames, generator.frames().unwrap());
}
