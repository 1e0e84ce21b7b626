// SPDX-License-Identifier: MIT OR Apache-2.0
//! A lab whose router runs Freeway, and what is looked at there: what demo and bench share.

mod figures;
mod forwarded;
pub mod iperf;
mod machine;
mod port;
mod prepare;
mod process;
mod room;
mod router;
mod streamed;

pub use figures::figures;
pub use forwarded::Forwarded;
pub use machine::Machine;
pub use port::Counters;
pub use prepare::prepare;
pub use process::{cpu_time, pin};
pub use room::{flow_config, options};
pub use router::RouterDaemon;
pub use streamed::{Streamed, poll_by_threads};
