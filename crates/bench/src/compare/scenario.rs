// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `bench compare` can measure, as data.

use freeway_console::Stop;
use freeway_lab::routes::{self, Beyond};
use freeway_lab::ruleset::policies;
use freeway_lab::{Options, Topology};
use freeway_rig::options;

use crate::cli::Scenario;
use crate::router::Router;

/// A scenario.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// Its name on the command line.
    scenario: Scenario,
    /// The lab's topology.
    topology: &'static str,
    /// What the router has that the topology has not.
    adds: Adds,
    /// Who else is measured, in the order of the table.
    pub peers: &'static [Router],
}

/// What makes the router's work harder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Adds {
    Nothing,
    /// So many rules that do not match, ahead of the one that accepts.
    Policies(u32),
    /// A table of so many routes, of which the flows use many.
    Table(u32),
    /// Changes of routes and neighbours while it is measured.
    Changes,
    /// A bridge for a LAN.
    Bridge,
    /// An 802.1Q VLAN for a LAN.
    Vlan,
    /// A PPPoE session for a WAN.
    Pppoe,
}

/// Hosts in a full table's networks.
const DESTINATIONS: u32 = 20_000;
/// The VLAN's identifier,
const VLAN: u16 = 5;
/// and the session's number.
const SESSION: u16 = 0x1234;

/// All.
const ALL: [Definition; 10] = [
    Definition {
        scenario: Scenario::Nat,
        topology: "nat",
        adds: Adds::Nothing,
        peers: &[
            Router::KernelStateless,
            Router::Flowtable,
            Router::FlowtableXdp,
            Router::Fib,
        ],
    },
    Definition {
        scenario: Scenario::Routed,
        topology: "routed",
        adds: Adds::Nothing,
        peers: &[
            Router::KernelStateful,
            Router::Flowtable,
            Router::FlowtableXdp,
            Router::Fib,
        ],
    },
    Definition {
        scenario: Scenario::Routed6,
        topology: "routed6",
        adds: Adds::Nothing,
        peers: &[
            Router::KernelStateful,
            Router::Flowtable,
            Router::FlowtableXdp,
            Router::Fib,
        ],
    },
    Definition {
        scenario: Scenario::Policies,
        topology: "nat",
        adds: Adds::Policies(1000),
        peers: &[Router::KernelPlain, Router::Flowtable],
    },
    Definition {
        scenario: Scenario::FullTable,
        topology: "routed",
        adds: Adds::Table(routes::ROUTES_MAX),
        peers: &[Router::KernelPlain, Router::Fib, Router::LpmTrie],
    },
    Definition {
        scenario: Scenario::Kirkwood,
        topology: "nat",
        adds: Adds::Nothing,
        peers: &[Router::Flowtable],
    },
    Definition {
        scenario: Scenario::Churn,
        topology: "routed",
        adds: Adds::Changes,
        peers: &[Router::KernelPlain, Router::Fib],
    },
    // as behind an access line: what translates is the router of a home
    Definition {
        scenario: Scenario::Bridge,
        topology: "nat",
        adds: Adds::Bridge,
        peers: &[Router::KernelPlain, Router::Flowtable],
    },
    Definition {
        scenario: Scenario::Vlan,
        topology: "nat",
        adds: Adds::Vlan,
        peers: &[Router::KernelPlain, Router::Flowtable],
    },
    Definition {
        scenario: Scenario::Pppoe,
        topology: "nat",
        adds: Adds::Pppoe,
        peers: &[Router::KernelPlain, Router::Flowtable],
    },
];

impl Definition {
    /// Of the scenario.
    pub fn of(scenario: Scenario) -> &'static Definition {
        let of = ALL.iter().find(|of| of.scenario == scenario);
        // a test sees to it that none is forgotten
        of.unwrap_or(&ALL[0])
    }

    /// The lab's topology.
    pub fn topology(&self) -> Result<&'static Topology, Stop> {
        Ok(Topology::parse(self.topology)?)
    }

    /// What its labs are built with.
    pub fn options(&self, connections: u32) -> Result<Options, Stop> {
        let plain = options(connections);
        Ok(match self.adds {
            Adds::Nothing | Adds::Changes => plain,
            Adds::Policies(number) => Options {
                extra_nft: policies(self.topology()?.family, number),
                ..plain
            },
            Adds::Table(routes) => Options {
                routes,
                beyond: Some(Beyond {
                    hosts: DESTINATIONS,
                    routes,
                }),
                ..plain
            },
            Adds::Bridge => Options {
                bridge: true,
                ..plain
            },
            Adds::Vlan => Options {
                vlan: Some(VLAN),
                ..plain
            },
            Adds::Pppoe => Options {
                pppoe: Some(SESSION),
                ..plain
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn additions_are_options() {
        let of = |scenario| Definition::of(scenario).options(1000).unwrap();
        let rules = of(Scenario::Policies).extra_nft;
        let drops = rules.lines().filter(|line| line.ends_with(" drop"));
        assert_eq!(drops.count(), 1000);
        let table = of(Scenario::FullTable);
        assert_eq!(table.routes, 1_000_000);
        assert_eq!(table.beyond.unwrap().hosts, 20_000);
        let nat = of(Scenario::Nat);
        assert_eq!(nat.beyond, None);
        assert_eq!((nat.bridge, nat.vlan, nat.pppoe), (false, None, None));
        assert!(of(Scenario::Bridge).bridge);
        assert_eq!(of(Scenario::Vlan).vlan, Some(VLAN));
        assert_eq!(of(Scenario::Pppoe).pppoe, Some(SESSION));
    }

    #[test]
    fn every_scenario_is_defined() {
        for scenario in Scenario::value_variants() {
            let of = Definition::of(*scenario);
            assert_eq!(of.scenario, *scenario);
            let kernel = Router::kernel_of(of.topology().unwrap());
            assert!(!of.peers.contains(&kernel), "{scenario:?}");
            let harder = of.adds != Adds::Nothing;
            assert_eq!(of.peers.contains(&Router::KernelPlain), harder);
        }
    }
}
