// SPDX-License-Identifier: MIT OR Apache-2.0
//! Forwarding on cores of its own, with DPDK.

pub mod eal;
