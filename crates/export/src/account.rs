// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is known of one connection.

use freeway_kernel::model::Tuple;

use crate::record::{Counts, EndReason, Record};

/// A direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// That of the first packet.
    Original = 0,
    /// That of the answers.
    Reply = 1,
}

/// What the fast path counted of a flow: packets, and octets of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FastCounts {
    /// Packets.
    pub packets: u64,
    /// Octets of the frames as they were sent, link layer included.
    pub frame_octets: u64,
}

impl FastCounts {
    /// Without the link layer. A flow that is read while it counts may show a packet before its octets.
    pub(crate) fn counts(self, link_octets: u16) -> Counts {
        let link = self.packets.saturating_mul(link_octets.into());
        Counts {
            packets: self.packets,
            octets: self.frame_octets.saturating_sub(link),
        }
    }
}

/// The fast path's share.
#[derive(Debug, Default)]
pub(crate) struct Fast {
    /// Of flows whose places are another's by now.
    pub retired: [Counts; 2],
    /// What records told of it.
    pub told: [Counts; 2],
    /// Flows that count, or may still do so.
    pub live: Vec<u32>,
    /// Where the original direction comes in and where it leaves.
    pub ports: [u32; 2],
}

/// How the kernel said that a connection ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub kernel: [Counts; 2],
    pub end_ms: u64,
    pub reason: EndReason,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Account {
    pub orig: Tuple,
    pub zone: u16,
    pub reply: Tuple,
    /// Conntrack's number; 0: not known yet.
    pub id: u32,
    /// What records told of the kernel's counters.
    pub told: [Counts; 2],
    pub fast: Option<Box<Fast>>,
    /// It waits for its flows' last packets.
    pub ended: Option<Box<Ended>>,
    /// Of both directions, at the last look.
    pub packets: u64,
    /// When that was other than at the look before.
    pub changed_ms: u64,
    /// When the last record was written.
    pub told_ms: u64,
    /// When what is to be told next began.
    pub start_ms: u64,
    /// Some of it was told, or is not to be.
    pub known: bool,
    /// Rounds of looks in which the kernel did not have it.
    pub missed: u8,
    /// The last round in which it had, or in which the account began.
    pub round: u32,
}

impl Account {
    pub fn new(orig: Tuple, zone: u16, round: u32, now_ms: u64) -> Self {
        Self {
            orig,
            zone,
            reply: orig.inverse(),
            id: 0,
            told: [Counts::default(); 2],
            fast: None,
            ended: None,
            packets: 0,
            changed_ms: now_ms,
            told_ms: now_ms,
            start_ms: now_ms,
            known: false,
            missed: 0,
            round,
        }
    }

    pub fn is_live(&self) -> bool {
        self.fast.as_ref().is_some_and(|fast| !fast.live.is_empty())
    }

    /// Writes a record, if anything passed since the last one. `kernel` and `fast` are all that was ever counted.
    pub fn tell(
        &mut self,
        kernel: [Counts; 2],
        fast: [Counts; 2],
        (end_ms, reason): (u64, EndReason),
    ) -> Option<Record> {
        let told = self.fast.as_ref().map_or_else(Default::default, |f| f.told);
        let counts = [0, 1].map(|dir| {
            let mut sum = kernel[dir].since(self.told[dir]);
            sum.add(fast[dir].since(told[dir]));
            sum
        });
        if counts.iter().all(|counts| counts.is_zero()) {
            return None;
        }
        let later = |before: Counts, now: Counts| Counts {
            packets: before.packets.max(now.packets),
            octets: before.octets.max(now.octets),
        };
        for dir in [0, 1] {
            self.told[dir] = later(self.told[dir], kernel[dir]);
            if let Some(own) = &mut self.fast {
                own.told[dir] = later(own.told[dir], fast[dir]);
            }
        }
        let start_ms = std::mem::replace(&mut self.start_ms, end_ms);
        self.told_ms = end_ms;
        self.known = true;
        Some(Record {
            orig: self.orig,
            reply: self.reply,
            id: self.id,
            ports: self.fast.as_ref().map_or([0; 2], |fast| fast.ports),
            counts,
            start_ms: start_ms.min(end_ms),
            end_ms,
            reason,
        })
    }
}
