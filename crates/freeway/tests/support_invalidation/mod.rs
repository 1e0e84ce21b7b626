// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the tests of changes in the kernel share.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod netlink;
pub mod site;
