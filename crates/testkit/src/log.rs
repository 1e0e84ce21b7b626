// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a program under test says on standard error.

use std::io::Read;
use std::process::Child;
use std::thread::{self, JoinHandle};

/// Read by a thread, so that the program never waits for its reader.
#[derive(Debug)]
pub(crate) struct Log(Option<JoinHandle<String>>);

impl Log {
    /// Of a program whose standard error is a pipe.
    pub fn of(child: &mut Child) -> Self {
        let mut stderr = child.stderr.take().unwrap();
        Self(Some(thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
        })))
    }

    /// All of it, once, when the program has ended.
    pub fn take(&mut self) -> String {
        let log = self.0.take();
        log.map(|log| log.join().unwrap()).unwrap_or_default()
    }
}
