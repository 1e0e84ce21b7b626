// SPDX-License-Identifier: MIT OR Apache-2.0
//! The routers of rows that differ in protocol and directions alone.

use std::cell::Cell;
use std::thread;
use std::time::{Duration, Instant};

use freeway_api::{self, FlowFilter, FlowState, PortRange};
use freeway_console::{Stop, progress};
use freeway_lab::frame::FRAME_BYTES_MAX;
use freeway_lab::{
    Direction, Family, Filter, Lab, MeasureSpec, Options, Proto, Topology, Turn, Turns, measure,
};
use freeway_rig::RouterDaemon;

use super::row::Row;
use crate::cli::Imx8Args;
use crate::median::median;
use crate::router::{Place, Router};

/// The LAN's, in rows that have one.
const VLAN: u16 = 5;
/// Connections outlive this, even if nothing of them came for as long as a long sample takes.
const PRIME_AGE: Duration = Duration::from_secs(20);
/// A frame's length to nftables: that of a full one.
const L3_BYTES: f64 = 1500.0;
/// Frames before a measurement, so much at a time, in which flows become fast,
const WARMUP: Duration = Duration::from_millis(500);
/// until this share of them is,
const WARM: f64 = 0.99;
/// or this has passed.
const WARMUP_MAX: Duration = Duration::from_secs(30);

/// Who forwards, in the order of the columns.
pub const ROUTERS: [Router; 3] = [Router::Kernel, Router::Flowtable, Router::Freeway];

/// What a run says of a row's router.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// For each frame, net of the source; the median of turns.
    pub ns: f64,
    /// Share of the frames that did not arrive.
    pub lost_share: f64,
    /// Share of the frames that the router's fast path forwarded, if it has one.
    pub fast_share: Option<f64>,
}

/// A run of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// The generator into an XDP drop.
    pub source_ns: f64,
    /// A bare XDP redirect, net of the source.
    pub redirect_ns: f64,
    /// The routers that there are, by column.
    pub routers: [Option<Figures>; 3],
}

impl Run {
    /// Of one that is there.
    pub fn of(&self, router: Router) -> Option<Figures> {
        of_column(&self.routers, router).copied().flatten()
    }
}

fn of_column<T>(columns: &[T; 3], router: Router) -> Option<&T> {
    let mut columns = ROUTERS.iter().zip(columns);
    columns.find_map(|(of, column)| (*of == router).then_some(column))
}

/// Three routers of one kind, or fewer and the reasons.
pub struct Site<'a> {
    args: &'a Imx8Args,
    // Before its lab, which takes down the namespace.
    daemon: Option<RouterDaemon>,
    places: [Result<Place, String>; 3],
    /// When all connections of UDP were opened or kept from expiring.
    primed_udp: Cell<Option<Instant>>,
}

impl<'a> Site<'a> {
    /// Builds them for a row and all that have its addresses and its shape.
    pub fn build(row: Row, args: &'a Imx8Args) -> Result<Self, Stop> {
        let topology = Topology::parse(match (row.family, row.vlan_nat) {
            (Family::Ipv4, false) => "routed",
            (Family::Ipv4, true) => "nat",
            (Family::Ipv6, false) => "routed6",
            (Family::Ipv6, true) => "nat6",
        })?;
        let like = Options {
            filter: Some(Filter::Stateful),
            vlan: row.vlan_nat.then_some(VLAN),
            ..Options::default()
        };
        let [kernel, flowtable, freeway] = ROUTERS.map(|router| router.build(topology, &like));
        let mut places = [kernel?, flowtable?, freeway?];
        let [.., freeway] = &mut places;
        let mut daemon = None;
        if let Ok(place) = freeway {
            match start(&place.lab, args) {
                Ok(running) => daemon = Some(running),
                Err(stop) => *freeway = Err(stop.to_string()),
            }
        }
        let site = Self {
            args,
            daemon,
            places,
            primed_udp: Cell::new(None),
        };
        site.prime(Proto::Tcp)?;
        Ok(site)
    }

    /// Why a router is missing.
    pub fn missing(&self, router: Router) -> Option<&str> {
        let place = of_column(&self.places, router)?;
        place.as_ref().err().map(String::as_str)
    }

    /// Opens the connections; those of UDP that are there it keeps from expiring.
    pub fn prime(&self, proto: Proto) -> Result<(), Stop> {
        let (flows, cpu) = (self.args.flows, Some(self.args.cpu));
        // most of the time is the wait for UDP connections to be assured
        thread::scope(|scope| {
            let primed: Vec<_> = self
                .labs()
                .map(|lab| scope.spawn(move || lab.prime(proto, flows, cpu)))
                .collect();
            primed.into_iter().try_for_each(|primed| {
                let failed = |_| Stop::failure("a thread that opens connections ended badly");
                primed.join().map_err(failed)??;
                Ok(())
            })
        })
    }

    /// Opens the connections of UDP, or keeps them from expiring if that was long ago.
    pub fn keep_udp(&self) -> Result<(), Stop> {
        let recent = |at: Instant| at.elapsed() < PRIME_AGE;
        if !self.primed_udp.get().is_some_and(recent) {
            self.prime(Proto::Udp)?;
            self.primed_udp.set(Some(Instant::now()));
        }
        Ok(())
    }

    /// Measures a row, once.
    pub fn run(&self, row: Row) -> Result<Run, Stop> {
        self.warm_up(row)?;
        let labs: Vec<&Lab> = self.labs().collect();
        let seconds = Duration::from_secs_f64(self.args.seconds);
        let turns = Turns::new(&labs, &[], &self.spec(row, seconds))?;
        let before = self.forwarded()?;
        let samples = turns.run()?;
        let after = self.forwarded()?;
        let mut frames = turns.frames()?.into_iter();
        let mut number = 0;
        let mut routers = [None; 3];
        for (column, (router, figures)) in ROUTERS.into_iter().zip(&mut routers).enumerate() {
            if self.missing(router).is_some() {
                continue;
            }
            let sent = frames.next().unwrap_or(0).max(1) as f64;
            let came = after[column].saturating_sub(before[column]) as f64;
            *figures = Some(Figures {
                fast_share: match router {
                    Router::Flowtable => Some(1.0 - came / (sent * L3_BYTES)),
                    Router::Freeway => Some(came / sent),
                    _ => None,
                },
                ..figures_of(&samples, number)
            });
            number += 1;
        }
        let of = |figure: &dyn Fn(&Turn) -> f64| median(samples.iter().map(figure).collect());
        Ok(Run {
            source_ns: of(&|turn| turn.source.ns_per_frame),
            redirect_ns: of(&|turn| turn.redirect.ns_per_frame - turn.source.ns_per_frame),
            routers,
        })
    }

    /// Ends the daemon; fails if it did not end well.
    pub fn end(mut self) -> Result<(), Stop> {
        self.daemon.take().map_or(Ok(()), RouterDaemon::stop)
    }

    fn spec(&self, row: Row, duration: Duration) -> MeasureSpec {
        MeasureSpec {
            flows: self.args.flows,
            frame_bytes: FRAME_BYTES_MAX,
            proto: row.proto,
            directions: row.directions,
            cpu: self.args.cpu,
            duration,
            ..MeasureSpec::default()
        }
    }

    /// Those that are there, in the order of the columns.
    fn labs(&self) -> impl Iterator<Item = &Lab> {
        self.places.iter().flatten().map(|place| &place.lab)
    }

    fn lab(&self, router: Router) -> Option<&Lab> {
        let place = of_column(&self.places, router)?.as_ref().ok()?;
        Some(&place.lab)
    }

    /// By column: nothing of the kernel, what the filter saw of the flow table's, in bytes of L3, which GRO does not
    /// change much, and packets that Freeway forwarded.
    fn forwarded(&self) -> Result<[u64; 3], Stop> {
        let flowtable = self.lab(Router::Flowtable).map(Lab::filtered_bytes);
        let daemon = self.daemon.as_ref();
        Ok([
            0,
            flowtable.transpose()?.unwrap_or(0),
            daemon.map_or(Ok(0), |daemon| Ok::<_, Stop>(daemon.stats()?.fast.packets))?,
        ])
    }

    /// Flows become fast here, outside the samples.
    fn warm_up(&self, row: Row) -> Result<(), Stop> {
        let (Some(lab), Some(daemon)) = (self.lab(Router::Freeway), &self.daemon) else {
            return Ok(());
        };
        let wanted = (f64::from(self.args.flows) * WARM) as u64;
        let start = Instant::now();
        loop {
            let each = row.directions.each().iter();
            let fast = each.map(|direction| daemon.count(&self.active(lab, row.proto, *direction)));
            let fast = fast.collect::<Result<Vec<u64>, _>>()?;
            let fast = fast.into_iter().min().unwrap_or(0);
            if fast >= wanted {
                return Ok(());
            }
            measure(lab, &self.spec(row, WARMUP))?;
            if start.elapsed() >= WARMUP_MAX {
                let flows = self.args.flows;
                progress(&format!("{}: {fast} of {flows} flows are fast", row.name()));
                return Ok(());
            }
        }
    }

    /// Flows of a direction that are fast; the masquerade keeps their ports.
    fn active(&self, lab: &Lab, proto: Proto, direction: Direction) -> FlowFilter {
        let spec = lab.flows(proto, self.args.flows, FRAME_BYTES_MAX);
        let ports = Some(PortRange {
            first: spec.near_port,
            last: spec.near_port + (spec.flows - 1) as u16,
        });
        let (sport, dport) = match direction {
            Direction::Forward => (ports, None),
            Direction::Reply => (None, ports),
        };
        FlowFilter {
            proto: Some(match proto {
                Proto::Tcp => freeway_api::Proto::TCP,
                Proto::Udp => freeway_api::Proto::UDP,
            }),
            sport,
            dport,
            state: Some(FlowState::Active),
            ..FlowFilter::default()
        }
    }
}

fn start(lab: &Lab, args: &Imx8Args) -> Result<RouterDaemon, Stop> {
    let daemon = RouterDaemon::start_on(lab, args.path, "")?;
    daemon.require_fast_ports()?;
    Ok(daemon)
}

fn figures_of(turns: &[Turn], router: usize) -> Figures {
    let samples = || {
        turns
            .iter()
            .map(|turn| (&turn.source, &turn.routers[router]))
    };
    let net = samples().map(|(source, sample)| sample.ns_per_frame - source.ns_per_frame);
    let sum = |figure: fn(&freeway_lab::Sample) -> u64| -> u64 {
        samples().map(|(_, sample)| figure(sample)).sum()
    };
    let (sent, received) = (sum(|sample| sample.sent), sum(|sample| sample.received));
    Figures {
        ns: median(net.collect()),
        lost_share: sent.saturating_sub(received) as f64 / sent.max(1) as f64,
        fast_share: None,
    }
}
