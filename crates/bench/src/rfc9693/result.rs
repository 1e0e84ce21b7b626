// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the trials say.

use freeway_rig::Machine;
use serde::{Deserialize, Serialize};

use super::capacity::{Capacity, FlowTable};
use super::establishment::Establishment;
use super::tear_down::TearDown;
use crate::rfc2544::Router;

/// The result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rfc9693 {
    /// The lab's topology.
    pub scenario: String,
    /// Connections of a rate's test.
    pub connections: u32,
    /// Repetitions of the rates.
    pub runs: u32,
    /// In the short form.
    pub quick: bool,
    /// Bounds of the establishment rate are so close, relative.
    pub width: f64,
    /// What sender and receiver can do without a router, frames a second.
    pub generator_pps: f64,
    /// nf_conntrack_max, as it was for the routers.
    pub table_limit: u64,
    /// So many connections the rules admitted, if they limited them.
    pub table_max: Option<u32>,
    /// The capacity was looked for up to so many.
    pub capacity_max: u32,
    /// The kernel alone.
    pub kernel: Figures,
    /// The kernel with Freeway.
    pub freeway: Figures,
    /// What was left out, or should have been otherwise.
    pub remarks: Vec<String>,
    /// What was measured on.
    pub machine: Machine,
}

/// A router's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// New connections.
    pub establishment: Establishment,
    /// The end of connections.
    pub tear_down: TearDown,
    /// How many there can be.
    pub capacity: Capacity,
    /// How many flows Freeway holds of them; none of the kernel alone.
    pub flow_table: Option<FlowTable>,
}

impl Rfc9693 {
    /// The routers by their names.
    pub fn routers(&self) -> [(Router, &Figures); 2] {
        [
            (Router::Kernel, &self.kernel),
            (Router::Freeway, &self.freeway),
        ]
    }
}
