// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is said to those who ask.

use std::collections::BTreeMap;

use freeway_prefix::{NextHop, Prefix};

use crate::hops::Hop;
use crate::ip::Ip;
use crate::route::Way;

/// Why the kernel decides on a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// Addresses that the kernel treats apart from its routes: 0/8, 127/8, multicast, broadcast.
    Reserved,
    /// The local table has it.
    Local,
    /// Its route does not forward.
    Kind,
    /// Several hops, encapsulation, and the like.
    Special,
    /// It has routes for one TOS, or for some sources.
    Some,
    /// It has several routes of the lowest priority.
    Equals,
    /// Its addresses are on the link: each neighbour has a prefix of its own.
    OnLink,
    /// There are more next hops than numbers for them.
    Full,
    /// Its route may have gone.
    Doubted,
    /// The kernel did something else.
    Withdrawn,
}

impl Why {
    /// For people.
    #[must_use]
    pub fn words(&self) -> &'static str {
        match self {
            Why::Reserved => "no route decides on these addresses",
            Why::Local => "it is in the local table",
            Why::Kind => "its route does not forward packets",
            Why::Special => {
                "its route has several hops, or does more than send packets on as they are"
            }
            Why::Some => "a route of it is for one TOS, or for some sources only",
            Why::Equals => "it has several routes of the same priority",
            Why::OnLink => "it is on the link, and no neighbour has been resolved",
            Why::Full => "there are too many next hops",
            Why::Doubted => "its route may have gone; all routes are being read again",
            Why::Withdrawn => "the kernel was seen to do something else",
        }
    }
}

/// What the table says of an address, and what it is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer<A: Ip> {
    /// The longest prefix of the table that has it.
    pub prefix: Prefix<A>,
    /// The number there.
    pub leaf: NextHop,
    /// Why it is the kernel's, if it is.
    pub why: Option<Why>,
    /// What is sent by the number, if it can be now.
    pub hop: Option<Hop<A>>,
    /// The kernel's route as far as it is known: table, prefix; and where it leads, unless that depends on the packet.
    pub route: Option<(u32, Prefix<A>, Option<Way<A>>)>,
}

/// What is to be brought into the data plane: hops first, then prefixes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes<A: Ip> {
    /// What is sent by a number from now on; `None`: nothing, the kernel has these packets.
    pub hops: Vec<(NextHop, Option<Hop<A>>)>,
    /// The number of a prefix from now on; `None`: that of the one around it.
    pub prefixes: Vec<(Prefix<A>, Option<NextHop>)>,
}

impl<A: Ip> Changes<A> {
    /// Nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hops.is_empty() && self.prefixes.is_empty()
    }
}

/// How many there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Routes of the three tables.
    pub routes: usize,
    /// Prefixes with a next hop.
    pub prefixes: usize,
    /// Next hops that prefixes have.
    pub hops: usize,
    /// Prefixes that the kernel contradicted.
    pub withdrawn: usize,
    /// Prefixes that are the kernel's, and why.
    pub kept: BTreeMap<Why, usize>,
}
