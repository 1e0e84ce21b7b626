// SPDX-License-Identifier: MIT OR Apache-2.0
//! One daemon after another, with no port left alone in between.
//!
//! The daemon that runs starts its successor, the installed program, and goes on. The successor loads its programs, and
//! attaches none. When it is ready, the older one gives all to the kernel, and hands over the descriptors of its links and
//! sockets; the successor's programs take the places of those that are there. Only when it says that it forwards does the older
//! one end. Whatever fails before leaves that one where it was.
//!
//! They talk over a pair of sockets that nobody else can reach. No map goes along, so their binary interfaces may differ. If they
//! do not, flows do, in a file: the successor enters them into its own table, as if its data plane had offered them.

pub mod flows;
pub mod predecessor;
pub mod successor;
pub mod words;
