// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a measurement is to show, or says that it does not.

/// Fewer of the frames on the fast path than this deserve a remark.
pub const SHARE_EXPECTED: f64 = 0.98;

/// So do more lost ones than this.
pub const LOSS_EXPECTED: f64 = 0.001;

/// So do fewer of the changes that were asked for than this.
pub const CHANGES_EXPECTED: f64 = 0.95;
