// SPDX-License-Identifier: MIT OR Apache-2.0
//! Accounting of whole connections, and its export.
//!
//! [`Book`] adds what the kernel counted of a connection to what the fast path forwarded of it, and says when a
//! [`Record`] of that is due. [`Encoder`] writes records as messages of IPFIX or NetFlow v9. Neither does any I/O nor
//! reads a clock.

mod account;
mod book;
mod encoder;
mod field;
mod format;
mod hosts;
mod record;
mod round;

#[cfg(test)]
mod tests;

pub use account::{Direction, FastCounts};
pub use book::{Book, Key, Times, Totals};
pub use encoder::Encoder;
pub use format::Format;
pub use hosts::{Host, Hosts};
pub use record::{Counts, EndReason, Record};
