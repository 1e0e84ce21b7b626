// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the tests of the data plane share: frames and flows as data, a runner for each target.
#![allow(dead_code)]

pub mod frame;
pub mod state;
pub mod target;
