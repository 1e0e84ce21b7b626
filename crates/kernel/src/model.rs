// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel has and what happened to it: plain data, no I/O.
//!
//! Numbers are in host byte order, ports too; addresses are `std::net::IpAddr`s.

mod address;
mod connection;
mod event;
mod link;
mod mdb;
mod mroute;
mod neigh;
mod route;
mod traffic;

pub use address::*;
pub use connection::*;
pub use event::*;
pub use link::*;
pub use mdb::*;
pub use mroute::*;
pub use neigh::*;
pub use route::*;
pub use traffic::*;
