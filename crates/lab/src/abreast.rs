// SPDX-License-Identifier: MIT OR Apache-2.0
//! Generators on several CPUs at once, each with its share of the flows, and what they get through routers.
//!
//! A veth hands a redirected frame to the receiver's queue of the sender's CPU (`veth_select_rxq()`), which is polled on that
//! CPU, and an skb leaves by the queue of the same number that it came in by (`skb_tx_hash()`). So where each port has as many
//! queues as there are generators, on CPUs of consecutive numbers, each CPU has queues of its own all the way.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use serde::Serialize;

use crate::beside::Pair;
use crate::error::LabError;
use crate::frame::{FlowSpec, Proto};
use crate::generator::{Generator, Load, Sent, Until};
use crate::lab::Lab;
use crate::port::Port;
use crate::reference::{Reference, ReferenceGuard};
use crate::sink::{Sink, SinkSpec};

/// Frames still on their way when the generators have ended.
const SETTLE: Duration = Duration::from_millis(5);
/// Of each way in one turn,
const TURN: Duration = Duration::from_millis(500);
/// and before it, until caches hold what this way needs.
const WARMUP: Duration = Duration::from_millis(20);

/// A generator on each of some CPUs.
#[derive(Debug)]
pub struct Abreast {
    each: Vec<(usize, Generator)>,
}

/// What they sent together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Together {
    /// Frames of each, in the order of the CPUs.
    pub sent: Vec<u64>,
    /// Frames of all that arrived.
    pub received: u64,
    /// Millions of frames a second that arrived.
    pub mpps: f64,
}

impl Together {
    /// Frames of all.
    pub fn sent(&self) -> u64 {
        self.sent.iter().sum()
    }
}

/// Flows in as many parts, which differ by one at most.
fn shares(flows: &FlowSpec, number: usize) -> Result<Vec<FlowSpec>, LabError> {
    let parts = u32::try_from(number).unwrap_or(u32::MAX);
    if flows.beyond.is_some() || flows.flows < parts {
        return Err(LabError::Invalid(format!(
            "{} flows for {number} generators: there can be one each at least, and to one host",
            flows.flows
        )));
    }
    let first = |part: u32| (u64::from(flows.flows) * u64::from(part) / u64::from(parts)) as u32;
    let share = |part: u32| FlowSpec {
        flows: first(part + 1) - first(part),
        first: flows.first + first(part),
        ..*flows
    };
    Ok((0..parts).map(share).collect())
}

impl Abreast {
    /// Makes them, one for each CPU; their flows are those of `flows`, each of one of them.
    pub fn new(port: &Port, flows: &FlowSpec, cpus: &[usize]) -> Result<Self, LabError> {
        let shares = shares(flows, cpus.len())?;
        let each = cpus.iter().zip(&shares);
        let each = each.map(|(cpu, share)| Ok((*cpu, Generator::new(port, share)?)));
        Ok(Self {
            each: each.collect::<Result<_, LabError>>()?,
        })
    }

    /// Flows of each.
    pub fn flows(&self) -> impl Iterator<Item = u32> {
        self.each
            .iter()
            .map(|(_, generator)| generator.spec().flows)
    }

    /// Frames that all have sent since they were made.
    pub fn frames(&self) -> Result<u64, LabError> {
        self.each
            .iter()
            .map(|(_, generator)| generator.frames())
            .sum()
    }

    /// As fast as they can, all at once.
    fn run(&self, time: Duration) -> Result<Vec<Sent>, LabError> {
        let ready = Barrier::new(self.each.len());
        thread::scope(|scope| {
            let ready = &ready;
            let threads = self.each.iter().map(|(cpu, generator)| {
                scope.spawn(move || {
                    ready.wait();
                    generator.run(&Load::full(Until::Elapsed(time)).on_cpu(*cpu))
                })
            });
            let threads: Vec<_> = threads.collect();
            let join = |thread: thread::ScopedJoinHandle<'_, Result<Sent, LabError>>| {
                thread
                    .join()
                    .unwrap_or_else(|cause| std::panic::resume_unwind(cause))
            };
            threads.into_iter().map(join).collect()
        })
    }

    fn measure(
        &self,
        time: Duration,
        received: impl Fn() -> Result<u64, LabError>,
    ) -> Result<Together, LabError> {
        self.run(WARMUP)?;
        thread::sleep(SETTLE);
        let before = received()?;
        let each = self.run(time)?;
        thread::sleep(SETTLE);
        let received = received()? - before;
        let sent: Vec<u64> = each.iter().map(|sent| sent.frames).collect();
        let per_us: f64 = each.iter().map(|sent| 1000.0 / sent.ns_per_frame()).sum();
        let all: u64 = sent.iter().sum();
        Ok(Together {
            mpps: per_us * received as f64 / all.max(1) as f64,
            sent,
            received,
        })
    }
}

/// The same flows from one CPU and from all.
#[derive(Debug)]
struct Ways {
    one: Abreast,
    all: Abreast,
}

impl Ways {
    fn new(port: &Port, flows: &FlowSpec, cpus: &[usize]) -> Result<Self, LabError> {
        let first = cpus.get(..1).unwrap_or_default();
        Ok(Self {
            one: Abreast::new(port, flows, first)?,
            all: Abreast::new(port, flows, cpus)?,
        })
    }

    fn measure(
        &self,
        time: Duration,
        received: impl Fn() -> Result<u64, LabError>,
    ) -> Result<OneAndAll, LabError> {
        Ok(OneAndAll {
            one: self.one.measure(time, &received)?,
            all: self.all.measure(time, &received)?,
        })
    }
}

/// What one CPU got through, and then all at once.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OneAndAll {
    /// The first CPU with all flows.
    pub one: Together,
    /// All CPUs.
    pub all: Together,
}

/// One after the other, within a few seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AbreastTurn {
    /// A bare redirect beside the last router, to its output.
    pub redirect: OneAndAll,
    /// The routers in their order.
    pub routers: Vec<OneAndAll>,
}

/// Routers, whatever is attached to them, and a bare redirect beside the last: by turns, for the machine's speed drifts.
#[derive(Debug)]
pub struct AbreastTurns {
    routers: Vec<(Ways, Sink)>,
    // In this order: programs go before their ports.
    redirect: Ways,
    _guard: ReferenceGuard,
    _pair: Pair,
}

impl AbreastTurns {
    /// Makes everything ready. The labs have a queue for each CPU; the servers' ports must be free until this is dropped.
    pub fn new(
        labs: &[&Lab],
        (proto, flows, frame_bytes): (Proto, u32, u32),
        cpus: &[usize],
    ) -> Result<Self, LabError> {
        let last = labs
            .last()
            .ok_or_else(|| LabError::Invalid("turns of no router".into()))?;
        let routers = labs.iter().map(|lab| {
            let flows = lab.flows(proto, flows, frame_bytes);
            let ways = Ways::new(lab.client_port(), &flows, cpus)?;
            Ok((ways, Sink::attach(lab.server_port(), SinkSpec::plain())?))
        });
        let routers = routers.collect::<Result<_, LabError>>()?;
        let (netns, options) = (last.client(), last.options());
        let pair = Pair::new(netns, "abreast", options.mtu, options.queues)?;
        Ok(Self {
            routers,
            redirect: Ways::new(&pair.near, &last.flows(proto, flows, frame_bytes), cpus)?,
            _guard: Reference::XdpRedirect.attach_at(&pair.far, last.wan_port())?,
            _pair: pair,
        })
    }

    /// Takes turns until all CPUs have had `time` in each router.
    pub fn run(&self, time: Duration) -> Result<Vec<AbreastTurn>, LabError> {
        let mut turns = Vec::new();
        let mut left = time;
        while !left.is_zero() {
            let part = left.min(TURN);
            let through =
                |(ways, sink): &(Ways, Sink)| ways.measure(part, || Ok(sink.counts()?.frames));
            let redirected = || match self.routers.last() {
                Some((_, sink)) => Ok(sink.counts()?.frames),
                None => Ok(0),
            };
            turns.push(AbreastTurn {
                redirect: self.redirect.measure(part, redirected)?,
                routers: self.routers.iter().map(through).collect::<Result<_, _>>()?,
            });
            left = left.saturating_sub(part);
        }
        Ok(turns)
    }

    /// Flows of each CPU when all send.
    pub fn flows(&self) -> Vec<u32> {
        self.redirect.all.flows().collect()
    }

    /// Frames that each router has been sent so far.
    pub fn frames(&self) -> Result<Vec<u64>, LabError> {
        let frames = |(ways, _): &(Ways, Sink)| Ok(ways.one.frames()? + ways.all.frames()?);
        self.routers.iter().map(frames).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flow_is_of_one_share() {
        let flows = FlowSpec {
            flows: 100,
            ..FlowSpec::default()
        };
        let of = shares(&flows, 3).unwrap();
        let ranges: Vec<(u32, u32)> = of.iter().map(|s| (s.first, s.flows)).collect();
        assert_eq!(ranges, [(0, 33), (33, 33), (66, 34)]);
        assert_eq!(shares(&flows, 1).unwrap(), [flows]);
        assert!(shares(&flows, 101).is_err());
        // over several addresses of the near side
        let many = FlowSpec {
            flows: 50_000,
            ..flows
        };
        let of = shares(&many, 2).unwrap();
        let mut tuples: Vec<_> = of
            .iter()
            .flat_map(|s| (0..s.flows).map(|i| s.tuple(i)))
            .collect();
        let all: Vec<_> = (0..many.flows).map(|i| many.tuple(i)).collect();
        assert_eq!(tuples, all);
        tuples.sort_unstable();
        tuples.dedup();
        assert_eq!(tuples.len(), 50_000);
    }
}
