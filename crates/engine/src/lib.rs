// SPDX-License-Identifier: MIT OR Apache-2.0
//! Forwarding on cores of its own, with DPDK.

mod balance;
pub mod bench;
mod bench_routes;
pub mod config;
mod controller;
pub mod crew;
mod dispatch;
mod distance;
pub mod eal;
pub mod exchange;
pub mod exits;
pub mod ffi;
mod io;
mod lanes;
pub mod lookup;
mod mapping;
pub mod memory;
pub mod mirror;
pub mod placement;
pub mod pool;
pub mod pools;
pub mod port;
pub mod qos;
pub mod reserve;
pub mod routes;
pub mod run;
pub mod schedule;
mod schedulers;
pub mod sockets;
pub mod tap;
pub mod topology;
pub mod trial;
pub mod vhost;
mod wakers;
mod worker;
mod workers;
