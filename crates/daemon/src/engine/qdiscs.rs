// SPDX-License-Identifier: MIT OR Apache-2.0
//! Qdiscs of a port.

use freeway_kernel::mirror::Mirror;
use freeway_kernel::model::Qdisc;

/// Classifiers that go by the packet, its mark and its priority.
pub(super) const CLASSIFIERS: [&str; 5] = ["u32", "fw", "flower", "matchall", "bpf"];

/// The qdiscs of a port.
pub(super) fn qdiscs(mirror: &Mirror, ifindex: u32) -> impl Iterator<Item = &Qdisc> {
    let all = mirror.qdiscs();
    let of_port = all.range((ifindex, 0, 0)..=(ifindex, u32::MAX, u32::MAX));
    of_port.map(|(_, qdisc)| qdisc)
}
