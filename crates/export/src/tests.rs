// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages are read again by a decoder that knows nothing but the RFCs; accounts are compared with what was sent.
#![allow(clippy::unwrap_used, clippy::panic)]

mod accounts;
mod decoder;
mod messages;
