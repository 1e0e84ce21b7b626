// SPDX-License-Identifier: MIT OR Apache-2.0
//! Everything that Freeway knows of and says to the kernel over netlink.
//!
//! All sockets are synchronous and belong to the network namespace of the thread that opens them. Event sockets
//! do not block; their descriptors are for the caller to poll.

pub mod cbpf;
pub mod clsact;
pub mod conntrack;
mod decode;
pub mod error;
pub mod ethtool;
#[doc(hidden)]
pub mod fuzz;
pub mod hooks;
pub mod memberships;
mod message;
pub mod mirror;
pub mod model;
pub mod netdev;
pub mod nft;
mod nla;
pub mod pppoe;
pub mod probe;
pub mod progs;
pub mod queue;
pub mod reachability;
pub mod routes;
pub mod scrub;
mod socket;
pub mod sockets;
pub mod sysctl;

pub use conntrack::Conntrack;
pub use error::{Error, Result};
pub use memberships::Memberships;
pub use mirror::{Mirror, MirrorConfig};
pub use reachability::{Affected, Analysis, Finding, analyse};
