// SPDX-License-Identifier: MIT OR Apache-2.0
//! Forwarding on cores of its own, with DPDK.

pub mod bench;
pub mod config;
pub mod eal;
pub mod exchange;
pub mod exits;
pub mod ffi;
pub mod lookup;
pub mod memory;
pub mod placement;
pub mod pool;
pub mod pools;
pub mod port;
pub mod reserve;
pub mod run;
pub mod sockets;
pub mod tap;
pub mod topology;
pub mod vhost;
pub mod worker;
