// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many connections there can be.

use std::thread;

use freeway_console::Stop;
use serde::{Deserialize, Serialize};

use super::gateway::{ASSURED_AFTER, Gateway};
use super::search::Most;

/// The connection tracking table's capacity (RFC 9693).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Capacity {
    /// The most connections of which the kernel counted all.
    pub connections: u32,
    /// Frames that came back through them, one each: fewer if the router lost some.
    pub validated: u32,
    /// Set if more were not tried.
    pub at_least: bool,
    /// Connections a second at which they were made, at most.
    pub rate_per_s: u64,
    /// Numbers of connections that were tried.
    pub trials: u64,
}

/// Freeway's own table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowTable {
    /// Room in it.
    pub room: u64,
    /// Connections that were real, both ways.
    pub connections: u32,
    /// Flows that it held of them: two of each are all.
    pub flows: u64,
    /// Set if that was all of them: more would have been held.
    pub at_least: bool,
}

/// Looks for a router's capacity.
pub fn search(
    gateway: &mut Gateway,
    first: u32,
    max: u32,
    rate_per_s: u64,
) -> Result<Capacity, Stop> {
    let mut most = Most::default();
    let (mut validated, mut trials) = (0, 0);
    while let Some(count) = most.next(first, max) {
        trials += 1;
        if let Some(back) = gateway.fill(count, rate_per_s)? {
            validated = back;
            most.holds(count);
        } else {
            most.fails(count, u32::try_from(gateway.connections()?).ok());
        }
    }
    Ok(Capacity {
        connections: most.held,
        validated,
        at_least: most.failed.is_none(),
        rate_per_s,
        trials,
    })
}

/// Has Freeway take what it can of so many connections; nothing without Freeway.
pub fn flow_table(
    gateway: &mut Gateway,
    connections: u32,
    rate_per_s: u64,
) -> Result<Option<FlowTable>, Stop> {
    let Some(room) = gateway.flow_room()? else {
        return Ok(None);
    };
    gateway.fill(connections, rate_per_s)?;
    thread::sleep(ASSURED_AFTER);
    let flows = gateway.real(connections)?;
    Ok(Some(FlowTable {
        room,
        connections,
        flows,
        at_least: flows >= u64::from(connections) * 2,
    }))
}
