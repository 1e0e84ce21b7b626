// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rings are looked at.

use std::collections::BTreeMap;

use freeway_api::PathChoice;
use freeway_kernel::mirror::Mirror;
use freeway_kernel::model::Link;
use freeway_kernel::queue::{self, Queue};

use super::super::Engine;
use super::super::ports::Port;
use super::super::qdiscs::qdiscs;

/// Qdiscs in which nothing can wait.
const WITHOUT_QUEUE: [&str; 3] = ["noqueue", "clsact", "ingress"];

impl Engine {
    /// Looks at the rings of all outputs of XDP; true if one is full now and was not, or the other way round.
    pub(in crate::engine) fn look_at_rings(&mut self) -> bool {
        let mut queues: Option<BTreeMap<u32, Queue>> = None;
        let mut changed = false;
        let indices: Vec<u32> = self.ports.by_index.keys().copied().collect();
        for ifindex in indices {
            let Some(port) = self.ports.by_index.get_mut(&ifindex) else {
                continue;
            };
            if port.slot.is_none() || !port.has_xdp() {
                continue;
            }
            let dropped = self.datapath.fault(ifindex).overflowed;
            let mirror = &self.mirror;
            let queue = || {
                queueing(mirror, ifindex)?;
                let queues = queues.get_or_insert_with(|| {
                    queue::of_ports().unwrap_or_else(|error| {
                        tracing::debug!("{error}");
                        BTreeMap::new()
                    })
                });
                queues.get(&ifindex).copied()
            };
            if port.ring.look(dropped, queue) {
                changed = true;
                match port.ring.is_full() {
                    true => tracing::info!(
                        port = port.name,
                        "the ring is full: the qdisc has the port's packets"
                    ),
                    false => tracing::info!(
                        port = port.name,
                        "the ring has room: packets are redirected again"
                    ),
                }
            }
        }
        changed
    }

    /// Why what leaves at a port goes through its qdisc, if its ring is full, or that of the device below.
    pub(in crate::engine) fn overflows(&self, link: &Link, port: &Port) -> Option<String> {
        let options = self.config.port.get(&link.name);
        if options.is_some_and(|options| options.path == PathChoice::Xdp) {
            return None;
        }
        // a VLAN's frames leave by the ring below
        let base = port.carried.as_ref().map(|carried| carried.base);
        let below = base.and_then(|base| self.ports.by_index.get(&base));
        let ring = below.map_or(&port.ring, |below| &below.ring);
        let kind = || queueing(&self.mirror, base.unwrap_or(link.ifindex)).unwrap_or("noqueue");
        ring.reason(kind)
    }
}

/// The qdisc of a port in which packets can wait.
fn queueing(mirror: &Mirror, ifindex: u32) -> Option<&str> {
    let kinds = qdiscs(mirror, ifindex).map(|qdisc| qdisc.kind.as_str());
    let queueing: Vec<&str> = kinds.filter(|kind| !WITHOUT_QUEUE.contains(kind)).collect();
    // the children of mq say more than it does
    let named = queueing.iter().find(|kind| **kind != "mq");
    named.or(queueing.first()).copied()
}
