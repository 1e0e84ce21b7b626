// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's routes, and what XDP is to do by them, for each family. No I/O, no clock, no threads.
//!
//! [`Routing`] is told of routes, links, addresses and neighbours, and says which number, a *leaf*, each prefix of a table
//! of longest prefix match has ([`freeway_prefix::Table`]), and what is sent by each number. The answer for an address is the
//! kernel's own, with the tables that it looks into (local, main, and of IPv4 default), or one of two that leave the packet
//! to it: [`LEAF_KERNEL`] and [`LEAF_UNICAST`].
//!
//! The kernel deletes routes without telling (`fib_sync_down_dev`, `fib_sync_down_addr`, `nexthop_flush_dev`). What may have
//! gone so is *doubted*: it is the kernel's until all routes have been read again.
//!
//! The caller makes sure of what is not in the routes: that there are only the default policy rules, that PMTU and redirects
//! change nothing for single destinations (`ip_forward_use_pmtu`, `accept_redirects`), and that the kernel has nothing to say to a sender
//! whose packets leave where they came in (`send_redirects`).

mod alias;
mod answer;
mod change;
mod doubt;
mod fib;
mod hops;
mod ip;
mod lead;
mod load;
mod longest;
mod reach;
mod refused;
mod route;
mod routing;
mod sweep;
mod table;
mod term;

#[cfg(test)]
mod tests;

pub use answer::{Answer, Changes, Counts, Why};
pub use hops::{HOP_MAX, Hop, LEAF_KERNEL, LEAF_UNICAST};
pub use ip::Ip;
pub use reach::{EngineExit, Exit};
pub use route::{Told, Way};
pub use routing::Routing;
