// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of what goes on beside a test.

use std::sync::atomic::{AtomicBool, Ordering};

/// Says so when it is dropped, by a panic as well: threads of a scope are waited for.
#[derive(Debug)]
pub struct Ends<'a>(pub &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
