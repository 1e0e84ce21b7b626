// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many connections there can be.

use std::thread;

use serde::{Deserialize, Serialize};

use super::gateway::{ASSURED_AFTER, Gateway, Trial};
use super::search::next_count;
use crate::exit::Stop;

/// A number that fails is tried again: at that rate a router loses nothing, but other work may hold it up.
const TRIES: u32 = 2;

/// The connection tracking table's capacity (RFC 9693, 4.9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Capacity {
    /// The most connections of which none was missing.
    pub connections: u32,
    /// Set if more were not tried.
    pub at_least: bool,
    /// Connections a second at which they were made.
    pub rate_per_s: u64,
    /// Trials.
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
    let mut capacity = Capacity {
        rate_per_s,
        ..Capacity::default()
    };
    let (mut failed, mut kept) = (None, None);
    while let Some(count) = next_count(capacity.connections, failed, kept, first, max) {
        let mut tries = TRIES;
        loop {
            capacity.trials += 1;
            let trial = gateway.establish(count, rate_per_s, rate_per_s)?;
            tries -= 1;
            if trial == Trial::Held {
                capacity.connections = count;
                break;
            }
            if tries == 0 {
                failed = Some(count);
                kept = u32::try_from(gateway.connections()?).ok();
                break;
            }
        }
    }
    capacity.at_least = failed.is_none();
    Ok(capacity)
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
    gateway.empty()?;
    gateway.preliminary(connections, rate_per_s)?;
    gateway.validation(connections, rate_per_s)?;
    thread::sleep(ASSURED_AFTER);
    let flows = gateway.real(connections)?;
    Ok(Some(FlowTable {
        room,
        connections,
        flows,
        at_least: flows >= u64::from(connections) * 2,
    }))
}
