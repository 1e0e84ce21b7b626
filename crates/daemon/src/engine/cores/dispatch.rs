// SPDX-License-Identifier: MIT OR Apache-2.0
//! How frames of the engine's ports come to its workers, as it is asked and changed. The engine has said what each port can
//! be, so a change that cannot be is refused here.

use std::os::fd::AsFd;

use freeway_api::Failure;
use freeway_api::engine::{Answer, DispatchChange, DispatchMode, DispatchQuery, Dispatching};
use freeway_api::handover;

use super::super::Engine;
use super::There;

/// A port's number, and the mode that it is to have.
fn change(there: &There, query: &DispatchQuery) -> Result<DispatchChange, Failure> {
    let ports = &there.status.counts.dispatch;
    let Some(port) = ports.iter().find(|port| port.port == query.port) else {
        let names: Vec<_> = ports.iter().map(|port| port.port.as_str()).collect();
        return Err(Failure::request(
            format!("{} is no port of the engine's", query.port),
            format!("its ports are {}", names.join(", ")),
        ));
    };
    if !port.modes.contains(&query.mode) {
        let hint = match query.mode {
            DispatchMode::Rss => {
                "rss takes a queue of the device for each worker; dispatch takes one"
            }
            DispatchMode::Dispatch | DispatchMode::Balanced => {
                "it takes an I/O core: engine.io_cores in the configuration"
            }
        };
        return Err(Failure::request(
            format!("{} cannot be {}", query.port, query.mode.name()),
            hint,
        ));
    }
    Ok(DispatchChange {
        port: port.ifindex,
        mode: query.mode,
    })
}

impl Engine {
    /// How frames come to workers, after a change if there is one: as it is to be, and soon will.
    pub(in crate::engine) fn dispatch(
        &mut self,
        query: Option<&DispatchQuery>,
    ) -> Result<Dispatching, Failure> {
        let Some(there) = &mut self.cores.there else {
            let hint = "systemctl start freeway-engine";
            return Err(Failure::unavailable("the engine is not there", hint));
        };
        if let Some(query) = query {
            let change = change(there, query)?;
            let sent = handover::send(there.socket.as_fd(), &Answer::Dispatch(change), &[]);
            sent.map_err(|error| {
                Failure::unavailable(
                    format!("the engine does not answer: {error}"),
                    "systemctl status freeway-engine",
                )
            })?;
            let mut ports = there.status.counts.dispatch.iter_mut();
            if let Some(port) = ports.find(|port| port.ifindex == change.port) {
                port.mode = change.mode;
            }
        }
        Ok(Dispatching {
            ports: there.status.counts.dispatch.clone(),
        })
    }
}
