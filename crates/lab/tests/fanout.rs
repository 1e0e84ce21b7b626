// SPDX-License-Identifier: MIT OR Apache-2.0
//! One source and many receivers: the kernel's copies, counted, under load and while receivers come and go.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use freeway_lab::{Capture, Family, Fanout, Generator, Injector, Load, Sink, SinkSpec, Until};
use freeway_testkit::{dropped_at, until};

const RECEIVERS: usize = 8;
const WAIT: Duration = Duration::from_secs(2);
const SETTLE: Duration = Duration::from_millis(50);

#[test]
fn each_receiver_has_its_copy() {
    let Some(_machine) = common::machine() else {
        return;
    };
    let fanout = Fanout::build(RECEIVERS).unwrap();
    let open = |port| Capture::open(port).unwrap();
    let mut captures: Vec<_> = fanout.receivers().iter().map(open).collect();
    let injector = Injector::open(fanout.source()).unwrap();
    for family in [Family::Ipv4, Family::Ipv6] {
        let flow = fanout.flow(family, 64);
        let served = [0, 3, 7];
        fanout.serve(&flow, &served).unwrap();
        for round in 0..3 {
            injector.send(&flow.frame(0, round)).unwrap();
            for (i, capture) in captures.iter_mut().enumerate() {
                let ours = |bytes: &[u8]| bytes.starts_with(&flow.mac_destination);
                let wanted = usize::from(served.contains(&i));
                let mut got = capture.collect(wanted, WAIT, ours).unwrap();
                got.extend(capture.drain(SETTLE, ours).unwrap());
                assert_eq!(got.len(), wanted, "{family:?} round {round}, receiver {i}");
                for frame in got {
                    let copy = fanout.copy(&flow, i).frame(0, round);
                    assert_eq!(frame.bytes, copy, "{family:?} round {round}, receiver {i}");
                }
            }
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(20);
/// Of the first receiver, while the last one has left: a tenth of what a port's ring holds.
const MEANWHILE: u64 = 25;

fn arrived(sink: &Sink) -> u64 {
    sink.counts().unwrap().frames
}

/// What found no room in a ring, for a thread that empties one was late.
fn dropped(fanout: &Fanout) -> u64 {
    let ends = [fanout.source(), fanout.input()];
    let all = ends
        .into_iter()
        .chain(fanout.outputs())
        .chain(fanout.receivers());
    all.map(dropped_at).sum()
}

/// The last receiver leaves and comes back under load. The others get each frame, but for those that the kernel copies while
/// it writes the route: it writes in place, and for a moment the route has no output (`ipmr_update_thresholds()`).
fn come_and_go(fanout: &Fanout, family: Family) {
    let flow = fanout.flow(family, 80);
    let all: Vec<usize> = (0..RECEIVERS).collect();
    fanout.serve(&flow, &all).unwrap();
    let attach = |port| Sink::attach(port, SinkSpec::thorough(1)).unwrap();
    let sinks: Vec<_> = fanout.receivers().iter().map(attach).collect();
    let (first, last) = (&sinks[0], &sinks[RECEIVERS - 1]);
    let generator = Arc::new(Generator::new(fanout.source(), &flow).unwrap());
    let before = dropped(fanout);
    let load = Load::paced(Until::Stopped, 5000).on_cpu(1).ahead();
    let running = generator.start(load).unwrap();
    let mut copied_meanwhile = 0;
    // what had not been copied before, and was sent before the route was written, and one that is no longer in either
    let mut serve = |receivers: &[usize]| {
        let before = arrived(first);
        fanout.serve(&flow, receivers).unwrap();
        copied_meanwhile += generator.frames().unwrap().saturating_sub(before) + 1;
    };
    for _ in 0..20 {
        serve(&all[..RECEIVERS - 1]);
        // what was on its way
        let count = until("what was on its way", PATIENCE, || {
            let (others, count) = (arrived(first), arrived(last));
            thread::sleep(Duration::from_millis(5));
            (arrived(first) > others && arrived(last) == count).then_some(count)
        });
        let others = arrived(first);
        until("frames of those who stay", PATIENCE, || {
            (arrived(first) > others + MEANWHILE).then_some(())
        });
        let after = arrived(last);
        assert_eq!(count, after, "{family:?}: served after it has left");
        serve(&all);
        until("who has come back", PATIENCE, || {
            (arrived(last) > after).then_some(())
        });
    }
    let sent = running.stop().unwrap().frames;
    let lost = until("all that was sent", PATIENCE, || {
        let others = &sinks[..RECEIVERS - 1];
        let lost: u64 = others.iter().map(|sink| sent - arrived(sink)).sum();
        let most = dropped(fanout) - before + copied_meanwhile * others.len() as u64;
        (lost <= most).then_some(lost)
    });
    println!(
        "{family:?}: of {sent} frames {lost} copies were lost, {copied_meanwhile} frames came beside a write"
    );
    for (i, sink) in sinks.iter().enumerate() {
        let (counts, flow) = (sink.counts().unwrap(), sink.flow(0).unwrap());
        assert_eq!(counts.bad_ip_checksum + counts.bad_l4_checksum, 0);
        assert_eq!(flow.reordered, 0, "{family:?}, receiver {i}");
        assert!(flow.frames <= sent, "{family:?}, receiver {i}");
    }
    assert!(arrived(last) < sent, "{family:?}");
}

#[test]
fn receivers_come_and_go_under_load() {
    let Some(_machine) = common::machine() else {
        return;
    };
    let fanout = Fanout::build(RECEIVERS).unwrap();
    let _threads = fanout.poll_by_threads(0, 1).unwrap();
    for family in [Family::Ipv4, Family::Ipv6] {
        come_and_go(&fanout, family);
    }
}
