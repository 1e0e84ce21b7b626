// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the manager wants done.

use freeway_abi::{fw_flow, fw_kept, fw_nexthop, fw_state};
use freeway_kernel::model::Tuple;

use crate::key::ConnKey;

/// An operation, to be carried out in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Write a new next hop.
    SetNexthop {
        /// Its index.
        index: u32,
        /// What to write.
        nexthop: Box<fw_nexthop>,
    },
    /// Write a list of ports for copies, then the next hop that names it, which is invalid if that fails.
    SetOlist {
        /// Index of the next hop.
        index: u32,
        /// Number of the list.
        number: u32,
        /// One for each port.
        legs: Vec<fw_nexthop>,
        /// What to write at the index.
        nexthop: Box<fw_nexthop>,
    },
    /// Flows through it wait in the kernel, at once.
    InvalidateNexthop {
        /// Its index.
        index: u32,
    },
    /// Write the flow and enter it into the table.
    InsertFlow {
        /// Flow index.
        index: u32,
        /// Key, guard, action and first state.
        flow: Box<fw_flow>,
        /// What its connection is.
        kept: fw_kept,
        /// Its connection, and whether it is the reply direction; `None`: conntrack does not see it.
        conn: Option<(ConnKey, bool)>,
    },
    /// Suspend the flow and take it out of the table.
    RemoveFlow {
        /// Flow index.
        index: u32,
    },
    /// No packet can hold the removed flow any more: its place may be another's.
    ReleaseFlow {
        /// Flow index.
        index: u32,
    },
    /// The data plane may offer this key, which is all of the flow that is filled in, again at once.
    ForgetOffer {
        /// The key.
        flow: Box<fw_flow>,
    },
    /// Let the data plane use the flow, unless it suspended it meanwhile.
    Activate {
        /// Flow index.
        index: u32,
    },
    /// Name the other direction's state.
    SetPeer {
        /// Flow index.
        index: u32,
        /// The other direction's, or 0.
        peer: u32,
    },
    /// The flow waits in the kernel until confirmed.
    Unconfirm {
        /// Flow index.
        index: u32,
    },
    /// Make conntrack liberal for a TCP connection; answer by [`Manager::prepared`](crate::Manager::prepared).
    Prepare {
        /// The connection.
        conn: ConnKey,
        /// Also write the time left, seconds.
        timeout_s: Option<u32>,
    },
    /// Write the time left of a connection.
    SetTimeout {
        /// Original tuple.
        orig: Tuple,
        /// Zone.
        zone: u16,
        /// Seconds left.
        seconds: u32,
    },
    /// What ends of TCP connections have said so far counts no more.
    ForgetEnds {
        /// When that was so.
        now_tick: u32,
    },
    /// Begin a new hard epoch: every flow waits until confirmed.
    SetEpoch {
        /// The epoch, never 0.
        epoch: u32,
    },
}

/// The states as the data plane left them.
pub trait StateView {
    /// A copy of the state of the flow with this index.
    fn state(&self, index: u32) -> fw_state;

    /// Takes the marks of TCP flows of which the kernel has confirmed a packet, in the order of their indices, until
    /// there are `most`; returns the index to go on with, which is the end of the range if there are no more.
    fn take_seen(&self, indices: std::ops::Range<u32>, most: usize, seen: &mut Vec<u32>) -> u32;
}
