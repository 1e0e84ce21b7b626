// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cases as vectors: what the kernel's router got and what it sent, for tests that have no router.
//!
//! `FREEWAY_RECORD=FILE` appends some short frames of each direction of a few flows. `tests/vectors/transparency.txt` was
//! made so, and `crates/datapath/tests/transparency.rs` reads it.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use crate::bench::{KERNEL, Left, Outcome};
use crate::case::Case;
use crate::compare::is_judged;
use crate::frame::{Plan, Sum, View, number};

/// Directions of a case.
const DIRECTIONS: usize = 3;
/// Frames of a direction that are its flow's, and others.
const FRAMES: usize = 6;
const LONGEST: usize = 150;

/// Appends a case in which everything may be fast.
pub fn record(path: &Path, case: &Case, outcome: &Outcome) {
    if !case.setup.explains().is_empty() {
        return;
    }
    let text = text(case, outcome);
    if !text.is_empty() {
        let mut file = File::options()
            .append(true)
            .create(true)
            .open(path)
            .unwrap();
        writeln!(file, "# {:#x} {}\n{text}", case.seed, case.setup).unwrap();
    }
}

fn text(case: &Case, outcome: &Outcome) -> String {
    let mut left: HashMap<u32, Vec<&Left>> = HashMap::new();
    for frame in &outcome.left[KERNEL] {
        let forwarded = View::of(&frame.bytes).filter(|view| view.tuple().is_some());
        if let Some(number) = forwarded.and_then(|_| number(&frame.bytes)) {
            left.entry(number).or_default().push(frame);
        }
    }
    let mut text = String::new();
    let mut directions = 0;
    for index in 0..case.flows.len() {
        for back in [false, true] {
            let plans: Vec<&Plan> = case
                .traffic
                .rest
                .iter()
                .filter(|plan| (plan.flow, plan.back) == (index, back) && !is_judged(case, plan))
                .filter(
                    |plan| matches!(outcome.sent.get(&plan.number), Some(sent) if sent.len() == 1),
                )
                .filter(|plan| outcome.sent[&plan.number][0].len() <= LONGEST && !plan.is_short())
                .collect();
            if directions < DIRECTIONS
                && let Some(block) = block(case, index, back, &plans, &left, outcome)
            {
                text += &block;
                directions += 1;
            }
        }
    }
    text
}

fn block(
    case: &Case,
    index: usize,
    back: bool,
    plans: &[&Plan],
    left: &HashMap<u32, Vec<&Left>>,
    outcome: &Outcome,
) -> Option<String> {
    let flow = &case.flows[index];
    if flow.odd || flow.wanders {
        return None;
    }
    let i = usize::from(back);
    let plain = |plan: &&&Plan| {
        let guard = (plan.ttl, plan.tos >> 2, plan.label);
        guard == (flow.ttl[i], flow.dscp[i], flow.label[i])
            && plan.l4_sum != Sum::Wrong
            && plan.tags.is_empty()
            && plan.ip_options.is_empty()
            && plan.extension.is_none()
            && plan.udp_len.is_none()
            && !plan.doff_bad
            && !plan.mac_roams
            && plan.tcp_flags & 0x10 != 0
            && left.get(&plan.number).is_some_and(|left| left.len() == 1)
    };
    let sent = |plan: &Plan| &outcome.sent[&plan.number][0];
    let pattern = plans
        .iter()
        .filter(plain)
        .max_by_key(|plan| sent(plan).len())?;
    let [pattern_left] = left[&pattern.number][..] else {
        return None;
    };
    let way = if crate::compare::is_tracked(case, flow) {
        "tracked"
    } else {
        "untracked"
    };
    let enter = outcome.ways[index][i]?.enter;
    let mut text = format!(
        "learn {way} {enter} {} > {} {}\n",
        hex(sent(pattern)),
        pattern_left.port,
        hex(&pattern_left.bytes)
    );
    let (own, others): (Vec<&Plan>, Vec<&Plan>) = plans.iter().partition(|plan| plain(plan));
    for plan in own.iter().take(FRAMES).chain(others.iter().take(FRAMES)) {
        let left = left.get(&plan.number).map_or(&[][..], Vec::as_slice);
        let out: Vec<String> = left
            .iter()
            .map(|left| format!(" {}", hex(&left.bytes)))
            .collect();
        let _ = writeln!(text, "frame {} >{}", hex(sent(plan)), out.concat());
    }
    Some(text)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
