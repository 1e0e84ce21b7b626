// SPDX-License-Identifier: MIT OR Apache-2.0
//! The model: a binary trie, a bit at a time.

use crate::{NextHop, Prefix4};

#[derive(Clone, Debug, Default)]
struct Node {
    next_hop: Option<NextHop>,
    children: [Option<Box<Node>>; 2],
}

/// Longest prefix match as its definition says it.
#[derive(Clone, Debug, Default)]
pub struct Trie(Node);

impl Trie {
    /// Sets, or with `None` removes, a prefix.
    pub fn set(&mut self, prefix: Prefix4, next_hop: Option<NextHop>) {
        let mut node = &mut self.0;
        for at in 0..prefix.length() {
            let bit = prefix.first() >> (31 - at) & 1;
            node = node.children[bit as usize].get_or_insert_default();
        }
        node.next_hop = next_hop;
    }

    /// The next hop of the longest prefix that has the address, or 0.
    #[must_use]
    pub fn lookup(&self, address: u32) -> NextHop {
        let mut node = &self.0;
        let mut longest = node.next_hop;
        for at in 0..32 {
            let bit = address >> (31 - at) & 1;
            let Some(child) = &node.children[bit as usize] else {
                break;
            };
            node = child;
            longest = node.next_hop.or(longest);
        }
        longest.unwrap_or(0)
    }
}
