// SPDX-License-Identifier: MIT OR Apache-2.0
//! Forwarding on cores of its own, with DPDK.

mod balance;
pub mod bench;
pub mod config;
mod controller;
pub mod crew;
mod dispatch;
pub mod eal;
pub mod exchange;
pub mod exits;
pub mod ffi;
mod io;
mod lanes;
pub mod lookup;
pub mod memory;
pub mod pool;
pub mod port;
pub mod reserve;
pub mod run;
pub mod sockets;
pub mod tap;
mod worker;
mod workers;
