// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control server and its questions, for fuzz/.

pub use crate::request::{Page, PageQuery, Reply, Request};
pub use crate::server::router;
