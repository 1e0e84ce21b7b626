// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the tests of several crates share.

mod moment;

pub use moment::Moment;
