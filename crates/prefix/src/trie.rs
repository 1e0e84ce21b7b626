// SPDX-License-Identifier: MIT OR Apache-2.0
//! The model: a binary trie, a bit at a time.

use crate::{Address, NextHop, Prefix};

#[derive(Clone, Debug, Default)]
struct Node {
    next_hop: Option<NextHop>,
    children: [Option<Box<Node>>; 2],
}

/// Longest prefix match as its definition says it, for addresses of one family.
#[derive(Clone, Debug, Default)]
pub struct Trie(Node);

impl Trie {
    /// Sets, or with `None` removes, a prefix.
    pub fn set<A: Address>(&mut self, prefix: Prefix<A>, next_hop: Option<NextHop>) {
        let mut node = &mut self.0;
        for at in 0..prefix.length() {
            let bit = prefix.first().bit(at);
            node = node.children[usize::from(bit)].get_or_insert_default();
        }
        node.next_hop = next_hop;
    }

    /// The next hop of the longest prefix that has the address, or 0.
    #[must_use]
    pub fn lookup<A: Address>(&self, address: A) -> NextHop {
        let mut node = &self.0;
        let mut longest = node.next_hop;
        for at in 0..A::LENGTH {
            let Some(child) = &node.children[usize::from(address.bit(at))] else {
                break;
            };
            node = child;
            longest = node.next_hop.or(longest);
        }
        longest.unwrap_or(0)
    }
}
