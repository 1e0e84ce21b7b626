// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames of which some bits are known.

use std::ops::Range;

/// What frames have in common: octets, and which bits of them are known. Nothing is known of what comes behind, nor how long
/// the frames are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sketch {
    octets: Vec<u8>,
    known: Vec<u8>,
}

impl Sketch {
    /// Octets that are known.
    pub fn put(&mut self, octets: &[u8]) {
        self.octets.extend_from_slice(octets);
        self.known.resize(self.octets.len(), 0xff);
    }

    /// An octet of which the bits of `known` are.
    pub fn put_bits(&mut self, octet: u8, known: u8) {
        self.octets.push(octet & known);
        self.known.push(known);
    }

    /// So many octets of which nothing is known.
    pub fn skip(&mut self, count: usize) {
        self.octets.resize(self.octets.len() + count, 0);
        self.known.resize(self.octets.len(), 0);
    }

    /// The same with others in the place of a part of it, or of what of that is there.
    #[must_use]
    pub fn with(&self, place: Range<usize>, others: &Self) -> Self {
        let joined = |own: &[u8], others: &[u8]| {
            let (start, end) = (place.start.min(own.len()), place.end.min(own.len()));
            [&own[..start], others, &own[end..]].concat()
        };
        Self {
            octets: joined(&self.octets, &others.octets),
            known: joined(&self.known, &others.known),
        }
    }

    /// Two octets in network byte order, if all of them is known.
    pub fn word_at(&self, at: usize) -> Option<u16> {
        let known = self.known.get(at..at + 2)?;
        let octets = self.octets.get(at..at + 2)?;
        (known == [0xff; 2]).then(|| u16::from_be_bytes([octets[0], octets[1]]))
    }

    pub(super) fn octets(&self) -> &[u8] {
        &self.octets
    }

    pub(super) fn known(&self) -> &[u8] {
        &self.known
    }
}
