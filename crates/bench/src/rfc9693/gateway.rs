// SPDX-License-Identifier: MIT OR Apache-2.0
//! A router between Initiator and Responder, and the two phases of a test.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use freeway_console::Stop;
use freeway_kernel::{Conntrack, Error};
use freeway_lab::{
    Direction, Directions, FlowSpec, Lab, Loopback, Meter, Mix, NapiThreads, Offer, Options, Proto,
    Stream, Topology, Way,
};
use freeway_rig::{RouterDaemon, flow_config, options, pin};

use super::plan::{Plan, SCENARIO};
use crate::cli::Rfc9693Args;
use crate::rfc2544::{Router, settle};

/// Frames of this size, FCS counted.
pub const FRAME_BYTES: u32 = 64;
/// Connections live for so many seconds: longer than any phase.
const TIMEOUT_S: &str = "600";
const TIMEOUTS: [&str; 2] = [
    "net/netfilter/nf_conntrack_udp_timeout",
    "net/netfilter/nf_conntrack_udp_timeout_stream",
];
const TABLE_COUNT: &str = "/proc/sys/net/netfilter/nf_conntrack_count";
const TABLE_LIMIT: &str = "/proc/sys/net/netfilter/nf_conntrack_max";
/// A sender that was slower than this share of a rate did not offer it, and tries again, so often.
const REACHED: f64 = 0.98;
const TRIES: u32 = 5;
/// Frames come back through a full table's connections so often, unless all do.
const VALIDATIONS: u32 = 3;
/// A second has no more fills: a queue that holds a few frames does not see all of a small number at once.
const FILLS_PER_S: u64 = 10;
/// What is missing is lost if nothing has come for so long.
const SETTLE: Duration = Duration::from_millis(100);
/// What a phase takes at most, beside twice the time that its frames take.
const LATE: Duration = Duration::from_secs(1);
/// An emptied table is waited for, for so long at most,
const EMPTY_MAX: Duration = Duration::from_secs(30);
/// and Freeway's flows, which would leave when they have been idle.
const FLOWS_MAX: Duration = Duration::from_secs(3);
/// What is there after so long came in since connections were deleted, and is deleted, too.
const BELATED: Duration = Duration::from_millis(50);
const POLL: Duration = Duration::from_millis(1);
/// A UDP connection is assured by a packet at an age of two seconds (nf_conntrack_udp_packet).
pub const ASSURED_AFTER: Duration = Duration::from_millis(2200);
/// The real phase before flows are counted: frames a second of a direction,
const REAL_PPS: u64 = 100_000;
/// in this many rounds at least; more, as long as so many flows are missing and their number grows,
const ROUNDS: u32 = 2;
const FAST_SHARE: f64 = 0.99;
/// or did so within this time.
const STALLED: Duration = Duration::from_secs(2);

/// A router and its hosts. Fields are dropped in order.
pub struct Gateway {
    /// Who it is.
    pub router: Router,
    daemon: Option<RouterDaemon>,
    /// The last of each kind: loading one takes longer than many a phase.
    streams: Vec<Loaded>,
    initiator: Meter,
    responder: Meter,
    conntrack: Conntrack,
    _threads: NapiThreads,
    lab: Lab,
    host_cpu: usize,
    table_max: Option<u32>,
}

/// A stream of so many connections.
struct Loaded {
    directions: Directions,
    connections: u32,
    stream: Stream,
}

/// What came of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Passed {
    /// That were sent.
    sent: u64,
    /// That arrived.
    received: u64,
    /// From the first until the last was due.
    time: Duration,
}

/// What came of new connections at a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trial {
    /// All were established, and a frame came back through each.
    Held,
    /// One was not, at least.
    Failed,
    /// The sender did not reach the rate.
    Starved,
}

/// How long a table took to be empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Emptied {
    /// The kernel's.
    pub table: Duration,
    /// And Freeway's, if it is there.
    pub all: Duration,
    /// Freeway's flows that were not gone by themselves.
    pub flows_left: u64,
}

impl Gateway {
    /// Builds a router, and starts Freeway in it if it is to be there.
    pub fn build(router: Router, args: &Rfc9693Args, plan: &Plan) -> Result<Self, Stop> {
        let topology = Topology::parse(SCENARIO)?;
        let lab = Lab::build(topology, lab_options(args, plan))?;
        for timeout in TIMEOUTS {
            lab.router().sysctl(timeout, TIMEOUT_S)?;
        }
        let threads = lab.poll_receivers_first(args.cpu, args.host_cpu)?;
        let daemon = (router == Router::Freeway).then(|| {
            // a flow in each direction
            let config = flow_config(plan.connections.saturating_mul(2));
            let daemon = RouterDaemon::start(&lab, &config)?;
            daemon.require_fast_ports()?;
            pin(daemon.status()?.pid, args.host_cpu)?;
            Ok::<_, Stop>(daemon)
        });
        let family = topology.family;
        let conntrack = lab.router().enter(Conntrack::open)?;
        Ok(Self {
            router,
            daemon: daemon.transpose()?,
            initiator: Meter::attach(lab.client_port(), family)?,
            responder: Meter::attach(lab.server_port(), family)?,
            conntrack: conntrack.map_err(failed)?,
            _threads: threads,
            lab,
            host_cpu: args.host_cpu,
            table_max: args.table_max,
            streams: Vec::new(),
        })
    }

    /// What sends so many connections' frames into a drop.
    pub fn loopback(&self, connections: u32) -> Result<Loopback, Stop> {
        let flows = self.flows(Direction::Forward, connections);
        let mix = Mix::of(FRAME_BYTES);
        Ok(Loopback::new(&self.lab, &[flows], &mix, self.host_cpu)?)
    }

    fn flows(&self, direction: Direction, connections: u32) -> FlowSpec {
        let of = match direction {
            Direction::Forward => Lab::flows,
            Direction::Reply => Lab::reply_flows,
        };
        of(&self.lab, Proto::Udp, connections, FRAME_BYTES)
    }

    /// The preliminary phase: the Initiator sends a frame of each connection, all of them new.
    fn preliminary(&mut self, connections: u32, pps: u64) -> Result<Passed, Stop> {
        self.pass(Directions::Forward, connections, pps)
    }

    /// The validation: the Responder sends a frame through each connection.
    fn validation(&mut self, connections: u32, pps: u64) -> Result<Passed, Stop> {
        self.pass(Directions::Reply, connections, pps)
    }

    /// A frame of each connection in each of the directions.
    fn pass(&mut self, directions: Directions, connections: u32, pps: u64) -> Result<Passed, Stop> {
        let number = self.load(directions, connections)?;
        let stream = &self.streams[number].stream;
        let directions = directions.each();
        let meters = directions.iter().map(|direction| match direction {
            Direction::Forward => &self.responder,
            Direction::Reply => &self.initiator,
        });
        let meters: Vec<&Meter> = meters.collect();
        meters.iter().try_for_each(|meter| meter.clear())?;
        let time = Duration::from_secs_f64(f64::from(connections) / pps.max(1) as f64);
        let offer = Offer {
            frames: Some(u64::from(connections) * directions.len() as u64),
            ..Offer::load(pps, time * 2 + LATE, self.host_cpu)
        };
        let offered = stream.run(&offer)?;
        let received = || meters.iter().map(|meter| meter.frames()).sum();
        settle(&offered, SETTLE, received)?;
        Ok(Passed {
            sent: offered.frames,
            received: received()?,
            time: Duration::from_nanos(offered.last_ns),
        })
    }

    /// Loads what sends for so many connections, unless it is there, and says which it is.
    fn load(&mut self, directions: Directions, connections: u32) -> Result<usize, Stop> {
        let of = |loaded: &Loaded| loaded.directions == directions;
        let fit = |loaded: &Loaded| of(loaded) && loaded.connections == connections;
        if let Some(number) = self.streams.iter().position(fit) {
            return Ok(number);
        }
        self.streams.retain(|loaded| !of(loaded));
        let ways = directions.each().iter().map(|direction| Way {
            port: self.lab.sender(*direction),
            flows: self.flows(*direction, connections),
        });
        let ways: Vec<Way<'_>> = ways.collect();
        self.streams.push(Loaded {
            directions,
            connections,
            stream: Stream::new(&ways, &Mix::of(FRAME_BYTES))?,
        });
        Ok(self.streams.len() - 1)
    }

    /// Both phases from an empty table: new connections at a rate, and a frame back through each at another.
    pub fn establish(&mut self, connections: u32, pps: u64, back_pps: u64) -> Result<Trial, Stop> {
        let mut tried = 1;
        loop {
            self.empty()?;
            let passed = self.preliminary(connections, pps)?;
            if passed.reached(connections, pps) {
                if passed.received < u64::from(connections) {
                    return Ok(Trial::Failed);
                }
                break;
            }
            if tried == TRIES {
                return Ok(Trial::Starved);
            }
            tried += 1;
        }
        let back = self.validation(connections, back_pps)?;
        let all = back.received >= u64::from(connections);
        Ok(if all { Trial::Held } else { Trial::Failed })
    }

    /// Fills an empty table at a rate far below what the router can do. Other work may hold the router up longer than its queue
    /// lasts, so what is missing is sent again, with all others, as long as that makes more connections. Says how many of the
    /// frames back through them came, of the best attempt; nothing if the kernel does not count so many connections.
    pub fn fill(&mut self, connections: u32, pps: u64) -> Result<Option<u32>, Stop> {
        let pps = pps.min(u64::from(connections) * FILLS_PER_S).max(1);
        let all = u64::from(connections);
        self.empty()?;
        let mut there = 0;
        while there < all {
            self.preliminary(connections, pps)?;
            let now = self.connections()?;
            if now <= there {
                return Ok(None);
            }
            there = now;
        }
        let mut best = 0;
        for _ in 0..VALIDATIONS {
            best = self.validation(connections, pps)?.received.max(best);
            if best >= all {
                break;
            }
        }
        let still = self.connections()? >= all;
        Ok(still.then_some(best.min(all) as u32))
    }

    /// The real phase: frames of assured connections in both directions, until Freeway has taken what it takes. Says how many
    /// flows those are.
    pub fn real(&mut self, connections: u32) -> Result<u64, Stop> {
        let wanted = u64::from(connections) * 2;
        let (mut most, mut since, mut round) = (0, Instant::now(), 0);
        loop {
            self.pass(Directions::Both, connections, REAL_PPS)?;
            round += 1;
            let fast = self.flows_held()?;
            if fast > most {
                (most, since) = (fast, Instant::now());
            }
            let enough = self.daemon.is_none() || fast as f64 >= wanted as f64 * FAST_SHARE;
            if round >= ROUNDS && (enough || since.elapsed() > STALLED) {
                return Ok(fast);
            }
        }
    }

    /// Deletes all connections, and waits until they and Freeway's flows are gone. Flows that stay are taken out of its table.
    pub fn empty(&mut self) -> Result<Emptied, Stop> {
        if self.table_max.is_some() {
            self.lab.router().tool(FORGET_ADMITTED)?;
        }
        let began = Instant::now();
        self.conntrack.flush().map_err(failed)?;
        let mut flushed = Instant::now();
        loop {
            let left = self.connections()?;
            if left == 0 {
                break;
            }
            if began.elapsed() > EMPTY_MAX {
                return Err(Stop::failure(format!(
                    "{}: {left} connections are left {} s after all were deleted; does anything else send in the lab?",
                    self.router.name(),
                    EMPTY_MAX.as_secs()
                )));
            }
            if flushed.elapsed() > BELATED {
                self.conntrack.flush().map_err(failed)?;
                flushed = Instant::now();
            }
            thread::sleep(POLL);
        }
        let table = began.elapsed();
        let mut flows_left = self.flows_held()?;
        while flows_left > 0 && began.elapsed() < FLOWS_MAX {
            thread::sleep(POLL);
            flows_left = self.flows_held()?;
        }
        let all = began.elapsed();
        if let Some(daemon) = self.daemon.as_ref().filter(|_| flows_left > 0) {
            // what comes next begins without them
            daemon.flush()?;
        }
        Ok(Emptied {
            table,
            all,
            flows_left,
        })
    }

    /// Connections in the kernel's table.
    pub fn connections(&self) -> Result<u64, Stop> {
        self.number(TABLE_COUNT)
    }

    /// So many are allowed there.
    pub fn table_limit(&self) -> Result<u64, Stop> {
        self.number(TABLE_LIMIT)
    }

    fn number(&self, file: &str) -> Result<u64, Stop> {
        let text = self.lab.router().enter(|| fs::read_to_string(file))?;
        let text = text.map_err(|error| {
            Stop::failure(format!("cannot read {file}: {error}; load nf_conntrack"))
        })?;
        let number = text.trim().parse();
        number.map_err(|_| Stop::failure(format!("{file} has no number: {text:?}")))
    }

    /// Flows in Freeway's table; none without it.
    pub fn flows_held(&self) -> Result<u64, Stop> {
        let status = self.daemon.as_ref().map(RouterDaemon::status).transpose()?;
        Ok(status.map_or(0, |status| {
            let flows = status.flows;
            flows.active + flows.preparing + flows.suspended + flows.unconfirmed
        }))
    }

    /// Room in Freeway's table; nothing without it.
    pub fn flow_room(&self) -> Result<Option<u64>, Stop> {
        let status = self.daemon.as_ref().map(RouterDaemon::status).transpose()?;
        Ok(status.map(|status| status.flows.capacity))
    }

    /// Ends the daemon; fails if it did not end well.
    pub fn end(mut self) -> Result<(), Stop> {
        self.daemon.take().map_or(Ok(()), RouterDaemon::stop)
    }
}

impl Passed {
    /// Whether all were sent, as fast as they should.
    fn reached(&self, frames: u32, pps: u64) -> bool {
        let time_s = f64::from(frames) / pps.max(1) as f64;
        self.sent >= u64::from(frames) && self.time.as_secs_f64() * REACHED <= time_s + BURST_S
    }
}

/// A sender's clock is looked at between bursts.
const BURST_S: f64 = 0.001;

/// Empties the set of [`admitted`].
const FORGET_ADMITTED: &str = "nft flush set inet admitted connections";

/// Lets so many new connections pass, and drops what begins others. All namespaces of a machine share nf_conntrack_max, and
/// those of other routers would not be admitted either if it were less.
fn admitted(connections: u32) -> String {
    format!(
        "table inet admitted {{\n\
         \tset connections {{\n\
         \t\ttypeof ip saddr . udp sport . ip daddr . udp dport\n\
         \t\tsize {connections}\n\
         \t\tflags dynamic\n\
         \t}}\n\
         \tchain forward {{\n\
         \t\ttype filter hook forward priority filter + 10; policy accept;\n\
         \t\tct state new add @connections {{ ip saddr . udp sport . ip daddr . udp dport }} accept\n\
         \t\tct state new drop\n\
         \t}}\n}}\n"
    )
}

fn failed(error: Error) -> Stop {
    Stop::failure(error.to_string())
}

fn lab_options(args: &Rfc9693Args, plan: &Plan) -> Options {
    let room = plan.connections.max(args.table_max.unwrap_or(0));
    Options {
        extra_nft: args.table_max.map(admitted).unwrap_or_default(),
        ..options(room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_senders_did_not_offer_the_rate() {
        let passed = |sent, ms| Passed {
            sent,
            received: sent,
            time: Duration::from_millis(ms),
        };
        assert!(passed(10_000, 100).reached(10_000, 100_000));
        assert!(passed(10_000, 102).reached(10_000, 100_000));
        assert!(!passed(10_000, 110).reached(10_000, 100_000));
        assert!(!passed(9_999, 100).reached(10_000, 100_000));
    }
}
