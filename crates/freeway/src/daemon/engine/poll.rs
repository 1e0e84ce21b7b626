// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel tells only when asked.

use freeway_kernel::model::Link;

use crate::api::Feature;

/// Foreign programs and sniffers that must see every packet of a port.
pub(super) fn blockers(link: &Link, ours: &[u32]) -> Vec<String> {
    let _ = (link, ours);
    Vec::new()
}

pub(super) fn xdp_features(ifindex: u32) -> (Vec<String>, bool) {
    let _ = ifindex;
    (Vec::new(), true)
}

pub(super) fn features() -> Vec<Feature> {
    Vec::new()
}
