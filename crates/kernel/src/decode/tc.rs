// SPDX-License-Identifier: MIT OR Apache-2.0
//! RTM_NEWQDISC (`tc_fill_qdisc`), RTM_NEWTCLASS (`tc_fill_tclass`) and RTM_NEWTFILTER (`tcf_fill_node`).

use crate::model::{Class, Filter, Qdisc, QdiscDetail, ShaperRate};
use crate::nla::{Attr, Attrs, attrs_after, u16_at, u32_at};
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
const TCA_HTB_PARMS: u16 = 1;
const TCA_HTB_INIT: u16 = 2;
const TCA_HTB_RATE64: u16 = 6;
const TCA_HTB_CEIL64: u16 = 7;
const TCA_HTB_OFFLOAD: u16 = 9;
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_TBF_PRATE64: u16 = 5;
const TC_LINKLAYER_ATM: u8 = 2;
const TCA_FW_CLASSID: u16 = 1;
const TCA_FW_MASK: u16 = 5;
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
        detail: QdiscDetail::Other,
    };
    let mut options = None;
    for attr in attrs_after(payload, HEADER) {
        match attr.kind {
            TCA_KIND => qdisc.kind = attr.text(),
            TCA_OPTIONS => options = Some(attr),
            TCA_INGRESS_BLOCK => qdisc.ingress_block = attr.u32(),
            TCA_EGRESS_BLOCK => qdisc.egress_block = attr.u32(),
            _ => {}
        }
    }
    qdisc.detail = options
        .and_then(|options| detail(&qdisc.kind, options.payload, options.nested()))
        .unwrap_or_default();
    Some(qdisc)
}

/// What it does with packets, of those kinds that are known.
fn detail(kind: &str, payload: &[u8], options: Attrs<'_>) -> Option<QdiscDetail> {
    let of = |kind: u16| options.clone().find(kind);
    Some(match kind {
        "htb" => QdiscDetail::Htb {
            default: u32_at(of(TCA_HTB_INIT)?.payload, 8)?,
            offloaded: of(TCA_HTB_OFFLOAD).is_some(),
        },
        "tbf" => {
            let parms = of(TCA_TBF_PARMS)?.payload;
            let buffer = u32_at(parms, 28)?;
            let peak = rate_at(parms, 12, u32_at(parms, 32)?, of(TCA_TBF_PRATE64))?;
            QdiscDetail::Tbf {
                rate: rate_at(parms, 0, buffer, of(TCA_TBF_RATE64))?,
                peak: (peak.rate > 0).then_some(peak),
                limit_bytes: u32_at(parms, 24)?,
            }
        }
        "prio" => QdiscDetail::Prio {
            bands: u32_at(payload, 0)?,
            priomap: payload.get(4..20)?.try_into().ok()?,
        },
        "pfifo" => QdiscDetail::Pfifo(u32_at(payload, 0)?),
        "bfifo" => QdiscDetail::Bfifo(u32_at(payload, 0)?),
        _ => return None,
    })
}

/// `struct tc_ratespec` at that place; `buffer`: ticks of 64 ns; `long`: the rate if 32 bits are too few.
fn rate_at(parms: &[u8], at: usize, buffer: u32, long: Option<Attr<'_>>) -> Option<ShaperRate> {
    let long = long.and_then(|attr| attr.payload.get(..8)?.try_into().ok());
    let rate = u32_at(parms, at + 8)?;
    Some(ShaperRate {
        rate: long.map_or(rate.into(), u64::from_ne_bytes),
        burst_ns: u64::from(buffer) << 6,
        overhead: u16_at(parms, at + 2)?.cast_signed(),
        least: u16_at(parms, at + 6)?,
        atm: parms.get(at + 1)? & 0xf == TC_LINKLAYER_ATM,
    })
}

/// A class; what is not htb's has no rates.
pub fn class(payload: &[u8]) -> Option<Class> {
    let mut class = Class {
        ifindex: u32_at(payload, 4)?,
        handle: u32_at(payload, 8)?,
        parent: u32_at(payload, 12)?,
        leaf: u32_at(payload, 16)?,
        ..Class::default()
    };
    let attrs = attrs_after(payload, HEADER);
    class.kind = attrs.clone().find(TCA_KIND)?.text();
    let options = attrs.clone().find(TCA_OPTIONS).map(|attr| attr.nested());
    let Some(options) = options.filter(|_| class.kind == "htb") else {
        return Some(class);
    };
    let of = |kind: u16| options.clone().find(kind);
    let parms = of(TCA_HTB_PARMS)?.payload;
    class.rate = rate_at(parms, 0, u32_at(parms, 24)?, of(TCA_HTB_RATE64))?;
    class.ceiling = rate_at(parms, 12, u32_at(parms, 28)?, of(TCA_HTB_CEIL64))?;
    class.quantum = u32_at(parms, 32)?;
    class.priority = u32_at(parms, 40)?;
    Some(class)
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
        mark: None,
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
    if let Some(options) = options.clone().filter(|_| filter.kind == "fw") {
        // whatever else it has may refuse a packet, or do something with it
        let plain = options
            .clone()
            .all(|attr| matches!(attr.kind, TCA_FW_CLASSID | TCA_FW_MASK));
        let mask = options.clone().find(TCA_FW_MASK);
        let mask = mask.map_or(Some(u32::MAX), |attr| attr.u32());
        let class = options.find(TCA_FW_CLASSID).and_then(|attr| attr.u32());
        filter.mark = mask.zip(class).filter(|_| plain && filter.handle != 0);
    } else if let Some(options) = options.filter(|_| filter.kind == "bpf") {
        filter.name = options.clone().find(TCA_BPF_NAME).map(|attr| attr.text());
        filter.prog_id = options.find(TCA_BPF_ID).and_then(|attr| attr.u32());
    }
    Some(filter)
}
