// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the tests of several crates share: labs, daemons, traffic, waiting, changes in the kernel.
// Tests beside it are its only users: where a name says all, nothing else does.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod bench;
mod blocks;
mod browser;
mod ends;
pub mod engine;
mod fits;
pub mod invalidation;
mod kernel;
mod labs;
pub mod large;
mod log;
mod machine;
mod moment;
pub mod objects;
pub mod path;
mod program;
pub mod random;
mod router;
mod sockets;
mod stats;
pub mod tunnel;
mod until;
mod web;
pub mod wire;

pub use blocks::{BLOCK, at_end, block, exchange_blocks, receive_blocks, send_blocks};
pub use browser::Browser;
pub use ends::Ends;
pub use fits::check_fits;
pub use kernel::{connection_from, connections, dropped, dropped_at, forwarded, retransmitted};
pub use labs::{CLIENT, SERVER, address, build, build_with, udp_ends};
pub use machine::{cpu_ms, late_max, long, machine, paced};
pub use moment::Moment;
pub use program::{confined, freeway, program};
pub use router::{Router, adopt_orphans, fast_ports};
pub use sockets::{connect_from, listen, pair, patient, reset, udp};
pub use stats::Stats;
pub(crate) use until::POLL;
pub use until::until;
pub use web::Web;

/// Of frames that are to be fast at least so many are. How many pass while the kernel has one of them to judge
/// is the machine's; where a path is not used, none are.
pub const FAST_MIN: f64 = 0.5;
