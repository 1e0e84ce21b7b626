// SPDX-License-Identifier: MIT OR Apache-2.0
//! A collector as the engine knows it: records are put into a queue that has an end, and a thread does the rest.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;

use freeway_export::Record;
use tokio::sync::mpsc;

use super::counters::Counters;
use super::session;
use crate::DaemonError;
use crate::config::Export;
use crate::error::failure;

/// One of `[[export]]`. Its thread ends when it is dropped, and what waits is sent, if that takes no more than a few.
pub struct Collector {
    pub config: Export,
    queue: Option<mpsc::Sender<Record>>,
    counters: Arc<Counters>,
    thread: Option<JoinHandle<()>>,
}

impl Collector {
    pub fn start(config: Export) -> Result<Self, DaemonError> {
        let (queue, waiting) = mpsc::channel(config.queue as usize);
        let counters = Arc::new(Counters::default());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failure)?;
        let (wanted, told) = (config.clone(), Arc::clone(&counters));
        let thread = std::thread::Builder::new().name("freeway-export".into());
        let thread = thread
            .spawn(move || runtime.block_on(session::run(&wanted, waiting, &told)))
            .map_err(failure)?;
        Ok(Self {
            config,
            queue: Some(queue),
            counters,
            thread: Some(thread),
        })
    }

    /// Never waits: what finds no room is dropped.
    pub fn offer(&self, record: &Record) {
        let queue = self.queue.as_ref();
        if queue.is_none_or(|queue| queue.try_send(*record).is_err()) {
            self.counters.dropped.fetch_add(1, Relaxed);
        }
    }

    pub fn status(&self) -> freeway_api::Collector {
        let counters = &self.counters;
        freeway_api::Collector {
            collector: self.config.collector.to_string(),
            format: self.config.format.name().into(),
            transport: self.config.transport.name().into(),
            state: counters.state(),
            records: counters.records.load(Relaxed),
            messages: counters.messages.load(Relaxed),
            bytes: counters.octets.load(Relaxed),
            dropped: counters.dropped.load(Relaxed),
            connects: counters.connects.load(Relaxed),
            error: counters.error(),
        }
    }

    /// Nothing more comes.
    pub fn close(&mut self) {
        self.queue = None;
    }

    /// Waits until its thread has sent what waited.
    pub fn join(&mut self) {
        self.close();
        if let Some(thread) = self.thread.take() {
            // a panic there was printed there
            let _ = thread.join();
        }
    }
}
