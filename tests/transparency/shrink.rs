// SPDX-License-Identifier: MIT OR Apache-2.0
//! A case with a mismatch, made as small as it can be while the mismatch stays.

use std::time::Duration;

use crate::case::Case;
use crate::frame::Plan;
use freeway_testkit::Moment;

/// How long it may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// `fails` runs a case and says whether it still shows the mismatch. Returns the smallest that did, or nothing if the
/// case itself no longer does.
pub fn shrink(case: &Case, flows: &[usize], mut fails: impl FnMut(&Case) -> bool) -> Option<Case> {
    let end = Moment::now() + PATIENCE;
    if !fails(case) {
        return None;
    }
    let mut best = case.clone();
    let mut try_case = |best: &mut Case, smaller: Case| {
        let better = Moment::now() < end && fails(&smaller);
        if better {
            *best = smaller;
        }
        better
    };
    // The flows that differ, alone.
    if !flows.is_empty() {
        let traffic = best.traffic.filter(|plan| flows.contains(&plan.flow));
        let smaller = Case {
            traffic,
            ..best.clone()
        };
        try_case(&mut best, smaller);
    }
    fewer_frames(&mut best, &mut try_case);
    loop {
        let setups = best.setup.simpler();
        let mut simpler = false;
        for setup in setups {
            let smaller = best.with_setup(setup);
            if try_case(&mut best, smaller) {
                simpler = true;
                break;
            }
        }
        if !simpler {
            break;
        }
    }
    fewer_frames(&mut best, &mut try_case);
    Some(best)
}

/// Leaves out ever shorter stretches of frames.
fn fewer_frames(best: &mut Case, try_case: &mut impl FnMut(&mut Case, Case) -> bool) {
    let numbers = |case: &Case| -> Vec<u32> {
        let plans = case.traffic.parts().into_iter().flatten();
        plans.map(|plan: &Plan| plan.number).collect()
    };
    let mut size = numbers(best).len().div_ceil(2);
    while size > 0 {
        let mut at = 0;
        loop {
            let all = numbers(best);
            if at >= all.len() {
                break;
            }
            let without = &all[at..all.len().min(at + size)];
            let traffic = best.traffic.filter(|plan| !without.contains(&plan.number));
            let smaller = Case {
                traffic,
                ..best.clone()
            };
            if !try_case(best, smaller) {
                at += size;
            }
        }
        size /= 2;
    }
}
