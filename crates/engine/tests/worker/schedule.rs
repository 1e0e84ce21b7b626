// SPDX-License-Identifier: MIT OR Apache-2.0
//! A scheduler by a clock of its own: rates, ceilings, priorities, weights, what spares and what borrows.

use freeway_api::schedule::{Class, RATE_ANY, Schedule as Described};
use freeway_engine::schedule::Schedule;
use freeway_engine::trial::{Clock, Outcome, Source, Trial};

use super::rings::alone;

const SECOND: u64 = 1_000_000_000;
/// Octets a second of 1 Mb/s.
const MBIT: u64 = 125_000;
const LEN: u16 = 1514;
const ROOM: u32 = 8000;

fn class(id: u32, above: Option<u16>, rate: u64, ceiling: u64) -> Class {
    let burst = |rate: u64| match rate {
        0 | RATE_ANY => 0,
        rate => 1600 * SECOND / rate,
    };
    Class {
        name: format!("1:{id:x}"),
        id,
        above,
        quantum: 1514,
        limit: 1000,
        limit_bytes: u64::MAX,
        rate,
        ceiling,
        burst_ns: burst(rate),
        ceiling_burst_ns: burst(ceiling),
        ..Class::default()
    }
}

fn schedule(classes: Vec<Class>) -> Schedule {
    let described = Described {
        port: 2,
        classes,
        ..Described::default()
    };
    Schedule::new(described, ROOM).unwrap()
}

fn always(leaf: u16, len: u16) -> Source {
    Source { leaf, len, rate: 0 }
}

/// Octets a second of each source.
fn rates(outcome: &Outcome) -> Vec<f64> {
    let seconds = outcome.took_ns as f64 / 1e9;
    let left = outcome.left.iter();
    left.map(|left| left.bytes as f64 / seconds).collect()
}

#[track_caller]
fn near(is: f64, wanted: f64, share: f64) {
    let off = (is - wanted).abs() / wanted;
    assert!(off <= share, "{is} instead of {wanted}");
}

fn run(trial: &Trial, schedule: &mut Schedule, sources: &[Source], lasts_ns: u64) -> Outcome {
    // a step is some part of the time that a frame takes
    let step = Clock::Steps(997);
    trial.run(schedule, sources, (SECOND / 20, lasts_ns), step)
}

/// What leaves is what the rate says, whatever it is and however long frames are, and never more at once than the burst.
fn a_rate_is_kept(trial: &Trial) {
    for (rate, lasts) in [
        (MBIT, 4),
        (10 * MBIT, 1),
        (1000 * MBIT, 1),
        (40_000 * MBIT, 1),
    ] {
        for len in [60, LEN, 9014] {
            let mut root = class(1, None, rate, rate);
            // what comes due within a step is sent at once
            root.burst_ns += 2000 + 9014 * SECOND / rate;
            root.ceiling_burst_ns = root.burst_ns;
            let allowed = root.burst_ns * rate / SECOND + 2 * u64::from(len);
            let mut schedule = schedule(vec![root]);
            let lasts = lasts * SECOND / if rate > 1000 * MBIT { 50 } else { 1 };
            let outcome = run(trial, &mut schedule, &[always(0, len)], lasts);
            // a frame more or less is within
            let frame = f64::from(len) * 1e9 / lasts as f64 / rate as f64;
            near(rates(&outcome)[0], rate as f64, 0.002 + frame);
            assert!(outcome.at_once_max <= allowed, "{outcome:?}");
        }
    }
}

/// Overhead and least size are of what a frame counts as.
fn lengths_count_as_they_are_told(trial: &Trial) {
    let mut root = class(1, None, 10 * MBIT, 10 * MBIT);
    (root.overhead, root.least) = (40, 200);
    let mut schedule = schedule(vec![root]);
    let outcome = run(trial, &mut schedule, &[always(0, 60)], SECOND);
    near(rates(&outcome)[0], (10 * MBIT) as f64 * 60.0 / 200.0, 0.01);
    let outcome = run(trial, &mut schedule, &[always(0, 960)], SECOND);
    near(rates(&outcome)[0], (10 * MBIT) as f64 * 0.96, 0.01);
}

/// The first priority at half of the rate waits for the frame that is on its way, and the one of its own; the last one has
/// ten times as much as there is.
fn the_first_priority_hardly_waits(trial: &Trial) {
    let rate = 100 * MBIT;
    let leaf = |id, priority| Class {
        priority,
        ..class(id, Some(0), 0, rate)
    };
    let mut root = class(1, None, rate, rate);
    root.burst_ns = 1514 * SECOND / rate;
    root.ceiling_burst_ns = root.burst_ns;
    let mut schedule = schedule(vec![root, leaf(0x10, 0), leaf(0x20, 7)]);
    let source = |leaf, rate| Source {
        leaf,
        len: LEN,
        rate,
    };
    let sources = [source(1, rate / 2), source(2, 10 * rate)];
    let outcome = run(trial, &mut schedule, &sources, SECOND);
    let frame_ns = u64::from(LEN) * SECOND / rate;
    let delays = &outcome.left[0].delays;
    let most = u64::from(*delays.last().unwrap());
    assert!(
        most <= 2 * frame_ns,
        "{most} ns, a frame takes {frame_ns} ns"
    );
    assert_eq!(outcome.left[0].frames as usize, delays.len());
    let is = rates(&outcome);
    near(is[0], rate as f64 / 2.0, 0.001);
    near(is[1], rate as f64 / 2.0, 0.01);
}

/// By quanta, frames of different lengths notwithstanding; what one leaves the others share.
fn weights_share(trial: &Trial) {
    let rate = 200 * MBIT;
    let leaf = |id, weight: u32| Class {
        quantum: weight * 1600,
        ..class(id, Some(0), 0, rate)
    };
    let classes = vec![
        class(1, None, rate, rate),
        leaf(2, 1),
        leaf(3, 2),
        leaf(4, 4),
    ];
    let mut schedule = schedule(classes);
    let all = [always(1, LEN), always(2, 60), always(3, 900)];
    let outcome = run(trial, &mut schedule, &all, SECOND);
    for (is, weight) in rates(&outcome).into_iter().zip([1.0, 2.0, 4.0]) {
        near(is, rate as f64 * weight / 7.0, 0.01);
    }
}

/// Each has its rate first; what is spare goes to the first priority, up to its ceiling, and then on.
fn what_is_spare_is_borrowed(trial: &Trial) {
    let rate = 100 * MBIT;
    let leaf = |id, priority, own, ceiling| Class {
        priority,
        ..class(id, Some(0), own * MBIT, ceiling * MBIT)
    };
    let mut schedule = schedule(vec![
        class(1, None, rate, rate),
        leaf(0x10, 0, 10, 30),
        leaf(0x20, 1, 20, 100),
        leaf(0x30, 2, 40, 100),
    ]);
    let all = [always(1, LEN), always(2, LEN), always(3, LEN)];
    let is = rates(&run(trial, &mut schedule, &all, SECOND));
    for (is, wanted) in is.into_iter().zip([30, 30, 40]) {
        near(is, (wanted * MBIT) as f64, 0.01);
    }
    // the first one is silent
    let is = rates(&run(trial, &mut schedule, &all[1..], SECOND));
    for (is, wanted) in is.into_iter().zip([60, 40]) {
        near(is, (wanted * MBIT) as f64, 0.01);
    }
}

/// What one tenant leaves unused its own classes have first.
fn tenants_keep_to_themselves(trial: &Trial) {
    let tenant = |id, own| class(id, Some(0), own * MBIT, 100 * MBIT);
    let leaf = |id, above, own| class(id, Some(above), own * MBIT, 100 * MBIT);
    let mut schedule = schedule(vec![
        class(1, None, 100 * MBIT, 100 * MBIT),
        tenant(2, 60),
        leaf(3, 1, 30),
        leaf(4, 1, 30),
        tenant(5, 40),
        leaf(6, 4, 20),
        leaf(7, 4, 20),
    ]);
    // of the first tenant one leaf is silent
    let all = [always(2, LEN), always(5, LEN), always(6, LEN)];
    let is = rates(&run(trial, &mut schedule, &all, SECOND));
    for (is, wanted) in is.into_iter().zip([60, 20, 20]) {
        near(is, (wanted * MBIT) as f64, 0.01);
    }
}

/// What is longer than its queue is dropped at its end, and counted.
fn queues_have_an_end(trial: &Trial) {
    let mut leaf = class(1, None, MBIT, MBIT);
    leaf.limit = 10;
    let mut schedule = schedule(vec![leaf.clone()]);
    let source = Source {
        leaf: 0,
        len: LEN,
        rate: 10 * MBIT,
    };
    let outcome = run(trial, &mut schedule, &[source], SECOND);
    let counts = schedule.counts().remove(0);
    let most = u64::from(*outcome.left[0].delays.last().unwrap());
    // ten ahead, and the debt of the last one that left
    assert!(most <= 12 * u64::from(LEN) * SECOND / MBIT, "{most}");
    let offered = outcome.left[0].offered;
    assert_eq!(counts.packets + counts.dropped, offered);
    assert!(counts.dropped > offered / 2, "{counts:?}");
    assert_eq!(counts.delays.iter().sum::<u64>(), counts.packets);
    drop(schedule);
    // the same by octets
    (leaf.limit, leaf.limit_bytes) = (1000, 3 * u64::from(LEN));
    let mut schedule = super::schedule::schedule(vec![leaf]);
    let outcome = run(trial, &mut schedule, &[source], SECOND);
    let most = u64::from(*outcome.left[0].delays.last().unwrap());
    let frame_ns = u64::from(LEN) * SECOND / MBIT;
    assert!((2 * frame_ns..=4 * frame_ns).contains(&most), "{most}");
}

/// What nobody could mean is refused, in words.
fn what_cannot_be_is_refused() {
    let refused = |classes: Vec<Class>, other, words: &str| {
        let described = Described {
            classes,
            other,
            ..Described::default()
        };
        let error = Schedule::new(described, ROOM).unwrap_err();
        assert!(error.contains(words), "{error}");
    };
    let root = || class(1, None, MBIT, MBIT);
    refused(vec![], None, "1 to 64 classes");
    refused(vec![root(); 65], None, "1 to 64 classes");
    refused(
        vec![class(1, Some(0), MBIT, MBIT)],
        None,
        "ahead of the one above",
    );
    let deep = (0..9).map(|n: u16| class(n.into(), n.checked_sub(1), MBIT, MBIT));
    refused(deep.collect(), None, "more than 8");
    refused(vec![class(1, None, 0, MBIT)], None, "none above it");
    refused(vec![class(1, None, 999, MBIT)], None, "below 8 kbit/s");
    refused(
        vec![root(), class(2, Some(0), MBIT, MBIT)],
        Some(0),
        "no leaf",
    );
    let mut leaf = root();
    leaf.quantum = 0;
    refused(vec![leaf], None, "without quantum");
    let mut leaf = root();
    leaf.priority = 8;
    refused(vec![leaf], None, "0 to 7");
}

#[test]
fn a_schedule_is_kept() {
    alone(|_| {
        let trial = Trial::new().unwrap();
        a_rate_is_kept(&trial);
        lengths_count_as_they_are_told(&trial);
        the_first_priority_hardly_waits(&trial);
        weights_share(&trial);
        what_is_spare_is_borrowed(&trial);
        tenants_keep_to_themselves(&trial);
        queues_have_an_end(&trial);
        what_cannot_be_is_refused();
        assert_eq!(trial.missing(), 0);
    });
}
