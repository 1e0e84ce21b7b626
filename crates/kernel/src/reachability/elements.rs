// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the elements of a set stand for.

use super::run::Values;
use crate::nft::*;

/// The keys of elements, those of an interval set from the pairs of its elements.
pub(super) fn key_ranges(set: &Set, elements: &[Element]) -> Vec<Values> {
    if set.flags & SET_INTERVAL == 0 || set.flags & SET_CONCAT != 0 {
        return elements
            .iter()
            .map(|element| Values {
                from: element.key.clone(),
                to: element.key_end.clone().unwrap_or(element.key.clone()),
            })
            .collect();
    }
    // An end comes before a beginning at the same key. One more than the last does no harm.
    let mut sorted: Vec<&Element> = elements.iter().collect();
    sorted.sort_by(|a, b| (&a.key, !a.interval_end).cmp(&(&b.key, !b.interval_end)));
    let mut ranges = Vec::new();
    let mut from: Option<&Element> = None;
    for element in sorted {
        match (element.interval_end, from) {
            (false, _) => from = from.or(Some(element)),
            (true, Some(begun)) => {
                ranges.push(Values {
                    from: begun.key.clone(),
                    to: element.key.clone(),
                });
                from = None;
            }
            (true, None) => {}
        }
    }
    // Up to the end of the values.
    ranges.extend(from.map(|begun| Values {
        from: begun.key.clone(),
        to: vec![0xff; begun.key.len()],
    }));
    ranges
}
