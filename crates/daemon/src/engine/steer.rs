// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whose flows are at ports that XDP and the engine share, and what the engine copies, as it is asked and changed.

use freeway_api::{Failure, SteerChange, Steering, check_steering};

use super::Engine;
use crate::DaemonError;

impl Engine {
    /// The rules, after a change if there is one. Flows that are now another's leave, and are learned anew as its.
    pub(super) fn steer(
        &mut self,
        change: Option<SteerChange>,
    ) -> Result<Result<Steering, Failure>, DaemonError> {
        let mut steering = Steering {
            rules: self.config.policy.steer.clone(),
            ports: self.shared_ports(),
        };
        let Some(change) = change else {
            return Ok(Ok(steering));
        };
        if let SteerChange::Add { rule, .. } = &change
            && rule.mirror.is_none()
        {
            let there = |name: &&String| self.mirror.link_by_name(name).is_some();
            if let Some(name) = rule.port.iter().find(|name| !there(name)) {
                let hint = "ip link show lists those that there are";
                let failure = Failure::request(format!("{name}: no such network interface"), hint);
                return Ok(Err(failure));
            }
        }
        if let Err(error) = steering.change(change) {
            return Ok(Err(Failure::request(
                error,
                "freeway steer list shows them",
            )));
        }
        let owns = |port: &str| self.config.engine.owns(port);
        if let Err((_, error)) = check_steering(&steering.rules, owns) {
            return Ok(Err(Failure::request(
                error,
                "freeway config show has the engine's ports",
            )));
        }
        self.config.policy.steer.clone_from(&steering.rules);
        self.update_policy()?;
        Ok(Ok(steering))
    }
}
