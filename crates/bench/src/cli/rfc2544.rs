// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of `bench` rfc2544.

use clap::{Args, ValueEnum};

use super::seconds::trial_seconds;
use crate::rfc2544::Size;

pub(super) const RFC2544_HELP: &str = "\
Example: freeway bench rfc2544 --quick
         freeway bench rfc2544 --scenario routed --size 64 --size 512 --bidirectional
         freeway bench rfc2544 --flows 20000 --destinations 20000
         freeway bench rfc2544 --size 1518 --seconds 60 --trials 1";

/// Arguments of `bench rfc2544`.
#[derive(Debug, Args)]
pub struct Rfc2544Args {
    /// The lab's topology
    #[arg(long, value_name = "NAME", default_value = "nat")]
    pub scenario: Rfc2544Scenario,
    /// Frame size, FCS counted: 64, 128, 256, 512, 1024, 1280, 1518, 9000, or imix (28 of 64 bytes, 16 of 570, 4 of 1518);
    /// repeat for more
    #[arg(long = "size", value_name = "BYTES", default_values = ["64", "imix", "1518"])]
    pub sizes: Vec<Size>,
    /// Flows, all of them assured connections where the router tracks them
    #[arg(long, value_name = "NUMBER", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub flows: u32,
    /// Hosts beyond the WAN to which the flows go in turn, instead of to the server; in nat and routed only
    #[arg(long, value_name = "NUMBER", conflicts_with = "bidirectional", value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub destinations: Option<u32>,
    /// Send in both directions at once; loads and rates are of one
    #[arg(long)]
    pub bidirectional: bool,
    /// Have all done in 8 seconds and 6 for each size, with short trials and coarse bounds; 8 more if 9000 is beside others
    #[arg(long, conflicts_with_all = ["seconds", "trials"])]
    pub quick: bool,
    /// Seconds of the search's last trials, and of those at fixed loads; latencies take five times that, 0.02 to 60
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = trial_seconds)]
    pub seconds: f64,
    /// Trials that decide about a load; of several, half may exceed the loss ratio
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=60))]
    pub trials: u32,
    /// CPU of the router
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub cpu: usize,
    /// CPU of sender, receiver and the daemon
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub host_cpu: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl Rfc2544Args {
    /// Directions in which frames are sent at the same time.
    pub fn directions(&self) -> u32 {
        if self.bidirectional { 2 } else { 1 }
    }
}

/// What `bench rfc2544` can measure in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Rfc2544Scenario {
    /// IPv4 masquerade and a stateful firewall.
    Nat,
    /// IPv4 routing without connection tracking.
    Routed,
    /// IPv6 routing without connection tracking.
    Routed6,
}

impl Rfc2544Scenario {
    /// Its name, which is the topology's.
    pub fn name(self) -> &'static str {
        match self {
            Rfc2544Scenario::Nat => "nat",
            Rfc2544Scenario::Routed => "routed",
            Rfc2544Scenario::Routed6 => "routed6",
        }
    }
}
