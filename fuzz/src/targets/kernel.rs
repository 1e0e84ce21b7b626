// SPDX-License-Identifier: MIT OR Apache-2.0
//! What comes over netlink.

use freeway_kernel::fuzz;

/// Every decoder over one payload, and over those of a datagram.
pub fn netlink(bytes: &[u8]) {
    fuzz::decode(bytes);
    fuzz::datagram(bytes);
}

/// A datagram of rtnetlink events, applied to the mirrored state.
pub fn events(bytes: &[u8]) {
    fuzz::events(bytes);
}

/// A datagram of nf_tables messages, read as a ruleset, and analysed.
pub fn ruleset(bytes: &[u8]) {
    fuzz::ruleset(bytes);
}

/// A table of the legacy iptables, read and analysed.
pub fn legacy(bytes: &[u8]) {
    fuzz::legacy(bytes);
}
