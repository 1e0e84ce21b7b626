// SPDX-License-Identifier: MIT OR Apache-2.0
//! The wiring of data path, connection manager and kernel mirror.

use std::future::Future;

use tokio::sync::mpsc;

use super::{DaemonError, Request};
use crate::config::Config;

/// Runs until `shutdown` completes or something fails; on return every program is detached.
pub async fn run(
    _config: Config,
    _requests: mpsc::Receiver<Request>,
    _shutdown: impl Future<Output = ()>,
) -> Result<(), DaemonError> {
    Err(DaemonError::Failure("this build has no engine".into()))
}
