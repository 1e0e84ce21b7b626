// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links that are parts of others.

use freeway_kernel::model::{Link, PortDetail};

/// A part of a bond.
pub(super) fn is_part(link: &Link) -> bool {
    link.master.is_some() && matches!(link.port, PortDetail::Bond { .. })
}

/// True if the bond takes what comes in there for its own (`bond_handle_frame()`, `bond_is_slave_inactive()`).
pub(super) fn takes(bond: &Link, part: &Link) -> bool {
    let active = matches!(part.port, PortDetail::Bond { state: 0, .. });
    active && bond.up && part.up && part.carrier && part.mac == bond.mac
}

/// A port of a bridge.
pub(super) fn is_member(link: &Link) -> bool {
    link.master.is_some() && matches!(link.port, PortDetail::Bridge { .. })
}
