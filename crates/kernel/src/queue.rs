// SPDX-License-Identifier: MIT OR Apache-2.0
//! What waits in the qdisc of a port.

use std::collections::BTreeMap;

use crate::decode;
use crate::error::Result;
use crate::message::Message;
use crate::nla::Writer;
use crate::socket::Channel;

/// Counters of a root qdisc, those of its children in them (`struct gnet_stats_queue`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// Packets that wait.
    pub packets: u32,
    /// Packets dropped; wraps.
    pub drops: u32,
    /// Packets that the driver had no room for, and that were put back; wraps.
    pub requeues: u32,
}

/// The root qdiscs' queues in the calling thread's network namespace, by interface index.
pub fn of_ports() -> Result<BTreeMap<u32, Queue>> {
    let mut queues = BTreeMap::new();
    let mut channel = Channel::open(libc::NETLINK_ROUTE)?;
    let mut each = |message: Message<'_>| queues.extend(decode::tc::root_queue(message.payload));
    // struct tcmsg
    let body = |writer: &mut Writer| writer.raw(&[0; 20]);
    channel.dump("list the qdiscs", libc::RTM_GETQDISC, body, &mut each)?;
    Ok(queues)
}
