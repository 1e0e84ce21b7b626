// SPDX-License-Identifier: MIT OR Apache-2.0
//! The data plane as user space sees it: load, attach, shared memory, events.
//!
//! Everything `unsafe` about BPF and shared memory is in this crate.

mod ahead;
mod attach;
mod clock;
mod copies;
mod drops;
mod edges;
mod error;
mod events;
mod grace;
mod hooked;
mod load;
mod object;
mod packed;
mod precedents;
mod programs;
mod ratelimit;
mod routes;
mod scrub;
mod shared;
mod syscall;
mod tap;
pub mod user;
mod warnings;

pub use attach::{Attachment, Hook, XdpFd, raise_descriptor_limit};
pub use clock::Clock;
pub use error::DatapathError;
pub use events::{DataplaneEvent, Events};
pub use hooked::{Function, Hooked};
pub use load::MapMemory;
pub use object::{
    Datapath, FLOWS_DEFAULT, FLOWS_MAX, LoadOptions, PortFault, ProgramSize, has_builtin_kfunc,
};
pub use precedents::{PrecedentCounts, Precedents, bucket};
pub use ratelimit::{Front, NativeLimiter, Offender, PACKETS_PER_S_MAX, RateLimiter, SourceRate};
pub use routes::{
    RouteHook, RouteSizes, RouteTable, RoutedByEngine, RoutedFamily, RoutedHere, TableFull,
    Unplaced,
};
pub use scrub::{ScrubKey, Scrubber};
pub use shared::{Control, Flows, Kept, Nexthops, Offers, PathCounts, Seen, Slots};
pub use tap::{Tap, TapCounts, TapReader, TapRing};
