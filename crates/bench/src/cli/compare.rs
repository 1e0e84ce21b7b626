// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of `bench` compare, kirkwood and flows.

use clap::{Args, ValueEnum};
use freeway_api::PathChoice;

use super::seconds::sample_seconds;

/// Arguments of `bench compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// What to measure in
    #[arg(long, value_name = "NAME", default_value = "nat")]
    pub scenario: Scenario,
    /// Flows, all of them assured connections where the router tracks them [default: 1000; full-table: 20000; kirkwood: 64]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub flows: Option<u32>,
    /// Hosts beyond the WAN to which the flows go in turn, instead of to the server; in nat, routed and full-table only, of
    /// which the last has 20000 unless told otherwise
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub destinations: Option<u32>,
    /// Protocol of the frames, udp or tcp
    #[arg(long, value_name = "NAME", default_value = "udp", value_parser = lab_proto)]
    pub proto: freeway_lab::Proto,
    /// Frame size in bytes, FCS counted [default: 64; kirkwood: 1418]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(64..=1518))]
    pub frame_bytes: Option<u32>,
    /// Leave out the peers: other shapes of the kernel, nf_flowtable, the kernel's FIB and an LPM trie from XDP
    #[arg(long)]
    pub no_peers: bool,
    /// Runs; figures are their medians
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
    /// Steady state of each Freeway sample in seconds, 0.5 to 3600
    #[arg(long, value_name = "SECONDS", default_value = "20", value_parser = sample_seconds)]
    pub seconds: f64,
    /// Changes of routes and neighbours a second; in churn only [default there: 100]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub changes: Option<u32>,
    /// Have the policy refuse all flows: what Freeway costs where it does not help
    #[arg(long)]
    pub refused: bool,
    /// Have Freeway forward by the kernel's routes, without flows; in routed, full-table and churn only
    #[arg(long, conflicts_with_all = ["refused", "cpus"])]
    pub routes: bool,
    /// The path of Freeway's ports
    #[arg(long, value_name = "PATH", default_value = "auto")]
    pub path: PathChoice,
    /// Connections beside the flows that conntrack holds and nobody uses
    #[arg(long, value_name = "NUMBER", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=999_999))]
    pub idle_connections: u32,
    /// CPU of generator and router
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub cpu: usize,
    /// Send on so many CPUs at once, from --cpu on: rates of kernel and Freeway, over those of one CPU
    ///
    /// Each CPU has a generator, its share of the flows and a queue of each port. Only in nat, routed, routed6, policies and
    /// kirkwood. The daemon has no CPU of its own: leave it one to see the data plane alone.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub cpus: u32,
    /// Leave out what is only reported: the time of the sink and Freeway's program
    #[arg(long)]
    pub brief: bool,
    /// Start Freeway once, not anew for each run
    #[arg(long)]
    pub one_daemon: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl CompareArgs {
    /// CPUs that send.
    pub fn sending_cpus(&self) -> impl Iterator<Item = usize> {
        (self.cpu..).take(self.cpus as usize)
    }

    /// Flows: as many as asked for, or the scenario's.
    pub fn flows(&self) -> u32 {
        self.flows.unwrap_or(self.scenario.flows())
    }

    /// Frame size: what was asked for, or the scenario's.
    pub fn frame_bytes(&self) -> u32 {
        self.frame_bytes.unwrap_or(self.scenario.frame_bytes())
    }

    /// Changes a second of what the routers know; none but in `churn`.
    pub fn changes(&self) -> u32 {
        match self.scenario {
            Scenario::Churn => self.changes.unwrap_or(100),
            _ => 0,
        }
    }

    /// Why peers are not measured.
    pub fn without_peers(&self) -> Option<&'static str> {
        if self.no_peers {
            Some("--no-peers leaves it out")
        } else if self.cpus > 1 {
            Some("--cpus is for the kernel and Freeway alone")
        } else if self.refused {
            Some("--refused compares the kernel with itself")
        } else if self.idle_connections > 0 {
            Some("--idle-connections is for the kernel and Freeway alone")
        } else {
            None
        }
    }
}

fn lab_proto(text: &str) -> Result<freeway_lab::Proto, String> {
    match text {
        "udp" => Ok(freeway_lab::Proto::Udp),
        "tcp" => Ok(freeway_lab::Proto::Tcp),
        _ => Err("write udp or tcp".into()),
    }
}

/// What to measure in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scenario {
    /// IPv4 masquerade and a stateful firewall.
    Nat,
    /// IPv4 routing without connection tracking.
    Routed,
    /// IPv6 routing without connection tracking.
    Routed6,
    /// Like nat, with 1,000 rules that do not match ahead of the one that accepts.
    Policies,
    /// Like routed, with 1,000,000 routes, of which the flows use 20,000.
    FullTable,
    /// Like nat, with packets of 1,400 bytes: `bench kirkwood` is both protocols of it.
    Kirkwood,
    /// Like routed, while routes and neighbours change.
    Churn,
    /// Like nat, the LAN being a bridge of the router.
    Bridge,
    /// Like nat, the LAN being an 802.1Q VLAN.
    Vlan,
    /// Like nat, the WAN being a PPPoE session.
    Pppoe,
}

impl Scenario {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Scenario::Nat => "nat",
            Scenario::Routed => "routed",
            Scenario::Routed6 => "routed6",
            Scenario::Policies => "policies",
            Scenario::FullTable => "full-table",
            Scenario::Kirkwood => "kirkwood",
            Scenario::Churn => "churn",
            Scenario::Bridge => "bridge",
            Scenario::Vlan => "vlan",
            Scenario::Pppoe => "pppoe",
        }
    }

    /// How many flows it has unless told.
    fn flows(self) -> u32 {
        match self {
            Scenario::FullTable => 20_000,
            // so many that GRO finds no two frames of one to merge
            Scenario::Kirkwood => 64,
            _ => 1000,
        }
    }

    /// How large its frames are unless told: the smallest, or those around packets of 1,400 bytes.
    fn frame_bytes(self) -> u32 {
        match self {
            Scenario::Kirkwood => 1418,
            _ => 64,
        }
    }
}

/// Arguments of `bench kirkwood`.
#[derive(Debug, Args)]
pub struct KirkwoodArgs {
    /// Flows, in turn, so many that GRO finds no two frames of one to merge
    #[arg(long, value_name = "NUMBER", default_value_t = 64, value_parser = clap::value_parser!(u32).range(64..=10_000))]
    pub flows: u32,
    /// Runs; figures are their medians
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
    /// Seconds of each Freeway sample, 0.5 to 3600
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = sample_seconds)]
    pub seconds: f64,
    /// The path of Freeway's ports
    #[arg(long, value_name = "PATH", default_value = "auto")]
    pub path: PathChoice,
    /// CPU of generator and router
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub cpu: usize,
    /// Start Freeway once for each protocol, not anew for each run
    #[arg(long)]
    pub one_daemon: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `bench flows`.
#[derive(Debug, Args)]
pub struct ByFlowsArgs {
    /// What to measure in
    #[arg(long, value_name = "NAME", default_value = "nat")]
    pub scenario: Scenario,
    /// Flows, in turn; repeat for more
    #[arg(long, value_name = "NUMBER", default_values_t = [1, 10, 100, 1000, 10_000, 100_000, 1_000_000], value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub flows: Vec<u32>,
    /// Runs; figures are their medians
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
    /// Seconds of each sample of each router, 0.5 to 3600
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = sample_seconds)]
    pub seconds: f64,
    /// The path of Freeway's ports
    #[arg(long, value_name = "PATH", default_value = "auto")]
    pub path: PathChoice,
    /// CPU of generator and router
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub cpu: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
