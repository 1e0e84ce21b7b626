// SPDX-License-Identifier: MIT OR Apache-2.0
//! Searches of simulated routers.

use std::convert::Infallible;

use proptest::prelude::*;

use super::*;

const MAX_LOAD: u64 = 10_000_000;
const MIN_LOAD: u64 = 1_000;

fn plan(width: f64, trials: u32) -> Plan {
    let goal = |loss_ratio| Goal {
        loss_ratio,
        exceed_ratio: if trials > 1 { 0.5 } else { 0.0 },
        trial: Duration::from_secs(1),
        sum: Duration::from_secs(1) * trials,
        width,
    };
    Plan {
        goals: vec![goal(0.0), goal(0.005)],
        min_load: MIN_LOAD,
        max_load: MAX_LOAD,
        initial_trial: Duration::from_millis(100),
        levels: 3,
        trials_max: 400,
        time_max: Duration::from_secs(1000),
    }
}

fn trial(input: Input, loss_ratio: f64) -> Trial {
    Trial {
        load: input.load,
        time: input.time,
        loss_ratio: loss_ratio.clamp(0.0, 1.0),
        sent_loss_ratio: loss_ratio.clamp(0.0, 1.0),
        starved: false,
    }
}

fn searched(plan: Plan, router: impl Fn(usize, Input) -> f64) -> Search {
    let mut search = [Search::new(plan)];
    let mut number = 0;
    by_turns(&mut search, |_, input| {
        number += 1;
        assert!((MIN_LOAD..=MAX_LOAD).contains(&input.load), "{input:?}");
        Ok::<_, Infallible>(Some(trial(input, router(number, input))))
    })
    .unwrap();
    let [search] = search;
    search
}

/// What a router of that capacity loses.
fn sharp(capacity: f64, load: u64) -> f64 {
    (1.0 - capacity / load as f64).max(0.0)
}

/// What holds of every search's end.
fn check(search: &Search) -> [Found; 2] {
    let found = search.found();
    let [ndr, pdr] = found[..] else {
        panic!("{found:?}");
    };
    for found in [ndr, pdr] {
        if let (Some(lower), Some(upper)) = (found.lower, found.upper) {
            assert!(lower < upper, "{found:?}");
        }
        if let (Some(lower), Some(throughput)) = (found.lower, found.conditional_throughput) {
            assert!((0.0..=lower as f64).contains(&throughput), "{found:?}");
        }
        assert!(!found.regular || found.lower.is_some() && found.upper.is_some());
    }
    if let (Some(ndr), Some(pdr)) = (ndr.lower, pdr.lower) {
        assert!(ndr <= pdr, "{found:?}");
    }
    assert!(search.count() <= 400);
    [ndr, pdr]
}

proptest! {
    #[test]
    fn a_sharp_router_is_found(capacity in 1_500.0f64..9_900_000.0, width in 0.002f64..0.05, trials in 1u32..8) {
        let search = searched(plan(width, trials), |_, input| sharp(capacity, input.load));
        let [ndr, pdr] = check(&search);
        prop_assert!(search.is_complete() && ndr.regular && pdr.regular, "{ndr:?} {pdr:?}");
        prop_assert!(!ndr.limited && !pdr.limited);
        let (lower, upper) = (ndr.lower.unwrap() as f64, ndr.upper.unwrap() as f64);
        prop_assert!(lower <= capacity && capacity <= upper, "{ndr:?} {capacity}");
        prop_assert!(upper - lower <= 1.0 || (upper - lower) / upper <= width);
        let holds = capacity / 0.995;
        let (lower, upper) = (pdr.lower.unwrap() as f64, pdr.upper.unwrap() as f64);
        prop_assert!(lower <= holds + 1.0 && holds <= upper + 1.0, "{pdr:?} {holds}");
        prop_assert!(search.count() < 250, "{}", search.count());
    }

    #[test]
    fn a_disturbed_router_is_found(
        capacity in 100_000.0f64..9_000_000.0,
        phase in 0usize..5,
    ) {
        // a fifth of the trials lose frames at any load: half may
        let search = searched(plan(0.02, 9), |number, input| {
            let spoilt = if number % 5 == phase { 0.03 } else { 0.0 };
            sharp(capacity, input.load) + spoilt
        });
        let [ndr, pdr] = check(&search);
        for found in [ndr, pdr] {
            let lower = found.lower.unwrap() as f64;
            prop_assert!(lower <= capacity * 1.01, "{found:?} {capacity}");
            prop_assert!(lower >= capacity * 0.4, "{found:?} {capacity}");
        }
    }

    #[test]
    fn any_router_comes_to_an_end(
        losses in prop::collection::vec(prop_oneof![Just(0.0), 0.0f64..0.01, 0.0f64..1.0], 401),
        capacity in 1_000.0f64..20_000_000.0,
        trials in 1u32..8,
    ) {
        let search = searched(plan(0.01, trials), |number, input| {
            losses[number].max(sharp(capacity, input.load))
        });
        check(&search);
    }

    #[test]
    fn a_smaller_load_that_fails_is_the_bound(
        capacity in 1_000_000.0f64..9_000_000.0,
        from in 0.2f64..0.8,
        part in 0.02f64..0.1,
    ) {
        // a band of loads below the capacity loses one frame of a hundred
        let band = capacity * from..capacity * (from + part);
        let search = searched(plan(0.005, 3), |_, input| {
            let spoilt = if band.contains(&(input.load as f64)) { 0.01 } else { 0.0 };
            sharp(capacity, input.load).max(spoilt)
        });
        let [ndr, pdr] = check(&search);
        for found in [ndr, pdr] {
            prop_assert!(found.regular, "{found:?}");
            let lower = found.lower.unwrap() as f64;
            prop_assert!(!band.contains(&lower), "{found:?} {band:?}");
            prop_assert!(lower <= capacity / 0.995, "{found:?} {capacity}");
        }
    }
}

#[test]
fn the_sender_is_the_limit() {
    let search = searched(plan(0.01, 3), |_, _| 0.0);
    for found in check(&search) {
        assert_eq!((found.lower, found.upper), (Some(MAX_LOAD), None));
        assert!(found.limited && !found.regular);
    }
    assert!(search.is_complete());

    // it falls short of what it was asked for, and the router loses none or much of what is sent
    let reached = 3_000_000.0;
    for (sent_loss_ratio, limited) in [(0.0, true), (0.1, false)] {
        let mut search = [Search::new(plan(0.01, 3))];
        by_turns(&mut search, |_, input| {
            let trial = trial(input, sharp(reached, input.load));
            let starved = input.load as f64 > reached;
            Ok::<_, Infallible>(Some(Trial {
                starved,
                sent_loss_ratio: if starved { sent_loss_ratio } else { 0.0 },
                ..trial
            }))
        })
        .unwrap();
        for found in check(&search[0]) {
            assert!(found.regular && found.limited == limited, "{found:?}");
        }
    }
}

#[test]
fn a_router_that_forwards_nothing() {
    let search = searched(plan(0.01, 3), |_, _| 1.0);
    for found in check(&search) {
        assert_eq!((found.lower, found.upper), (None, Some(MIN_LOAD)));
        assert!(!found.regular && !found.limited);
    }
    assert!(search.count() < 60, "{}", search.count());
}

#[test]
fn no_time_is_no_result_and_some_is_a_coarse_one() {
    let mut search = [Search::new(plan(0.01, 3))];
    by_turns(&mut search, |_, _| Ok::<_, Infallible>(None)).unwrap();
    assert!(
        search[0]
            .found()
            .iter()
            .all(|found| *found == Found::default())
    );

    let plan = Plan {
        trials_max: 12,
        ..plan(0.001, 9)
    };
    let search = searched(plan, |_, input| sharp(2e6, input.load));
    let [ndr, pdr] = check(&search);
    assert!(!search.is_complete() && !ndr.regular && !pdr.regular);
    let lower = ndr.lower.unwrap() as f64;
    assert!((1e6..=2e6).contains(&lower), "{ndr:?}");
}

#[test]
fn levels_grow() {
    let plan = plan(0.01, 9);
    let levels: Vec<Goal> = (0..3)
        .map(|level| coarser(&plan.goals[0], &plan, level))
        .collect();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    assert_eq!(levels[2], plan.goals[0]);
    assert_eq!((ms(levels[0].trial), ms(levels[0].sum)), (100.0, 100.0));
    assert!((ms(levels[1].trial) - 316.2).abs() < 0.1, "{levels:?}");
    assert!((ms(levels[1].sum) - 948.7).abs() < 0.1, "{levels:?}");
    assert_eq!([0, 1, 2].map(|at| levels[at].width), [0.04, 0.02, 0.01]);
}
