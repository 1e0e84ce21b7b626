// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes in the kernel while it forwards: where they are made, and how.

pub mod netlink;
pub mod site;
