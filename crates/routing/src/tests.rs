// SPDX-License-Identifier: MIT OR Apache-2.0
//! Against a kernel that is slow and obvious, and cases by hand.

mod cases;
mod kernel;
mod large;
mod random;
