// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prefixes as ranges that follow each other.

use crate::{Address, NextHop, Prefix};

/// From here to the next range, or to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range<A = u32, V = NextHop> {
    /// The first address.
    pub first: A,
    /// What all of them lead to; 0 is nothing.
    pub next_hop: V,
}

/// Of sorted prefixes that lie within `first` to `last`, where whatever they leave free leads to `outside`. Neighbours differ.
#[must_use]
pub fn ranges<A: Address, V: Copy + Eq>(
    first: A,
    last: A,
    outside: V,
    prefixes: impl IntoIterator<Item = (Prefix<A>, V)>,
) -> Vec<Range<A, V>> {
    let mut ranges = Vec::new();
    begin(&mut ranges, first, outside);
    // those that are open, the innermost last
    let mut open: Vec<(A, V)> = vec![(last, outside)];
    for (prefix, next_hop) in prefixes {
        close(&mut ranges, &mut open, |end| end < prefix.first());
        begin(&mut ranges, prefix.first(), next_hop);
        open.push((prefix.last(), next_hop));
    }
    close(&mut ranges, &mut open, |end| end < last);
    ranges
}

/// Ends the innermost ones while `ended`; the one around goes on after each.
fn close<A: Address, V: Copy + Eq>(
    ranges: &mut Vec<Range<A, V>>,
    open: &mut Vec<(A, V)>,
    ended: impl Fn(A) -> bool,
) {
    while let [.., (_, around), (end, _)] = open[..]
        && ended(end)
    {
        begin(ranges, end.next(), around);
        open.pop();
    }
}

fn begin<A: Address, V: Copy + Eq>(ranges: &mut Vec<Range<A, V>>, first: A, next_hop: V) {
    if ranges.last().is_some_and(|range| range.first == first) {
        ranges.pop();
    }
    if ranges.last().is_none_or(|range| range.next_hop != next_hop) {
        ranges.push(Range { first, next_hop });
    }
}
