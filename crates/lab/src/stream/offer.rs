// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is to be sent, and what was.

use std::time::Duration;

use crate::error::LabError;
use crate::frame::{FlowSpec, Proto};
use crate::port::Port;

/// More frames a second would be no number that the program can count with.
const PER_S_MAX: u64 = 100_000_000;
/// Directions of a stream, at most.
const WAYS: usize = 2;

/// Where frames leave, and what they are.
#[derive(Clone, Copy, Debug)]
pub struct Way<'a> {
    /// The port.
    pub port: &'a Port,
    /// The flows. A stream's are of UDP and without a tag, and their frame size is the mix's.
    pub flows: FlowSpec,
}

/// What a stream is to offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Frames a second in each direction, at most 100 million in all; without it, as many as the CPU can.
    pub pps: Option<u64>,
    /// How long.
    pub duration: Duration,
    /// It ends after so many frames, if that is sooner.
    pub frames: Option<u64>,
    /// Mean time between frames that have the time in them. Zero: all of them, but one of a burst that a delay has made.
    pub stamps: Option<Duration>,
    /// The CPU it runs on.
    pub cpu: usize,
}

impl Offer {
    /// A load for some time.
    pub fn load(pps: u64, duration: Duration, cpu: usize) -> Self {
        Self {
            pps: Some(pps),
            duration,
            frames: None,
            stamps: None,
            cpu,
        }
    }

    /// As fast as the CPU can.
    pub fn full(duration: Duration, cpu: usize) -> Self {
        Self {
            pps: None,
            ..Self::load(0, duration, cpu)
        }
    }

    /// Frames a second, all directions together; 0 for as many as the CPU can.
    pub(crate) fn per_s(&self, ways: u64) -> u64 {
        self.pps
            .map_or(0, |pps| pps.saturating_mul(ways).clamp(1, PER_S_MAX))
    }

    /// Mean time between frames that have the time in them, nanoseconds; 0 for none.
    pub(crate) fn stamp_ns(&self) -> u64 {
        self.stamps
            .map_or(0, |every| every.as_nanos().max(1) as u64)
    }

    /// Such a frame is one of the next so many and one, a mask.
    pub(crate) fn stamp_spread(&self) -> u64 {
        match self.stamps {
            Some(every) if every > Duration::ZERO => 15,
            _ => 0,
        }
    }
}

/// What was offered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offered {
    /// Frames, of all directions.
    pub frames: u64,
    /// Frames that were due and left out, for the sender was held up or too slow.
    pub left_out: u64,
    /// Frames with the time in them.
    pub stamped: u64,
    /// Nanoseconds in which frames could leave.
    pub elapsed_ns: u64,
    /// Nanoseconds until the last of them were due: an offer of so many frames goes on a little longer.
    pub last_ns: u64,
}

/// The first way, if they go together.
pub fn checked<'a, 'b>(ways: &'b [Way<'a>]) -> Result<&'b Way<'a>, LabError> {
    let invalid = |what: &str| Err(LabError::Invalid(what.into()));
    let Some(first) = ways.first().filter(|_| ways.len() <= WAYS) else {
        return invalid("a stream has one direction or two");
    };
    for Way { flows, .. } in ways {
        if flows.beyond.is_some() && ways.len() > 1 {
            return invalid("hosts beyond the far side: a stream of one direction only");
        }
        let odd = flows.near_each
            || flows.proto != Proto::Udp
            || flows.vlan.is_some()
            || flows.headroom != 0;
        let same = flows.family() == first.flows.family() && flows.flows == first.flows.flows;
        if odd || !same {
            return invalid("a stream's frames are UDP, of one family and untagged");
        }
    }
    Ok(first)
}

/// A way's frames of a size.
pub fn frames_of(flows: &FlowSpec, frame_bytes: u32) -> FlowSpec {
    FlowSpec {
        frame_bytes,
        stamped: true,
        ..*flows
    }
}
