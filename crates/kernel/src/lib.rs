// SPDX-License-Identifier: MIT OR Apache-2.0
//! Everything that Freeway knows of and says to the kernel over netlink.
//!
//! All sockets are synchronous and belong to the network namespace of the thread that opens them. Event sockets
//! do not block; their descriptors are for the caller to poll.

pub mod conntrack;
pub mod error;
pub mod mirror;
pub mod model;
pub mod nft;
pub mod reachability;

pub use conntrack::Conntrack;
pub use error::{Error, Result};
pub use mirror::{Mirror, MirrorConfig};
pub use reachability::{Analysis, Finding, analyse};
