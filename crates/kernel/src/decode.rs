// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernel messages to [`crate::model`]. Each function takes a message's payload and returns `None` for what it
//! cannot understand; none can fail on truncated or random input.

pub mod address;
pub mod connection;
pub mod link;
pub mod mdb;
pub mod mroute;
pub mod neigh;
pub mod netconf;
pub mod nexthop;
#[cfg(test)]
mod recorded;
pub mod route;
pub mod rule;
pub mod tc;
pub mod xfrm;
