// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine on cores of its own, as the daemon sees it: a process that comes and goes. It is told where the table is, and
//! the flows of its ports are its as long as it is there.

mod heard;

use std::path::Path;

use freeway_api::engine::EngineStatus;

use crate::DaemonError;
use crate::door::{Door, Notice};

/// Whoever may be there.
pub(super) struct Cores {
    door: Door,
    there: Option<There>,
}

/// An engine that has the table.
struct There {
    status: EngineStatus,
    ports: Vec<u32>,
}

impl Cores {
    /// Opens the engine's socket beside the control socket.
    pub fn open(control: &Path) -> Result<Self, DaemonError> {
        Ok(Self {
            door: Door::open(&freeway_api::engine::socket_beside(control))?,
            there: None,
        })
    }

    /// Completes when an engine comes, says something, or has gone.
    pub async fn notice(&mut self) -> Notice {
        self.door.notice().await
    }

    /// True of a port that the engine forwards for.
    pub fn serve(&self, ifindex: u32) -> bool {
        let there = self.there.as_ref();
        there.is_some_and(|there| there.ports.contains(&ifindex))
    }
}
