// SPDX-License-Identifier: MIT OR Apache-2.0
//! UDP frames at a constant load, as RFC 1242 has it: evenly, in sizes of a mix, in one direction or in both.
//!
//! Frames of one page are made by a BPF program, longer ones are sent through packet sockets. A sender that was held up makes
//! up for 128 frames at most, half of what a veth's queue holds, and leaves out the others.

mod live;
mod offer;
mod pace;
mod sockets;

use self::live::LiveFrames;
use self::offer::checked;
use self::sockets::Sockets;
use crate::clock::pin;
use crate::error::LabError;
use crate::frame::FRAME_BYTES_MAX;
use crate::mix::Mix;
use crate::netns::Netns;

pub use self::offer::{Offer, Offered, Way};

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
