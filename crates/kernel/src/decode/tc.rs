// SPDX-License-Identifier: MIT OR Apache-2.0
//! RTM_NEWQDISC (`tc_fill_qdisc`) and RTM_NEWTFILTER (`tcf_fill_node`).

use crate::model::{Filter, Qdisc};
use crate::nla::{attrs_after, u32_at};
use crate::queue::Queue;

const HEADER: usize = 20;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_STATS2: u16 = 7;
const TCA_STATS_QUEUE: u16 = 3;
const TC_H_ROOT: u32 = u32::MAX;
const TCA_CHAIN: u16 = 11;
const TCA_INGRESS_BLOCK: u16 = 13;
const TCA_EGRESS_BLOCK: u16 = 14;
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_ID: u16 = 11;
/// TCM_IFINDEX_MAGIC_BLOCK: the message is about a shared block, whose index is in the parent field.
pub const MAGIC_BLOCK: u32 = u32::MAX;

/// The interface and the parent (or block) of a traffic control message.
pub fn subject(payload: &[u8]) -> Option<(u32, u32)> {
    u32_at(payload, 4).zip(u32_at(payload, 12))
}

/// A qdisc.
pub fn qdisc(payload: &[u8]) -> Option<Qdisc> {
    let mut qdisc = Qdisc {
        ifindex: u32_at(payload, 4)?,
        kind: String::new(),
        handle: u32_at(payload, 8)?,
        parent: u32_at(payload, 12)?,
        ingress_block: None,
        egress_block: None,
    };
    for attr in attrs_after(payload, HEADER) {
        match attr.kind {
            TCA_KIND => qdisc.kind = attr.text(),
            TCA_INGRESS_BLOCK => qdisc.ingress_block = attr.u32(),
            TCA_EGRESS_BLOCK => qdisc.egress_block = attr.u32(),
            _ => {}
        }
    }
    Some(qdisc)
}

/// The interface of a root qdisc, and its queue.
pub fn root_queue(payload: &[u8]) -> Option<(u32, Queue)> {
    if u32_at(payload, 12)? != TC_H_ROOT {
        return None;
    }
    let stats = attrs_after(payload, HEADER).find(TCA_STATS2)?;
    // struct gnet_stats_queue: qlen, backlog, drops, requeues, overlimits
    let queue = stats.nested().find(TCA_STATS_QUEUE)?.payload;
    let queue = Queue {
        packets: u32_at(queue, 0)?,
        drops: u32_at(queue, 8)?,
        requeues: u32_at(queue, 12)?,
    };
    Some((u32_at(payload, 4)?, queue))
}

/// A filter.
pub fn filter(payload: &[u8]) -> Option<Filter> {
    let info = u32_at(payload, 16)?;
    let mut filter = Filter {
        ifindex: u32_at(payload, 4)?,
        parent: u32_at(payload, 12)?,
        kind: String::new(),
        chain: 0,
        priority: (info >> 16) as u16,
        protocol: u16::from_be(info as u16),
        handle: u32_at(payload, 8)?,
        name: None,
        prog_id: None,
    };
    let mut options = None;
    for attr in attrs_after(payload, HEADER) {
        match attr.kind {
            TCA_KIND => filter.kind = attr.text(),
            TCA_CHAIN => filter.chain = attr.u32()?,
            TCA_OPTIONS => options = Some(attr.nested()),
            _ => {}
        }
    }
    if let Some(options) = options.filter(|_| filter.kind == "bpf") {
        filter.name = options.clone().find(TCA_BPF_NAME).map(|attr| attr.text());
        filter.prog_id = options.find(TCA_BPF_ID).and_then(|attr| attr.u32());
    }
    Some(filter)
}
