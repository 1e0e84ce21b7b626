// SPDX-License-Identifier: MIT OR Apache-2.0
//! A router between a sender and a receiver on another CPU, and what it makes of frames.

use std::thread;
use std::time::{Duration, Instant};

use freeway_api::{PathChoice, PortPath};
use freeway_console::{Stop, progress};
use freeway_lab::routes::{Beyond, ROUTES_MAX};
use freeway_lab::{
    FlowSpec, IdleLoop, Lab, LabError, Loopback, Meter, Metered, Mix, NapiThreads, Offer, Offered,
    Options, Proto, Stream, Topology, Way,
};
use freeway_rig::{RouterDaemon, flow_config, options, pin};

use super::goal::Trial;
use super::search::Input;
use crate::cli::Rfc2544Args;

/// After the last frame: nothing came for so long, or all did,
const SETTLE: Duration = Duration::from_millis(10);
/// or this has passed.
const SETTLE_MAX: Duration = Duration::from_millis(500);
/// Where more arrives than was sent, a router that was held up has sent frames of the pass before: once more, so often
/// at most.
const LATE_PASSES: usize = 5;
const POLL: Duration = Duration::from_millis(2);
/// A sender that was asked for a load and sent less than this share of it is tried again, so often: what it leaves out
/// would hide a loss as large as the PDR's.
const REACHED: f64 = 0.995;
const TRIES: u32 = 3;
/// Frames in which flows become fast, so long at a time and so many a second,
const WARMUP: Duration = Duration::from_millis(300);
const WARMUP_PPS: u64 = 200_000;
/// until this share of the flows is fast
const WARM: f64 = 0.99;
/// or this has passed; with more flows than connections are opened in a second or two, more.
const WARMUP_MAX: Duration = Duration::from_secs(20);
const WARMUP_MANY_MAX: Duration = Duration::from_secs(240);
const MANY: u32 = 10_000;
/// Flows without frames stay fast for longer than this,
const FAST_AGE: Duration = Duration::from_secs(10);
/// and their connections live for longer than this.
const PRIME_AGE: Duration = Duration::from_secs(60);

/// Who forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Router {
    /// The kernel alone.
    Kernel,
    /// The kernel with Freeway.
    Freeway,
}

impl Router {
    /// Both, in the order of the turns.
    pub const ALL: [Router; 2] = [Router::Kernel, Router::Freeway];

    /// As text has it.
    pub fn name(self) -> &'static str {
        match self {
            Router::Kernel => "kernel",
            Router::Freeway => "Freeway",
        }
    }
}

/// A router and its hosts. Fields are dropped in order.
pub struct Site<'a> {
    /// Who it is.
    pub router: Router,
    args: &'a Rfc2544Args,
    daemon: Option<RouterDaemon>,
    meters: Vec<Meter>,
    threads: NapiThreads,
    lab: Lab,
    /// When all flows had frames last.
    used: Instant,
    /// Frames since then.
    round: u64,
    /// So many fast flows are enough.
    enough: u64,
    /// When all has to be over.
    until: Option<Instant>,
    /// Frames that arrived since flows were made fast, and those of them that Freeway forwarded.
    counted: [u64; 2],
}

/// What came of a stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Passed {
    /// Frames that were sent, of all directions.
    pub sent: u64,
    /// Those that arrived.
    pub received: u64,
    /// How long frames were sent.
    pub time: Duration,
    /// The router's CPU time.
    pub cpu: Duration,
    /// Time that an idle loop on its CPU did not get, if there was one.
    pub taken: Option<Duration>,
    /// By direction.
    pub metered: Vec<Metered>,
}

impl Passed {
    /// Of one direction, and a router whose CPU is not known.
    pub fn of(offered: &Offered, metered: Metered) -> Self {
        Self {
            sent: offered.frames,
            received: metered.frames,
            time: Duration::from_nanos(offered.elapsed_ns),
            metered: vec![metered],
            ..Self::default()
        }
    }

    /// Share of what was sent that did not arrive.
    pub fn loss_ratio(&self) -> f64 {
        self.sent.saturating_sub(self.received) as f64 / self.sent.max(1) as f64
    }

    fn per_second(&self, frames: u64, directions: usize) -> f64 {
        frames as f64 / directions as f64 / self.time.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// Frames a second that were sent in each direction.
    pub fn offered_pps(&self, directions: usize) -> f64 {
        self.per_second(self.sent, directions)
    }

    /// Frames a second that arrived from each direction.
    pub fn forwarded_pps(&self, directions: usize) -> f64 {
        self.per_second(self.received, directions)
    }

    /// Share of its CPU that the router had while frames were sent.
    pub fn router_cpu(&self) -> f64 {
        self.share(self.cpu)
    }

    /// Share of the router's CPU that an idle loop there did not get, if there was one.
    pub fn cpu_share(&self) -> Option<f64> {
        self.taken.map(|taken| self.share(taken))
    }

    fn share(&self, part: Duration) -> f64 {
        let share = part.as_secs_f64() / self.time.as_secs_f64().max(f64::MIN_POSITIVE);
        share.min(1.0)
    }

    /// As a trial at a load. What a sender left out that fell far short of it counts as lost (RFC 9971, Measurer).
    pub fn trial(&self, input: Input, directions: usize) -> Trial {
        let wanted = input.load as f64 * input.time.as_secs_f64() * directions as f64;
        // less than a frame's time is no load
        let starved = (self.sent as f64) < (wanted * REACHED).floor();
        let sent_loss_ratio = self.loss_ratio();
        let loss_ratio = if starved {
            (1.0 - self.received as f64 / wanted).clamp(0.0, 1.0)
        } else {
            sent_loss_ratio
        };
        Trial {
            load: input.load,
            time: input.time,
            loss_ratio,
            sent_loss_ratio,
            starved,
        }
    }
}

impl<'a> Site<'a> {
    /// Builds the routers, one with the kernel alone and one with Freeway.
    pub fn build_all(
        args: &'a Rfc2544Args,
        mtu: u32,
        until: Option<Instant>,
    ) -> Result<[Self; 2], Stop> {
        let topology = Topology::parse(args.scenario.name())?;
        let beyond = args.destinations.map(|hosts| Beyond {
            hosts,
            routes: ROUTES_MAX,
        });
        let options = Options {
            beyond,
            mtu,
            ..options(args.flows)
        };
        let [kernel, freeway] = Router::ALL.map(|_| Lab::build(topology, options.clone()));
        let labs = [kernel?, freeway?];
        prime(&labs.each_ref(), args)?;
        let [kernel, freeway] = labs;
        let build = |router, lab| Self::build(router, lab, args, until);
        Ok([
            build(Router::Kernel, kernel)?,
            build(Router::Freeway, freeway)?,
        ])
    }

    fn build(
        router: Router,
        lab: Lab,
        args: &'a Rfc2544Args,
        until: Option<Instant>,
    ) -> Result<Self, Stop> {
        let threads = lab.poll_receivers_first(args.cpu, args.host_cpu)?;
        let daemon = (router == Router::Freeway).then(|| {
            let config = flow_config(args.flows.saturating_mul(args.directions()));
            let daemon = RouterDaemon::start_on(&lab, PathChoice::Auto, &config)?;
            daemon.require_fast_ports()?;
            pin(daemon.status()?.pid, args.host_cpu)?;
            Ok::<_, Stop>(daemon)
        });
        let mut site = Self {
            router,
            args,
            daemon: daemon.transpose()?,
            meters: Vec::new(),
            threads,
            lab,
            used: Instant::now(),
            round: 0,
            enough: 0,
            until,
            counted: [0; 2],
        };
        site.attach()?;
        Ok(site)
    }

    /// Meters where frames end.
    fn attach(&mut self) -> Result<(), Stop> {
        let family = self.lab.topology().family;
        let ends = [self.lab.server_port(), self.lab.client_port()];
        let ends = ends.into_iter().take(self.directions());
        let meters = ends.map(|port| Meter::attach(port, family));
        self.meters = meters.collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Share of the frames that arrived that Freeway forwarded, since flows were made fast; nothing of the kernel's.
    pub fn fast_share(&self) -> Option<f64> {
        let [all, fast] = self.counted;
        let share = (fast as f64 / all.max(1) as f64).min(1.0);
        self.daemon.as_ref().map(|_| share)
    }

    /// The router's CPU.
    pub fn router_cpu(&self) -> usize {
        self.args.cpu
    }

    /// The sender's CPU.
    pub fn host_cpu(&self) -> usize {
        self.args.host_cpu
    }

    /// One or two.
    pub fn directions(&self) -> usize {
        self.args.directions() as usize
    }

    /// The path of Freeway's ports, and what is to be said of it; none of the kernel's.
    pub fn path(&self) -> Result<Option<(PortPath, Vec<String>)>, Stop> {
        let daemon = self.daemon.as_ref();
        daemon.map(RouterDaemon::path).transpose()
    }

    fn flows(&self) -> Vec<FlowSpec> {
        let of = [Lab::flows, Lab::reply_flows].into_iter();
        let of = of.take(self.directions());
        of.map(|of| of(&self.lab, Proto::Udp, self.args.flows, 64))
            .collect()
    }

    /// The least size that frames really have, FCS counted: they hold headers and a time.
    pub fn least_bytes(&self) -> u32 {
        let stamped = |flows: FlowSpec| FlowSpec {
            stamped: true,
            ..flows
        };
        self.flows()
            .first()
            .map_or(64, |flows| stamped(*flows).wire_bytes())
    }

    /// What sends frames of a size through this router.
    pub fn stream(&self, mix: &Mix) -> Result<Stream, Stop> {
        let ports = [self.lab.client_port(), self.lab.server_port()];
        let ways = ports.into_iter().zip(self.flows());
        let ways: Vec<Way<'_>> = ways.map(|(port, flows)| Way { port, flows }).collect();
        Ok(Stream::new(&ways, mix)?)
    }

    /// What sends the same frames into a drop.
    pub fn loopback(&self, mix: &Mix) -> Result<Loopback, Stop> {
        let cpu = self.args.host_cpu;
        Ok(Loopback::new(&self.lab, &self.flows(), mix, cpu)?)
    }

    /// Sends for a trial, and again if the sender was too much disturbed to reach the load.
    pub fn trial(&mut self, stream: &Stream, input: Input) -> Result<Trial, Stop> {
        let offer = Offer::load(input.load, input.time, self.args.host_cpu);
        let directions = self.directions();
        let passed = reached(input, directions, || self.pass(stream, &offer))?;
        Ok(passed.trial(input, directions))
    }

    /// Sends through a router that is warm, and waits for what is on its way.
    pub fn pass(&mut self, stream: &Stream, offer: &Offer) -> Result<Passed, Stop> {
        self.pass_beside(stream, offer, None)
    }

    /// As [`Site::pass`], with an idle loop on the router's CPU.
    pub fn pass_beside(
        &mut self,
        stream: &Stream,
        offer: &Offer,
        idle: Option<&IdleLoop>,
    ) -> Result<Passed, Stop> {
        // the other router had its turn
        if needed(self.used.elapsed()) != Needed::Nothing {
            let counted = self.counted;
            self.become_fast(stream)?;
            self.counted = counted;
        }
        let mut passed = self.send(stream, offer, idle)?;
        for _ in 0..LATE_PASSES {
            if passed.received <= passed.sent {
                break;
            }
            passed = self.send(stream, offer, idle)?;
        }
        passed.received = passed.received.min(passed.sent);
        Ok(passed)
    }

    fn send(
        &mut self,
        stream: &Stream,
        offer: &Offer,
        idle: Option<&IdleLoop>,
    ) -> Result<Passed, Stop> {
        self.meters.iter().try_for_each(Meter::clear)?;
        let fast_before = self.fast()?;
        let cpu_before = self.threads.cpu_time()?;
        let idle = idle.map(|idle| (idle, idle.moment()));
        let offered = stream.run(offer)?;
        let taken = idle.map(|(idle, before)| idle.taken_since(before));
        let cpu = self.threads.cpu_time()?.saturating_sub(cpu_before);
        settle(&offered, SETTLE, || {
            self.meters
                .iter()
                .map(Meter::frames)
                .sum::<Result<u64, _>>()
        })?;
        let metered = self.meters.iter().map(Meter::read);
        let metered: Vec<Metered> = metered.collect::<Result<_, _>>()?;
        let received = metered.iter().map(|metered| metered.frames).sum();
        let fast = self.fast()?.saturating_sub(fast_before);
        let [all, all_fast] = self.counted;
        self.counted = [all + received, all_fast + fast];
        // flows take turns, from one pass to the next
        self.round += offered.frames;
        if self.round >= self.all_flows() {
            (self.round, self.used) = (0, Instant::now());
        }
        Ok(Passed {
            sent: offered.frames,
            received,
            time: Duration::from_nanos(offered.elapsed_ns),
            cpu,
            taken,
            metered,
        })
    }

    fn fast(&self) -> Result<u64, Stop> {
        let stats = self.daemon.as_ref().map(RouterDaemon::stats).transpose()?;
        Ok(stats.map_or(0, |stats| stats.fast.packets))
    }

    /// Keeps connections from expiring, and sends until flows are fast, if they are to be.
    pub fn warm_up(&mut self, stream: &Stream) -> Result<(), Stop> {
        self.enough = (self.all_flows() as f64 * WARM) as u64;
        self.become_fast(stream)?;
        self.counted = [0; 2];
        Ok(())
    }

    /// Of all directions.
    fn all_flows(&self) -> u64 {
        u64::from(self.args.flows) * self.directions() as u64
    }

    fn become_fast(&mut self, stream: &Stream) -> Result<(), Stop> {
        if needed(self.used.elapsed()) == Needed::Connections {
            // priming needs the ports
            self.meters.clear();
            prime(&[&self.lab], self.args)?;
            self.attach()?;
        }
        let offer = Offer::load(WARMUP_PPS, WARMUP, self.args.host_cpu);
        let began = Instant::now();
        let left = self
            .until
            .map(|until| until.saturating_duration_since(began));
        let patience = patience(self.args.flows, left);
        let (mut sent, flows) = (0, self.all_flows());
        loop {
            sent += self.send(stream, &offer, None)?.sent;
            let daemon = self.daemon.as_ref();
            let status = daemon.map(RouterDaemon::status).transpose()?;
            let fast = status.map_or(flows, |status| status.flows.active);
            if fast >= self.enough && sent >= flows {
                break;
            }
            if began.elapsed() >= patience {
                if fast < self.enough {
                    progress(&format!("{fast} of {flows} flows are fast"));
                    // what cannot be had is not waited for again
                    self.enough = (fast as f64 * WARM) as u64;
                }
                break;
            }
        }
        self.used = Instant::now();
        Ok(())
    }

    /// Ends the daemon; fails if it did not end well.
    pub fn end(mut self) -> Result<(), Stop> {
        self.daemon.take().map_or(Ok(()), RouterDaemon::stop)
    }
}

/// What a router needs before frames are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needed {
    Nothing,
    /// Frames, so that flows are fast.
    Frames,
    /// Connections kept from expiring, and then frames.
    Connections,
}

/// If flows have had none for so long.
fn needed(idle: Duration) -> Needed {
    if idle > PRIME_AGE {
        Needed::Connections
    } else if idle > FAST_AGE {
        Needed::Frames
    } else {
        Needed::Nothing
    }
}

/// How long so many flows may take to become fast, if so much time is left for everything.
fn patience(flows: u32, left: Option<Duration>) -> Duration {
    let most = if flows > MANY {
        WARMUP_MANY_MAX
    } else {
        WARMUP_MAX
    };
    left.map_or(most, |left| left.min(most))
}

/// Opens the connections of routers, or keeps them from expiring.
fn prime(labs: &[&Lab], args: &Rfc2544Args) -> Result<(), Stop> {
    let prime = |lab: &Lab| lab.prime(Proto::Udp, args.flows, Some(args.host_cpu));
    if args.flows > MANY {
        // one CPU opens them all
        for lab in labs {
            prime(lab)?;
        }
        return Ok(());
    }
    // most of the time is the wait for connections to be assured
    thread::scope(|scope| {
        let primed: Vec<_> = labs
            .iter()
            .map(|lab| scope.spawn(move || prime(lab)))
            .collect();
        primed.into_iter().try_for_each(|primed| {
            let failed = |_| Stop::failure("a thread that opens connections ended badly");
            primed.join().map_err(failed)??;
            Ok(())
        })
    })
}

/// Has a load sent, and again if the sender did not reach it.
pub fn reached<E>(
    input: Input,
    directions: usize,
    mut pass: impl FnMut() -> Result<Passed, E>,
) -> Result<Passed, E> {
    let mut tried = 1;
    loop {
        let passed = pass()?;
        if tried == TRIES || !passed.trial(input, directions).starved {
            return Ok(passed);
        }
        tried += 1;
    }
}

/// Waits until nothing has come for so long, or all has, half a second at most.
pub fn settle(
    offered: &Offered,
    quiet: Duration,
    received: impl Fn() -> Result<u64, LabError>,
) -> Result<(), LabError> {
    settle_within(SETTLE_MAX, offered.frames, quiet, received).map(drop)
}

/// Waits until nothing has come for so long, or all has; what has come, or nothing if it still does after `most`.
pub fn settle_within(
    most: Duration,
    all: u64,
    quiet: Duration,
    received: impl Fn() -> Result<u64, LabError>,
) -> Result<Option<u64>, LabError> {
    let began = Instant::now();
    let (mut last, mut since) = (received()?, began);
    while last < all && since.elapsed() < quiet {
        if began.elapsed() >= most {
            return Ok(None);
        }
        thread::sleep(POLL);
        let now = received()?;
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    Ok(Some(last))
}

/// What a stream without a router comes to.
pub fn loop_back(loopback: &Loopback, offer: &Offer) -> Result<Passed, Stop> {
    loopback.meter.clear()?;
    let offered = loopback.stream.run(offer)?;
    settle(&offered, SETTLE, || loopback.meter.frames())?;
    let metered = loopback.meter.read()?;
    Ok(Passed::of(&offered, metered))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(sent: u64, received: u64) -> Passed {
        Passed {
            sent,
            received,
            time: Duration::from_secs(2),
            cpu: Duration::from_secs(1),
            ..Passed::default()
        }
    }

    #[test]
    fn what_a_starved_sender_leaves_out_is_lost() {
        let input = Input {
            load: 1000,
            time: Duration::from_secs(2),
        };
        let of = |sent, received, directions| passed(sent, received).trial(input, directions);
        let whole = of(2000, 1990, 1);
        assert!(!whole.starved && (whole.loss_ratio - 0.005).abs() < 1e-12);
        // a little less is no loss
        let less = of(1990, 1990, 1);
        assert!(!less.starved && less.loss_ratio == 0.0);
        let more = of(1980, 1980, 1);
        assert!(more.starved && (more.loss_ratio - 0.01).abs() < 1e-12);
        assert_eq!(more.sent_loss_ratio, 0.0);
        let starved = of(1000, 1000, 1);
        assert!(starved.starved && (starved.loss_ratio - 0.5).abs() < 1e-12);
        assert!(of(2000, 2000, 2).starved);
    }

    #[test]
    fn what_was_idle_is_made_warm() {
        let of = |seconds| needed(Duration::from_secs(seconds));
        assert_eq!([0, 10].map(of), [Needed::Nothing; 2]);
        assert_eq!([11, 60].map(of), [Needed::Frames; 2]);
        assert_eq!([61, 600].map(of), [Needed::Connections; 2]);
    }

    #[test]
    fn patience_ends_with_the_time() {
        assert_eq!(patience(1000, None), WARMUP_MAX);
        assert_eq!(patience(100_000, None), WARMUP_MANY_MAX);
        let second = Duration::from_secs(1);
        assert_eq!(patience(100_000, Some(second)), second);
        assert_eq!(patience(1000, Some(second * 60)), WARMUP_MAX);
    }

    #[test]
    fn rates_are_of_a_direction() {
        let passed = passed(4000, 3000);
        assert_eq!(
            (passed.offered_pps(2), passed.forwarded_pps(1)),
            (1000.0, 1500.0)
        );
        assert_eq!(passed.router_cpu(), 0.5);
        assert_eq!(Passed::default().loss_ratio(), 0.0);
    }
}
