// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queueing disciplines and tc filters.

use serde::Serialize;

/// A queueing discipline (RTM_NEWQDISC, `tc_fill_qdisc`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Qdisc {
    /// The interface.
    pub ifindex: u32,
    /// noqueue, fq_codel, htb, clsact...
    pub kind: String,
    /// Handle, major in the upper 16 bits.
    pub handle: u32,
    /// Parent class, 0xffffffff for root, 0xfffffff1 for ingress and clsact.
    pub parent: u32,
    /// Shared filter block of its ingress.
    pub ingress_block: Option<u32>,
    /// Shared filter block of its egress.
    pub egress_block: Option<u32>,
    /// How it shapes, of those kinds that are known.
    pub detail: QdiscDetail,
}

/// What a qdisc does with packets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub enum QdiscDetail {
    /// Whatever.
    #[default]
    Other,
    /// htb (sch_htb.c): class of what no other one is chosen for, minor number; 0: none.
    Htb {
        /// The class.
        default: u32,
        /// It is the device's.
        offloaded: bool,
    },
    /// tbf (sch_tbf.c).
    Tbf {
        /// Its rate.
        rate: ShaperRate,
        /// Its peak rate, if it has one.
        peak: Option<ShaperRate>,
        /// Octets that wait.
        limit_bytes: u32,
    },
    /// prio (sch_prio.c): bands, and which one a priority is of.
    Prio {
        /// How many.
        bands: u32,
        /// By the lower four bits of a packet's priority.
        priomap: [u8; 16],
    },
    /// pfifo: packets that wait.
    Pfifo(u32),
    /// bfifo: octets that wait.
    Bfifo(u32),
}

/// A rate, `struct tc_ratespec` with what it may send at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ShaperRate {
    /// Octets a second.
    pub rate: u64,
    /// What it may send at once, as the time that this takes.
    pub burst_ns: u64,
    /// Each packet counts as so many octets more,
    pub overhead: i16,
    /// and as that many at least.
    pub least: u16,
    /// Packets count as cells of ATM.
    pub atm: bool,
}

/// A class of htb (RTM_NEWTCLASS, `htb_dump_class`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Class {
    /// The interface.
    pub ifindex: u32,
    /// Its kind; what is below is htb's.
    pub kind: String,
    /// Its handle.
    pub handle: u32,
    /// The class above, or the qdisc, or 0xffffffff.
    pub parent: u32,
    /// Handle of the qdisc in it, 0: the default one.
    pub leaf: u32,
    /// Its rate.
    pub rate: ShaperRate,
    /// Its ceiling.
    pub ceiling: ShaperRate,
    /// Octets of a turn.
    pub quantum: u32,
    /// 0 is first.
    pub priority: u32,
}

/// Parent of the ingress side of clsact, and of the ingress qdisc (TC_H_MIN_INGRESS).
pub const TC_INGRESS: u32 = 0xffff_fff2;
/// Parent of the egress side of clsact (TC_H_MIN_EGRESS).
pub const TC_EGRESS: u32 = 0xffff_fff3;

/// A tc filter (RTM_NEWTFILTER, `tcf_fill_node`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Filter {
    /// The interface.
    pub ifindex: u32,
    /// [`TC_INGRESS`], [`TC_EGRESS`], or the qdisc or class.
    pub parent: u32,
    /// bpf, matchall, flower, u32...
    pub kind: String,
    /// Chain index.
    pub chain: u32,
    /// Priority, lower runs first.
    pub priority: u16,
    /// EtherType it looks at, 0x0003 for all.
    pub protocol: u16,
    /// Filter handle.
    pub handle: u32,
    /// Name of a BPF filter (TCA_BPF_NAME).
    pub name: Option<String>,
    /// Program id of a BPF filter.
    pub prog_id: Option<u32>,
    /// Of a filter by marks that does nothing else: mask and class.
    pub mark: Option<(u32, u32)>,
}

impl Filter {
    /// True if every packet passes it, and no qdisc classifies by it.
    #[must_use]
    pub fn is_hooked(&self) -> bool {
        matches!(self.parent, TC_INGRESS | TC_EGRESS)
    }
}
