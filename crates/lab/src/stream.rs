// SPDX-License-Identifier: MIT OR Apache-2.0
//! UDP frames at a constant load, as RFC 1242 has it: evenly, in sizes of a mix, in one direction or in both.
//!
//! Frames of one page are made by a BPF program, longer ones are sent through packet sockets. A sender that was held up makes
//! up for 128 frames at most, half of what a veth's queue holds, and leaves out the others.

mod live;
mod pace;
mod sockets;

use std::time::Duration;

use self::live::LiveFrames;
use self::sockets::Sockets;
use crate::clock::pin;
use crate::error::LabError;
use crate::frame::{FRAME_BYTES_MAX, FlowSpec, Proto};
use crate::lab::Port;
use crate::mix::Mix;
use crate::netns::Netns;

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
    fn per_s(&self, ways: u64) -> u64 {
        self.pps
            .map_or(0, |pps| pps.saturating_mul(ways).clamp(1, PER_S_MAX))
    }

    /// Mean time between frames that have the time in them, nanoseconds; 0 for none.
    fn stamp_ns(&self) -> u64 {
        self.stamps
            .map_or(0, |every| every.as_nanos().max(1) as u64)
    }

    /// Such a frame is one of the next so many and one, a mask.
    fn stamp_spread(&self) -> u64 {
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

/// A sender that is ready. Flows and sizes go on from one run to the next.
#[derive(Debug)]
pub struct Stream {
    netns: Netns,
    sender: Sender,
}

#[derive(Debug)]
enum Sender {
    Live(LiveFrames),
    Sockets(Sockets),
}

impl Stream {
    /// A stream of one or two directions, which take turns frame by frame; those of packet sockets by a few frames each.
    pub fn new(ways: &[Way<'_>], mix: &Mix) -> Result<Self, LabError> {
        if mix.sizes().any(|size| size > FRAME_BYTES_MAX) {
            return Self::by_sockets(ways, mix);
        }
        Ok(Self {
            netns: checked(ways)?.port.netns.clone(),
            sender: Sender::Live(LiveFrames::load(ways, mix)?),
        })
    }

    /// The same through packet sockets, of any size that ports let through, with fewer frames a second.
    pub fn by_sockets(ways: &[Way<'_>], mix: &Mix) -> Result<Self, LabError> {
        Ok(Self {
            netns: checked(ways)?.port.netns.clone(),
            sender: Sender::Sockets(Sockets::open(ways, mix)?),
        })
    }

    /// Runs in a thread of its own and waits for it.
    pub fn run(&self, offer: &Offer) -> Result<Offered, LabError> {
        self.netns.enter(|| {
            pin(offer.cpu)?;
            match &self.sender {
                Sender::Live(live) => live.drive(offer),
                Sender::Sockets(sockets) => sockets.drive(offer),
            }
        })?
    }
}

/// The first way, if they go together.
fn checked<'a, 'b>(ways: &'b [Way<'a>]) -> Result<&'b Way<'a>, LabError> {
    let invalid = |what: &str| Err(LabError::Invalid(what.into()));
    let Some(first) = ways.first().filter(|_| ways.len() <= WAYS) else {
        return invalid("a stream has one direction or two");
    };
    for Way { flows, .. } in ways {
        if flows.beyond.is_some() && ways.len() > 1 {
            return invalid("hosts beyond the far side: a stream of one direction only");
        }
        let odd = flows.proto != Proto::Udp || flows.vlan.is_some() || flows.headroom != 0;
        let same = flows.family() == first.flows.family() && flows.flows == first.flows.flows;
        if odd || !same {
            return invalid("a stream's frames are UDP, of one family and untagged");
        }
    }
    Ok(first)
}

/// A way's frames of a size.
fn frames_of(flows: &FlowSpec, frame_bytes: u32) -> FlowSpec {
    FlowSpec {
        frame_bytes,
        stamped: true,
        ..*flows
    }
}
