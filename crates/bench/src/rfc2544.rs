// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway bench rfc2544`: throughput, loss, bursts and latency as the field measures them, of the kernel and of Freeway.
//!
//! Sender and receiver are on one CPU, the router on another: its ports are polled by threads there. A router loses frames
//! when its input's queue is full, as with a card's. What the sender and the receiver can do without a router is measured
//! first, and what they limited is no result.

mod burst;
mod ceiling;
mod cpu;
mod goal;
mod latency;
mod pace;
mod result;
mod search;
mod site;
mod size;
mod table;

use std::time::{Duration, Instant};

use freeway_api::PortPath;
use freeway_console::{Exit, Stop, progress, show};
use freeway_lab::{IdleLoop, LabError, Offer, Stream};
use freeway_rig::Machine;

use self::burst::{BackToBack, longest};
use self::cpu::loads;
use self::pace::{LOSS_RATIOS, NO_LOAD_PPS};
use self::search::Input;
use self::site::Site;
use crate::cli::{Rfc2544Args, Rfc2544Scenario};
use crate::expected::SHARE_EXPECTED;

pub use self::ceiling::ceiling;
pub use self::cpu::CpuShare;
pub use self::latency::{Latency, early};
pub use self::pace::Pace;
pub use self::result::{Figures, LIMITED, Loss, Measured, Method, Rate, Rfc2544, Throughput};
pub use self::search::{Search, by_turns};
pub use self::site::{Passed, Router, loop_back, reached, settle, settle_within};
pub use self::size::Size;
pub use self::table::{cell, mega, mpps};

/// Said of a generator without a router.
pub const NOTHING_ARRIVED: &str = "no frame of the generator reached its receiver";
/// Loads at which latencies are taken, percent of the PDR; 0 is no load,
pub const LATENCY_LOADS: [u32; 4] = [0, 10, 50, 90];
/// Mean time between frames with the time in them, under load.
const STAMPS: Duration = Duration::from_micros(50);
/// A burst takes at most so long.
const BURST_MAX_S: f64 = 0.1;
/// Steps of the loss rate, as a part of the NDR.
const LOSS_STEP: f64 = 0.1;

/// Measures and prints.
pub fn rfc2544(args: &Rfc2544Args) -> Result<(), Stop> {
    let result = measured(args)?;
    show(args.json, &result, |terminal| {
        table::table(&result, terminal)
    })
}

/// Measures.
pub fn measured(args: &Rfc2544Args) -> Result<Rfc2544, Stop> {
    if args.cpu == args.host_cpu {
        let message = "--cpu and --host-cpu: router and generator need a CPU each";
        return Err(Stop::new(Exit::Usage, message.to_owned()));
    }
    if args.destinations.is_some() && args.scenario == Rfc2544Scenario::Routed6 {
        let message = "--destinations is of `--scenario nat` and `routed` alone";
        return Err(Stop::new(Exit::Usage, message.to_owned()));
    }
    freeway_rig::prepare()?;
    let pace = Pace::of(args);
    let mut remarks = Vec::new();
    let mut sizes = Vec::new();
    let mut asked = args.sizes.clone();
    asked.dedup();
    for alike in Size::alike(&asked) {
        if pace.is_over() {
            break;
        }
        let mtu = alike[0].mtu();
        progress(&format!("building the routers, MTU {mtu}"));
        let mut sites = Site::build_all(args, mtu, pace.until)?;
        for size in alike {
            if pace.is_over() {
                break;
            }
            let left = &asked[sizes.len()..];
            let bench = Bench::begin(&mut sites, *size, &pace, &mut remarks)?;
            sizes.push(bench.run(left)?);
        }
        sites.into_iter().try_for_each(Site::end)?;
    }
    if sizes.len() < asked.len() {
        remarks.push(left_out(&asked[sizes.len()..]));
    }
    Ok(Rfc2544 {
        scenario: args.scenario.name().into(),
        flows: args.flows,
        destinations: args.destinations,
        directions: args.directions(),
        quick: args.quick,
        search: Method::of(&pace),
        sizes,
        remarks,
        machine: Machine::this(),
    })
}

/// That there was no time for these sizes.
pub fn left_out(sizes: &[Size]) -> String {
    let labels = sizes.iter().map(|size| size.label());
    let labels: Vec<String> = labels.collect();
    format!("there was no time left for {}", labels.join(", "))
}

/// Frames of a size through both routers.
struct Bench<'a, 'b> {
    sites: &'a mut [Site<'b>; 2],
    streams: [Stream; 2],
    size: Size,
    pace: &'a Pace,
    host_cpu: usize,
    frame_bytes: f64,
    ceiling_pps: f64,
    tester_latency: Option<Latency>,
    remarks: &'a mut Vec<String>,
}

impl<'a, 'b> Bench<'a, 'b> {
    /// What the generator can do, and flows that are fast.
    fn begin(
        sites: &'a mut [Site<'b>; 2],
        size: Size,
        pace: &'a Pace,
        remarks: &'a mut Vec<String>,
    ) -> Result<Self, Stop> {
        let mix = size.mix();
        let [first, _] = &*sites;
        let (directions, host_cpu) = (first.directions(), first.host_cpu());
        let (ceiling_pps, tester_latency) = {
            let loopback = first.loopback(&mix)?;
            let rate = ceiling(NOTHING_ARRIVED, || {
                let passed = loop_back(&loopback, &Offer::full(pace.ceiling, host_cpu))?;
                Ok(passed.forwarded_pps(directions))
            })?;
            let passed = loop_back(&loopback, &no_load(pace, host_cpu))?;
            let who = format!("{}, without a router", size.label());
            remarks.extend(early(&who, &passed.metered));
            let latency = Latency::of(&passed.metered).map(|latency| Latency {
                offered_pps: passed.offered_pps(directions),
                loss_ratio: passed.loss_ratio(),
                ..latency
            });
            (rate, latency)
        };
        progress(&format!(
            "{}: the generator alone, {:.2} Mpps",
            size.label(),
            ceiling_pps * 1e-6
        ));
        let frame_bytes = mix.mean_bytes(first.least_bytes());
        let [kernel, freeway] = sites.each_ref().map(|site| site.stream(&mix));
        let streams = [kernel?, freeway?];
        for (site, stream) in sites.iter_mut().zip(&streams) {
            site.warm_up(stream)?;
        }
        Ok(Self {
            sites,
            streams,
            size,
            pace,
            host_cpu,
            frame_bytes,
            ceiling_pps,
            tester_latency,
            remarks,
        })
    }

    fn run(mut self, left: &[Size]) -> Result<Measured, Stop> {
        let label = self.size.label();
        let searches = self.searches(self.pace.search_until(left))?;
        let mut figures = [const { None }; 2];
        for (number, search) in searches.iter().enumerate() {
            figures[number] = Some(self.figures(number, search)?);
        }
        let [kernel, freeway] = figures.map(Option::unwrap_or_default);
        let path = self.path()?;
        Ok(Measured {
            name: self.size.to_string(),
            label,
            frame_bytes: self.frame_bytes,
            path,
            ceiling_pps: self.ceiling_pps,
            tester_latency: self.tester_latency,
            kernel,
            freeway,
        })
    }

    /// The path of Freeway's ports, with a remark if that is not XDP.
    fn path(&mut self) -> Result<Option<PortPath>, Stop> {
        let [_, freeway] = &*self.sites;
        let Some((path, why)) = freeway.path()? else {
            return Ok(None);
        };
        if path == PortPath::Tc {
            let why = why.join("; ");
            let words = format!("{}: it forwards in tc ({why})", self.who(1));
            self.remarks.push(words);
        }
        Ok(Some(path))
    }

    /// NDR and PDR of both, by turns.
    fn searches(&mut self, until: Option<Instant>) -> Result<[Search; 2], Stop> {
        let plan = self.pace.plan(self.ceiling_pps);
        let mut searches = [Search::new(plan.clone()), Search::new(plan)];
        by_turns(&mut searches, |number, input| {
            if until.is_some_and(|until| Instant::now() >= until) {
                return Ok::<_, Stop>(None);
            }
            let trial = self.sites[number].trial(&self.streams[number], input)?;
            Ok(Some(trial))
        })?;
        Ok(searches)
    }

    /// What is measured of a router when its rates are known.
    fn figures(&mut self, number: usize, search: &Search) -> Result<Figures, Stop> {
        let who = self.who(number);
        let [ndr, pdr] = Throughput::both(search, self.ceiling_pps, self.frame_bytes);
        progress(&format!(
            "{who}: NDR {}, PDR {} after {} trials",
            mpps(&ndr.rate),
            mpps(&pdr.rate),
            search.count()
        ));
        self.remarks.extend(shortfalls(&who, search, [&ndr, &pdr]));
        let mut figures = Figures {
            ndr,
            pdr,
            trials: search.count() as u64,
            ..Figures::default()
        };
        for part in [
            Self::losses,
            Self::bursts,
            Self::latencies,
            Self::cpu_shares,
        ] {
            if self.pace.is_over() {
                let words = format!("{who}: there was no time left for some of it");
                self.remarks.push(words);
                break;
            }
            part(self, number, &mut figures)?;
        }
        figures.fast_share = self.sites[number].fast_share();
        if let Some(share) = figures.fast_share.filter(|share| *share < SHARE_EXPECTED) {
            let share = share * 100.0;
            self.remarks.push(format!(
                "{who}: only {share:.1} % of the frames were Freeway's"
            ));
        }
        Ok(figures)
    }

    /// Whom a remark is about.
    fn who(&self, number: usize) -> String {
        let router = self.sites[number].router;
        format!("{}, {}", self.size.label(), router.name())
    }

    fn losses(&mut self, number: usize, figures: &mut Figures) -> Result<(), Stop> {
        let (site, stream) = (&mut self.sites[number], &self.streams[number]);
        let directions = site.directions();
        let loads = loss_loads(
            figures.ndr.lower_pps,
            self.ceiling_pps,
            self.pace.losses_max,
        );
        for load in loads.into_iter().map(Some).chain([None]) {
            let offer = Offer {
                pps: load,
                ..Offer::full(self.pace.loss, self.host_cpu)
            };
            let passed = site.pass(stream, &offer)?;
            let offered_pps = passed.offered_pps(directions);
            figures.loss.push(Loss {
                load_pps: load.map_or(offered_pps, |load| load as f64),
                offered_pps,
                forwarded_pps: passed.forwarded_pps(directions),
                loss_ratio: passed.loss_ratio(),
                router_cpu: passed.router_cpu(),
            });
        }
        let last = figures.loss.last();
        figures.frmol = last.map(|last| last.frmol(self.ceiling_pps, self.frame_bytes));
        Ok(())
    }

    fn bursts(&mut self, number: usize, figures: &mut Figures) -> Result<(), Stop> {
        // what keeps up with the generator fills no buffer
        let Some(throughput_pps) = figures.ndr.rate.pps else {
            return Ok(());
        };
        // sender and receiver share a CPU: what the sender can do is less than without a router
        let Some(full) = figures.loss.last() else {
            return Ok(());
        };
        let burst_pps = full.offered_pps.max(1.0);
        let (site, stream) = (&mut self.sites[number], &self.streams[number]);
        let directions = site.directions() as u64;
        let allowed = ((burst_pps * BURST_MAX_S) as u64).max(1);
        let mut lengths = Vec::new();
        for _ in 0..self.pace.bursts {
            let found = longest(allowed, |length| {
                let offer = Offer {
                    frames: Some(length * directions),
                    ..Offer::full(Duration::from_secs(10), self.host_cpu)
                };
                let passed = site.pass(stream, &offer)?;
                Ok::<_, Stop>(passed.received >= passed.sent)
            })?;
            lengths.extend(found);
        }
        if lengths.len() == self.pace.bursts as usize {
            figures.back_to_back = BackToBack::of(&lengths, burst_pps, throughput_pps);
        }
        Ok(())
    }

    fn latencies(&mut self, number: usize, figures: &mut Figures) -> Result<(), Stop> {
        let who = self.who(number);
        let (site, stream) = (&mut self.sites[number], &self.streams[number]);
        let directions = site.directions();
        let mut metered = Vec::new();
        for percent in LATENCY_LOADS {
            let pdr_pps = figures.pdr.lower_pps;
            let Some(offer) = timed_load(percent, pdr_pps, self.pace, self.host_cpu) else {
                continue;
            };
            let passed = site.pass(stream, &offer)?;
            let latency = Latency::of(&passed.metered);
            figures.latency.extend(latency.map(|latency| Latency {
                percent_of_pdr: percent,
                offered_pps: passed.offered_pps(directions),
                loss_ratio: passed.loss_ratio(),
                router_cpu: Some(passed.router_cpu()),
                ..latency
            }));
            metered.extend(passed.metered);
        }
        self.remarks.extend(early(&who, &metered));
        Ok(())
    }

    fn cpu_shares(&mut self, number: usize, figures: &mut Figures) -> Result<(), Stop> {
        let who = self.who(number);
        let (site, stream) = (&mut self.sites[number], &self.streams[number]);
        let directions = site.directions();
        let loads = loads(figures.pdr.lower_pps, self.frame_bytes);
        let idle = match idle_loop(site.router_cpu())? {
            Ok(idle) => idle,
            Err(why) => {
                self.remarks.push(format!("{who}: no CPU shares, {why}"));
                return Ok(());
            }
        };
        for (percent_of_pdr, pps) in loads {
            let input = Input {
                load: pps,
                time: self.pace.cpu,
            };
            let offer = Offer::load(input.load, input.time, self.host_cpu);
            let passed = reached(input, directions, || {
                site.pass_beside(stream, &offer, Some(&idle))
            })?;
            let share = CpuShare {
                percent_of_pdr,
                offered_pps: passed.offered_pps(directions),
                loss_ratio: passed.loss_ratio(),
                router_cpu: passed.router_cpu(),
                cpu_share: passed.cpu_share().unwrap_or_default(),
            };
            let [_, pdr_loss_ratio] = LOSS_RATIOS;
            if share.loss_ratio > pdr_loss_ratio {
                let load = share.load(figures.pdr_is_generators());
                let lost = share.loss_ratio * 100.0;
                self.remarks.push(format!(
                    "{who}: {lost:.1} % of the frames were lost at {load} beside the idle loop; their CPU is missing in the share"
                ));
            }
            figures.cpu.push(share);
        }
        Ok(())
    }
}

/// CPU by an idle loop that is there for these loads alone: it keeps the CPU awake, which would change latencies.
fn idle_loop(cpu: usize) -> Result<Result<IdleLoop, String>, Stop> {
    match IdleLoop::start(cpu) {
        Ok(idle) => Ok(Ok(idle)),
        Err(LabError::Incomplete(why)) => Ok(Err(why)),
        Err(error) => Err(error.into()),
    }
}

/// What is to be said of an NDR and a PDR without close bounds.
pub fn shortfalls(who: &str, search: &Search, [ndr, pdr]: [&Throughput; 2]) -> Vec<String> {
    let short = |(_, found): &(_, &Throughput)| found.rate.at_least_pps.is_none() && !found.regular;
    let found = [("NDR", ndr), ("PDR", pdr)].into_iter().filter(short);
    let words = found.map(
        |(name, found)| match (found.lower_pps, search.is_complete()) {
            (Some(_), _) => format!("{who}: the {name}'s bounds are farther apart than asked for"),
            (None, true) => format!("{who}: no {name}, frames were lost at every load"),
            (None, false) => format!("{who}: no {name} was found while there was time"),
        },
    );
    words.collect()
}

/// Frames with the time in them at a share of the PDR, if there is one, or without load.
pub fn timed_load(percent: u32, pdr_pps: Option<f64>, pace: &Pace, cpu: usize) -> Option<Offer> {
    if percent == 0 {
        return Some(no_load(pace, cpu));
    }
    let pps = (pdr_pps? * f64::from(percent) / 100.0) as u64;
    Some(Offer {
        stamps: Some(STAMPS),
        ..Offer::load(pps.max(1), pace.latency, cpu)
    })
}

/// So few frames that none waits for another, each with the time in it.
fn no_load(pace: &Pace, cpu: usize) -> Offer {
    Offer {
        stamps: Some(Duration::ZERO),
        ..Offer::load(NO_LOAD_PPS, pace.latency, cpu)
    }
}

/// Loads from the NDR to below what the generator can do, a tenth of the NDR apart, or farther if these were too many.
pub fn loss_loads(ndr_pps: Option<f64>, ceiling_pps: f64, most: usize) -> Vec<u64> {
    let step = |from: f64| (from * LOSS_STEP).max((ceiling_pps - from) / most.max(1) as f64);
    // without a rate that holds, tenths of the largest
    let from = ndr_pps.unwrap_or(ceiling_pps * LOSS_STEP).min(ceiling_pps);
    let step = step(from).max(1.0);
    let mut loads: Vec<u64> = (0..most)
        .map(|number| (from + step * number as f64) as u64)
        .filter(|load| (*load as f64) < ceiling_pps - step / 2.0)
        .collect();
    loads.dedup();
    loads
}

#[cfg(test)]
pub mod tests;
