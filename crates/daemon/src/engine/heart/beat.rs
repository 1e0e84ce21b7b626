// SPDX-License-Identifier: MIT OR Apache-2.0
//! What each heartbeat does.

use std::time::Instant;

use super::super::{Engine, view};
use super::DEADLINE;
use crate::DaemonError;

impl Engine {
    /// Renews the deadline. If it passed unnoticed, connections may have ended
    /// unseen: nothing that was learned before is trusted.
    pub(in crate::engine) fn heartbeat(&mut self) -> Result<(), DaemonError> {
        let now_tick = self.now_tick()?;
        let silent = self.heart.renewed.elapsed();
        if silent >= DEADLINE {
            tracing::warn!(
                "the daemon was stopped for {:.1} s; all flows are learned anew",
                silent.as_secs_f64()
            );
            self.flush()?;
            self.resync()?;
            self.datapath.forget_edges(now_tick);
        }
        self.datapath.age_edges(now_tick);
        self.heart.renew(&self.datapath, now_tick);
        let mut ops = Vec::new();
        if self.lost.due(Instant::now()) {
            tracing::warn!("events of connections were lost: flows are confirmed anew");
            self.manager.new_epoch(&mut ops);
        }
        self.manager
            .tick(now_tick, &view::View(&self.datapath), &mut ops);
        self.age_paths(now_tick, &mut ops);
        self.move_stations(now_tick, &mut ops);
        self.execute(ops)?;
        if self.look_at_rings() | self.look_at_cores() {
            self.update_ports()?;
        }
        Ok(())
    }
}
