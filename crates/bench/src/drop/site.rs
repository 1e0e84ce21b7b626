// SPDX-License-Identifier: MIT OR Apache-2.0
//! A router that a flood of banned sources meets, and what it does in a turn.

use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use freeway_console::Stop;
use freeway_lab::{
    FlowSpec, Generator, Lab, LabError, Load, NapiThreads, Netns, Options, Proto, Reference,
    ReferenceGuard, Topology, Until,
};
use freeway_rig::{Counters, Machine, RouterDaemon, pin};

use crate::banned::{FIRST, PREFIX, PREROUTING, ban, ban_by_ipset, fill_ipset, taken_over};
use crate::cli::DropArgs;

/// Before each turn, until caches hold what it needs.
const TURN_WARMUP: Duration = Duration::from_millis(50);
/// Frames still on their way when the generator has ended.
const SETTLE: Duration = Duration::from_millis(10);
const SYN: u8 = 0x02;

/// Who drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropper {
    /// A rule of iptables with a set of ipset, in FORWARD.
    Iptables,
    /// One rule of iptables, for a prefix that has all sources, in FORWARD.
    IptablesRule,
    /// A rule of nftables with a set, in prerouting at priority raw.
    Nft,
    /// The same at the ingress of the port.
    NftIngress,
    /// The first of these with Freeway.
    Freeway,
    /// A program that drops everything.
    XdpDrop,
}

impl Dropper {
    pub const ALL: [Dropper; 6] = [
        Dropper::Iptables,
        Dropper::IptablesRule,
        Dropper::Nft,
        Dropper::NftIngress,
        Dropper::Freeway,
        Dropper::XdpDrop,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Dropper::Iptables => "iptables, ipset",
            Dropper::IptablesRule => "iptables, one rule",
            Dropper::Nft => "nft, prerouting",
            Dropper::NftIngress => "nft, ingress",
            Dropper::Freeway => "Freeway",
            Dropper::XdpDrop => "bare XDP drop",
        }
    }

    /// Where its rule is, with a set of nftables.
    fn chain(self) -> Option<(&'static str, &'static str)> {
        match self {
            Dropper::Iptables | Dropper::IptablesRule | Dropper::XdpDrop => None,
            Dropper::Nft | Dropper::Freeway => Some(PREROUTING),
            Dropper::NftIngress => {
                Some(("netdev", "type filter hook ingress device lan0 priority 0"))
            }
        }
    }
}

/// A router and its hosts. Fields are dropped in order.
pub struct Site<'a> {
    pub dropper: Dropper,
    args: &'a DropArgs,
    daemon: Option<RouterDaemon>,
    _drop: Option<ReferenceGuard>,
    threads: NapiThreads,
    lab: Lab,
}

/// What a turn says.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Turn {
    /// Nanoseconds of the router's CPU for a frame.
    pub ns: f64,
    /// Frames that the router took; the others found its input's queue full.
    pub frames: u64,
    /// Of those, what Freeway dropped.
    pub scrubbed: u64,
}

impl<'a> Site<'a> {
    /// Builds it; or why it cannot be here.
    pub fn build(dropper: Dropper, args: &'a DropArgs) -> Result<Result<Self, String>, Stop> {
        let lab = Lab::build(Topology::parse("routed")?, Options::default())?;
        let threads = lab.poll_by_threads(args.cpu, args.host_cpu)?;
        let ruled = match dropper {
            Dropper::Iptables => by_iptables(|tool| ban_by_ipset(lab.router(), tool)),
            Dropper::IptablesRule => by_iptables(|tool| one_rule(lab.router(), tool)),
            _ => Ok(()),
        };
        if let Err(why) = ruled {
            return Ok(Err(why));
        }
        let daemon = match dropper {
            Dropper::Freeway => {
                let daemon = RouterDaemon::start(&lab, "")?;
                daemon.require_fast_ports()?;
                if Machine::this().cpus > 1 {
                    pin(daemon.status()?.pid, usize::from(args.cpu == 0))?;
                }
                Some(daemon)
            }
            _ => None,
        };
        let drop = match dropper {
            Dropper::XdpDrop => Some(lab.attach(Reference::XdpDrop)?),
            _ => None,
        };
        Ok(Ok(Self {
            dropper,
            args,
            daemon,
            _drop: drop,
            threads,
            lab,
        }))
    }

    /// The set has so many addresses from now on.
    pub fn fill(&self, entries: u32) -> Result<(), Stop> {
        if let Some(chain) = self.dropper.chain() {
            ban(self.lab.router(), chain, entries)?;
        }
        if self.dropper == Dropper::Iptables {
            fill_ipset(self.lab.router(), entries)?;
        }
        match &self.daemon {
            Some(daemon) => taken_over(daemon, entries),
            None => Ok(()),
        }
    }

    /// The flood: SYNs, one by one from each source.
    pub fn generator(&self, entries: u32) -> Result<Generator, Stop> {
        Ok(Generator::new(
            self.lab.client_port(),
            &self.flows(entries),
        )?)
    }

    fn flows(&self, entries: u32) -> FlowSpec {
        let flows = entries.min(self.args.sources);
        FlowSpec {
            near: IpAddr::V4(FIRST.into()),
            near_each: true,
            tcp_flags: SYN,
            bare: true,
            ..self.lab.flows(Proto::Tcp, flows, self.args.frame_bytes)
        }
    }

    /// Sends for so long, as fast as the CPU can.
    pub fn turn(&self, generator: &Generator, duration: Duration) -> Result<Turn, Stop> {
        let full = |time| Load::full(Until::Elapsed(time)).on_cpu(self.args.host_cpu);
        generator.run(&full(TURN_WARMUP))?;
        thread::sleep(SETTLE);
        let (before, cpu) = (self.counted()?, self.threads.cpu_time()?);
        generator.run(&full(duration))?;
        thread::sleep(SETTLE);
        let (after, cpu) = (
            self.counted()?,
            self.threads.cpu_time()?.saturating_sub(cpu),
        );
        let [frames, scrubbed, leaked] =
            std::array::from_fn(|at| after[at].saturating_sub(before[at]));
        if leaked > frames / 100 {
            let who = self.dropper.name();
            return Err(Stop::failure(format!(
                "{who}: {leaked} of {frames} frames of the flood were forwarded"
            )));
        }
        Ok(Turn {
            ns: cpu.as_nanos() as f64 / frames.max(1) as f64,
            frames,
            scrubbed,
        })
    }

    /// Frames that came in, that Freeway dropped, that came to the server.
    fn counted(&self) -> Result<[u64; 3], Stop> {
        let scrubbed = match &self.daemon {
            Some(daemon) => daemon.drops()?.dropped.packets,
            None => 0,
        };
        Ok([
            Counters::of(self.lab.lan_port())?.rx_packets,
            scrubbed,
            Counters::of(self.lab.server_port())?.rx_packets,
        ])
    }

    /// Ends the daemon; fails if it did not end well.
    pub fn end(mut self) -> Result<(), Stop> {
        self.daemon.take().map_or(Ok(()), RouterDaemon::stop)
    }
}

/// By whichever iptables there is.
fn by_iptables(rule: impl Fn(&str) -> Result<(), LabError>) -> Result<(), String> {
    rule("iptables-legacy")
        .or_else(|_| rule("iptables"))
        .map_err(|error| error.to_string())
}

/// One rule for all sources.
fn one_rule(router: &Netns, iptables: &str) -> Result<(), LabError> {
    let rule = format!("-A FORWARD -s {PREFIX} -j DROP");
    router.tool(&format!("{iptables} {rule}")).map(drop)
}
