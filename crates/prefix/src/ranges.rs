// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nested prefixes as ranges that follow each other.

use crate::{NextHop, Prefix4};

/// From here to the next range, or to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first address.
    pub first: u32,
    /// What all of them lead to; 0 is nothing.
    pub next_hop: NextHop,
}

/// Of sorted prefixes that lie within `first` to `last`, where whatever they leave free leads to `outside`. Neighbours differ.
#[must_use]
pub fn ranges(
    first: u32,
    last: u32,
    outside: NextHop,
    prefixes: impl IntoIterator<Item = (Prefix4, NextHop)>,
) -> Vec<Range> {
    let mut ranges = Vec::new();
    begin(&mut ranges, first, outside);
    // those that are open, the innermost last
    let mut open: Vec<(u32, NextHop)> = vec![(last, outside)];
    for (prefix, next_hop) in prefixes {
        close(&mut ranges, &mut open, |end| end < prefix.first());
        begin(&mut ranges, prefix.first(), next_hop);
        open.push((prefix.last(), next_hop));
    }
    close(&mut ranges, &mut open, |end| end < last);
    ranges
}

/// Ends the innermost ones while `ended`; the one around goes on after each.
fn close(ranges: &mut Vec<Range>, open: &mut Vec<(u32, NextHop)>, ended: impl Fn(u32) -> bool) {
    while let [.., (_, around), (end, _)] = open[..]
        && ended(end)
    {
        begin(ranges, end + 1, around);
        open.pop();
    }
}

fn begin(ranges: &mut Vec<Range>, first: u32, next_hop: NextHop) {
    if ranges.last().is_some_and(|range| range.first == first) {
        ranges.pop();
    }
    if ranges.last().is_none_or(|range| range.next_hop != next_hop) {
        ranges.push(Range { first, next_hop });
    }
}
