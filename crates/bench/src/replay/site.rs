// SPDX-License-Identifier: MIT OR Apache-2.0
//! A router that a capture is replayed through.

use std::thread;
use std::time::{Duration, Instant};

use freeway_api::PathChoice;
use freeway_console::Stop;
use freeway_lab::{
    Filter, Lab, NapiThreads, Options, Played, Player, Tally, Tape, Tempo, Topology,
};
use freeway_rig::{RouterDaemon, flow_config, options, pin};

use super::deal::Deal;
use crate::cli::ReplayArgs;

const SCENARIO: &str = "routed";
/// After the last frame: nothing came for so long, or all did,
const SETTLE: Duration = Duration::from_millis(200);
/// or this has passed.
const SETTLE_MAX: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(2);

/// A router and its hosts. Fields are dropped in order.
pub struct Site {
    daemon: Option<RouterDaemon>,
    /// At the server, and at the client.
    tallies: [Tally; 2],
    player: Player,
    threads: NapiThreads,
    lab: Lab,
    cpu: usize,
}

/// What came of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pass {
    /// What was sent.
    pub played: Played,
    /// What arrived at the server, and at the client.
    pub arrived: [u64; 2],
    /// The router's CPU time.
    pub cpu: Duration,
    /// Frames that Freeway forwarded.
    pub fast: u64,
}

impl Pass {
    /// Frames from both sides.
    pub fn sent(&self) -> u64 {
        self.played.sent.iter().sum()
    }

    /// Frames that arrived at either.
    pub fn all_arrived(&self) -> u64 {
        self.arrived.iter().sum()
    }

    /// CPU time for a frame that arrived, nanoseconds.
    pub fn cpu_ns(&self) -> f64 {
        self.cpu.as_nanos() as f64 / self.all_arrived() as f64
    }

    /// Share of what arrived that Freeway forwarded.
    pub fn fast_share(&self) -> f64 {
        (self.fast as f64 / self.all_arrived().max(1) as f64).min(1.0)
    }
}

impl Site {
    /// Builds a router with the capture's hosts at both sides.
    pub fn lab(args: &ReplayArgs, deal: &Deal) -> Result<Lab, Stop> {
        let like = options(if args.stateful {
            conversations(deal)
        } else {
            0
        });
        let options = Options {
            // the router's input is a driver's ring, not the sender's skb
            wires: true,
            filter: args.stateful.then_some(Filter::Stateful),
            ..like
        };
        let lab = Lab::build(Topology::parse(SCENARIO)?, options)?;
        lab.place(&deal.near)?;
        Ok(lab)
    }

    /// Makes it ready, with a daemon if wanted.
    pub fn start(lab: Lab, args: &ReplayArgs, deal: &Deal, freeway: bool) -> Result<Self, Stop> {
        let threads = lab.poll_receivers_first(args.cpu, args.host_cpu)?;
        let daemon = freeway.then(|| {
            // each direction is a flow
            let config = flow_config(conversations(deal).saturating_mul(2));
            let daemon = RouterDaemon::start_on(&lab, PathChoice::Auto, &config)?;
            daemon.require_fast_ports()?;
            pin(daemon.status()?.pid, args.host_cpu)?;
            Ok::<_, Stop>(daemon)
        });
        let daemon = daemon.transpose()?;
        let tally = |port| Tally::attach(port);
        Ok(Self {
            daemon,
            tallies: [tally(lab.server_port())?, tally(lab.client_port())?],
            player: Player::open(&lab)?,
            threads,
            cpu: args.host_cpu,
            lab,
        })
    }

    /// Plays the tape through a router that knows nothing of it.
    pub fn pass(&self, tape: &Tape, tempo: Tempo, loops: u32) -> Result<Pass, Stop> {
        self.forget()?;
        let before = self.now()?;
        let played = self.player.play(tape, tempo, loops, self.cpu)?;
        let sent: u64 = played.sent.iter().sum();
        let began = Instant::now();
        let (mut seen, mut since) = (0, began);
        loop {
            let arrived: u64 = self.arrived()?.iter().sum();
            let arrived = arrived - before.all_arrived();
            if arrived != seen {
                (seen, since) = (arrived, Instant::now());
            }
            if arrived >= sent || since.elapsed() >= SETTLE || began.elapsed() >= SETTLE_MAX {
                break;
            }
            thread::sleep(POLL);
        }
        let after = self.now()?;
        let [server, client] = after.arrived;
        Ok(Pass {
            played,
            arrived: [server - before.arrived[0], client - before.arrived[1]],
            cpu: after.cpu.saturating_sub(before.cpu),
            fast: after.fast.saturating_sub(before.fast),
        })
    }

    /// Counters since the site exists.
    fn now(&self) -> Result<Pass, Stop> {
        let stats = self.daemon.as_ref().map(RouterDaemon::stats).transpose()?;
        Ok(Pass {
            arrived: self.arrived()?,
            cpu: self.threads.cpu_time()?,
            fast: stats.map_or(0, |stats| stats.fast.packets),
            ..Pass::default()
        })
    }

    fn arrived(&self) -> Result<[u64; 2], Stop> {
        let [server, client] = &self.tallies;
        Ok([server.read()?.frames, client.read()?.frames])
    }

    /// A run begins without flows and connections.
    fn forget(&self) -> Result<(), Stop> {
        if self.lab.options().filter.is_some() {
            self.lab.router().tool("conntrack -F")?;
        }
        self.daemon.as_ref().map_or(Ok(()), RouterDaemon::flush)
    }

    /// Ends the daemon; fails if it did not end well.
    pub fn end(mut self) -> Result<(), Stop> {
        self.daemon.take().map_or(Ok(()), RouterDaemon::stop)
    }
}

fn conversations(deal: &Deal) -> u32 {
    u32::try_from(deal.conversations()).unwrap_or(u32::MAX)
}
