// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames that are sent again as they were: in order, each from its side and at its time.

use crate::frame::{Direction, MAC_CLIENT, MAC_LAN, MAC_SERVER, MAC_WAN};

/// The shortest frame without FCS; shorter ones are padded (IEEE 802.3).
const FRAME_LEN_MIN: usize = 60;
/// FNV-1a, 64 bits.
const DIGEST_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const DIGEST_PRIME: u64 = 0x0100_0000_01b3;

/// Where a frame ends in the tape's memory, and when and where it leaves.
#[derive(Clone, Copy, Debug)]
struct Mark {
    end: usize,
    at_ns: u64,
    direction: Direction,
}

/// Frames, one after the other in memory.
#[derive(Debug)]
pub struct Tape {
    bytes: Vec<u8>,
    marks: Vec<Mark>,
    sent: [u64; 2],
    digest: u64,
}

impl Default for Tape {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            marks: Vec::new(),
            sent: [0; 2],
            digest: DIGEST_BASIS,
        }
    }
}

impl Tape {
    /// Appends a packet, from the client or the server of a lab to its router, so many nanoseconds after the first; no earlier
    /// than the one before. The ethertype is in host byte order.
    pub fn push(&mut self, direction: Direction, at_ns: u64, ethertype: u16, packet: &[u8]) {
        let [destination, source] = match direction {
            Direction::Forward => [MAC_LAN, MAC_CLIENT],
            Direction::Reply => [MAC_WAN, MAC_SERVER],
        };
        let begin = self.bytes.len();
        self.bytes.extend(destination);
        self.bytes.extend(source);
        self.bytes.extend(ethertype.to_be_bytes());
        self.bytes.extend(packet);
        let end = self.bytes.len().max(begin + FRAME_LEN_MIN);
        self.bytes.resize(end, 0);
        for byte in &self.bytes[begin..] {
            self.digest = (self.digest ^ u64::from(*byte)).wrapping_mul(DIGEST_PRIME);
        }
        self.marks.push(Mark {
            end: self.bytes.len(),
            at_ns: at_ns.max(self.span_ns()),
            direction,
        });
        self.sent[direction as usize] += 1;
    }

    /// Frames.
    pub fn len(&self) -> usize {
        self.marks.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    /// Bytes of all frames, without FCS.
    pub fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Frames of a direction.
    pub fn sent(&self, direction: Direction) -> u64 {
        self.sent[direction as usize]
    }

    /// When the last one leaves.
    pub fn span_ns(&self) -> u64 {
        self.marks.last().map_or(0, |mark| mark.at_ns)
    }

    /// A number that other frames do not have, nor the same ones from other sides.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Where and when a frame leaves.
    pub(crate) fn mark(&self, index: usize) -> (Direction, u64) {
        let mark = self.marks[index];
        (mark.direction, mark.at_ns)
    }

    /// A frame, complete but for the FCS.
    pub fn frame(&self, index: usize) -> &[u8] {
        let begin = index.checked_sub(1).map_or(0, |last| self.marks[last].end);
        &self.bytes[begin..self.marks[index].end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_in_order_and_from_their_sides() {
        let mut tape = Tape::default();
        assert!(tape.is_empty());
        tape.push(Direction::Forward, 0, 0x0800, &[1; 20]);
        let first = tape.digest();
        tape.push(Direction::Reply, 50, 0x86dd, &[2; 40]);
        tape.push(Direction::Forward, 20, 0x0800, &[3; 90]);
        // short ones are padded
        assert_eq!((tape.len(), tape.bytes(), tape.span_ns()), (3, 224, 50));
        assert_eq!(
            (tape.sent(Direction::Forward), tape.sent(Direction::Reply)),
            (2, 1)
        );
        assert_eq!(tape.frame(0)[..6], MAC_LAN);
        assert_eq!(tape.frame(1)[6..14], [2, 0, 0, 0, 2, 2, 0x86, 0xdd]);
        assert_eq!(tape.frame(2)[14..], [3; 90]);
        // time does not go back
        assert_eq!(tape.mark(2), (Direction::Forward, 50));
        let mut other = Tape::default();
        other.push(Direction::Reply, 0, 0x0800, &[1; 20]);
        assert_ne!(other.digest(), first);
    }
}
