// SPDX-License-Identifier: MIT OR Apache-2.0
//! Questions to the engine, answered in time.

use std::time::Duration;

use freeway_api::Failure;
use tokio::sync::{mpsc, oneshot};

use super::request::{Reply, Request};

/// The way to the engine.
pub type Engine = mpsc::Sender<Request>;

/// Asks the engine and waits for its answer.
pub async fn ask<T>(
    engine: &Engine,
    patience: Duration,
    question: impl FnOnce(Reply<T>) -> Request,
) -> Result<T, Failure> {
    let ending = || Failure::unavailable("the daemon is ending", "try again when it runs");
    let (reply, answer) = oneshot::channel();
    let conversation = async {
        engine.send(question(reply)).await.map_err(|_| ending())?;
        answer.await.map_err(|_| ending())?
    };
    tokio::time::timeout(patience, conversation)
        .await
        .unwrap_or_else(|_| {
            Err(Failure::unavailable(
                "the daemon is busy",
                "try again; its log says with what",
            ))
        })
}
