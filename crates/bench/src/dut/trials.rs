// SPDX-License-Identifier: MIT OR Apache-2.0
//! Trials of a device: the search for its rates, loads above them, and latencies where sender and receiver share a clock.

use std::time::{Duration, Instant};

use freeway_console::{Stop, plural, progress};
use freeway_lab::{Offer, Stream};
use freeway_rig::Machine;

use super::receiver::{Arrived, Receiver};
use super::sender::Sender;
use super::{Dut, Loss, Measured, ReceiverEnd, endpoint};
use crate::cli::LoadArgs;
use crate::rfc2544::{
    LATENCY_LOADS, Latency, Method, Pace, Passed, Rate, Search, Size, Throughput, by_turns,
    ceiling, early, left_out, loss_loads, mpps, reached, shortfalls, timed_load,
};

/// The first frames, for so long at a time and so many a second, until one arrives: routers ask for neighbours,
const PROBE: Duration = Duration::from_millis(50);
const PROBE_PPS: u64 = 100;
/// or this has passed.
const PROBE_MAX: Duration = Duration::from_secs(5);
/// A probe in which the sender got no turn is followed by one of twice the time, up to this.
const PROBE_HELD_UP_MAX: Duration = Duration::from_secs(10);
/// Frames of all flows ahead of what counts, a second at most, and for how long.
const WARMUP_PPS: u64 = 10_000;
const WARMUP_MIN: Duration = Duration::from_millis(200);
const WARMUP_MAX: Duration = Duration::from_secs(5);

/// A device between a sender and a receiver.
pub struct Trials<'a, R> {
    sender: &'a Sender,
    receiver: &'a mut R,
    args: &'a LoadArgs,
    pace: Pace,
    remarks: Vec<String>,
    /// More has come than was sent.
    surplus: u64,
    /// Frames that came after their trial was counted.
    late: u64,
}

impl<'a, R: Receiver> Trials<'a, R> {
    /// Nothing is sent yet.
    pub fn new(sender: &'a Sender, receiver: &'a mut R, args: &'a LoadArgs) -> Self {
        let pace = Pace::new(args.quick, args.seconds, args.trials, &args.sizes);
        Self {
            sender,
            receiver,
            args,
            pace,
            remarks: Vec::new(),
            surplus: 0,
            late: 0,
        }
    }

    /// Measures each size.
    pub fn run(mut self, end: ReceiverEnd) -> Result<Dut, Stop> {
        let mut asked = self.args.sizes.clone();
        asked.dedup();
        if self.sender.end.gateway == Some(end.address) {
            self.remarks.push(format!(
                "{} is a neighbour of {}: what is measured is no router but what joins the two, a cable or a bridge",
                end.address, self.sender.end.port
            ));
        }
        let mut sizes = Vec::new();
        for (number, size) in asked.iter().enumerate() {
            let left = &asked[number..];
            if self.pace.is_over() {
                self.remarks.push(left_out(left));
                break;
            }
            let stream = self.sender.stream(*size)?;
            self.become_warm(&stream, &end)?;
            sizes.push(match self.args.pps {
                Some(pps) => self.at_load(&stream, *size, pps)?,
                None => self.measured(&stream, *size, left)?,
            });
        }
        if self.surplus > 0 {
            let surplus = plural(self.surplus, "frame");
            self.remarks.push(format!(
                "{surplus} more than were sent arrived in some trials: somebody copies them"
            ));
        }
        if self.late > 0 {
            let late = plural(self.late, "frame");
            self.remarks.push(format!(
                "{late} came so long after their trials that they count as lost: something holds them back, such as a shaper's queue"
            ));
        }
        Ok(Dut {
            sender: self.sender.end.clone(),
            receiver: end,
            flows: self.args.flows,
            quick: self.args.quick,
            search: self.args.pps.is_none().then(|| Method::of(&self.pace)),
            sizes,
            remarks: self.remarks,
            machine: Machine::this(),
        })
    }

    /// Sends, and waits for what is on its way.
    fn pass(&mut self, stream: &Stream, offer: &Offer) -> Result<Passed, Stop> {
        self.receiver.clear()?;
        let offered = self.sender.send(stream, offer)?;
        let Arrived { metered, late } = self.receiver.counted(offered.frames)?;
        self.late += late;
        self.surplus += metered.frames.saturating_sub(offered.frames);
        Ok(Passed::of(&offered, metered))
    }

    /// Fails if nothing arrives; afterwards the device knows its neighbours, and has seen all flows.
    fn become_warm(&mut self, stream: &Stream, end: &ReceiverEnd) -> Result<(), Stop> {
        let cpu = self.args.cpu;
        let until = Instant::now() + PROBE_MAX;
        let (mut sent, mut probe) = (0, PROBE);
        loop {
            let passed = self.pass(stream, &Offer::load(PROBE_PPS, probe, cpu))?;
            sent += passed.sent;
            if passed.received > 0 {
                break;
            }
            // a busy machine's sender may be held up for all of a probe, which says nothing
            if passed.sent == 0 && probe < PROBE_HELD_UP_MAX {
                probe *= 2;
            } else if Instant::now() >= until {
                let (to, from) = (endpoint(end.address), &self.sender.end);
                return Err(Stop::failure(format!(
                    "none of {} from {} by {} to UDP {to} arrived at {}: does the router at {} forward them, and do its rules let them pass?",
                    plural(sent, "frame"),
                    from.address,
                    from.port,
                    end.port,
                    from.gateway_mac
                )));
            }
        }
        let flows = self.sender.flows();
        let pps = self.args.pps.map_or(WARMUP_PPS, |pps| pps.min(WARMUP_PPS));
        // each of them, and if that is more than is asked for
        let pps = pps.max(u64::from(flows).div_ceil(WARMUP_MAX.as_secs()));
        let all = f64::from(flows) / pps as f64;
        let time = Duration::from_secs_f64(all).clamp(WARMUP_MIN, WARMUP_MAX);
        self.pass(stream, &Offer::load(pps, time, cpu)).map(drop)
    }

    /// Loss at one load.
    fn at_load(&mut self, stream: &Stream, size: Size, pps: u64) -> Result<Measured, Stop> {
        progress(&format!("{}: {pps} frames a second", size.label()));
        let offer = Offer::load(pps, self.pace.loss, self.args.cpu);
        let passed = self.pass(stream, &offer)?;
        Ok(Measured {
            loss: vec![loss(Some(pps), &passed)],
            ..self.of_size(size)
        })
    }

    fn of_size(&self, size: Size) -> Measured {
        Measured {
            name: size.to_string(),
            label: size.label(),
            frame_bytes: self.sender.mean_bytes(size),
            ..Measured::default()
        }
    }

    /// Rates, losses and latencies.
    fn measured(&mut self, stream: &Stream, size: Size, left: &[Size]) -> Result<Measured, Stop> {
        let who = size.label();
        let full = Offer::full(self.pace.ceiling, self.args.cpu);
        let ceiling_pps = ceiling("the sender has not sent a frame", || {
            Ok(self.pass(stream, &full)?.offered_pps(1))
        })?;
        progress(&format!(
            "{who}: the sender, {:.2} Mpps",
            ceiling_pps * 1e-6
        ));
        let search = self.searched(stream, ceiling_pps, left)?;
        let mut of_size = self.of_size(size);
        let [ndr, pdr] = Throughput::both(&search, ceiling_pps, of_size.frame_bytes);
        progress(&format!(
            "{who}: NDR {}, PDR {} after {} trials",
            mpps(&ndr.rate),
            mpps(&pdr.rate),
            search.count()
        ));
        self.remarks.extend(shortfalls(&who, &search, [&ndr, &pdr]));
        of_size.trials = search.count() as u64;
        of_size.ceiling_pps = Some(ceiling_pps);
        (of_size.ndr, of_size.pdr) = (Some(ndr), Some(pdr));
        let loads = loss_loads(ndr.lower_pps, ceiling_pps, self.pace.losses_max);
        for load in loads.into_iter().map(Some).chain([None]) {
            if self.pace.is_over() {
                let words = format!("{who}: there was no time left for some of it");
                self.remarks.push(words);
                return Ok(of_size);
            }
            let offer = Offer {
                pps: load,
                ..Offer::full(self.pace.loss, self.args.cpu)
            };
            of_size.loss.push(loss(load, &self.pass(stream, &offer)?));
        }
        let bytes = of_size.frame_bytes;
        of_size.frmol = of_size.loss.last().map(|last| {
            let limit = ceiling_pps.min(last.offered_pps);
            Rate::new(last.forwarded_pps, limit, false, bytes)
        });
        if self.receiver.shares_clock() {
            of_size.latency = self.latencies(stream, &who, pdr.lower_pps)?;
        }
        Ok(of_size)
    }

    fn searched(
        &mut self,
        stream: &Stream,
        ceiling_pps: f64,
        left: &[Size],
    ) -> Result<Search, Stop> {
        let until = self.pace.search_until(left);
        let mut search = [Search::new(self.pace.plan(ceiling_pps))];
        by_turns(&mut search, |_, input| {
            if until.is_some_and(|until| Instant::now() >= until) {
                return Ok::<_, Stop>(None);
            }
            let offer = Offer::load(input.load, input.time, self.args.cpu);
            let passed = reached(input, 1, || self.pass(stream, &offer))?;
            Ok(Some(passed.trial(input, 1)))
        })?;
        let [search] = search;
        Ok(search)
    }

    fn latencies(
        &mut self,
        stream: &Stream,
        who: &str,
        pdr_pps: Option<f64>,
    ) -> Result<Vec<Latency>, Stop> {
        let mut latencies = Vec::new();
        let mut metered = Vec::new();
        for percent in LATENCY_LOADS {
            let Some(offer) = timed_load(percent, pdr_pps, &self.pace, self.args.cpu) else {
                continue;
            };
            let passed = self.pass(stream, &offer)?;
            let latency = Latency::of(&passed.metered);
            latencies.extend(latency.map(|latency| Latency {
                percent_of_pdr: percent,
                offered_pps: passed.offered_pps(1),
                loss_ratio: passed.loss_ratio(),
                ..latency
            }));
            metered.extend(passed.metered);
        }
        self.remarks.extend(early(who, &metered));
        Ok(latencies)
    }
}

/// What came of a load, or of all that could be sent.
fn loss(load: Option<u64>, passed: &Passed) -> Loss {
    let offered_pps = passed.offered_pps(1);
    Loss {
        load_pps: load.map_or(offered_pps, |load| load as f64),
        offered_pps,
        forwarded_pps: passed.forwarded_pps(1),
        sent: passed.sent,
        received: passed.received,
        loss_ratio: passed.loss_ratio(),
    }
}
