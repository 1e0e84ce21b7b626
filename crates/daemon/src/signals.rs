// SPDX-License-Identifier: MIT OR Apache-2.0
//! When the daemon should end.

use std::future::Future;
use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// Completes at SIGINT or SIGTERM. The handlers are installed at once.
pub fn ended() -> io::Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        let name = tokio::select! {
            _ = interrupt.recv() => "SIGINT",
            _ = terminate.recv() => "SIGTERM",
        };
        tracing::info!("{name}: stopping");
    })
}
