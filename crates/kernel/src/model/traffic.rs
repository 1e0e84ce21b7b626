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
}

impl Filter {
    /// True if every packet passes it, and no qdisc classifies by it.
    #[must_use]
    pub fn is_hooked(&self) -> bool {
        matches!(self.parent, TC_INGRESS | TC_EGRESS)
    }
}
