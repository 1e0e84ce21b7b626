// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measuring what a frame costs.
//!
//! The generator runs on one CPU, and a veth's receive path runs where the sender runs: one core does everything,
//! and time divided by frames is the cost of generator, router and sink together.

use std::thread;
use std::time::Duration;

use serde::Serialize;

use crate::beside::Beside;
use crate::error::LabError;
use crate::frame::{Direction, Directions, FlowSpec, Proto};
use crate::generator::{Generator, Load, Sent, Until};
use crate::lab::Lab;
use crate::reference::{Reference, ReferenceGuard};
use crate::sink::{Sink, SinkSpec};
use crate::stream::Way;

/// Frames still on their way when the generator has ended.
const SETTLE: Duration = Duration::from_millis(5);
/// What disturbs the machine for a moment spoils a slice, not the sample.
const SLICE: Duration = Duration::from_millis(250);

/// Through each router in one turn,
const TURN: Duration = Duration::from_millis(500);
/// through each peer,
const TURN_PEER: Duration = Duration::from_millis(250);
/// beside them,
const TURN_BESIDE: Duration = Duration::from_millis(125);
/// and before each, until caches hold what this way needs.
const TURN_WARMUP: Duration = Duration::from_millis(20);

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MeasureSpec {
    /// How many flows, in turn.
    pub flows: u32,
    /// Frame size, FCS counted.
    pub frame_bytes: u32,
    /// The protocol.
    pub proto: Proto,
    /// Who sends.
    pub directions: Directions,
    /// The CPU of generator and router.
    pub cpu: usize,
    /// Time before the measurement starts.
    pub warmup: Duration,
    /// Time to measure.
    pub duration: Duration,
}

impl Default for MeasureSpec {
    fn default() -> Self {
        Self {
            flows: 1000,
            frame_bytes: 64,
            proto: Proto::Udp,
            directions: Directions::Forward,
            cpu: 0,
            warmup: Duration::from_millis(200),
            duration: Duration::from_secs(1),
        }
    }
}

impl MeasureSpec {
    /// By direction.
    fn flows(&self, lab: &Lab) -> Result<Vec<FlowSpec>, LabError> {
        let each = self.directions.each().iter();
        let flows = each.map(|direction| {
            let of = match direction {
                Direction::Forward => Lab::flows,
                Direction::Reply if lab.options().pppoe.is_some() => {
                    let what =
                        "answers through a PPPoE session: the generator makes no such frames";
                    return Err(LabError::Invalid(what.into()));
                }
                Direction::Reply => Lab::reply_flows,
            };
            Ok(of(lab, self.proto, self.flows, self.frame_bytes))
        });
        flows.collect()
    }
}

/// Out of the hosts' ports.
fn ways<'a>(lab: &'a Lab, flows: &[FlowSpec]) -> Vec<Way<'a>> {
    let ways = flows.iter().map(|flows| Way {
        port: lab.sender(flows.direction),
        flows: *flows,
    });
    ways.collect()
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// Frames sent.
    pub sent: u64,
    /// Frames that arrived.
    pub received: u64,
    /// Nanoseconds it took.
    pub elapsed_ns: u64,
    /// Nanoseconds that the generator had the CPU, see [`crate::Sent::cpu_ns`].
    pub cpu_ns: u64,
    /// Nanoseconds for each frame that arrived, everything included: the median of slices of a quarter of a second.
    pub ns_per_frame: f64,
    /// The frame size that was really sent, FCS counted; the longest, if directions differ by a tag.
    pub frame_bytes: u32,
}

impl Sample {
    /// Millions of frames a second.
    pub fn mpps(&self) -> f64 {
        1000.0 / self.ns_per_frame
    }
}

/// Sends from one host to the other with whatever is attached to the router, and counts at a plain sink.
pub fn measure(lab: &Lab, spec: &MeasureSpec) -> Result<Sample, LabError> {
    let sinks = Sinks::attach(lab, spec.directions)?;
    measure_by(lab, spec, || sinks.arrived())
}

/// As [`measure`], with a reference program on the router, which must have no other.
pub fn measure_reference(
    lab: &Lab,
    spec: &MeasureSpec,
    reference: Reference,
) -> Result<Sample, LabError> {
    let guards = spec.directions.each().iter().map(|direction| {
        let [input, output] = lab.way(*direction);
        reference.attach_at(input, output)
    });
    let guards: Vec<ReferenceGuard> = guards.collect::<Result<_, _>>()?;
    match reference {
        Reference::XdpDrop | Reference::TcEgressDrop => measure_by(lab, spec, || {
            guards.iter().map(ReferenceGuard::counted).sum()
        }),
        _ => measure(lab, spec),
    }
}

/// Where the frames of each direction end.
#[derive(Debug)]
struct Sinks(Vec<Sink>);

impl Sinks {
    fn attach(lab: &Lab, directions: Directions) -> Result<Self, LabError> {
        let each = directions.each().iter();
        let sinks = each.map(|direction| Sink::attach(lab.receiver(*direction), SinkSpec::plain()));
        Ok(Self(sinks.collect::<Result<_, _>>()?))
    }

    fn arrived(&self) -> Result<u64, LabError> {
        let frames = |sink: &Sink| Ok(sink.counts()?.frames);
        self.0.iter().map(frames).sum()
    }
}

/// One after the other, within a second or two.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Turn {
    /// The generator into an XDP drop at a port like the router's input.
    pub source: Sample,
    /// A bare redirect from there to the router's output.
    pub redirect: Sample,
    /// The routers and then the peers, in their order.
    pub routers: Vec<Sample>,
}

/// Routers, whatever is attached to them, and bare programs beside them, measured by turns: as the machine's speed
/// drifts, all of them drift alike. With both directions these alternate frame by frame, in each sample.
#[derive(Debug)]
pub struct Turns {
    spec: MeasureSpec,
    routers: Vec<Through>,
    source: Beside,
    redirect: Beside,
    /// Where the bare redirect leads: the place of the last router's sink.
    redirected: usize,
}

/// A generator at one host, and a sink at the other; with both directions at both.
#[derive(Debug)]
struct Through {
    generator: Generator,
    sinks: Sinks,
    /// Of a turn, at most.
    part: Duration,
}

impl Through {
    fn new(lab: &Lab, spec: &MeasureSpec, part: Duration) -> Result<Self, LabError> {
        Ok(Self {
            generator: Generator::by_turns(&ways(lab, &spec.flows(lab)?))?,
            sinks: Sinks::attach(lab, spec.directions)?,
            part,
        })
    }

    fn measure(&self, spec: &MeasureSpec) -> Result<Sample, LabError> {
        measure_generator(&self.generator, spec, || self.sinks.arrived())
    }
}

impl Turns {
    /// Makes everything ready. Peers have half of a router's time; their flows are the same. The bare programs are beside
    /// the last router. The receivers' ports must be free until this is dropped.
    pub fn new(routers: &[&Lab], peers: &[&Lab], spec: &MeasureSpec) -> Result<Self, LabError> {
        let last = routers
            .last()
            .ok_or_else(|| LabError::Invalid("turns of no router".into()))?;
        let parts = [(routers, TURN), (peers, TURN_PEER)];
        let through = parts.into_iter().flat_map(|(labs, part)| {
            let through = move |lab: &&Lab| Through::new(lab, spec, part);
            labs.iter().map(through)
        });
        let through = through.collect::<Result<_, _>>()?;
        let flows = spec.flows(last)?;
        Ok(Self {
            spec: *spec,
            routers: through,
            source: Beside::new(last, &flows, Reference::XdpDrop)?,
            redirect: Beside::new(last, &flows, Reference::XdpRedirect)?,
            redirected: routers.len() - 1,
        })
    }

    /// Takes turns until each router has had its time.
    pub fn run(&self) -> Result<Vec<Turn>, LabError> {
        let part = |duration| MeasureSpec {
            warmup: TURN_WARMUP,
            duration,
            ..self.spec
        };
        let beside = part(TURN_BESIDE);
        let mut turns = Vec::new();
        let mut left = self.spec.duration;
        while !left.is_zero() {
            let through = |router: &Through| router.measure(&part(left.min(router.part)));
            turns.push(Turn {
                source: measure_generator(&self.source.generator, &beside, || {
                    self.source.counted()
                })?,
                redirect: measure_generator(&self.redirect.generator, &beside, || {
                    self.routers[self.redirected].sinks.arrived()
                })?,
                routers: self.routers.iter().map(through).collect::<Result<_, _>>()?,
            });
            left = left.saturating_sub(TURN);
        }
        Ok(turns)
    }

    /// Frames that each router and then each peer has been sent so far.
    pub fn frames(&self) -> Result<Vec<u64>, LabError> {
        let frames = |router: &Through| router.generator.frames();
        self.routers.iter().map(frames).collect()
    }
}

/// The generator alone, which drops what it makes.
fn measure_mute(lab: &Lab, spec: &MeasureSpec) -> Result<Sample, LabError> {
    let generator = Generator::mute(&ways(lab, &spec.flows(lab)?))?;
    let made = || generator.frames();
    measure_generator(&generator, spec, made)
}

fn measure_by(
    lab: &Lab,
    spec: &MeasureSpec,
    received: impl Fn() -> Result<u64, LabError>,
) -> Result<Sample, LabError> {
    let generator = Generator::by_turns(&ways(lab, &spec.flows(lab)?))?;
    measure_generator(&generator, spec, received)
}

fn measure_generator(
    generator: &Generator,
    spec: &MeasureSpec,
    received: impl Fn() -> Result<u64, LabError>,
) -> Result<Sample, LabError> {
    let run = |time| generator.run(&Load::full(Until::Elapsed(time)).on_cpu(spec.cpu));
    run(spec.warmup)?;
    thread::sleep(SETTLE);
    let before = received()?;
    let mut sent = Sent::default();
    let mut slices = Vec::new();
    let mut left = spec.duration;
    while !left.is_zero() {
        let slice = run(left.min(SLICE))?;
        left = left.saturating_sub(SLICE);
        sent.frames += slice.frames;
        sent.elapsed_ns += slice.elapsed_ns;
        sent.cpu_ns += slice.cpu_ns;
        slices.push(slice.ns_per_frame());
    }
    thread::sleep(SETTLE);
    let received = received()? - before;
    Ok(Sample {
        sent: sent.frames,
        received,
        elapsed_ns: sent.elapsed_ns,
        cpu_ns: sent.cpu_ns,
        ns_per_frame: median(&mut slices) * sent.frames as f64 / received.max(1) as f64,
        frame_bytes: generator.wire_bytes(),
    })
}

/// What the sink costs, the way to it included, for frames of the two kinds. The costs of the kernel's and the fast
/// path contain it once.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SinkCost {
    /// For socket buffers of the kernel: from before `wan0`'s transmit function to the drop.
    pub skb_ns: f64,
    /// For XDP frames: from the redirect to the drop.
    pub xdp_ns: f64,
}

/// Measures what the sink and the veth before it cost: the medians of five rounds, each of `spec.duration` four times.
/// Socket buffers are dropped just before the veth instead; with XDP frames it is the generator's own redirect into
/// a veth, against the generator alone.
pub fn measure_sink(lab: &Lab, spec: &MeasureSpec) -> Result<SinkCost, LabError> {
    let (mut skb, mut xdp) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let cost = |reference| Ok(measure_reference(lab, spec, reference)?.ns_per_frame);
        skb.push(measure(lab, spec)?.ns_per_frame - cost(Reference::TcEgressDrop)?);
        xdp.push(cost(Reference::XdpDrop)? - measure_mute(lab, spec)?.ns_per_frame);
    }
    Ok(SinkCost {
        skb_ns: median(&mut skb),
        xdp_ns: median(&mut xdp),
    })
}

/// Of an even number the mean of the two in the middle; NaN of none.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
    (at(values.len().saturating_sub(1) / 2) + at(values.len() / 2)) / 2.0
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn a_median_is_between_the_two_in_the_middle() {
        assert_eq!(median(&mut [3.0, 1.0]), 2.0);
        assert_eq!(median(&mut [5.0, 1.0, 4.0]), 4.0);
        assert_eq!(median(&mut [9.0, 1.0, 4.0, 2.0]), 3.0);
        assert!(median(&mut []).is_nan());
    }
}
