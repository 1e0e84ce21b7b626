// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compressed nodes of six bits below a direct level of 16 (after Asai, Ohara 2015).

use freeway_prefix::{NextHop, Range};

use super::{Block, Map};

/// Of an entry of the direct level: a leaf.
const LEAF: u32 = 1 << 31;

#[derive(Clone, Copy, Default)]
struct Node {
    children: u64,
    runs: u64,
    child: u32,
    leaf: u32,
}

/// Always fits.
#[must_use]
pub fn poptrie(ranges: &[Range]) -> Option<Block> {
    let (mut nodes, mut leaves) = (Vec::new(), Vec::new());
    let mut root = Vec::with_capacity(1 << 16);
    for slot in 0..1u32 << 16 {
        let within = Map(ranges).within(slot << 16, 16);
        if let [(_, next_hop)] = within[..] {
            root.push(LEAF | u32::from(next_hop));
            continue;
        }
        let at = nodes.len();
        nodes.push(Node::default());
        root.push(at as u32);
        // two bits more than there are, so that three levels end with them
        let scaled: Vec<_> = within
            .iter()
            .map(|(first, next_hop)| (first << 2, *next_hop))
            .collect();
        fill(&mut nodes, &mut leaves, at, &scaled, 12);
    }
    let words = nodes.iter().flat_map(|node| {
        let halves = |word: u64| [word as u32, (word >> 32) as u32];
        let [a, b] = halves(node.children);
        let [c, d] = halves(node.runs);
        [a, b, c, d, node.child, node.leaf]
    });
    let words: Vec<u32> = words.collect();
    Some(
        Block::new()
            .words(0, root)
            .words(1, words)
            .halves(2, &leaves),
    )
}

/// A node whose slots have `2^bits` addresses.
fn fill(
    nodes: &mut Vec<Node>,
    leaves: &mut Vec<u16>,
    at: usize,
    ranges: &[(u32, NextHop)],
    bits: u32,
) {
    let leaf = leaves.len() as u32;
    let (mut children, mut runs, mut last) = (0u64, 0u64, None);
    let mut below = Vec::new();
    for slot in 0..64u32 {
        let (first, end) = (slot << bits, (slot + 1) << bits);
        let begin = ranges.partition_point(|range| range.0 <= first) - 1;
        let within = ranges[begin..].iter().take_while(|range| range.0 < end);
        let within: Vec<_> = within
            .map(|(at, next_hop)| (at.saturating_sub(first), *next_hop))
            .collect();
        match within[..] {
            [(_, next_hop)] => {
                if last != Some(next_hop) {
                    runs |= 1 << slot;
                    leaves.push(next_hop);
                    last = Some(next_hop);
                }
            }
            _ => {
                children |= 1 << slot;
                below.push(within);
            }
        }
    }
    let child = nodes.len();
    nodes.resize(child + below.len(), Node::default());
    nodes[at] = Node {
        children,
        runs,
        child: child as u32,
        leaf,
    };
    for (number, within) in below.iter().enumerate() {
        fill(nodes, leaves, child + number, within, bits - 6);
    }
}
